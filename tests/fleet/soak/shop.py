"""What both versions of the shop have: who may call, what a payment is, and what an order tells in the end.

Everything that a process has to know is in its environment. `BREAK` names something to get wrong on purpose, so that it
can be seen that somebody notices.
"""

import asyncio
import json
import os
import secrets
from pathlib import Path
from typing import Any

from tests.fleet.soak.names import ISSUER, user_of
from turnwise import (
    AccessToken,
    AuthSettings,
    Budget,
    Context,
    EffectUnknown,
    MCPServer,
    RequestStateSecurity,
    SQLiteStore,
    ToolError,
)

PLACE, URL = Path(os.environ["PLACE"]), os.environ["URL"]
BREAK = os.environ.get("BREAK", "")
SPELL = float(os.environ["SPELL"])
"""Seconds before and after a payment is noted, in which a process may die."""
ATTEMPTS = 3
_seen: list[str] = []


class Tokens:
    """Bearer tokens with the name of their user in them."""

    async def verify_token(self, token: str) -> AccessToken | None:
        user = user_of(token)
        if user is None:
            return None
        return AccessToken(token, "soak", resource=URL, subject=user, issuer=ISSUER)


def make_server() -> MCPServer[None]:
    """A server whose own key is good for nothing: those that it works with come from `--keys-file`."""
    options: dict[str, Any] = {"bind_principal": None} if BREAK == "principal" else {}
    security = RequestStateSecurity(keys=[secrets.token_bytes(32)], ttl=float(os.environ["TTL"]), **options)
    return MCPServer(
        "shop",
        request_state_security=security,
        token_verifier=Tokens(),
        auth=AuthSettings(issuer_url=ISSUER, resource_server_url=URL),
        store=SQLiteStore(PLACE / "guards.db"),
        budget=Budget(patience=float(os.environ["PATIENCE"])),
    )


def note(*facts: Any) -> None:
    """Write a line that survives the process: one write, at the end of a file that all processes share."""
    file = os.open(PLACE / "effects.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    try:
        os.write(file, json.dumps([os.getpid(), *facts]).encode() + b"\n")
    finally:
        os.close(file)


async def reserve(marker: str) -> str:
    return f"place of {marker}"


async def wrap(marker: str, colour: str) -> str:
    return f"{marker} in {colour}"


async def charge(marker: str, payer: str, key: str) -> str:
    """The effect that must not happen twice. The service knows nothing of keys that it has seen before."""
    await asyncio.sleep(SPELL)
    note("charge", marker, payer, key)
    await asyncio.sleep(SPELL)
    return f"receipt of {marker}"


async def look_up(marker: str, key: str) -> str | None:
    """Ask the service whether a payment with this key was made."""
    lines = (PLACE / "effects.log").read_text().splitlines() if (PLACE / "effects.log").exists() else []
    found = any(json.loads(line)[1:3] == ["charge", marker] and json.loads(line)[4] == key for line in lines)
    note("found" if found else "missed", marker)
    return f"receipt of {marker}" if found else None


async def pay(ctx: Context, marker: str) -> str:
    """Pay once. Where a process died in it, the service is asked; what it does not know of was never done, because
    `Budget.patience` is longer than a payment can take.
    """
    key = ctx.idempotency_key("charge")
    for attempt in range(1, ATTEMPTS + 1):
        try:
            return await ctx.step(charge, marker, payer(ctx), key, once=BREAK != "guard", name=f"charge {attempt}")
        except EffectUnknown:
            receipt = await ctx.step(look_up, marker, key, name=f"look up {attempt}")
            if receipt is not None:
                return receipt
    raise ToolError("Nobody knows whether this was paid.")


def payer(ctx: Context) -> str:
    return str(ctx.access_token.subject)


async def colour_of(ctx: Context, marker: str) -> str:
    answer = await ctx.elicit(f"Which colour for {marker}?", str, key="colour")
    if answer.action != "accept":
        raise ToolError("No colour, no order.")
    _seen.append(answer.data)
    return _seen[0] if BREAK == "mix" else answer.data


def told(ctx: Context, marker: str, version: str, **facts: Any) -> str:
    """All that the order knows, for the one who ordered to compare."""
    return json.dumps({"marker": marker, "payer": payer(ctx), "began": ctx.flow_version, "ended": version, **facts})
