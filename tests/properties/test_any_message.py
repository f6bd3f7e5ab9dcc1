"""Anything that is sent to a session gives a reply, and no exception escapes; the session goes on as if nothing had
been said.

The tools here do what they should with whatever they are given, so nothing that a client sends may end in an internal
error or in a status above 499, and nothing may be logged as a failure.
"""

import asyncio
import json
import logging
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from typing import Annotated, Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.unit.handshaken import EVERYTHING, VERSIONS, Pipe, Web, accept, answering, body, calling, event, opening
from turnwise import Context, Elicit, InputRequiredResult, MCPServer, Resolve
from turnwise._messages import Reply
from turnwise._sessions import Session

CODES = {-32700, -32600, -32601, -32602, -32002, -32022, -32020, -32021, -32042}
PATIENCE = 30.0


def ask_city() -> Elicit[str]:
    return Elicit("City?", str, key="declared")


def add_tools(server: MCPServer[Any]) -> None:
    @server.tool()
    async def add(a: int, b: float = 1.5, c: list[int] | None = None) -> str:
        return "added"

    @server.tool()
    async def talk(ctx: Context, text: str = "x") -> str:
        await ctx.report_progress(1, message=text)
        await ctx.info({"text": text})
        return text

    @server.tool()
    async def ask(ctx: Context) -> str:
        form, said, roots = await asyncio.gather(ctx.elicit("A?", str), ctx.sample("B?"), ctx.roots())
        return f"{form.action} {said.role} {len(roots)}"

    @server.tool()
    async def declared(city: Annotated[str, Resolve(ask_city)]) -> str:
        return "declared"

    @server.tool()
    async def by_hand(ctx: Context) -> Any:
        if not ctx.input_responses:
            asked = {"roots": {"method": "roots/list"}}
            return InputRequiredResult.model_validate({"inputRequests": asked, "requestState": "mine"})
        return "answered"


def make_server() -> MCPServer[Any]:
    server: MCPServer[Any] = MCPServer("fuzz", page_size=2)
    add_tools(server)

    @server.prompt()
    async def review(code: str) -> str:
        return "reviewed"

    @server.resource("memo://today")
    async def today() -> str:
        return "rain"

    @server.resource("memo://{day}")
    async def memo(day: str) -> str:
        return day

    @server.completion()
    async def complete(ref: Any, argument: Any, context: Any) -> list[str]:
        return ["x"]

    return server


SERVER = make_server()


