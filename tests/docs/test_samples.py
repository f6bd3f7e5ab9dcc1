"""The documentation is true: every sample is run, every block is the file that it names, every link leads somewhere."""

import asyncio
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp_types import ElicitRequestParams, ElicitResult

from tests.docs.loading import ENVIRONMENT, ROOT, SAMPLES, load
from tests.ports import free_port
from turnwise import AccessToken, Change, Context, MCPError, MCPServer, RequestStateSecurity
from turnwise.errors import TooManyRounds
from turnwise.testing import Connection, connect

PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])
VERSION = "2026-07-28"
Answer = dict[str, Any]


class User:
    """Answers from a list, in order, and remembers what was asked."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []
        self.forms: list[Any] = []

    async def __call__(self, connection: Any, params: Any) -> Answer:
        self.asked.append(params.message)
        self.forms.append(getattr(params, "requested_schema", None))
        answer = self.answers.pop(0)
        if answer in ("decline", "cancel"):
            return {"action": answer}
        return {"action": "accept", "content": answer if isinstance(answer, dict) else {"value": answer}}


async def sampling(connection: Any, params: Any) -> Answer:
    return {"role": "assistant", "model": "m", "content": {"type": "text", "text": "It is short."}}


async def roots(connection: Any) -> Answer:
    return {"roots": [{"uri": "file:///home/ada/papers"}]}


@asynccontextmanager
async def talk(sample: ModuleType, *answers: Any) -> AsyncIterator[tuple[Connection, User]]:
    """A client of a sample's server, with a user who gives these answers."""
    user = User(*answers)
    server = getattr(sample, "server", None) or sample.mcp
    async with connect(
        server, elicitation_callback=user, sampling_callback=sampling, list_roots_callback=roots
    ) as client:
        yield client, user


def call(sample: ModuleType, tool: str, arguments: Mapping[str, Any] | None = None, *answers: Any) -> tuple[Any, User]:
    """What a tool returns as data (or the text of its error), and the user who was asked."""

    async def run() -> tuple[Any, User]:
        async with talk(sample, *answers) as (client, user):
            result = await client.call_tool(tool, arguments or {})
            assert not user.answers, "fewer questions than answers"
            if result.is_error:
                return getattr(result.content[0], "text", None), user
            data = result.structured_content or {}
            return data.get("result", data), user

    return asyncio.run(run())


def rounds(sample: ModuleType, tool: str, arguments: Mapping[str, Any] | None, *answers: Any) -> int:
    """How many rounds a call takes."""

    async def run() -> int:
        async with talk(sample, *answers) as (client, _):
            await client.call_tool(tool, arguments or {})
            return len(client.rounds)

    return asyncio.run(run())


# Start


def test_the_first_tool_answers_without_asking() -> None:
    assert call(load("start/hello.py"), "seats_left", {"flight": "TW 2322"})[0] == 7


def test_the_booking_of_the_start_page_asks_and_wants_a_row_that_exists() -> None:
    result, user = call(load("start/booking.py"), "book", {"flight": "TW 2322"}, {"row": 99}, {"row": 12})
    assert result == "Booked row 12 on TW 2322."
    assert user.asked == ["Which seat on TW 2322?"] * 2


def test_the_test_of_the_start_page_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(SAMPLES / "start"))
    load("start/test_booking.py").test_a_seat_is_booked()
    sys.modules.pop("booking")


# Asking


def test_the_inline_form_asks_in_the_middle() -> None:
    sample = load("asking/inline.py")
    address = {"street": "Long Lane 1", "city": "York"}
    assert call(sample, "send", {"parcel": "the lamp"}, address)[0] == "the lamp goes to York."
    assert call(sample, "send", {"parcel": "the lamp"}, "cancel")[0] == "the lamp stays here."


def test_the_declared_form_fills_parameters_that_the_caller_does_not_see() -> None:
    sample = load("asking/declared.py")
    york = {"street": "Long Lane 1", "city": "York"}
    result, user = call(sample, "send", {"parcel": "the lamp"}, york, True)
    assert result == "the lamp goes to York by express."
    assert user.asked == ["Where should the lamp go?", "Express to York?"]
    there = {"street": "Laugavegur 1", "city": "Reykjavik"}
    assert call(sample, "send", {"parcel": "the lamp"}, there)[0] == "the lamp goes to Reykjavik."
    assert call(sample, "send", {"parcel": "the lamp"}, "decline")[0] == "The request for 'address' was declined"

    async def listed() -> Any:
        async with talk(sample) as (client, _):
            return (await client.list_tools()).tools[0].input_schema["properties"]

    assert list(asyncio.run(listed())) == ["parcel"]


def test_the_returned_form_gets_its_answers_and_its_state_back() -> None:
    result, _ = call(load("asking/returned.py"), "send", {"parcel": "the lamp"}, {"city": "York"})
    assert result == "the lamp goes to York (weighed: 3 kg)."


def test_the_state_of_the_returned_form_is_sealed_on_the_wire() -> None:
    async def run() -> str:
        async with talk(load("asking/returned.py"), {"city": "York"}) as (client, _):
            await client.call_tool("send", {"parcel": "the lamp"})
            return str(client.rounds[0].reply["result"]["requestState"])

    assert "weighed" not in asyncio.run(run())


