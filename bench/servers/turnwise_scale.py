"""Turnwise with flows of many lengths, and a tool whose arguments can be long; served by `server.run("http")`."""

from bench.replay.legs import LENGTHS
from bench.replay.turnwise_legs import Answer, add_interview, server
from bench.scale.axes import LONGEST, ROUNDS
from bench.scale.talks import SIGNER, signed
from bench.servers.serving import arguments
from turnwise import AcceptedElicitation, Context, ToolError


@server.tool()
async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


@server.tool(structured_output=False)
async def sign(lines: list[str], ctx: Context) -> str:
    """Have some lines signed."""
    answer = await ctx.elicit(SIGNER, Answer, key="signer")
    if not isinstance(answer, AcceptedElicitation):
        raise ToolError("Nobody signs")
    return signed(lines, answer.data.value)


for length in {*ROUNDS, LONGEST}.difference(LENGTHS):
    add_interview(length, named=True)

if __name__ == "__main__":
    server.run("http", port=arguments().parse_args().port, log_level="warning")
