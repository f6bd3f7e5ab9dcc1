from turnwise import MCPServer

server = MCPServer("printer")

PAGES = {
    "type": "object",
    "properties": {"pages": {"type": "string", "pattern": "^[0-9]+(-[0-9]+)?$"}},
    "required": ["pages"],
}


@server.tool(input_schema=PAGES)
def print_pages(pages: str) -> str:
    """Print some pages."""
    return f"printing {pages}"
