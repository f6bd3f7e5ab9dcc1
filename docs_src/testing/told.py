import asyncio

from turnwise import AccessToken, Context, MCPServer
from turnwise.testing import LOG_LEVEL, connect

server = MCPServer("reports")


@server.tool()
async def build(ctx: Context) -> str:
    """Build a report for whoever is calling."""
    await ctx.report_progress(1, total=2, message="half of it")
    await ctx.info("building")
    return f"A report for {ctx.access_token.subject}."


async def check() -> None:
    alice = AccessToken("secret", "cli", subject="alice")
    async with connect(server, access=alice) as client:
        result = await client.call_tool("build", {}, progressToken="p", **{LOG_LEVEL: "info"})
        assert result.structured_content == {"result": "A report for alice."}
        methods = [notification["method"] for notification in client.notifications]
        assert methods == ["notifications/progress", "notifications/message"]


def test_what_is_told_on_the_way() -> None:
    asyncio.run(check())
