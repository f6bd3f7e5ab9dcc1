"""A test as a relay of processes: `python -m tests.fleet.relay ADDRESS FILES` waits to run any test of these files.

The servers of most tests are closures, and a closure cannot be sent to another process. But it can be made again there:
every process runs the test from its beginning. The legs that an earlier process served are answered from the record of
that process; the next one is served for real and recorded; and at the leg after that the process ends, and another one
takes over. So every leg is served by a process that has never seen the ones before it, and the last process finishes
the test with all its assertions. Calls that do not ask, and beginnings of calls with no other leg between them, share
a process, and so do legs that a test has under way at the same time.

The world is the same for all of them, as it is for the instances of a fleet. What the tools of a test write into its
lists, its objects and its stores in memory while a leg is served is recorded with the leg; its folder is one for the
whole relay; what it draws at random outside of a leg, its keys for instance, is drawn alike in every process. Nothing
else that the library keeps is handed on.
"""

import hashlib
import itertools
import json
import os
import pickle
import random
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, NamedTuple

import pytest

from tests.fleet.zygotes import ROOT, fork_for_each
from turnwise import MemoryStore
from turnwise._messages import Post, Reply
from turnwise.dialects.v2026_07_28 import Wire

FLOWS = ("tools/call", "prompts/get", "resources/read")
WRITTEN = tuple(str(ROOT / folder) for folder in ("tests", "docs_src"))
PLAIN = (int, float, str, bytes, type(None))
CONTAINERS = (list, dict, set, deque)
Books = dict[str, Any]


class Leg(NamedTuple):
    """A request, and all that came of it: what was told on the way, the reply, and what the test noted; and the process
    that served it, with what it makes of a text by its hash seed.
    """

    body: bytes
    told: tuple[bytes, ...]
    reply: Reply
    notes: dict[str, bytes]
    pid: int
    hashed: int


class Handover(NamedTuple):
    """What one process leaves to the next: the legs so far; where the test is over, how it failed, or nothing.

    A test that starts processes has its servers there, and is left alone.
    """

    legs: list[Leg]
    is_over: bool = False
    failure: str = ""
    starts_processes: bool = False


# Chance, which is the test's own business outside of a leg

serving: ContextVar[bool] = ContextVar("serving", default=False)
draws = itertools.count()
really_random = os.urandom


def drawn(size: int) -> bytes:
    if serving.get():
        return really_random(size)
    return hashlib.shake_128(b"%d" % next(draws)).digest(size)


# What a test notes


def books(module: ModuleType) -> Books:
    """The lists, dicts and sets of the test that runs, and its own objects, by where they are found."""
    found: dict[int, tuple[str, Any]] = {}
    for depth, frame in enumerate(reversed(list(frames()))):
        for name, value in frame.f_locals.items():
            _collect(f"{depth} {frame.f_code.co_name} {name}", value, found)
    for name, value in vars(module).items():
        if isinstance(value, CONTAINERS) and not name.startswith("__"):
            _collect(name, value, found)
    return dict(found.values())


def frames() -> Iterator[FrameType]:
    """What runs in the test, from the inside out; its servers may be in another thread."""
    frame: FrameType | None = sys._current_frames()[threading.main_thread().ident or 0]
    while frame is not None:
        if frame.f_code.co_filename.startswith(WRITTEN) and frame.f_globals is not globals():
            yield frame
        frame = frame.f_back


def _collect(path: str, value: Any, found: dict[int, tuple[str, Any]]) -> None:
    if id(value) in found:
        return
    if isinstance(value, CONTAINERS):
        found[id(value)] = path, value
    elif isinstance(value, MemoryStore) or is_of_a_test(value):
        found[id(value)] = path, value
        for name, inner in list(vars(value).items()):
            if not name.startswith("__"):
                _collect(f"{path}.{name}", inner, found)


def is_of_a_test(value: Any) -> bool:
    """Whether something is a sample that was loaded, or an object of a class that the tests made."""
    if isinstance(value, ModuleType):
        return value.__name__.startswith("sample_")
    return type(value).__module__.startswith("tests.") and hasattr(value, "__dict__")


def written(book: Any) -> bytes:
    """What stands in a book; of an object, its plain attributes; nothing where it cannot be sent."""
    if not isinstance(book, CONTAINERS):
        plain = {name: value for name, value in vars(book).items() if isinstance(value, PLAIN) and name[:2] != "__"}
        return pickle.dumps(plain)
    try:
        return pickle.dumps(book.copy())
    except Exception:
        return b""


def write(book: Any, contents: bytes) -> None:
    """Have a book say what another process wrote."""
    new = pickle.loads(contents)
    if not isinstance(book, CONTAINERS):
        vars(book).update(new)
        return
    book.clear()
    (book.update if isinstance(book, dict | set) else book.extend)(new)