def test_the_three_forms_mix() -> None:
    result, user = call(load("asking/mixed.py"), "send", {"parcel": "it"}, "York", True, {"name": "Ada"})
    assert result == "York, insured: True, signed: True."
    assert user.asked == ["To which city does it go?", "Insure it on the way to York?", "Please sign"]


def test_a_form_shows_choices_limits_and_defaults() -> None:
    wish = {"dish": "stew", "size": "large", "day": "2026-07-28"}
    result, user = call(load("asking/forms.py"), "order", None, {"dish": "x"}, wish)
    assert result == "large stew for 2, mild, on 2026-07-28."
    form = user.forms[0]
    assert form["required"] == ["dish"]
    assert form["properties"]["dish"]["minLength"] == 2
    assert form["properties"]["dish"]["description"] == "What you would like to eat"
    assert form["properties"]["size"]["enum"] == ["small", "large"]
    assert form["properties"]["spice"] == {
        "default": "mild",
        "enum": ["mild", "hot"],
        "title": "Spice",
        "type": "string",
    }
    assert form["properties"]["sides"]["items"]["enum"] == ["rice", "bread", "salad"]
    assert form["properties"]["day"] == {"type": "string", "format": "date", "title": "Day"}
    assert call(load("asking/forms.py"), "order", None, {"dish": "stew"})[0] == "small stew for 2, mild, on any day."


def test_a_nested_form_is_refused_when_it_is_asked() -> None:
    inline = load("asking/inline.py")

    class Nested(inline.BaseModel):  # type: ignore[name-defined, misc]
        address: inline.Address  # type: ignore[name-defined]

    server = MCPServer("nested")

    @server.tool()
    async def ask(ctx: Context) -> str:
        await ctx.elicit("?", Nested)
        return ""

    vars(inline)["server"] = server
    assert call(inline, "ask")[0] == "The tool failed; the server's log says why."


def test_a_plain_type_is_a_form_with_one_field() -> None:
    result, user = call(load("asking/plain.py"), "serve", None, "tea", 2)
    assert result == "2 cups of tea."
    assert [list(form["properties"]) for form in user.forms] == [["value"], ["value"]]


def test_a_list_is_a_choice_and_a_dataclass_a_form() -> None:
    sample = load("asking/choices.py")
    result, user = call(sample, "lunch", None, "pizza", "fish", {"persons": 2, "outside": True})
    assert result == "Fish for 2 outside."
    assert [list(form["properties"]) for form in user.forms] == [["value"], ["value"], ["persons", "outside"]]


def test_a_page_is_asked_for_until_the_payment_is_there() -> None:
    sample = load("asking/pages.py")

    async def run() -> tuple[str, list[str]]:
        urls: list[str] = []

        async def visit(connection: Any, params: Any) -> Answer:
            urls.append(params.url)
            if len(urls) == 2:
                sample.paid.add(params.url.rpartition("/")[2])
            return {"action": "accept"}

        async with connect(sample.server, elicitation_callback=visit) as client:
            result = await client.call_tool("buy", {"event": "the opera"})
        return (result.structured_content or {})["result"], urls

    result, urls = asyncio.run(run())
    assert result == "One ticket for the opera."
    assert len(urls) == 2
    assert urls[0] == urls[1]
    assert call(sample, "buy", {"event": "the opera"}, "decline")[0] == "No ticket was bought."


def test_the_model_and_the_folders_of_the_client_are_asked_for() -> None:
    sample = load("asking/model.py")
    assert call(sample, "summarize", {"text": "long"})[0] == "It is short."
    assert call(sample, "folders")[0] == ["file:///home/ada/papers"]


@pytest.mark.parametrize(
    ("tool", "result"),
    [("by_name", "York to Bath, 1 folders"), ("by_place", "York to Bath"), ("by_tasks", "York to Bath")],
)
def test_questions_asked_together_take_one_round(tool: str, result: str) -> None:
    sample = load("asking/together.py")
    assert call(sample, tool, None, "York", "Bath")[0] == result
    assert rounds(sample, tool, None, "York", "Bath") == 2


def test_keys_are_the_authors_and_are_numbered_from_their_second_use_on() -> None:
    async def run() -> tuple[Any, list[list[str]]]:
        async with talk(load("asking/keys.py"), "Ada", 5, 4, 3) as (client, _):
            result = await client.call_tool("survey")
            replies = [turn.reply["result"].get("inputRequests", {}) for turn in client.rounds]
            return result.structured_content, [list(asked) for asked in replies]

    result, keys = asyncio.run(run())
    assert result == {"result": "Ada gave 12."}
    assert keys == [["name"], ["mark"], ["mark#2"], ["mark#3"], []]


def test_a_refusal_is_an_answer_inline_and_an_error_where_a_value_was_declared() -> None:
    sample = load("asking/refused.py")
    assert call(sample, "delete_all", None, True)[0] == "Deleted."
    assert call(sample, "delete_all", None, "decline")[0] == "The user does not want this. Do not try again."
    assert call(sample, "delete_all", None, "cancel")[0] == "The user closed the question. You may ask again later."
    assert call(sample, "empty", None, "Drafts")[0] == "Drafts is empty."
    assert call(sample, "empty", None, "cancel")[0] == "The request for 'folder' was cancelled"
    assert call(sample, "tidy", None, "decline")[0] == "Everything is tidy."
    assert call(sample, "tidy", None, "Drafts")[0] == "Drafts is tidy."


