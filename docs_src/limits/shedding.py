import os

from turnwise import Context, Load, MCPServer, Overload, RequestStateSecurity

security = RequestStateSecurity(keys=[os.urandom(32)])
server = MCPServer("reports", request_state_security=security, shed_when=Overload(in_flight=200, lag=0.25))


def by_lag_alone(load: Load) -> bool:
    """A policy of one's own is a function of the load."""
    return load.lag > 1.0


async def read_chapter(chapter: int) -> int:
    return 1000 + chapter


@server.tool()
async def count_words(chapters: int, ctx: Context) -> int:
    """A long call: after each step it may move to an instance that has less to do."""
    return sum([await ctx.step(read_chapter, chapter, name=f"chapter {chapter}") for chapter in range(chapters)])
