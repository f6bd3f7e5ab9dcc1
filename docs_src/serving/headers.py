from typing import Annotated

from pydantic import Field

from turnwise import MCPServer

server = MCPServer("database")

Region = Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]


@server.tool()
def query(sql: str, region: Region) -> str:
    """Run a query in a region."""
    return f"{sql} in {region}"