def test_a_wrong_answer_is_asked_for_again_until_the_client_has_had_enough() -> None:
    sample = load("asking/plain.py")
    assert call(sample, "serve", None, "milk", "tea", "many", 2)[0] == "2 cups of tea."

    async def stubborn() -> None:
        async with connect(sample.server, elicitation_callback=User(*["milk"] * 20), max_rounds=10) as client:
            await client.call_tool("serve")

    with pytest.raises(TooManyRounds):
        asyncio.run(stubborn())


def test_a_client_that_cannot_ask_gets_a_fallback_or_an_error_that_says_what_it_lacks() -> None:
    sample = load("asking/capabilities.py")
    assert call(sample, "search", {"words": "tea"}, 1999)[0] == "Hits for 'tea' of 1999."

    async def without() -> MCPError:
        async with connect(sample.server) as client:
            result = await client.call_tool("search", {"words": "tea"})
            assert result.structured_content == {"result": "The first ten of all hits for 'tea'."}
            with pytest.raises(MCPError) as refused:
                await client.call_tool("search_strictly", {"words": "tea"})
            return refused.value

    error = asyncio.run(without())
    assert error.code == -32021
    assert error.data == {"requiredCapabilities": {"elicitation": {"form": {}}}}


def test_prompts_resources_and_templates_ask() -> None:
    async def run() -> list[Any]:
        async with talk(load("asking/elsewhere.py"), "from school", "Ada", True) as (client, _):
            prompt = await client.get_prompt("letter", {"recipient": "Bob"})
            static = await client.read_resource("letters://signature")
            templated = await client.read_resource("letters://1843/index")
            return [prompt.messages[0].content, static.contents[0], templated.contents[0]]

    assert [part.text for part in asyncio.run(run())] == [
        "Write a letter to Bob, whom I know like this: from school",
        "Yours, Ada",
        "1843: all letters",
    ]


def test_a_refused_prompt_is_a_json_rpc_error() -> None:
    async def run() -> None:
        async with talk(load("asking/elsewhere.py"), "decline") as (client, _):
            await client.get_prompt("letter", {"recipient": "Bob"})

    with pytest.raises(MCPError, match="The request for 'tone' was declined") as refused:
        asyncio.run(run())
    assert refused.value.code == -32603


def official(sample: str) -> Any:
    """A sample with its import line turned back to the official SDK."""
    source = (SAMPLES / sample).read_text()
    assert source.count("from turnwise import") == 1
    namespace: dict[str, Any] = {}
    exec(source.replace("from turnwise import", "from mcp.server.mcpserver import"), namespace)
    return namespace["mcp"]


def test_what_was_written_for_the_official_sdk_runs_and_gives_the_same() -> None:
    async def there(server: Any) -> list[Any]:
        async def choose(context: Any, params: ElicitRequestParams) -> ElicitResult:
            return ElicitResult(action="accept", content={"region": "Maine"})

        async with Client(server, elicitation_callback=choose) as client:
            result = await client.call_tool("forecast", {"city": "Portland"})
            prompt = await client.get_prompt("weather_report", {"city": "Portland"})
            resource = await client.read_resource("weather://Portland/today")
            return [result.structured_content, prompt.messages, resource.contents[0]]

    async def here() -> list[Any]:
        async with talk(load("asking/from_sdk.py"), {"region": "Maine"}) as (client, _):
            result = await client.call_tool("forecast", {"city": "Portland"})
            prompt = await client.get_prompt("weather_report", {"city": "Portland"})
            resource = await client.read_resource("weather://Portland/today")
            return [result.structured_content, prompt.messages, resource.contents[0]]

    assert asyncio.run(here()) == asyncio.run(there(official("asking/from_sdk.py")))


# Steps


def test_a_step_is_taken_once_however_many_questions_follow() -> None:
    sample = load("steps/order.py")
    assert call(sample, "buy", {"article": "tea", "card": "4242"}, True, True)[0] == "tea, wrapped, receipt R-1."
    assert sample.charges == [("4242", 1200)]


def test_a_step_gives_back_the_type_that_it_is_annotated_with() -> None:
    result, user = call(load("steps/typed.py"), "borrow", {"book": "Emma"}, True)
    assert result == "Emma until 2026-08-25, with a reminder."
    assert user.asked == ["Remind you before 2026-08-25?"]


def test_clock_numbers_and_identifiers_are_the_same_in_every_round() -> None:
    result, user = call(load("steps/same_again.py"), "draw", None, True)
    assert user.asked == [f"Keep ticket {result['ticket']} with number {result['number']}?"]
    assert float(result["at"]) > 0
    assert len(result["flow"]) == 32
    assert call(load("steps/same_again.py"), "draw", None, True)[0]["flow"] != result["flow"]


def test_a_failed_step_fails_alike_in_every_round_and_runs_once() -> None:
    sample = load("steps/failing.py")
    result, user = call(sample, "meet", {"room": "blue"}, "red")
    assert result == "Here is the key of red."
    assert user.asked == ["blue is taken (until five). Which one instead?"]
    assert sample.attempts == ["blue", "red"]
    assert call(sample, "meet", {"room": "attic"})[0] == "The attic is closed."


