"""`turnwise call --inbox`: what a call asks is answered by people at an inbox."""

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

import typer

from .._messages import Done
from ..client import Client
from .showing import as_json, legible, note


class HandingOver(NamedTuple):
    """The inbox that questions go to, and whether the call is left there."""

    url: str
    token: str | None
    authorization: str | None
    leaves: bool

    @property
    def options(self) -> dict[str, Any]:
        """What the client is told."""
        return {"inbox": self.url, "inbox_token": self.token, "inbox_authorization": self.authorization}

    async def called(
        self, client: Client, tool: str, arguments: Mapping[str, Any], seconds: float | None, *, is_json: bool
    ) -> Any:
        """The result of a call, or None where it was left in the inbox."""
        outcome = await client.begin(tool, arguments, deadline=seconds)
        if isinstance(outcome, Done):
            return outcome.result
        item = await client.hand_over(outcome)
        if self.leaves:
            typer.echo(as_json({"item": item.id, "url": item.url}) if is_json else legible(f"{item.id} {item.url}"))
            return None
        note(f"It waits for answers at {legible(item.url)}", "dim")
        return await client.wait_for(item, deadline=seconds)


def handing_over(
    url: str | None, token_env: str | None, authorization_env: str | None, *, leaves: bool
) -> HandingOver | None:
    """What the options of a command say; None where no inbox is named."""
    if url is None:
        if token_env is not None or authorization_env is not None or leaves:
            raise typer.BadParameter("--inbox-token-env, --inbox-authorization-env and --leave belong to --inbox")
        return None
    token = variable("--inbox-token-env", token_env)
    return HandingOver(url, token, variable("--inbox-authorization-env", authorization_env), leaves)


def variable(option: str, name: str | None) -> str | None:
    """What a variable holds. Its name is not repeated, for it may be the secret itself, given by mistake."""
    if name is None:
        return None
    if not (text := os.environ.get(name, "").strip()):
        raise typer.BadParameter(f"there is no variable of the name that {option} gives")
    return text
