"""Which wires a server speaks beside 2026-07-28."""

from collections.abc import Sequence

from ._catalogue import Catalogue
from ._sealed import RequestStateSecurity
from ._sessions import Sessions
from .dialects.draft_2026_02 import FirstDraft
from .dialects.handshake import Handshake, Manner
from .dialects.sep1858 import MultiTurn
from .dialects.sep2322 import Approved
from .dialects.v2025_11_25 import Live
from .dialects.words import DRAFT_2026_02, DRAFTS, HANDSHAKES, SEP_1858, SEP_2322


def handshake(
    catalogue: Catalogue, security: RequestStateSecurity, sessions: Sessions | None, dialects: Sequence[str]
) -> Handshake | None:
    """Who serves the versions that open with `initialize`: those that were released, and the drafts that are wanted."""
    if isinstance(dialects, str):
        raise TypeError(f"dialects= is a list: [{dialects!r}]")
    if unknown := [name for name in dialects if name not in DRAFTS]:
        raise ValueError(f"dialects= takes {', '.join(DRAFTS)}, not {unknown[0]!r}")
    if sessions is None:
        if dialects:
            raise ValueError("dialects= open with a handshake, which sessions=False turns off")
        return None
    manners: dict[str, Manner] = dict.fromkeys(HANDSHAKES, Live(sessions.limits.calls))
    if SEP_2322 in dialects:
        manners[SEP_2322] = Approved()
    if DRAFT_2026_02 in dialects:
        manners[DRAFT_2026_02] = FirstDraft()
    turns = MultiTurn(security, catalogue.terms.guard) if SEP_1858 in dialects else None
    return Handshake(catalogue, sessions, security, manners, turns)
