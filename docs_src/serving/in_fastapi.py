from fastapi import FastAPI

from turnwise import MCPServer

server = MCPServer("clock")


@server.tool()
def tick() -> str:
    """Say tick."""
    return "tick"


app = FastAPI()


@app.get("/health")
def health() -> str:
    return "well"


app.mount("/tools", server.asgi(path="/mcp"))