def test_a_step_with_other_arguments_is_refused_unless_it_may_run_again() -> None:
    assert call(load("steps/changed.py"), "wrong", None, True)[0] == "The tool failed; the server's log says why."
    assert call(load("steps/changed.py"), "right", None, True)[0] == "1.10"
    assert call(load("steps/changed.py"), "harmless", None, True)[0] == "1.20"


def test_steps_in_a_loop_have_names_of_their_own() -> None:
    sample = load("steps/many.py")
    result, _ = call(sample, "ship_all", {"parcels": ["a", "b"]}, True)
    assert result == ["a is under way", "b is under way"]
    assert sample.shipped == ["a", "b"]


# Serving


HEADERS = {"accept": "application/json, text/event-stream", "mcp-protocol-version": VERSION}


def message(method: str, params: Mapping[str, Any], capabilities: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """A request, complete in itself."""
    meta = {
        "io.modelcontextprotocol/protocolVersion": VERSION,
        "io.modelcontextprotocol/clientCapabilities": dict(capabilities or {}),
    }
    return {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}


def post(app: Any, url: str, name: str = "tick", arguments: Answer | None = None, **headers: str) -> httpx2.Response:
    """One tool call to an ASGI application, without a network."""
    body = message("tools/call", {"name": name, "arguments": arguments or {}})
    sent = {**HEADERS, "mcp-method": "tools/call", "mcp-name": name, **headers}

    async def run() -> httpx2.Response:
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app)) as client:
            return await client.post(url, json=body, headers=sent)

    return asyncio.run(run())


def get(app: Any, url: str) -> httpx2.Response:
    async def run() -> httpx2.Response:
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app)) as client:
            return await client.get(url)

    return asyncio.run(run())


@contextmanager
def serving(script: Path, *arguments: str, **environment: str) -> Iterator["subprocess.Popen[str]"]:
    """A sample in a process of its own, once it says that it listens."""
    command = [sys.executable, str(script), *arguments]
    environment = {**ENVIRONMENT, **environment}
    with subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


def await_listener(process: "subprocess.Popen[str]", port: int) -> None:
    for _ in range(500):
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except ConnectionRefusedError:
            try:
                process.wait(timeout=0.02)
            except subprocess.TimeoutExpired:
                continue
            pytest.fail(f"the server ended with status {process.returncode} before it listened")
        return
    pytest.fail("the server does not listen")


def test_a_server_runs_over_http() -> None:
    port = free_port()
    with serving(SAMPLES / "serving/over_http.py", PORT=str(port)) as process:
        await_listener(process, port)
        body = message("tools/call", {"name": "tick"})
        headers = {**HEADERS, "mcp-method": "tools/call", "mcp-name": "tick"}
        reply = httpx2.post(f"http://127.0.0.1:{port}/mcp", json=body, headers=headers).json()
    assert reply["result"]["structuredContent"] == {"result": "tick"}


def test_a_server_runs_over_standard_streams_and_prints_to_the_other_one() -> None:
    line = json.dumps(message("tools/call", {"name": "tick"})) + "\n"
    command = [sys.executable, str(SAMPLES / "serving/over_stdio.py")]
    done = subprocess.run(command, input=line, env=ENVIRONMENT, capture_output=True, text=True, check=True, timeout=20)
    assert json.loads(done.stdout)["result"]["structuredContent"] == {"result": "tick"}
    assert done.stderr == "this goes to standard error\n"


@pytest.mark.parametrize("name", ["serving/in_starlette.py", "serving/in_fastapi.py"])
def test_a_server_is_mounted_in_another_application(name: str) -> None:
    app = load(name).app
    reply = post(app, "http://127.0.0.1:8000/tools/mcp")
    assert reply.json()["result"]["structuredContent"] == {"result": "tick"}
    assert "well" in get(app, "http://127.0.0.1:8000/health").text


def test_a_page_is_served_beside_the_endpoint() -> None:
    app = load("serving/own_pages.py").app
    assert get(app, "http://127.0.0.1:8000/health").text == "well"
    assert post(app, "http://127.0.0.1:8000/mcp").json()["result"]["structuredContent"] == {"result": "tick"}


async def live(app: Any, meanwhile: Callable[[], Awaitable[None]]) -> None:
    """An application's whole life, as an ASGI server announces it."""
    told: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    heard: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    task = asyncio.create_task(app({"type": "lifespan", "asgi": {"version": "3.0"}}, told.get, heard.put))
    await told.put({"type": "lifespan.startup"})
    assert (await heard.get())["type"] == "lifespan.startup.complete"
    await meanwhile()
    await told.put({"type": "lifespan.shutdown"})
    assert (await heard.get())["type"] == "lifespan.shutdown.complete"
    await task


def test_a_lifespan_frames_the_life_of_the_application() -> None:
    sample = load("serving/life.py")
    pools = []

    async def meanwhile() -> None:
        pools.append(sample.server.lifespan_state)
        assert pools[0].is_open

    asyncio.run(live(sample.server.asgi(), meanwhile))
    assert not pools[0].is_open
    assert call(sample, "fetch")[0] == "42"


