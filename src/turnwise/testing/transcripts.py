"""Transcripts: what client and server said, in a file that people read, and that is played again to either of them.

A line that begins with `>` is a request: its method and its params. `<` is its result, `!` its error, `=` the client's
capabilities, `#` the title; all else is prose. States are `"$1"`, `"$2"` and so on, in the order in which they came. A
`"*"` that somebody writes into a server's line stands for anything. The version is 2026-07-28.
"""

import difflib
import json
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from .._json import decode, encode
from .._messages import Channel, Identity, Incoming, Notified, Outgoing
from ..dialects.words import CAPABILITIES, CLIENT_INFO, PROTOCOL, VERSION
from ..errors import MCPError
from ..server import MCPServer
from ..transports.memory import Memory
from .connection import connect
from .flows import Round

ANYTHING = "*"
DISCOVER = "server/discover"


class Exchange(NamedTuple):
    """One request, and the `result` or the `error` that came of it."""

    method: str
    params: dict[str, Any]
    reply: dict[str, Any]


@dataclass(frozen=True, slots=True)
class Transcript:
    """Exchanges in the order in which they happened."""

    exchanges: tuple[Exchange, ...]
    capabilities: Mapping[str, Any]
    title: str = "A call"

    @classmethod
    def of(cls, rounds: Iterable[Round], title: str = "A call") -> "Transcript":
        """What was said in these rounds: `client.rounds`, or `client.flow` for the latest call."""
        names: dict[str, str] = {}
        exchanges: list[Exchange] = []
        capabilities: dict[str, Any] = {}
        for request, reply in rounds:
            params = dict(request.get("params") or {})
            meta = dict(params.pop("_meta", {}))
            capabilities = meta.pop(CAPABILITIES, capabilities)
            own = {name: value for name, value in meta.items() if name not in (PROTOCOL, CLIENT_INFO)}
            params |= {"_meta": own} if own else {}
            exchanges.append(Exchange(request["method"], _named(params, names), _named_reply(_plain(reply), names)))
        return cls(tuple(exchanges), capabilities, title)

    @classmethod
    def read(cls, path: str | Path) -> "Transcript":
        """One that was written; ValueError, with the line, where a line is none."""
        transcript, asked = cls((), {}), None
        for number, line in enumerate(Path(path).read_text(encoding="utf-8").splitlines(), 1):
            sign, text = line[:2], line[2:]
            try:
                if sign == "# ":
                    transcript = replace(transcript, title=text)
                elif sign == "= ":
                    transcript = replace(transcript, capabilities=json.loads(text))
                elif sign == "> ":
                    asked = text.partition(" ")
                elif sign in ("< ", "! ") and asked is not None:
                    reply = {"result" if sign == "< " else "error": json.loads(text)}
                    one = Exchange(asked[0], json.loads(asked[2] or "{}"), reply)
                    transcript = replace(transcript, exchanges=(*transcript.exchanges, one))
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {error}") from None
        return transcript

    def write(self, path: str | Path) -> None:
        """Write it down."""
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).write_text(str(self), encoding="utf-8")

    def __str__(self) -> str:
        lines = [f"# {self.title}", f"= {_text(self.capabilities)}"]
        for method, params, reply in self.exchanges:
            sign, what = ("!", reply["error"]) if "error" in reply else ("<", reply["result"])
            lines += [f"> {method} {_text(params)}", f"{sign} {_text(what)}"]
        return "\n".join(lines) + "\n"

    def check(self, other: "Transcript") -> None:
        """AssertionError, with what differs, where another one is not the same as this."""
        __tracebackhide__ = True
        if len(self.exchanges) != len(other.exchanges):
            raise AssertionError(f"{len(other.exchanges)} exchanges, not {len(self.exchanges)}\n{other}")
        for number, (mine, theirs) in enumerate(zip(self.exchanges, other.exchanges, strict=True), 1):
            _check(f"request {number}", [mine.method, mine.params], [theirs.method, theirs.params])
            _check(f"reply {number}", mine.reply, theirs.reply)

    async def replay(
        self, server: MCPServer[Any], *, access: Identity | None = None, now: Callable[[], float] = time.time
    ) -> None:
        """Play the client's part to a server; AssertionError where it does not say what it said."""
        __tracebackhide__ = True
        states: dict[str, Any] = {}
        async with connect(server, access=access, now=now) as client:
            client.capabilities = dict(self.capabilities)
            for number, (method, params, expected) in enumerate(self.exchanges, 1):
                filled = dict(params)
                meta = filled.pop("_meta", {})
                if filled.get("requestState") in states:
                    filled["requestState"] = states[filled["requestState"]]
                with suppress(MCPError):  # It is in the reply, and may be what is expected.
                    await client.request(method, filled, **meta)
                said, name = _plain(client.rounds[-1].reply), _state(expected)
                if name is not None and _state(said) is not None:
                    states[name] = _state(said)
                    said["result"]["requestState"] = name
                _check(f"reply {number}, to {method}", expected, said)


