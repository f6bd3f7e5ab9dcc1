from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult

from turnwise import Context, InputRequiredResult, MCPServer

server = MCPServer("parcels")

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}


@server.tool()
async def send(parcel: str, ctx: Context) -> str | InputRequiredResult:
    """Send a parcel."""
    answer = (ctx.input_responses or {}).get("city")
    if not isinstance(answer, ElicitResult):
        params = ElicitRequestFormParams(message=f"Where should {parcel} go?", requested_schema=CITY)
        return InputRequiredResult(input_requests={"city": ElicitRequest(params=params)}, request_state="weighed: 3 kg")
    if answer.action != "accept" or not answer.content:
        return f"{parcel} stays here."
    return f"{parcel} goes to {answer.content['city']} ({ctx.request_state})."