def test_a_mounted_server_leaves_its_lifespan_with_the_application_around_it() -> None:
    life, sample = load("serving/life.py"), load("serving/in_starlette.py")
    server: MCPServer[Any] = MCPServer("clock", lifespan=life.lifespan)
    vars(sample)["server"] = server
    app = sample.Starlette(routes=[sample.Mount("/tools", app=server.asgi())], lifespan=sample.lifespan)

    async def meanwhile() -> None:
        body = message("server/discover", {})
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app)) as client:
            headers = {**HEADERS, "mcp-method": "server/discover"}
            reply = await client.post("http://127.0.0.1/tools/mcp", json=body, headers=headers)
            assert reply.status_code == 200

    asyncio.run(live(app, meanwhile))
    assert not server.lifespan_state.is_open


def test_hosts_and_origins_are_let_in_by_name() -> None:
    app = load("serving/behind_proxy.py").app
    assert post(app, "http://mcp.example.com/mcp").status_code == 200
    assert post(app, "http://mcp.example.com:8443/mcp").status_code == 200
    assert post(app, "http://127.0.0.1:8000/mcp").status_code == 421
    assert post(app, "http://mcp.example.com/mcp", origin="https://app.example.com").status_code == 200
    assert post(app, "http://mcp.example.com/mcp", origin="https://mcp.example.com").status_code == 200
    assert post(app, "http://mcp.example.com/mcp", origin="https://evil.example").status_code == 403
    assert post(app, "http://mcp.example.com/mcp", arguments={"x": "y" * 300_000}).status_code == 413
    assert get(app, "http://mcp.example.com/mcp").status_code == 405


def test_without_names_only_this_machine_is_let_in() -> None:
    app = load("serving/over_http.py").server.asgi()
    assert post(app, "http://localhost:8000/mcp").status_code == 200
    refused = post(app, "http://mcp.example.com/mcp")
    assert refused.status_code == 421
    assert "allowed_hosts" in refused.json()["error"]["message"]
    everywhere = load("serving/over_http.py").server.asgi(host="0.0.0.0")
    assert post(everywhere, "http://mcp.example.com/mcp").status_code == 200
    assert post(everywhere, "http://mcp.example.com/mcp", origin="https://evil.example").status_code == 403


async def begin(server: MCPServer[Any], tool: str, arguments: Answer | None = None, **options: Any) -> Answer:
    """The first round of a call, and what the client would send next but for the answers."""
    params = {"name": tool, "arguments": arguments or {}}
    async with connect(server, **options) as client:
        client.capabilities = {"elicitation": {}}
        asked = await client.request("tools/call", params)
    key = next(iter(asked["inputRequests"]))
    return {**params, "requestState": asked["requestState"], "key": key}


async def carry_on(server: MCPServer[Any], begun: Answer, value: Any, **options: Any) -> Answer:
    """The second round of a call."""
    answers = {begun["key"]: {"action": "accept", "content": {"value": value}}}
    retry = {name: part for name, part in begun.items() if name != "key"} | {"inputResponses": answers}
    async with connect(server, **options) as client:
        client.capabilities = {"elicitation": {}}
        return await client.request("tools/call", retry)


def test_instances_with_shared_keys_carry_on_each_others_flows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TURNWISE_KEYS", os.urandom(32).hex())
    one, two = load("serving/fleet.py").server, load("serving/fleet.py").server

    async def run() -> Answer:
        return await carry_on(two, await begin(one, "set_clock"), "noon")

    assert asyncio.run(run())["structuredContent"] == {"result": "It is noon."}
    monkeypatch.setenv("TURNWISE_KEYS", os.urandom(32).hex())
    two = load("serving/fleet.py").server
    with pytest.raises(MCPError, match="Invalid or expired requestState"):
        asyncio.run(run())


def test_a_key_made_as_the_page_says_is_long_enough() -> None:
    command = re.search(r"^    (python -c \"import secrets.*)$", (ROOT / "docs/guides/serving.md").read_text(), re.M)
    assert command is not None
    code = command[1].removeprefix('python -c "').removesuffix('"')
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=20)
    RequestStateSecurity(keys=[made.stdout.strip()])
    with pytest.raises(ValueError, match="32 bytes"):
        RequestStateSecurity(keys=["too short"])


def test_a_rotation_in_three_phases_loses_no_flow() -> None:
    rotation = load("serving/rotation.py")
    old, new = os.urandom(32).hex(), os.urandom(32).hex()

    def server(phase: int) -> MCPServer[Any]:
        security = RequestStateSecurity(keys=[old]) if phase == 0 else rotation.phase(phase, old, new)
        made = MCPServer("clock", request_state_security=security)

        @made.tool()
        async def set_clock(ctx: Context) -> str:
            return (await ctx.elicit("What time is it?", str)).action

        return made

    async def flow(first: int, second: int) -> Any:
        return (await carry_on(server(second), await begin(server(first), "set_clock"), "noon"))["structuredContent"]

    for phase in (0, 1, 2):
        assert asyncio.run(flow(phase, phase + 1)) == {"result": "accept"}
        assert asyncio.run(flow(phase + 1, phase)) == {"result": "accept"} or phase == 2
    with pytest.raises(MCPError, match="Invalid or expired requestState"):
        asyncio.run(flow(2, 0))


