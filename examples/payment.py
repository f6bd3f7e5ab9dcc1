"""`turnwise call examples/payment.py pay cents=1200`: a charge that happens once, whatever is lost on the way."""

import os
import secrets
import sys
from pathlib import Path

from turnwise import Context, MCPServer, RequestStateSecurity, SQLiteStore, ToolError

# All instances are given the same key, the same store, and the same bank.
security = RequestStateSecurity(keys=[os.environ.get("PAYMENT_KEY") or secrets.token_urlsafe(32)])
store = SQLiteStore(os.environ.get("PAYMENT_STORE", ":memory:"))
server = MCPServer("payments", request_state_security=security, store=store)


def charge(cents: int, card: str) -> str:
    """The payment service. It charges as often as it is called: that it is called once is for the store to see to."""
    with Path(os.environ.get("PAYMENT_BANK", os.devnull)).open("a") as bank:
        bank.write(f"{card} {cents}\n")
    return f"R-{secrets.token_hex(3)}"


@server.tool(effects=True)
async def pay(cents: int, ctx: Context) -> str:
    """Pay, and get a receipt."""
    card = await ctx.elicit(f"Pay {cents / 100:.2f} with the card that ends in", str, key="card")
    if card.action != "accept":
        raise ToolError("nothing was paid")
    # In the ledger, the receipt is known to all later rounds. With once=True, an older token that comes again (a reply
    # was lost, a client tries anew) finds it in the store too.
    receipt = await ctx.step(charge, cents, card.data, once=True)
    mail = await ctx.elicit("Where does the receipt go?", str, key="mail")
    sent = f", sent to {mail.data}" if mail.action == "accept" else ""
    return f"Paid {cents / 100:.2f}, receipt {receipt}{sent}."


if __name__ == "__main__":
    server.run("http", port=int(sys.argv[1]) if len(sys.argv) > 1 else 8000)
