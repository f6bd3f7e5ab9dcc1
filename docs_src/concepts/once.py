import sqlite3

from turnwise import Context, MCPServer, ToolError

server = MCPServer("vouchers")
table = sqlite3.connect(":memory:", check_same_thread=False)
table.execute("CREATE TABLE redeemed (voucher TEXT PRIMARY KEY, flow TEXT)")


@server.tool()
async def redeem(voucher: str, ctx: Context) -> str:
    """Redeem a voucher. The table decides, not the token."""
    answer = await ctx.elicit(f"Redeem {voucher} now?", bool)
    if answer.action != "accept" or not answer.data:
        return "Not redeemed."
    with table:
        table.execute("INSERT OR IGNORE INTO redeemed VALUES (?, ?)", (voucher, ctx.flow_id))
    (flow,) = table.execute("SELECT flow FROM redeemed WHERE voucher = ?", (voucher,)).fetchone()
    if flow != ctx.flow_id:
        raise ToolError(f"{voucher} was redeemed before.")
    return f"{voucher} is redeemed."
