"""A line of the log for all that happens to calls in the inbox: who handed over, who answered, what came of it.

What was asked, answered or given back is in none of them, and of hooks nothing but the host: URLs of hooks are secrets.
"""

import logging
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from .model import Hook, Item

LONGEST = 200

log = logging.getLogger("turnwise.inbox")


class Notes:
    """Hears of what happens in this process, and writes it down."""

    def taken(self, item: Item, by: str) -> None:
        """A call or a task was handed over, by whose token it was; who is shown as the caller may be another."""
        words = "" if by == item.caller else f" for {plain(item.caller)}"
        log.info("%s was handed over by %s%s", _named(item), plain(by), words)

    def moved(self, item: Item) -> None:
        """It has come to its next questions, to a halt or to its end."""
        if item.is_over:
            self.ended(item)
        elif item.status == "held":
            log.warning("%s is held: %s", _named(item), plain(item.note or ""))
        else:
            log.info("%s asks again: round %d", _named(item), item.round)

    def answered(self, item: Item, answers: Mapping[str, Any], by: str) -> None:
        """Somebody has answered."""
        said = ", ".join(f"{plain(key)}: {action_of(answer)}" for key, answer in answers.items())
        log.info("%s was answered by %s (%s)", _named(item), plain(by), said[:LONGEST])

    def ended(self, item: Item) -> None:
        """It has come to its end."""
        seconds = item.changed - item.came
        why = item.error or ("the tool says so" if item.status == "failed" else "")
        log.info("%s is %s after %.0f s%s", _named(item), item.status, seconds, f": {plain(why)}" if why else "")

    def put_off(self, item: Item, why: str, again: float) -> None:
        """Its server is away."""
        log.info("%s waits for its server, and is tried again in %.0f s: %s", _named(item), _until(again), plain(why))

    def told(self, hook: Hook) -> None:
        """A hook was taken."""
        log.debug("hook %s was taken by %s", hook.id, place(hook.url))

    def untold(self, hook: Hook, why: str, again: float | None) -> None:
        """A hook was not taken."""
        if again is None:
            log.warning("hook %s was not taken by %s, and is given up: %s", hook.id, place(hook.url), plain(why))
            return
        tries = "once" if hook.tries == 0 else f"{hook.tries + 1} times"
        words = "hook %s was not taken by %s (tried %s), and is tried again in %.0f s: %s"
        log.warning(words, hook.id, place(hook.url), tries, _until(again), plain(why))


def action_of(answer: Any) -> str:
    """What was done with a question, without what was said."""
    action = answer.get("action") if isinstance(answer, Mapping) else None
    return action if action in ("accept", "decline", "cancel") else "answered"


def plain(text: str) -> str:
    """A stranger's words in one line, of which a terminal obeys nothing."""
    cut = text[: LONGEST + 1]
    line = "".join(letter if letter.isprintable() else "\ufffd" for letter in cut)
    return line if len(line) <= LONGEST else line[:LONGEST] + "…"


def place(url: str) -> str:
    """Whose URL this is, without what may be secret in it."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return "nowhere"
    return plain(f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}")


def _named(item: Item) -> str:
    kind = "task" if item.task is not None else "call"
    server = plain(item.server.partition("?")[0])
    return f"{kind} {plain(item.id)} ({plain(item.target)} at {server})"


def _until(moment: float) -> float:
    return max(0.0, moment - time.time())
