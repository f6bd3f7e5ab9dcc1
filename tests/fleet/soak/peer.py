"""The same shop on the official SDK, for comparison: `order` by returning its questions (2026-07-28), `order_live` by
sending them on the stream of the call (2025-11-25 and before). The SDK has no guards: a payment is just made.

`python -m tests.fleet.soak.peer PORT [stateless]` serves it under the uvicorn that Turnwise is served by.
"""

import asyncio
import json
import os
import sys
from pathlib import Path
from typing import Any

import uvicorn
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.server.mcpserver import Context, MCPServer, RequestStateSecurity
from mcp_types import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequiredResult,
    ListRootsRequest,
    ListRootsResult,
    SamplingMessage,
    TextContent,
)
from pydantic import AnyHttpUrl, BaseModel

from tests.fleet.soak.names import ISSUER, user_of

PLACE, URL = Path(os.environ["PLACE"]), os.environ["URL"]
SPELL = float(os.environ["SPELL"])


class Answer(BaseModel):
    value: str


FORM = Answer.model_json_schema()


class Tokens:
    """The same bearer tokens."""

    async def verify_token(self, token: str) -> AccessToken | None:
        user = user_of(token)
        if user is None:
            return None
        return AccessToken(token=token, client_id="soak", scopes=[], resource=URL, subject=user, claims={"iss": ISSUER})


server: MCPServer[Any] = MCPServer(
    "shop",
    log_level="ERROR",
    token_verifier=Tokens(),
    auth=AuthSettings(issuer_url=AnyHttpUrl(ISSUER), resource_server_url=AnyHttpUrl(URL)),
    request_state_security=RequestStateSecurity(keys=[os.environ["KEY"]], ttl=float(os.environ["TTL"])),
)


async def charge(marker: str) -> str:
    await asyncio.sleep(SPELL)
    file = os.open(PLACE / "effects.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(file, json.dumps([os.getpid(), "charge", marker, payer(), ""]).encode() + b"\n")
    os.close(file)
    await asyncio.sleep(SPELL)
    return f"receipt of {marker}"


def payer() -> str:
    token = get_access_token()
    return "" if token is None else str(token.subject)


def told(marker: str, state: dict[str, Any]) -> str:
    facts = {
        "marker": marker,
        "payer": payer(),
        "place": f"place of {marker}",
        "receipt": state["receipt"],
        "wrapped": f"{marker} in {state['colour']}",
        "words": state["motto"],
        "folders": state["folders"],
    }
    return json.dumps(facts)


@server.tool(structured_output=False)
async def order(marker: str, ctx: Context[Any, Any]) -> str | InputRequiredResult:
    """Order something: what was answered and done so far is in the state."""
    state: dict[str, Any] = json.loads(ctx.request_state) if ctx.request_state else {}
    match ctx.input_responses:
        case {"colour": ElicitResult(content={"value": str(colour)})} if "colour" not in state:
            state |= {"colour": colour, "receipt": await charge(marker)}
        case {"motto": CreateMessageResult(content=TextContent(text=motto))} if "colour" in state:
            state |= {"motto": motto}
        case {"folders": ListRootsResult(roots=roots)} if "motto" in state:
            state |= {"folders": [str(root.uri) for root in roots]}
    if "folders" in state:
        return told(marker, state)
    return InputRequiredResult(input_requests=questions(marker, state), request_state=json.dumps(state))


def questions(marker: str, state: dict[str, Any]) -> dict[str, Any]:
    """The next one."""
    if "colour" not in state:
        form = ElicitRequestFormParams(message=f"Which colour for {marker}?", requested_schema=FORM)
        return {"colour": ElicitRequest(params=form)}
    if "motto" not in state:
        return {
            "motto": CreateMessageRequest(params=CreateMessageRequestParams(messages=prompt(marker), max_tokens=20))
        }
    return {"folders": ListRootsRequest()}


def prompt(marker: str) -> list[SamplingMessage]:
    return [SamplingMessage(role="user", content=TextContent(type="text", text=f"A motto for {marker}?"))]


@server.tool(structured_output=False)
async def order_live(marker: str, ctx: Context[Any, Any]) -> str:
    """Order something: the call waits while it asks."""
    number = ctx.request_context.request_id
    answer = await ctx.elicit(f"Which colour for {marker}?", Answer)
    state: dict[str, Any] = {"colour": answer.data.value if answer.action == "accept" else ""}
    state["receipt"] = await charge(marker)
    motto = await ctx.session.create_message(prompt(marker), max_tokens=20, related_request_id=number)
    state["motto"] = motto.content.text if isinstance(motto.content, TextContent) else ""
    state["folders"] = [str(root.uri) for root in (await ctx.session.list_roots()).roots]
    return told(marker, state)


if __name__ == "__main__":
    is_stateless = "stateless" in sys.argv
    app = server.streamable_http_app(stateless_http=is_stateless, json_response=is_stateless, max_sessions=None)
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), access_log=False, log_level="error", ws="none")
