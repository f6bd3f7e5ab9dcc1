from turnwise import Context, MCPServer

server = MCPServer("tickets")
paid: set[str] = set()  # Stands for the table that your payment page writes to.


@server.tool()
async def buy(event: str, ctx: Context) -> str:
    """Buy a ticket; it is paid for in the browser."""
    payment = str(ctx.uuid())
    while payment not in paid:
        answer = await ctx.elicit_url(f"Pay for {event}", f"https://pay.example.com/{payment}")
        if answer.action != "accept":
            return "No ticket was bought."
    return f"One ticket for {event}."
