"""How an item halts and goes on again: its server no longer takes its state, or does not take its credentials.

Nothing that was answered is lost. What might do its work twice is begun by somebody who says so.
"""

from dataclasses import replace

from .._driver import Given
from .model import Item, Status

LAPSED = (
    "the server no longer takes the state of this call: it was answered too late, or the server has forgotten its key. "
    "Nothing was begun anew; the answers are kept"
)


def lapsed(item: Item, now: float) -> Item:
    """An item whose server no longer takes its state: at its end, with all that is needed to begin it anew."""
    pending = item.pending
    own = tuple(Given(key, pending.requests[key], answer) for key, answer in pending.answers.items())
    ended = item.ended("expired", now, error=LAPSED)
    quiet = replace(ended.pending, reusable=(*pending.given, *own, *pending.reusable))
    return replace(ended, pending=quiet, authorization=item.authorization, may_restart=True)


def restarted(item: Item, by: str | None, now: float) -> Item:
    """The same, begun anew by somebody, or by itself: what was answered is used again where the same is asked."""
    pending = replace(item.pending, round=0)
    whose = "" if by is None else f" by {by}"
    return replace(
        item,
        status="going",
        pending=pending,
        error=None,
        may_restart=False,
        restarted=now,
        restarted_by=by,
        note=f"Begun anew{whose}, because the server no longer took its state.",
        tries=0,
        changed=now,
        due=now,
    )


def is_worth_restarting(item: Item) -> bool:
    """Whether an item is begun anew by itself: where its caller said so, and somebody has answered since the last time.
    A server that takes none of its own states would be asked for ever.
    """
    since = item.restarted
    return item.restart_expired and (since is None or any(one.at > since for one in item.given))


def held(item: Item, status: int, has_shown: bool, now: float) -> Item:
    """An item whose server does not take the credentials: it keeps all its answers, and waits for others."""
    why = "does not take the credentials of this call" if has_shown else "wants credentials, and this call has none"
    note = f"The server {why} (HTTP {status}). It goes on once it has others, or somebody tries again."
    return replace(item, status="held", note=note, tries=0, changed=now, due=item.until)


def tried_again(item: Item, now: float) -> Item:
    """The same, to be carried on at once."""
    status: Status = "waiting" if item.pending.unanswered else "going"
    return replace(item, status=status, note=None, tries=0, changed=now, due=now)
