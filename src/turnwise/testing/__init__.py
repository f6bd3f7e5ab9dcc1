"""Test servers and clients without a network: `async with connect(server) as client: await client.call_tool(...)`.

The bytes are those of the wire, the rounds are driven as a real client drives them, and every one of them is on record
in `client.rounds`. Answers may be scripted, the clock may stand still, and what was said may be written down and played
again.
"""

from .._replaying import Finding, ReplayReport
from ..dialects.words import LOG_LEVEL
from .clocks import FrozenClock
from .connection import Connection, connect
from .flows import Flow, Round
from .replaying import check_replay
from .scripts import InTurn, Script
from .transcripts import Playback, Recorder, Transcript

__all__ = [
    "LOG_LEVEL",
    "Connection",
    "Finding",
    "Flow",
    "FrozenClock",
    "InTurn",
    "Playback",
    "Recorder",
    "ReplayReport",
    "Round",
    "Script",
    "Transcript",
    "check_replay",
    "connect",
]
