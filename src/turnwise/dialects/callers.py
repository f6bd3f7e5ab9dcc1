"""Which caller speaks which version, of those that open with a handshake."""

from . import draft_2026_02_client, sep1858_client, sep2322_client, v2025_11_25_client
from .handshake_client import HandshakeCaller
from .v2026_07_28_client import Caller
from .words import DRAFT_2026_02, DRAFTS, HANDSHAKES, SEP_1858, SEP_2322

NEWEST = HANDSHAKES[-1]
_DRAFTS: dict[str, type[HandshakeCaller]] = {
    SEP_1858: sep1858_client.Caller,
    SEP_2322: sep2322_client.Caller,
    DRAFT_2026_02: draft_2026_02_client.Caller,
}


def caller_of(version: str, before: Caller) -> HandshakeCaller:
    """The caller for this version; it goes on where the one before left off."""
    return _DRAFTS.get(version, v2025_11_25_client.Caller)(before, version)


def can_wait(version: str) -> bool:
    """Whether a question of this version can be put down, so that a person may answer what no callback does."""
    return version in DRAFTS


def needs_http(version: str) -> bool:
    """Whether this version is a way of using HTTP, and has no meaning elsewhere."""
    return version == SEP_1858
