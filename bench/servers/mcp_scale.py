"""The official SDK, declared form, with flows of many lengths, and a tool whose arguments can be long.

Served as `pip install mcp` leaves it, with the same settings as the other rows of it.
"""

from typing import Annotated

from mcp.server.mcpserver import Elicit, Resolve

from bench.replay.legs import LENGTHS
from bench.replay.mcp_legs import Answer, add_interview, server
from bench.scale.axes import LONGEST, ROUNDS
from bench.scale.talks import SIGNER, signed
from bench.servers.serving import arguments, serve


async def ask_signer() -> Elicit[Answer]:
    return Elicit(SIGNER, Answer)


@server.tool()
async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


@server.tool(structured_output=False)
async def sign(lines: list[str], signer: Annotated[Answer, Resolve(ask_signer)]) -> str:
    """Have some lines signed."""
    return signed(lines, signer.value)


for length in {*ROUNDS, LONGEST}.difference(LENGTHS):
    add_interview(length)

if __name__ == "__main__":
    app = server.streamable_http_app(stateless_http=True, json_response=True)
    serve(app, arguments().parse_args().port, fast=False)