class Recorder:
    """A channel that notes what goes over another: `Client(Recorder(server))`, also with a URL or a channel."""

    def __init__(self, target: MCPServer[Any] | Channel | str) -> None:
        if isinstance(target, str):
            from ..transports.http import HTTP

            target = HTTP(target)
        self._channel: Channel = Memory(target) if isinstance(target, MCPServer) else target
        self.rounds: list[Round] = []

    @property
    def transcript(self) -> Transcript:
        """What was said so far."""
        return Transcript.of(self.rounds)

    async def open(self) -> None:
        """Get ready."""
        await self._channel.open()

    async def aclose(self) -> None:
        """Let go of everything."""
        await self._channel.aclose()

    async def exchange(self, request: Outgoing, notified: Notified) -> Incoming:
        """Send, wait and note."""
        incoming = await self._channel.exchange(request, notified)
        self.rounds.append(Round(decode(request.body), incoming.message))
        return incoming


class Playback:
    """A channel on which a transcript's server answers: `Client(Playback(transcript))`. A request that is not the one
    in the transcript is an AssertionError. `left` is what was not asked yet.
    """

    def __init__(self, transcript: Transcript) -> None:
        self.left = list(transcript.exchanges)

    async def open(self) -> None:
        """There is nothing to open."""

    async def aclose(self) -> None:
        """Nor to close."""

    async def exchange(self, request: Outgoing, notified: Notified) -> Incoming:
        """What was replied to this."""
        message = decode(request.body)
        if request.method == DISCOVER and (not self.left or self.left[0].method != DISCOVER):
            reply: dict[str, Any] = {"result": self._discovery()}
        else:
            asked = Transcript.of([Round(message, {"result": {}})]).exchanges[0]
            if not self.left:
                raise AssertionError(f"nothing is left to reply to {asked.method} {_text(asked.params)}")
            expected = self.left.pop(0)
            _check("the request", [expected.method, expected.params], [asked.method, asked.params])
            reply = expected.reply
        whole = {"jsonrpc": "2.0", "id": message["id"], **reply}
        return Incoming(200, whole, encode(whole))

    def _discovery(self) -> dict[str, Any]:
        offers: dict[str, Any] = {"tools": {}, "prompts": {}, "resources": {}}
        return {"resultType": "complete", "supportedVersions": [VERSION], "capabilities": offers}


def _plain(reply: Mapping[str, Any]) -> dict[str, Any]:
    """A reply without its envelope, and without who replied."""
    if "error" in reply:
        return {"error": reply["error"]}
    return {"result": {name: value for name, value in reply["result"].items() if name != "_meta"}}


def _state(reply: Mapping[str, Any]) -> Any:
    return reply.get("result", {}).get("requestState")


def _named(params: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    state = str(params.get("requestState"))
    return {**params, "requestState": names[state]} if state in names else params


def _named_reply(reply: dict[str, Any], names: dict[str, str]) -> dict[str, Any]:
    if (state := _state(reply)) is None:
        return reply
    name = names.setdefault(state, f"${len(names) + 1}")
    return {"result": {**reply["result"], "requestState": name}}


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _is_same(expected: Any, found: Any) -> bool:
    if expected == ANYTHING:
        return True
    if isinstance(expected, dict) and isinstance(found, dict):
        return expected.keys() == found.keys() and all(_is_same(expected[name], found[name]) for name in expected)
    if isinstance(expected, list) and isinstance(found, list):
        return len(expected) == len(found) and all(map(_is_same, expected, found))
    return bool(expected == found)


def _check(what: str, expected: Any, found: Any) -> None:
    __tracebackhide__ = True
    if not _is_same(expected, found):
        was, now = (json.dumps(one, indent=2, ensure_ascii=False).splitlines() for one in (expected, found))
        lines = difflib.unified_diff(was, now, "in the transcript", "now", lineterm="")
        raise AssertionError("\n".join([f"{what} is another one", *lines]))
