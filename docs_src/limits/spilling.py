import os

from turnwise import Budget, Context, MCPServer, RequestStateSecurity, SQLiteStore

KIB = 1024
server = MCPServer(
    "papers",
    request_state_security=RequestStateSecurity(keys=[os.urandom(32)]),
    store=SQLiteStore("flows.db"),
    budget=Budget(spill_bytes=4 * KIB),
)


def fetch(kib: int) -> str:
    return os.urandom(kib * KIB // 2).hex()


@server.tool()
async def summarize(kib: int, ctx: Context) -> str:
    """The document waits in the store; the token has its name."""
    paper = await ctx.step(fetch, kib)
    await ctx.elicit("In one sentence?", bool, key="short")
    return f"{len(paper)} characters"