class Failures(logging.Handler):
    """Collects what is logged as an error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.found.append(record)


@contextmanager
def nothing_logged_as_failed() -> Iterator[None]:
    failures = Failures()
    logging.getLogger("turnwise").addHandler(failures)
    try:
        yield
    finally:
        logging.getLogger("turnwise").removeHandler(failures)
    assert not failures.found, failures.found[0].exc_info or failures.found[0].getMessage()


def check(message: Any) -> None:
    """Hold one message of the server against the protocol."""
    if isinstance(message, list):
        assert message
        for part in message:
            check(part)
        return
    assert message["jsonrpc"] == "2.0"
    if "method" in message:
        assert set(message) <= {"jsonrpc", "id", "method", "params"}
    elif "error" in message:
        assert set(message) <= {"jsonrpc", "id", "error"}
        assert type(message.get("id", "")) in (str, int)
        assert message["error"]["code"] in CODES, message
    else:
        assert set(message) == {"jsonrpc", "id", "result"}
        assert type(message["id"]) in (str, int)


async def drained(client: Web, session: Session, reply: Reply) -> None:
    """Read what comes; each question is refused, so that every stream ends."""
    assert 200 <= reply.status < 500
    if reply.events is None:
        assert (reply.body is None) == (reply.status in (202, 204))
        if reply.body is not None:
            check(json.loads(reply.body))
        return
    async with aclosing(reply.events) as events:
        async for raw in events:
            message = event(raw).message
            if message is None:
                continue
            check(message)
            for question in list(session.waits)[:1]:
                await client.reply({"jsonrpc": "2.0", "id": question, "error": {"code": -1, "message": "no"}})


def over_http(sent: bytes, version: str, **headers: Any) -> int:
    """The status, once all that came was checked, and the session still serves."""

    async def main() -> int:
        client = Web(SERVER)
        await client.open(version)
        async with asyncio.timeout(PATIENCE):
            reply = await client.reply(sent, **headers)
            await drained(client, client.session, reply)
        assert client.session.waits == {}
        assert client.session.calls == {}
        assert body(await client.reply(calling("add", {"a": 1}, id="after")))["result"]["content"]
        SERVER.close_subscriptions()
        return reply.status

    with nothing_logged_as_failed():
        return asyncio.run(main())


def over_a_line(sent: list[bytes], version: str) -> None:
    """Every line is answered or may not be, and the line still serves."""

    async def main() -> None:
        client = Pipe(SERVER)
        await client.open(version)
        for line in sent:
            task = asyncio.create_task(client.channel._serve(line))
            while not task.done():
                for question in list(client.session.waits):
                    refused = {"jsonrpc": "2.0", "id": question, "error": {"code": -1, "message": "no"}}
                    await client.say(refused)
                await asyncio.sleep(0)
            assert task.exception() is None
        await client.say(calling("add", {"a": 1}, id="the last one"))
        async with asyncio.timeout(PATIENCE):
            while isinstance(message := await client.heard.get(), list) or message.get("id") != "the last one":
                check(message)
        assert "result" in message
        await client.close()

    with nothing_logged_as_failed():
        asyncio.run(main())


# What is sent

TEXTS = st.text(st.characters(), max_size=12)
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(allow_nan=False, allow_infinity=False),
    TEXTS,
    st.sampled_from(["2.0", "ping", "add", "ask", "memo://today", "accept", "debug", *VERSIONS]),
)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3), max_leaves=8
)
METHODS = st.sampled_from(
    [
        "initialize",
        "ping",
        "logging/setLevel",
        "tools/list",
        "tools/call",
        "prompts/get",
        "prompts/list",
        "resources/read",
        "resources/list",
        "resources/templates/list",
        "resources/subscribe",
        "resources/unsubscribe",
        "completion/complete",
        "notifications/initialized",
        "notifications/cancelled",
        "notifications/roots/list_changed",
        "elicitation/create",
        "server/discover",
        "no/such",
    ]
)
PARAMS = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["add", "talk", "ask", "declared", "by_hand", "review"]) | VALUES,
        "arguments": st.dictionaries(st.sampled_from(["a", "b", "c", "text", "code"]), VALUES, max_size=3) | VALUES,
        "uri": st.sampled_from(["memo://today", "memo://x", "nowhere://"]) | VALUES,
        "cursor": VALUES,
        "level": st.sampled_from(["debug", "error"]) | VALUES,
        "requestId": st.integers(0, 3) | VALUES,
        "protocolVersion": st.sampled_from(VERSIONS) | VALUES,
        "capabilities": st.just(EVERYTHING) | VALUES,
        "clientInfo": VALUES,
        "ref": st.just({"type": "ref/prompt", "name": "review"}) | VALUES,
        "argument": st.just({"name": "code", "value": "x"}) | VALUES,
        "_meta": st.dictionaries(st.sampled_from(["progressToken", "x"]), VALUES, max_size=2) | VALUES,
    },
)
MESSAGES = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.just("2.0"),
        "id": st.integers(0, 3) | TEXTS | VALUES,
        "method": METHODS | VALUES,
        "params": PARAMS | VALUES,
        "result": VALUES,
        "error": VALUES,
    },
)
REQUESTS = st.fixed_dictionaries(
    {"jsonrpc": st.just("2.0"), "id": st.integers(0, 3) | TEXTS, "method": METHODS, "params": PARAMS}
)
BODIES = st.one_of(
    st.binary(max_size=200),
    (MESSAGES | REQUESTS | VALUES).map(lambda message: json.dumps(message).encode("utf-8", "surrogatepass")),
    st.lists(MESSAGES | REQUESTS | VALUES, max_size=4).map(lambda batch: json.dumps(batch).encode()),
)
SPOKEN = st.sampled_from(VERSIONS)


@settings(max_examples=settings().max_examples * 2)
@given(BODIES, SPOKEN)
@example(b"[" * 100_000, VERSIONS[0])
@example(b'{"a":' * 100_000, VERSIONS[3])
@example(b'{"jsonrpc":"2.0","id":"\\ud800","method":"ping"}', VERSIONS[3])
@example(b'{"jsonrpc":"2.0","id":' + b"9" * 400 + b',"method":"ping"}', VERSIONS[3])
@example(json.dumps([calling("ask", id=number) for number in range(100)]).encode(), VERSIONS[1])
def test_any_body_gives_a_reply_over_http(sent: bytes, version: str) -> None:
    over_http(sent, version)


@given(REQUESTS, SPOKEN)
def test_any_request_gives_a_reply_over_http(message: Any, version: str) -> None:
    over_http(json.dumps(message).encode(), version)


@given(st.lists(BODIES, max_size=8), SPOKEN)
def test_any_lines_are_answered(lines: list[bytes], version: str) -> None:
    over_a_line([line.replace(b"\n", b" ") + b"\n" for line in lines if line.strip()], version)


HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "mcp_session_id": st.text(st.characters(max_codepoint=255), max_size=40) | st.none(),
        "mcp_protocol_version": st.sampled_from([*VERSIONS, "2026-07-28", "DRAFT-2026-v1", "x"]) | TEXTS | st.none(),
        "last_event_id": st.from_regex(r"[0-9s]{0,3}_[0-9]{0,20}", fullmatch=True) | TEXTS,
        "mcp_method": st.sampled_from(["ping", "tools/call"]),
    },
)


@given(st.sampled_from(["GET", "DELETE"]), HEADERS, SPOKEN)
def test_any_headers_give_a_reply_to_other_verbs(verb: str, headers: dict[str, Any], version: str) -> None:
    async def main() -> None:
        client = Web(SERVER)
        await client.open(version)
        await client.played("talk", progressToken=1)
        session = client.session
        reply = await client.attend(verb, **headers)
        if reply is not None:
            assert reply.status in (200, 204, 400, 404)
            SERVER.close_subscriptions()
            await drained(client, session, reply)

    with nothing_logged_as_failed():
        asyncio.run(main())


@given(st.sampled_from([calling("ask"), calling("talk", {"text": "x"}), opening()]), HEADERS, SPOKEN)
def test_any_headers_give_a_reply_to_a_message(message: Any, headers: dict[str, Any], version: str) -> None:
    over_http(json.dumps(message).encode(), version, **headers)


ANSWERS = VALUES | st.fixed_dictionaries(
    {},
    optional={
        "action": st.sampled_from(["accept", "decline", "cancel"]) | VALUES,
        "content": st.fixed_dictionaries({"value": VALUES}) | VALUES,
        "role": st.just("assistant") | VALUES,
        "model": TEXTS | VALUES,
        "roots": st.lists(st.fixed_dictionaries({"uri": VALUES, "name": VALUES}), max_size=2) | VALUES,
    },
)
GOOD = {
    "elicitation/create": accept(value="Ulm"),
    "sampling/createMessage": {"role": "assistant", "model": "m", "content": {"type": "text", "text": "x"}},
    "roots/list": {"roots": []},
}


@given(
    st.sampled_from(["ask", "declared", "by_hand"]),
    st.lists(st.tuples(st.sampled_from(["result", "error"]), ANSWERS), max_size=5),
    SPOKEN,
)
def test_any_answers_to_questions_lead_to_an_end(tool: str, odd: list[tuple[str, Any]], version: str) -> None:
    async def main() -> None:
        client = Web(SERVER)
        await client.open(version)
        number = await client.call(tool)
        while (message := await client.next()).get("id") != number or "method" in message:
            check(message)
            if "id" in message:
                kind, answer = odd.pop() if odd else ("result", GOOD[message["method"]])
                sent = await client.reply({"jsonrpc": "2.0", "id": message["id"], kind: answer})
                if sent.status == 400:  # Half a character is no JSON, and no answer.
                    await client.say(answering(message, GOOD[message["method"]]))
        check(message)
        assert "result" in message
        assert client.session.waits == {}
        SERVER.close_subscriptions()
        await client.close()

    with nothing_logged_as_failed():
        asyncio.run(main())


@given(st.lists(st.tuples(ANSWERS, st.integers(-1, 5) | VALUES), max_size=6))
def test_answers_to_what_was_not_asked_change_nothing(strays: list[tuple[Any, Any]]) -> None:
    async def main() -> None:
        async def sent(message: Any) -> int:
            return (await client.reply(json.dumps(message).encode())).status

        client = Web(SERVER)
        await client.open()
        await client.call("ask")
        questions = [await client.next() for _ in range(3)]
        theirs = {question["id"] for question in questions}
        for answer, number in strays:
            if not (type(number) is int and number in theirs):
                assert await sent({"jsonrpc": "2.0", "id": number, "result": answer}) in (202, 400)
        for question in questions:
            await client.say(answering(question, GOOD[question["method"]]))
        assert (await client.next())["result"]["content"][0]["text"] == "accept assistant 0"
        SERVER.close_subscriptions()
        await client.close()

    with nothing_logged_as_failed():
        asyncio.run(main())
