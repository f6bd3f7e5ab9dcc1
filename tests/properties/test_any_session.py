"""Whatever a server with a handshake says, in its handshake, in the course of a call or unasked: a result or an error
with a name, and no task that dies unheard.
"""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.properties.test_any_reply import QUESTIONS as ASKED
from tests.properties.test_any_reply import changed
from tests.unit.joined import run
from tests.unit.older import NEWEST, initialized
from tests.unit.scripted import DONE
from turnwise import Client, Incoming, Outgoing, TurnwiseError
from turnwise._json import decode
from turnwise._messages import Notified
from turnwise.dialects.words import DRAFT_2026_02, SEP_2322

QUESTIONS: dict[str, Any] = ASKED
OFFERS: Any = {"tools": {"listChanged": True}, "resources": {"subscribe": True}, "logging": {}}
NEWS = [
    {"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": 3, "progress": 1, "total": 2}},
    {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": "x"}},
    {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": "form"}},
    {"jsonrpc": "2.0", "method": "notifications/resources/updated", "params": {"uri": "memo://a"}},
    {"jsonrpc": "2.0", "method": "notifications/tools/list_changed"},
    {"jsonrpc": "2.0", "id": 7, "method": "ping"},
    *({"jsonrpc": "2.0", "id": key, **question} for key, question in QUESTIONS.items()),
]
PAGES = {"elicitations": [QUESTIONS["page"]["params"]]}
ENDS: dict[str, Any] = {
    "done": {"result": DONE},
    "pages": {"error": {"code": -32042, "message": "Visit", "data": PAGES}},
    "draft": {"input_requests": QUESTIONS, "request_state": "s"},
    "asks": {"result": {"resultType": "input_required", "inputRequests": QUESTIONS, "requestState": "s"}},
}


class Wild:
    """A channel to a server that says these things: in its handshake, in the course of a call, and in the end."""

    cancels = True

    def __init__(self, opening: bytes, course: list[Any], end: bytes) -> None:
        self.unasked: Callable[[Any], None] | None = None
        self.opening, self.course, self.end = opening, course, end

    async def open(self) -> None: ...

    async def aclose(self) -> None: ...

    async def ready(self) -> int:
        return 0

    async def tell(self, body: bytes, headers: Mapping[str, str]) -> None:
        json.loads(body)

    async def leave(self, headers: Mapping[str, str]) -> None: ...

    async def watch(self, headers: Mapping[str, str], notified: Notified, opened: Callable[[], None]) -> None:
        opened()
        await asyncio.Event().wait()

    async def exchange(self, request: Outgoing, notified: Notified) -> Incoming:
        raw = self.end if request.method == "tools/call" else b'{"result": {}}'
        raw = self.opening if request.method == "initialize" else raw
        if request.method == "tools/call":
            for message in self.course:
                if isinstance(message, dict) and "method" in message:
                    await notified(message)
                    assert self.unasked is not None
                    self.unasked(message)
            await asyncio.sleep(0)
        try:
            members = decode(raw)
        except ValueError:
            members = None
        whole = {"jsonrpc": "2.0", "id": request.id, **members} if isinstance(members, dict) else members
        return Incoming(200, whole, json.dumps(whole).encode())


def visit(channel: Wild, mode: Any) -> None:
    unheard: list[Any] = []

    async def flow() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: unheard.append(context))
        said = {"role": "assistant", "content": {"type": "text", "text": "x"}, "model": "m"}
        answers: Any = {
            "elicitation_callback": lambda *_: {"action": "accept", "content": {"city": "Ulm", "days": 2}},
            "sampling_callback": lambda *_: said,
            "list_roots_callback": lambda _: {"roots": []},
            "logging_callback": lambda _: None,
        }
        try:
            visitor = Client(channel, mode=mode, input_required_max_rounds=1, log_level="info", **answers)
            wanted: Any = {"tools_list_changed": True, "resource_subscriptions": ["memo://a"]}
            async with visitor as client, client.listen(**wanted):
                await client.call_tool("t", {}, progress_callback=lambda *_: None)
        except TurnwiseError:
            pass
        await asyncio.sleep(0)

    run(flow())
    assert not unheard, unheard


MODES = st.sampled_from([NEWEST, "2024-11-05", SEP_2322, DRAFT_2026_02])


@given(st.data(), MODES)
def test_any_handshake_is_taken_or_refused(data: st.DataObject, mode: Any) -> None:
    good = {"result": initialized(mode, **OFFERS)}
    visit(Wild(data.draw(changed(good)), [], json.dumps(ENDS["done"]).encode()), mode)


@settings(max_examples=settings().max_examples * 2)
@given(st.data(), MODES)
def test_anything_may_be_said_in_the_course_of_a_call(data: st.DataObject, mode: Any) -> None:
    course = []
    for news in data.draw(st.lists(st.sampled_from(NEWS), max_size=4)):
        try:
            course.append(decode(data.draw(changed(news) | st.just(json.dumps(news).encode()))))
        except ValueError:
            continue
    opening = json.dumps({"result": initialized(mode, **OFFERS)}).encode()
    visit(Wild(opening, course, json.dumps(ENDS["done"]).encode()), mode)


@settings(max_examples=settings().max_examples * 2)
@given(st.data(), MODES, st.sampled_from(sorted(ENDS)))
def test_a_call_may_end_in_any_way(data: st.DataObject, mode: Any, end: str) -> None:
    opening = json.dumps({"result": initialized(mode, **OFFERS)}).encode()
    visit(Wild(opening, [], data.draw(changed(ENDS[end]))), mode)


def test_good_words_are_understood() -> None:
    for end in ENDS.values():
        opening = json.dumps({"result": initialized(NEWEST, **OFFERS)}).encode()
        visit(Wild(opening, NEWS, json.dumps(end).encode()), NEWEST)
