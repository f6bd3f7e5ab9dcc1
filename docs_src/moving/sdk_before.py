from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ElicitRequest, ElicitRequestFormParams, ElicitResult, InputRequiredResult

mcp = MCPServer("bank")

ACCOUNT = {"type": "object", "properties": {"account": {"type": "string"}}, "required": ["account"]}
SURE = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"]}


def ask(key: str, message: str, form: dict[str, Any], state: str) -> InputRequiredResult:
    request = ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=form))
    return InputRequiredResult(input_requests={key: request}, request_state=state)


@mcp.tool(structured_output=False)
async def transfer(amount: int, ctx: Context) -> str | InputRequiredResult:
    """Transfer money."""
    step, _, account = (ctx.request_state or "").partition(":")
    answer = (ctx.input_responses or {}).get(step)
    if not isinstance(answer, ElicitResult):
        return ask("account", "From which account?", ACCOUNT, "account:")
    if answer.action != "accept" or answer.content is None:
        return "Nothing was transferred."
    if step == "account":
        account = str(answer.content["account"])
        return ask("sure", f"Transfer {amount} from {account}?", SURE, f"sure:{account}")
    if not answer.content["sure"]:
        return "Nothing was transferred."
    return f"{amount} transferred from {account}."


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
