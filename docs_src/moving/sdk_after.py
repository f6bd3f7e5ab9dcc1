from pydantic import BaseModel

from turnwise import Context, MCPServer

mcp = MCPServer("bank")


class Account(BaseModel):
    account: str


class Sure(BaseModel):
    sure: bool


@mcp.tool(structured_output=False)
async def transfer(amount: int, ctx: Context) -> str:
    """Transfer money."""
    chosen = await ctx.elicit("From which account?", Account, key="account")
    if chosen.action != "accept":
        return "Nothing was transferred."
    answer = await ctx.elicit(f"Transfer {amount} from {chosen.data.account}?", Sure, key="sure")
    if answer.action != "accept" or not answer.data.sure:
        return "Nothing was transferred."
    return f"{amount} transferred from {chosen.data.account}."


@mcp.prompt()
def complain(about: str) -> str:
    """A letter to the bank."""
    return f"Write a letter of complaint about {about}."


@mcp.resource("bank://{account}/balance")
def balance(account: str) -> str:
    """What is in an account."""
    return f"{account} has 100."


if __name__ == "__main__":
    mcp.run()
