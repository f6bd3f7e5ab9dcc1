import os

from turnwise import Budget, Context, MCPServer, RequestStateSecurity

KIB = 1024
budget = Budget(
    rounds=8,
    deadline=24 * 3600,
    warn_bytes=2 * KIB,
    max_bytes=16 * KIB,
)
security = RequestStateSecurity(keys=[os.urandom(32)], ttl=15 * 60)
server = MCPServer("papers", request_state_security=security, budget=budget)


def fetch(kib: int) -> str:
    return os.urandom(kib * KIB // 2).hex()


@server.tool()
async def summarize(kib: int, ctx: Context) -> str:
    """A step that returns a whole document, so that the token has to carry it."""
    paper = await ctx.step(fetch, kib)
    await ctx.elicit("In one sentence?", bool, key="short")
    return f"{len(paper)} characters"


@server.tool()
async def guess(ctx: Context) -> str:
    """Asks until it is right."""
    guesses = 0
    while True:
        guesses += 1
        answer = await ctx.elicit("Which number?", int, key="number")
        if answer.action != "accept" or answer.data == 42:
            return f"{guesses} guesses"
