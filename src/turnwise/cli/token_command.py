"""`turnwise token show`: what a state says, for those who have its key."""

import json
import sys
import time
from typing import Annotated, Any

import typer

from .._json import decode
from .._ledger import ACCEPTED, ANSWER, CHECKPOINT, CLOCK, FAILURE, MARKER, RAW, SPILLED, STEP, Ledger
from .._sealed import CLAIMS, RequestStateSecurity
from ..dialects.tasking import moment
from ..errors import InvalidRequestState
from .key_options import key_source
from .keys import NoKeys
from .showing import as_json, fail, legible

token = typer.Typer(no_args_is_help=True, help="Look into states.")

KINDS = {
    ANSWER: "answer",
    ACCEPTED: "answer",
    RAW: "answer, unread",
    STEP: "step",
    FAILURE: "failed step",
    CLOCK: "time",
    MARKER: "marker",
    SPILLED: "in the store",
}


@token.callback()
def main() -> None:
    """Look into states."""


@token.command()
def show(
    state: Annotated[str, typer.Argument(help="A requestState; - reads it from standard input.", metavar="STATE")],
    keys_file: Annotated[str | None, typer.Option(help="A file with one key a line.")] = None,
    keys_env: Annotated[str | None, typer.Option(help="A variable with keys between commas.")] = None,
    is_json: Annotated[bool, typer.Option("--json", help="JSON, for scripts.")] = False,
) -> None:
    """Open a state with your key: for which call it is, until when, and what is settled. It holds what people said."""
    source = key_source(keys_file, keys_env)
    if not source:
        raise typer.BadParameter("give --keys-file or --keys-env")
    try:
        security = RequestStateSecurity(keys=source.read())
        facts = _facts(security, sys.stdin.read().strip() if state == "-" else state)
    except (NoKeys, InvalidRequestState) as error:
        fail(str(error))
    if is_json:
        typer.echo(as_json(facts))
        return
    for name, value in facts.items():
        if not isinstance(value, list):
            typer.echo(legible(f"{name:>10}  {value}"))
    for entry in facts["settled"]:
        typer.echo(legible(f"{'settled':>10}  {entry['key']} ({entry['kind']}): {json.dumps(entry['value'])}"))


def _facts(security: RequestStateSecurity, state: str) -> dict[str, Any]:
    payload = security.opened(state)
    try:
        body = decode(payload)
        (expires, *claims), lineage = body["c"], bytes.fromhex(body["l"])
    except (ValueError, KeyError, TypeError):
        raise InvalidRequestState("the payload has another format") from None
    ledger = Ledger.decode(lineage, body["g"])
    left = expires - time.time()
    return {
        **dict(zip(CLAIMS, claims, strict=False)),
        "expires": f"{moment(expires)} ({'over' if left <= 0 else f'in {left:.0f} s'})",
        "flow": ledger.derive("flow").hex()[:32],
        "rounds": ledger.sequence,
        "began": moment(ledger.started),
        "version": ledger.version,
        "sheds": ledger.sheds,
        "asks": ", ".join(ledger.asked) or None,
        "bytes": len(state),
        "settled": [
            {
                "key": key,
                "kind": "checkpoint" if key == CHECKPOINT else KINDS.get(entry.kind, entry.kind),
                "value": entry.answer,
            }
            for key, entry in ledger.entries.items()
        ],
    }