async def heard_by(server: MCPServer[Any], wanted: Answer, act: Callable[[Connection], Awaitable[Any]]) -> list[Any]:
    """What a listener hears while something is done to the server, up to the end of the subscription."""
    async with connect(server) as listener, connect(server) as actor:
        listening = asyncio.create_task(listener.request("subscriptions/listen", {"notifications": wanted}))
        for _ in range(10):
            await asyncio.sleep(0)
        assert [heard["method"] for heard in listener.notifications] == ["notifications/subscriptions/acknowledged"]
        await act(actor)
        server.close_subscriptions()
        await listening
    return [(heard["method"], heard["params"].get("uri")) for heard in listener.notifications[1:]]


def test_changes_are_heard_by_those_who_asked_for_them() -> None:
    sample = load("serving/changes.py")

    async def act(client: Connection) -> None:
        await client.call_tool("write", {"number": "1", "text": "Buy bread"})
        await client.call_tool("write", {"number": "2", "text": "Sleep"})
        await client.call_tool("learn")
        await sample.imported("1", "Buy both")

    wanted = {"toolsListChanged": True, "resourceSubscriptions": ["notes://1"]}
    heard = asyncio.run(heard_by(sample.server, wanted, act))
    assert ("notifications/resources/updated", "notes://1") in heard
    assert ("notifications/tools/list_changed", None) in heard
    assert len({uri for _, uri in heard}) == 2
    assert call(sample, "count")[0] == 2


def test_a_bus_of_ones_own_reaches_every_instance() -> None:
    sample = load("serving/own_bus.py")

    class Broker:
        def __init__(self) -> None:
            self.ears: list[Callable[[str], Awaitable[None]]] = []

        async def send(self, message: str) -> None:
            for hear in self.ears:
                await hear(message)

        def listen(self, hear: Callable[[str], Awaitable[None]]) -> None:
            self.ears.append(hear)

    broker = Broker()
    one, two = sample.make_server(broker), sample.make_server(broker)

    async def act(client: Connection) -> None:
        await two.publish(Change("prompts"))

    heard = asyncio.run(heard_by(one, {"promptsListChanged": True}, act))
    assert heard == [("notifications/prompts/list_changed", None)]


def test_results_say_how_long_they_keep_and_lists_come_in_pages() -> None:
    async def run() -> list[Any]:
        async with talk(load("serving/caching.py")) as (client, _):
            first = await client.request("tools/list")
            second = await client.request("tools/list", {"cursor": first["nextCursor"]})
            world = await client.request("resources/read", {"uri": "atlas://world"})
            here = await client.request("resources/read", {"uri": "atlas://here"})
            return [first, second, world, here]

    first, second, world, here = asyncio.run(run())
    assert [(part["ttlMs"], part["cacheScope"]) for part in (first, second, world, here)] == [
        (300_000, "public"),
        (300_000, "public"),
        (86_400_000, "public"),
        (1_000, "private"),
    ]
    assert [tool["name"] for tool in first["tools"]] == ["distance_by_car", "distance_by_train"]
    assert [tool["name"] for tool in second["tools"]] == ["distance_on_foot"]
    assert "nextCursor" not in second


def test_a_schema_by_hand_is_held_against_the_arguments() -> None:
    async def visit() -> None:
        async with connect(load("serving/schemas.py").server) as client:
            (tool,) = (await client.request("tools/list"))["tools"]
            assert tool["inputSchema"]["properties"]["pages"]["pattern"] == "^[0-9]+(-[0-9]+)?$"
            assert "printing 2-5" in str(await client.call_tool("print_pages", {"pages": "2-5"}))
            assert (await client.call_tool("print_pages", {"pages": "all"})).is_error

    asyncio.run(visit())


def test_a_mirrored_parameter_must_be_in_its_header() -> None:
    app = load("serving/headers.py").server.asgi()
    arguments = {"sql": "SELECT 1", "region": "eu"}
    url = "http://127.0.0.1/mcp"
    good = post(app, url, "query", arguments, **{"mcp-param-region": "eu"})
    assert good.json()["result"]["structuredContent"] == {"result": "SELECT 1 in eu"}
    for headers in ({}, {"mcp-param-region": "us"}):
        refused = post(app, url, "query", arguments, **headers)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, -32020)


def test_low_level_handlers_list_call_ask_and_serve_methods_of_their_own() -> None:
    async def run() -> list[Any]:
        async with talk(load("serving/lowlevel.py"), {"region": "eu"}) as (client, _):
            tools = (await client.list_tools()).tools
            result = await client.call_tool("deploy")
            with pytest.raises(MCPError, match="Unknown tool: destroy"):
                await client.call_tool("destroy")
            pong = await client.request("com.example/ping", {"payload": 7})
            offered = await client.request("server/discover")
            return [tools[0].name, result.content[0], pong["pong"], "tools" in offered["capabilities"]]

    name, content, pong, offers_tools = asyncio.run(run())
    assert (name, content.text, pong, offers_tools) == ("deploy", "Deployed to eu.", 7, True)


# Concepts


