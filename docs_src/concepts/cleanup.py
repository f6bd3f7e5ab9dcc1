from collections.abc import Iterator
from contextlib import contextmanager

from turnwise import Context, MCPServer

server = MCPServer("ledger")
events: list[str] = []


@contextmanager
def transaction() -> Iterator[None]:
    try:
        yield
    except BaseException:
        events.append("rolled back")
        raise
    events.append("committed")


@server.tool()
async def transfer(ctx: Context) -> str:
    """A round that ends at a question leaves the block with an exception."""
    with transaction():
        answer = await ctx.elicit("Transfer?", bool)
    return answer.action
