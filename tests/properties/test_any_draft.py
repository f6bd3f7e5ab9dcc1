"""Anything that is sent on the wires of the proposals gives a reply with the request's id, and no exception escapes."""

import asyncio
import json
from contextlib import aclosing
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.properties.test_any_message import BODIES, CODES, GOOD, add_tools, nothing_logged_as_failed
from tests.properties.test_any_reply import changed
from tests.unit.handshaken import Web, calling, request
from turnwise import MCPServer, RequestStateSecurity
from turnwise._json import decode
from turnwise._messages import Reply
from turnwise.dialects.words import DRAFT_2026_02, DRAFTS, SEP_1858, SEP_2322

PATIENCE = 30.0
SERVER: MCPServer[Any] = MCPServer(
    "fuzz", dialects=DRAFTS, request_state_security=RequestStateSecurity(keys=[b"k" * 32]), page_size=2
)
add_tools(SERVER)
ANSWER = GOOD["elicitation/create"]
MADE_UP = {"A": ANSWER, "declared": ANSWER, "roots": {"roots": []}}
RETRIES: dict[str, Any] = {
    SEP_2322: request(
        "tools/call",
        {"name": "declared", "arguments": {}, "inputResponses": MADE_UP, "requestState": "s1.x", "_meta": {}},
    ),
    DRAFT_2026_02: {
        **calling("declared"),
        "input_responses": {key: {"result": answer} for key, answer in MADE_UP.items()},
        "request_state": "s1.x",
    },
    SEP_1858: {"jsonrpc": "2.0", "id": "declared", "result": ANSWER},
}


async def heard(reply: Reply) -> list[tuple[str, Any]]:
    """The messages of a reply with the ids of their events, all held against the protocol."""
    assert 200 <= reply.status < 500
    raw: list[tuple[str, bytes]] = [] if reply.body is None else [("", reply.body)]
    if reply.events is not None:
        async with aclosing(reply.events) as events:
            async for part in events:
                fields = dict(line.partition(": ")[::2] for line in part.decode().strip().split("\r\n"))
                raw.append((fields.get("id", ""), fields.get("data", "").encode()))
    found = [(last, json.loads(data)) for last, data in raw if data] + [(last, None) for last, data in raw if not data]
    for _, message in found:
        for part in message if isinstance(message, list) else [message]:
            if part is not None:
                assert part["jsonrpc"] == "2.0"
                assert "error" not in part or part["error"]["code"] in CODES, part
    return found


def check_id(sent: bytes, messages: list[tuple[str, Any]]) -> None:
    """A reply has the id of its request, where that can be read."""
    try:
        number = decode(sent)["id"]
    except (ValueError, KeyError, TypeError):
        return
    replies = [part for _, part in messages if isinstance(part, dict) and "method" not in part]
    assert all(part.get("id") in (number, None) for part in replies)
    assert all(part["id"] == number for part in replies if "result" in part)


def sent_to(version: str, *bodies: bytes, in_session: bool = True, **headers: Any) -> None:
    async def main() -> None:
        client = Web(SERVER)
        if in_session:
            await client.open(version)
        else:
            client.version = version
        async with asyncio.timeout(PATIENCE):
            for body in bodies:
                check_id(body, await heard(await client.reply(body, **headers)))
            after = await heard(await client.reply(calling("add", {"a": 1}, id="after")))
        assert after[-1][1]["id"] == "after"
        assert "result" in after[-1][1]
        SERVER.close_subscriptions()

    with nothing_logged_as_failed():
        asyncio.run(main())


VERSIONS = st.sampled_from(DRAFTS)


@given(st.lists(BODIES, min_size=1, max_size=3), VERSIONS, st.booleans())
@example([b"[" * 100_000], SEP_1858, True)
def test_any_body_gives_a_reply(bodies: list[bytes], version: str, in_session: bool) -> None:
    sent_to(version, *bodies, in_session=in_session or version == SEP_1858)


@settings(max_examples=settings().max_examples * 2)
@given(st.data(), VERSIONS, st.booleans())
def test_any_retry_gives_a_reply(data: st.DataObject, version: str, in_session: bool) -> None:
    retry = data.draw(changed(RETRIES[version]))
    sent_to(version, retry, in_session=in_session or version == SEP_1858)


@settings(max_examples=settings().max_examples * 2)
@given(st.data(), VERSIONS, st.sampled_from(["ask", "declared", "by_hand"]))
def test_any_answers_to_what_was_asked_give_a_reply(data: st.DataObject, version: str, tool: str) -> None:
    """A good token, beside which anything may stand."""

    async def main() -> None:
        client = Web(SERVER)
        await client.open(version)
        asked = await heard(await client.reply(calling(tool)))
        last, first = asked[-1][0], asked[0][1]
        if version == SEP_1858:
            questions = [message for _, message in asked if message is not None and "method" in message]
            answers = [{"jsonrpc": "2.0", "id": one["id"], "result": GOOD[one["method"]]} for one in questions]
            one = data.draw(changed(answers[0]))
            body = b"[" + b",".join([one, *(json.dumps(part).encode() for part in answers[1:])]) + b"]"
            await heard(await client.reply(body, last_event_id=last))
            return
        facts = first if version == DRAFT_2026_02 else first["result"]
        given_back = {key: {"result": ANSWER} for key in facts.get("input_requests", {})}
        retry: dict[str, Any] = {
            **calling(tool),
            "input_responses": given_back,
            "request_state": facts.get("request_state"),
        }
        if version == SEP_2322:
            plain = dict.fromkeys(facts["inputRequests"], ANSWER)
            retry = calling(tool)
            retry["params"] |= {"inputResponses": plain, "requestState": facts["requestState"]}
        await heard(await client.reply(data.draw(changed(retry))))

    with nothing_logged_as_failed():
        asyncio.run(main())


@given(VERSIONS, st.text(st.characters(max_codepoint=255), max_size=60))
def test_any_last_event_gives_a_reply(version: str, last: str) -> None:
    sent_to(version, b'[{"jsonrpc":"2.0","id":"a","result":{}}]', last_event_id=last)