def test_the_table_decides_whether_a_voucher_is_redeemed_not_the_token() -> None:
    sample = load("concepts/once.py")

    async def run() -> list[Any]:
        begun = await begin(sample.server, "redeem", {"voucher": "V1"})
        again = await begin(sample.server, "redeem", {"voucher": "V1"})
        return [await carry_on(sample.server, flow, True) for flow in (begun, begun, again)]

    first, resent, other = asyncio.run(run())
    assert first["structuredContent"] == {"result": "V1 is redeemed."}
    assert resent["structuredContent"] == {"result": "V1 is redeemed."}
    assert other["isError"]
    assert sample.table.execute("SELECT count(*) FROM redeemed").fetchone() == (1,)
    sample.table.close()


def test_permission_is_checked_in_every_round_and_a_token_serves_nobody_else() -> None:
    sample = load("concepts/permission.py")
    alice, bob = AccessToken("a", "cli", subject="alice"), AccessToken("b", "cli", subject="bob")

    async def run() -> Answer:
        begun = await begin(sample.server, "rename", {"page": "Home"}, access=alice)
        sample.editors.add("bob")
        with pytest.raises(MCPError, match="Invalid or expired requestState"):
            await carry_on(sample.server, begun, "Start", access=bob)
        sample.editors.remove("alice")
        return await carry_on(sample.server, begun, "Start", access=alice)

    result = asyncio.run(run())
    assert result["isError"]
    assert result["content"][0]["text"] == "You may not edit this page."


def asking(server: MCPServer[Any]) -> MCPServer[Any]:
    """A server with a tool that asks."""

    @server.tool()
    async def ask(ctx: Context) -> str:
        return (await ctx.elicit("Well?", str)).action

    return server


def test_a_codec_of_ones_own_seals_and_refuses() -> None:
    server = asking(load("concepts/codec.py").server)

    async def run() -> Answer:
        begun = await begin(server, "ask")
        forged = {**begun, "requestState": begun["requestState"][:-4] + "AAAA"}
        for state in (forged["requestState"], "é", ""):
            with pytest.raises(MCPError, match="Invalid or expired requestState"):
                await carry_on(server, {**begun, "requestState": state}, "yes")
        return await carry_on(server, begun, "yes")

    assert asyncio.run(run())["structuredContent"] == {"result": "accept"}


def test_a_principal_may_come_from_the_proxy_in_front() -> None:
    app = asking(load("concepts/principal.py").server).asgi()

    async def round_of(user: str, params: Answer) -> Answer:
        body = message("tools/call", {"name": "ask", **params}, {"elicitation": {}})
        headers = {**HEADERS, "mcp-method": "tools/call", "mcp-name": "ask", "x-forwarded-user": user}
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app)) as client:
            reply: Answer = (await client.post("http://127.0.0.1/mcp", json=body, headers=headers)).json()
            return reply

    async def run() -> tuple[Answer, Answer]:
        asked = (await round_of("alice", {}))["result"]
        answers = {key: {"action": "accept", "content": {"value": "yes"}} for key in asked["inputRequests"]}
        retry = {"inputResponses": answers, "requestState": asked["requestState"]}
        return await round_of("bob", retry), await round_of("alice", retry)

    bob, alice = asyncio.run(run())
    assert bob["error"]["code"] == -32602
    assert alice["result"]["structuredContent"] == {"result": "accept"}


def test_what_stands_before_a_question_runs_in_every_round() -> None:
    sample = load("concepts/replay.py")
    assert call(sample, "water", None, True)[0] == "Done."
    assert sample.log == ["before", "before", "after"]


def test_a_question_that_changes_in_every_round_never_ends() -> None:
    sample = load("concepts/replay.py")
    assert call(sample, "ends", None, True)[0] == "Done."
    with pytest.raises(TooManyRounds):
        call(sample, "never_ends", None, *[True] * 20)


def test_a_transaction_around_a_question_is_rolled_back_until_the_answer_is_there() -> None:
    sample = load("concepts/cleanup.py")
    assert call(sample, "transfer", None, True)[0] == "accept"
    assert sample.events == ["rolled back", "committed"]


def test_a_function_can_tell_that_its_round_ends_at_a_question() -> None:
    sample = load("concepts/suspending.py")
    assert call(sample, "light", None, True)[0] == "accept"
    assert sample.events == ["waiting for an answer", "done"]


# Testing


@pytest.mark.parametrize(
    ("name", "test"),
    [
        ("testing/basics.py", "test_buying"),
        ("testing/by_hand.py", "test_a_flow_is_carried_on_elsewhere"),
        ("testing/told.py", "test_what_is_told_on_the_way"),
        ("testing/tasks.py", "test_a_report_is_written"),
        ("testing/tasks.py", "test_a_report_can_be_stopped"),
        ("testing/tasks.py", "test_who_takes_no_tasks_is_refused"),
        ("testing/tasks.py", "test_a_report_bears_replay"),
        ("testing/scripted.py", "test_booking"),
        ("testing/scripted.py", "test_a_question_is_good_for_ten_minutes"),
        ("testing/transcript.py", "test_a_transcript"),
    ],
)
def test_the_tests_of_the_testing_guide_pass(name: str, test: str) -> None:
    getattr(load(name), test)()


