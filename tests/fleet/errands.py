"""A server whose tasks are two steps with two questions between them. What it does is noted in a file, and where a fate
lies in wait for it, it is killed or stopped.

`turnwise worker errands.py:server` plays its tasks; `python errands.py PORT` serves them and plays none.
"""

import asyncio
import json
import os
import secrets
import signal
import sys
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from turnwise import Context, Elicit, MCPServer, RequestStateSecurity, SQLiteTaskStore, TaskOptions
from turnwise.auth import AccessToken, AuthSettings
from turnwise.tasks.model import Claim

PLACE = Path(os.environ["PLACE"])
FATES = {"kill": signal.SIGKILL, "stop": signal.SIGSTOP}
ABOUT: ContextVar[int] = ContextVar("ABOUT")


def note(*facts: Any) -> None:
    """One line, in one write: processes that die leave no half of one."""
    with open(PLACE / "effects.log", "a") as log:
        log.write(json.dumps([os.getpid(), *facts]) + "\n")


def meet_fate(moment: str, number: int | str) -> None:
    """A fate is a file. Who takes it away, meets it."""
    for name, end in FATES.items():
        with suppress(FileNotFoundError):
            (PLACE / "fates" / f"{name} {moment} {number}").unlink()
            note(name, moment, number)
            with ExitStack() as stack:
                # A process that is stopped with SQLite's file locked keeps everybody from it, and not only its legs.
                if end == signal.SIGSTOP and isinstance(store, SQLiteTaskStore):
                    stack.enter_context(store._database._lock)
                os.kill(os.getpid(), end)


class Fated:
    """A store at which there are moments to die."""

    async def claim(self, *arguments: Any) -> Claim | None:
        claim: Claim | None = await super().claim(*arguments)  # type: ignore[misc] # a store's
        if claim is not None:
            meet_fate("with a claim for", claim.tool)
        return claim

    async def append(self, claim: Claim, entries: Sequence[tuple[str, bytes]], until: float) -> bool:
        is_cancelling: bool = await super().append(claim, entries, until)  # type: ignore[misc] # a store's
        for key, _ in entries:
            note("kept", key, ABOUT.get())
            meet_fate(f"having kept {key}", ABOUT.get())
        return is_cancelling


class FatedFile(Fated, SQLiteTaskStore):
    """Tasks in a file."""


def open_store() -> Any:
    if os.environ["STORE"] == "file":
        return FatedFile(PLACE / "tasks.db")
    from turnwise.tasks.postgres import PostgresTaskStore

    class FatedPostgres(Fated, PostgresTaskStore):
        """Tasks in PostgreSQL."""

    return FatedPostgres(os.environ["ADDRESS"], prefix=os.environ["PREFIX"], pool_size=4)


def open_dispatcher() -> Any:
    if os.environ["STORE"] != "pgqueuer":
        return None
    from turnwise.tasks.pgqueuer import PgQueuerDispatcher

    return PgQueuerDispatcher()


class Names:
    """A token is the name of who has it."""

    async def verify_token(self, token: str) -> AccessToken | None:
        return AccessToken(token, client_id=token)


store = open_store()
server: MCPServer[Any] = MCPServer(
    "errands",
    request_state_security=RequestStateSecurity(keys=[os.environ["KEY"]]),
    token_verifier=Names(),
    auth=AuthSettings(
        resource_server_url="https://errands.example/mcp",
        issuer_url="https://issuer.example",
        validate_token_resource=False,
    ),
    tasks=TaskOptions(
        store=store,
        dispatcher=open_dispatcher(),
        poll=0.05,
        lease=float(os.environ["LEASE"]),
        grace=float(os.environ["GRACE"]),
        workers=0,
    ),
)


async def happen(step: str, number: int, key: str) -> str:
    """An effect in the world. It gives something else every time that it happens."""
    receipt = f"{step}-{secrets.token_hex(6)}"
    note("began", step, number, key)
    await asyncio.sleep(0.01)
    while True:
        if not (PLACE / f"hold {step} {number}").exists():
            break
        await asyncio.sleep(0.02)
    meet_fate(f"in {step}", number)
    note("did", step, number, key, receipt)
    return receipt


async def pack(number: int, key: str) -> str:
    return await happen("pack", number, key)


async def send(number: int, key: str, packed: str) -> str:
    return await happen("send", number, key)


@server.tool(task="always", structured_output=False)
async def errand(number: int, ctx: Context) -> str:
    """Pack something, ask where it goes, and send it."""
    ABOUT.set(number)
    packed = await ctx.step(pack, number, ctx.idempotency_key("pack"))
    await ctx.report(f"{packed} is packed")
    asked = await ctx.ask_all(
        street=Elicit(f"To which street goes {packed}?", str), town=Elicit(f"To which town goes {packed}?", str)
    )
    sent = await ctx.step(send, number, ctx.idempotency_key("send"), packed)
    return json.dumps([packed, asked["street"].data, asked["town"].data, sent])


if __name__ == "__main__":
    server.run("http", port=int(sys.argv[1]), log_level="warning")
