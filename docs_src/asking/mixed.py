from typing import Annotated

from mcp_types import ElicitRequest, ElicitRequestFormParams

from turnwise import Context, Elicit, InputRequiredResult, MCPServer, Resolve

server = MCPServer("parcels")

SIGNATURE = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def ask_city(parcel: str) -> Elicit[str]:
    return Elicit(f"To which city does {parcel} go?", str)


@server.tool()
async def send(parcel: str, city: Annotated[str, Resolve(ask_city)], ctx: Context) -> str | InputRequiredResult:
    """Send a parcel: where to is declared, insurance is asked inline, the signature is returned."""
    insured = await ctx.elicit(f"Insure it on the way to {city}?", bool)
    if ctx.input_responses is None:
        params = ElicitRequestFormParams(message="Please sign", requested_schema=SIGNATURE)
        return InputRequiredResult(input_requests={"signature": ElicitRequest(params=params)})
    signed = ctx.input_responses["signature"].action == "accept"
    return f"{city}, insured: {insured.action == 'accept' and insured.data}, signed: {signed}."