def test_a_transcript_is_shown_as_it_is_written(tmp_path: Path) -> None:
    page = (ROOT / "docs/guides/testing.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```text\n(# A call\n.*?)```", page, re.DOTALL)
    asyncio.run(load("testing/transcript.py").record(tmp_path / "greeting.txt"))
    written = (tmp_path / "greeting.txt").read_text().splitlines()
    for line, real in zip(shown.splitlines(), written, strict=True):
        assert re.fullmatch(".*".join(map(re.escape, line.split("..."))), real), real


def test_the_fixtures_of_the_testing_guide_record_and_compare(tmp_path: Path) -> None:
    (tmp_path / "test_diary.py").write_text((SAMPLES / "testing/with_pytest.py").read_text())
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    if not entry_points(group="pytest11", name="turnwise"):  # Where Turnwise is used without being installed.
        command += ["-p", "turnwise.testing.plugin"]

    def ended(*options: str) -> tuple[int, str]:
        pipes: dict[str, Any] = {"env": ENVIRONMENT, "capture_output": True, "text": True}
        run = subprocess.run([*command, *options], cwd=tmp_path, check=False, **pipes)
        return run.returncode, run.stdout

    code, said = ended()
    assert code == 1
    assert "there is no test_diary.test_writing.txt yet: --turnwise-record writes it" in said
    assert ended("--turnwise-record")[0] == 0
    written = (tmp_path / "transcripts/test_diary.test_writing.txt").read_text()
    assert '\n> tools/call {"name": "write", "inputResponses": {"text": {"action": "accept"' in written
    assert ended()[0] == 0


# Authorization


def test_the_servers_of_the_authorization_guide_ask_for_a_token() -> None:
    for name in ("auth/jwt_tokens.py", "auth/own_verifier.py"):
        app = load(name).server.asgi(allowed_hosts=["mcp.example.com"])
        refused = post(app, "https://mcp.example.com/mcp", "whoami")
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"].startswith("Bearer ")


# Clients in processes of their own


def test_the_client_of_the_readme_and_of_the_start_page_book_a_seat() -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/mcp"
    readme = blocks(ROOT / "README.md")[1][1]
    assert readme.count("http://127.0.0.1:8000/mcp") == 1
    with serving(ROOT / "examples/booking.py", str(port)) as process:
        await_listener(process, port)
        clients = [
            subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, text=True)
            for command in (
                [sys.executable, "-c", readme.replace("http://127.0.0.1:8000/mcp", url)],
                [sys.executable, str(SAMPLES / "start/client.py"), url],
            )
        ]
        printed = [client.communicate(timeout=20)[0] for client in clients]
    assert [client.returncode for client in clients] == [0, 0]
    assert "Booked row 12 on TW 2322." in printed[0]
    assert printed[1] == "The server asks: Which seat on TW 2322?\n{'result': 'Booked row 12 on TW 2322.'}\n"


# Pages


BLOCK = re.compile(r"(?:<!-- (\S+) -->\n)?```python\n(.*?)```", re.DOTALL)


def blocks(page: Path) -> list[tuple[str, str]]:
    """The Python blocks of a page, each with the file that it names (or an empty text)."""
    return BLOCK.findall(page.read_text(encoding="utf-8"))


def region(name: str) -> str:
    """The text of a file, or of the part of it that `#part` names."""
    path, _, part = name.partition("#")
    source = (ROOT / path).read_text(encoding="utf-8")
    if not part:
        return source
    return source.partition(f"# region {part}\n")[2].partition("\n\n\n# endregion")[0] + "\n"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_block_that_names_a_file_is_that_file(page: Path) -> None:
    for name, block in blocks(page):
        if name:
            assert block == region(name), f"{name} differs from the block in {page.name}"
        else:
            assert page.name == "README.md", f"a Python block in {page} names no file: {block[:80]}"


def test_the_server_of_the_readme_is_the_booking_example() -> None:
    source = (ROOT / "examples/booking.py").read_text(encoding="utf-8")
    _, imports_sys, rest = source.partition("import sys\n\n")
    a_port = ", port=int(sys.argv[1]) if len(sys.argv) > 1 else 8000"
    assert imports_sys
    assert rest.count(a_port) == 1
    assert blocks(ROOT / "README.md")[0][1] == rest.replace(a_port, "")


def test_every_sample_is_on_a_page_and_is_run() -> None:
    shown = {name.partition("#")[0] for page in PAGES for name, _ in blocks(page)}
    run = "".join(path.read_text(encoding="utf-8") for path in Path(__file__).parent.glob("test_*.py"))
    for path in SAMPLES.rglob("*.py"):
        name = path.relative_to(ROOT).as_posix()
        assert name in shown, f"{name} is on no page"
        assert f"{name.removeprefix('docs_src/')}" in run, f"{name} is not run"


def slugs(page: Path) -> set[str]:
    """The places in a page that a link may lead to."""
    titles = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, place = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {link}, which is not there"
        assert not place or place in slugs(target), f"{page.name} links to {link}, but there is no such heading"


def test_every_test_in_the_spec_map_is_there() -> None:
    rows = re.findall(
        r"\]\(\.\./(tests/\S+\.py)\) `(test_\w+)`", (ROOT / "docs/spec-map.md").read_text(encoding="utf-8")
    )
    assert len(rows) > 100
    for path, name in rows:
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), f"{path} has no {name}"
