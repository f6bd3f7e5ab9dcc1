"""Whatever a server says of its tasks, a client has a result, or an error with a name, in time."""

import json
from collections.abc import Awaitable, Callable
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.properties.test_any_reply import QUESTIONS, changed
from tests.unit.joined import Peer, run
from tests.unit.scripted import CITY, DONE
from turnwise import Client, TaskInHand, TurnwiseError
from turnwise._json import decode

FACTS: dict[str, Any] = {
    "resultType": "complete",
    "taskId": "t",
    "statusMessage": "so far",
    "createdAt": "2026-01-01T00:00:00Z",
    "lastUpdatedAt": "2026-01-01T00:00:00Z",
    "ttlMs": None,
    "pollIntervalMs": 1,
}
TASKS: dict[str, dict[str, Any]] = {
    "working": {**FACTS, "status": "working"},
    "asking": {**FACTS, "status": "input_required", "inputRequests": {**QUESTIONS, "form": CITY}},
    "completed": {**FACTS, "status": "completed", "result": DONE},
    "failed": {**FACTS, "status": "failed", "error": {"code": -32603, "message": "no", "data": {"a": 1}}},
    "cancelled": {**FACTS, "status": "cancelled"},
}
BEGUN = {**FACTS, "resultType": "task", "status": "working"}
SOON, IN_TIME = 0.05, 5.0


async def called(client: Client, deadline: float) -> None:
    task: Any = await client.begin("t", {})
    if isinstance(task, TaskInHand):
        await client.follow_task(task, deadline=deadline)


ASKS: dict[str, Callable[[Client, float], Awaitable[Any]]] = {
    "call": called,
    "follow": lambda client, deadline: client.follow_task("t", deadline=deadline, on_status=lambda _: None),
    "get": lambda client, _: client.get_task("t"),
    "update": lambda client, _: client.update_task("t", {"form": {"action": "accept", "content": {"city": "Ulm"}}}),
    "cancel": lambda client, _: client.cancel_task("t"),
}


def told(ask: str, looks: list[bytes], begun: bytes, taken: bytes, deadline: float = IN_TIME) -> str:
    """What came of it: the name of an error, or nothing."""
    left = list(looks)

    def answer(method: str, params: Any) -> Any:
        if method == "tasks/get":
            return decode(left.pop(0) if len(left) > 1 else left[0])
        return decode(begun if method == "tools/call" else taken)

    async def flow() -> str:
        said = {"role": "assistant", "content": {"type": "text", "text": "x"}, "model": "m"}
        answers: Any = {
            "elicitation_callback": lambda *_: {"action": "accept", "content": {"city": "Ulm"}},
            "sampling_callback": lambda *_: said,
            "list_roots_callback": lambda _: {"roots": []},
        }
        try:
            async with Client(Peer(answer), mode="2026-07-28", **answers) as client:
                await ASKS[ask](client, deadline)
        except TurnwiseError as error:
            return type(error).__name__
        return ""

    return run(flow())


def is_json(text: bytes) -> bool:
    try:
        json.dumps(decode(text))
    except ValueError:
        return False
    return True


def written(value: Any) -> bytes:
    return json.dumps(value).encode()


LOOKS = st.sampled_from(sorted(TASKS)).flatmap(lambda name: changed(TASKS[name]) | st.just(written(TASKS[name])))
FAR = written({**TASKS["working"], "pollIntervalMs": 10**400})


@settings(max_examples=settings().max_examples * 2)
@given(
    st.sampled_from(sorted(ASKS)),
    st.lists(LOOKS.filter(is_json), min_size=1, max_size=4),
    (changed(BEGUN) | st.just(written(BEGUN))).filter(is_json),
    (changed({"resultType": "complete"}) | st.just(b"{}")).filter(is_json),
)
@example("get", [FAR], b"{}", b"{}")
@example("follow", [FAR], b"{}", b"{}")
def test_any_word_of_a_task_gives_a_result_or_an_error_with_a_name(
    ask: str, looks: list[bytes], begun: bytes, taken: bytes
) -> None:
    told(ask, looks, begun, taken, SOON)


def test_good_words_of_tasks_are_understood() -> None:
    course = [written(TASKS[name]) for name in ("working", "asking", "completed")]
    for ask in ASKS:
        assert told(ask, course, written(BEGUN), b'{"resultType": "complete"}') in ("", "CallerError"), ask
    assert told("call", [written(TASKS["failed"])], written(BEGUN), b"{}") == "MCPError"
    assert told("call", [written(TASKS["cancelled"])], written(BEGUN), b"{}") == "TaskCancelled"
