"""The ledger: what was asked, answered and done so far in one flow.

An ordered map from key to entry. A key is the author's name for a question or step, or a digest of what is asked;
the second use of a name in one round is `name#2`. An entry holds the fingerprint of what it answers, so that an
answer is only ever given to the question it was given for.

`encode` and `decode` are its JSON, short because it travels twice in every round. The room does not know how the
ledger is carried: sealed into a token, or kept in a store.
"""

import hmac
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from ._json import encode
from .errors import InvalidRequestState

ANSWER: Final = "a"
ACCEPTED: Final = "+"
"""An answer that accepts a form; the value is the form's content alone."""
RAW: Final = "r"
"""An answer that came and was not read yet."""
STEP: Final = "s"
FAILURE: Final = "f"
CLOCK: Final = "t"
MARKER: Final = "m"
SPILLED: Final = "@"
"""An entry whose value lies in a store; what is here says where."""
CHECKPOINT: Final = "!checkpoint"
ONCE: Final = "!once"
"""Marks a flow in which a step with `once` was done."""
ASIDE: Final = "!aside:"
"""Before the key of an answer to a question as another version words it."""
MARK_BYTES: Final = 8
"""A fingerprint has 64 bits."""


def check_key(name: str) -> str:
    """An author's name for a question or step; ValueError where it is none."""
    if not name or "#" in name:
        raise ValueError(f"a key is a name without '#', not {name!r}")
    return name


class Entry(NamedTuple):
    """One thing that is settled."""

    kind: str
    fingerprint: str
    value: Any

    @property
    def answer(self) -> Any:
        """The whole answer, as the client gave it."""
        return {"action": "accept", "content": self.value} if self.kind == ACCEPTED else self.value


@dataclass(slots=True)
class Ledger:
    """All that a flow knows between two rounds.

    `asked` holds the fingerprint of every question that is out, by key; `handed` gives the method of those that
    the author asked by returning them, and `state` is what the author put beside them. `version` is the one under
    which the flow began; `trace` is the last round's span, where rounds are traced. `is_spilled`: some values lie in a
    store.
    """

    lineage: bytes
    started: float
    sequence: int = 0
    sheds: int = 0
    version: str | None = None
    entries: dict[str, Entry] = field(default_factory=dict)
    asked: dict[str, str] = field(default_factory=dict)
    handed: dict[str, str] = field(default_factory=dict)
    state: str | None = None
    trace: str | None = None
    is_spilled: bool = False

    def encode(self) -> list[Any]:
        """The ledger as JSON-ready lists; `decode` is the way back."""
        rows = [[key, *entry] for key, entry in self.entries.items()]
        started = int(self.started * 1000) / 1000
        whole = [started, self.sequence, self.sheds, self.version, rows, self.asked, self.handed, self.state]
        if self.is_spilled or self.trace is not None:
            whole += (self.trace, self.is_spilled)
        return whole

    @classmethod
    def decode(cls, lineage: bytes, data: Any) -> "Ledger":
        """A ledger out of what `encode` made, possibly on an older or newer instance."""
        try:
            started, sequence, sheds, version, rows, asked, handed, state, *tail = data
            entries = {key: _new(Entry, (_KINDS[kind], mark, value)) for key, kind, mark, value in rows}
            trace, is_spilled = tail or (None, False)
            asked, handed = {**asked}, {**handed}
            "".join(entries)  # Keys are text; what follows is checked for having the types that it is used as.
            if not (type(sequence) is type(sheds) is int and type(is_spilled) is bool and type(started) in _NUMBERS):
                raise TypeError
            return cls(lineage, started, sequence, sheds, version, entries, asked, handed, state, trace, is_spilled)
        except (ValueError, TypeError, LookupError, AttributeError):
            raise InvalidRequestState("the ledger has another format") from None

    @property
    def flow_id(self) -> str:
        """One value for all rounds of a flow, which says nothing else."""
        return self.derive("flow").hex()[:32]

    def derive(self, purpose: str) -> bytes:
        """32 bytes that are the same in every round of this flow, and in no other flow."""
        return hmac.digest(self.lineage, purpose.encode(), "sha256")


_new: Final = tuple.__new__
"""Entries are made for every row in every round; this spares a frame for each."""
_KINDS: Final = {kind: kind for kind in (ANSWER, ACCEPTED, RAW, STEP, FAILURE, CLOCK, MARKER, SPILLED)}
"""There are no others."""
_NUMBERS: Final = (float, int)


def is_json(data: Any) -> bool:
    """Whether plain data has no NaN or infinity in it, which would silently be written as null."""
    if isinstance(data, float):
        return math.isfinite(data)
    children = data.values() if isinstance(data, dict) else data if isinstance(data, list) else ()
    return all(is_json(child) for child in children)


def fingerprint(method: str, params: Mapping[str, Any] | list[Any]) -> str:
    """64 bits that tell one question, or one step and its arguments, from another."""
    data = encode([method, params], sort_keys=True)
    return blake2b(data, digest_size=MARK_BYTES).hexdigest()
