from typing import Any

from mcp_types import CallToolResult, ElicitRequest, ElicitRequestFormParams, ListToolsResult, TextContent, Tool

from turnwise import Context, InputRequiredResult, InvalidParams, MCPServer

server = MCPServer("relay")

REGION = {"type": "object", "properties": {"region": {"type": "string"}}, "required": ["region"]}


@server.handler("tools/list")
async def list_tools(ctx: Context, params: dict[str, Any]) -> ListToolsResult:
    return ListToolsResult(tools=[Tool(name="deploy", input_schema={"type": "object"})])


@server.handler("tools/call")
async def call_tool(ctx: Context, params: dict[str, Any]) -> CallToolResult | InputRequiredResult:
    if params["name"] != "deploy":
        raise InvalidParams(f"Unknown tool: {params['name']}")
    answer = (ctx.input_responses or {}).get("region")
    if answer is None:
        form = ElicitRequestFormParams(message="Where?", requested_schema=REGION)
        return InputRequiredResult(input_requests={"region": ElicitRequest(params=form)}, request_state="asked")
    return CallToolResult(content=[TextContent(type="text", text=f"Deployed to {answer.content['region']}.")])


@server.handler("com.example/ping")
async def ping(ctx: Context, params: dict[str, Any]) -> dict[str, Any]:
    return {"pong": params.get("payload")}