# The relay


class Runner:
    """The part of one process: `answer` stands where a wire's own does."""

    def __init__(self, legs: list[Leg], module: ModuleType, hand_over: Callable[[Handover], None]) -> None:
        self.legs = legs
        self._module = module
        self._hand_over = hand_over
        self._ahead = list(legs)
        self._has_begun = False
        self._has_gone_on = False

    async def answer(self, wire: Wire, post: Post) -> Reply:
        params = params_of(post.body)
        if params is None:
            return await real_answer(wire, post)
        known = next((leg for leg in self._ahead if leg.body == post.body), None)
        if known is not None:
            self._ahead.remove(known)
            return await self._play(known, post)
        brings_token = "requestState" in params
        if self._has_gone_on or (self._has_begun and brings_token):
            self._hand_over(Handover(self.legs))
        reply = await self._serve(wire, post)
        if is_of_a_flow(brings_token, reply):
            self._has_begun = True
            self._has_gone_on = self._has_gone_on or brings_token
        return reply

    async def _play(self, leg: Leg, post: Post) -> Reply:
        """A leg that another process served."""
        for message in leg.told:
            await post.emit(message)
        here = books(self._module)
        for path, contents in leg.notes.items():
            write(here[path], contents)
        return leg.reply

    async def _serve(self, wire: Wire, post: Post) -> Reply:
        told: list[bytes] = []

        async def emit(message: bytes) -> None:
            told.append(message)
            await post.emit(message)

        here = books(self._module)
        before = {path: written(book) for path, book in here.items()}
        token = serving.set(True)
        try:
            reply = await real_answer(wire, replace(post, emit=emit))
        finally:
            serving.reset(token)
        after = {path: written(book) for path, book in here.items()}
        notes = {path: contents for path, contents in after.items() if contents and contents != before[path]}
        self.legs.append(Leg(post.body, tuple(told), reply, notes, os.getpid(), hash("leg")))
        return reply


def params_of(body: bytes) -> dict[str, Any] | None:
    """The parameters of a request that may be a leg of a flow."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return None
    is_leg = isinstance(message, dict) and "id" in message and message.get("method") in FLOWS
    params = message.get("params") if is_leg else None
    return params if isinstance(params, dict) else None


def is_of_a_flow(brings_token: bool, reply: Reply) -> bool:
    """Whether a leg began a flow or went on with one; a call that never asks does not, nor one that is refused."""
    result = json.loads(reply.body or b"{}").get("result")
    return result is not None and (brings_token or result.get("resultType") == "input_required")


real_answer = Wire.answer
running: list[Runner] = []


async def answer(wire: Wire, post: Post) -> Reply:
    return await (running[0].answer(wire, post) if running else real_answer(wire, post))


class Relay:
    """Runs no test by itself, but whichever it is told to, each time in a child."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._items: dict[str, pytest.Item] = {}
        self._folder = Path()
        self._failures: list[str] = []

    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        self._items = {item.nodeid: item for item in session.items}
        fork_for_each(self._address, self._run)
        return True

    def _run(self, connection: "Connection[Any, Any]") -> None:
        asked = connection.recv()
        if asked is None:
            connection.send(list(self._items))
            return
        name, folder, legs = asked
        item = self._items[name]
        assert isinstance(item, pytest.Function)
        self._folder = Path(folder)

        def hand_over(handover: Handover) -> None:
            connection.send(handover)
            os._exit(0)

        def watch(event: str, _: object) -> None:
            if event == "subprocess.Popen":
                hand_over(Handover(legs, is_over=True, starts_processes=True))

        sys.addaudithook(watch)
        running.append(Runner(legs, item.module, hand_over))
        item.ihook.pytest_runtest_protocol(item=item, nextitem=None)
        connection.send(Handover(legs, True, "\n".join(self._failures)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self._failures.append(report.longreprtext)

    @pytest.fixture
    def tmp_path(self) -> Path:
        self._folder.mkdir(exist_ok=True)
        return self._folder


if __name__ == "__main__":
    from tests.fleet import relay  # The one that the records are made of, not the script of the same name.

    os.urandom = relay.drawn
    random._urandom = relay.drawn  # type: ignore[attr-defined]
    Wire.answer = relay.answer  # type: ignore[method-assign, assignment]
    address, *files = sys.argv[1:]
    # Turnwise is imported already, and with it the plugin that pytest would have liked to import itself.
    unread = ["-W", "ignore:Module already imported so cannot be rewritten"]
    sys.exit(pytest.main([*files, "-p", "no:cacheprovider", *unread], plugins=[relay.Relay(address)]))
