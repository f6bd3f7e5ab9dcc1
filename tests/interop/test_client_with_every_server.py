"""Turnwise's client, unmodified, with what the museums of both official SDKs have in common.

Long, because every flow that a server can ask for is here, and each is a few lines.
"""

from collections.abc import Iterator

import anyio
import pytest
from mcp_types import (
    ElicitRequestParams,
    ElicitResult,
    PromptReference,
    ResourceTemplateReference,
)

from tests.interop.visiting import (
    PAPERS,
    PYTHON,
    TYPESCRIPT,
    Content,
    Museum,
    Serve,
    Target,
    Visitor,
    answer_with,
    client_of,
    finished,
    roots,
    text_of,
    through_json,
)
from turnwise import (
    HTTP,
    Asking,
    Change,
    Client,
    Command,
    ConnectionLost,
    DeadlineExceeded,
    InvalidAnswer,
    MCPError,
    PeerError,
    SyncClient,
)

pytestmark = pytest.mark.parametrize("museum", [*PYTHON, *TYPESCRIPT], indirect=True, scope="session")

QUIZ = ["Who painted it?", "In which year?", "In which town?"]
TERMS = {"days": 3, "value": 1.5, "insured": False, "until": "2026-08-01", "frame": "gilt", "crate": "l"}
PAGE = "https://museum.example/join?flow=1"
INVALID_PARAMS, CAPABILITY_MISSING = -32602, -32021

# A tool, its arguments, the answers of the visitor; what the tool says in the end, and what was asked in forms.
Told = tuple[str, Content, list[Content | str], str, list[str]]
FLOWS: dict[str, Told] = {
    "a form": ("donate", {}, [{"euros": 5, "name": "Zoë"}], '{"euros":5,"name":"Zoë"}', ["A gift for the museum?"]),
    "a form with a field left out": ("donate", {}, [{"euros": 5}], '{"euros":5}', ["A gift for the museum?"]),
    "a form declined": ("donate", {}, ["decline"], "decline", ["A gift for the museum?"]),
    "a form cancelled": ("donate", {}, ["cancel"], "cancel", ["A gift for the museum?"]),
    "a form with every kind of field": (
        "loan",
        {},
        [{**TERMS, "extras": ["lamp", "glass"]}],
        '{"crate":"l","days":3,"extras":["lamp","glass"],"frame":"gilt","insured":false,"until":"2026-08-01","value":1.5}',
        ["The terms of the loan?"],
    ),
    "a page": ("membership", {}, ["accept"], "flow 1: accept", []),
    "a page declined": ("membership", {}, ["decline"], "flow 1: decline", []),
    "a page cancelled": ("membership", {}, ["cancel"], "flow 1: cancel", []),
    "sampling": ("caption", {"room": "hall"}, [], "hall: <A caption for the hall> by model-1", []),
    "sampling with tools": ("research", {"room": "hall"}, [], 'hall: toolUse, archive {"year":1632}', []),
    "roots": ("folders", {}, [], PAPERS, []),
    "three kinds in one round": (
        "cloakroom",
        {"bags": 2},
        [{"label": "Ada"}],
        f'2 bags: {{"label":"Ada"}}; <A tag>; {PAPERS}',
        ["A label for 2 bags?"],
    ),
    "three kinds in one round, one declined": (
        "cloakroom",
        {"bags": 1},
        ["decline"],
        f"1 bags: decline; <A tag>; {PAPERS}",
        ["A label for 1 bags?"],
    ),
    "three rounds": ("quiz", {}, [{"answer": "Ada"}, {"answer": "1632"}, {"answer": "Oslo"}], "Ada, 1632, Oslo", QUIZ),
    "three rounds, one cancelled": (
        "quiz",
        {},
        [{"answer": "Ada"}, "cancel", {"answer": "Oslo"}],
        "Ada, cancel, Oslo",
        QUIZ,
    ),
    "a state without questions": ("queue", {}, [], "Your turn", []),
}


@pytest.mark.parametrize("told", FLOWS.values(), ids=FLOWS)
def test_a_flow_is_completed(museum: Museum, told: Told) -> None:
    tool, arguments, answers, said, asked = told
    assert museum.call(tool, arguments, *answers) == said
    assert museum.visitor.messages == asked


# Connecting and listing


def test_the_client_learns_who_the_server_is_and_what_it_offers(museum: Museum) -> None:
    async def flow(client: Client, visitor: Visitor) -> None:
        assert client.protocol_version == "2026-07-28"
        assert client.server_info is not None
        assert (client.server_info.name, client.server_info.title) == ("museum", "The museum")
        assert client.instructions == "Mind the step."
        offered = client.server_capabilities
        assert offered is not None
        assert offered.tools is not None
        assert offered.prompts is not None
        assert offered.resources is not None
        assert offered.resources.subscribe
        assert offered.completions is not None
        assert "2026-07-28" in (await client.discover()).supported_versions

    museum.converse(flow)


def test_everything_on_offer_is_listed_through_all_pages(museum: Museum) -> None:
    async def flow(client: Client, visitor: Visitor) -> None:
        tools = {tool.name: tool async for tool in client.iter_tools()}
        assert {"price", "donate", "cloakroom", "maze", "rebuild"} < set(tools)
        assert tools["price"].output_schema is not None
        assert [prompt.name async for prompt in client.iter_prompts()] == ["welcome", "guide"]
        resources = [str(resource.uri) async for resource in client.iter_resources()]
        assert resources[:2] == ["museum://hours", "museum://plan"]
        templates = [template.uri_template async for template in client.iter_resource_templates()]
        assert templates == ["museum://room/{name}"]

    museum.converse(flow)


def test_arguments_are_completed(museum: Museum) -> None:
    async def flow(client: Client, visitor: Visitor) -> None:
        prompt = PromptReference(name="guide")
        found = await client.complete(prompt, {"name": "room", "value": "Ro"}, {"wing": "of"})
        assert found.completion.values == ["Rome", "Rouen", "Roof"]
        template = ResourceTemplateReference(uri="museum://room/{name}")
        found = await client.complete(template, {"name": "name", "value": "ha"})
        assert found.completion.values == ["hall"]

    museum.converse(flow)


# Without questions


def test_structured_output_and_pictures_arrive(museum: Museum) -> None:
    async def flow(client: Client, visitor: Visitor) -> None:
        priced = await client.call_tool("price", {"adults": 2, "children": 1})
        assert priced.structured_content == {"total": 29, "currency": "EUR"}
        _, picture = (await client.call_tool("poster")).content
        assert picture.type == "image"
        assert (picture.mime_type, picture.data) == ("image/png", "iVBORw0KGgo=")

    museum.converse(flow)


@pytest.mark.parametrize("text", ["a\r\nb\u2028c\u0085d\x00e\u00fc\U0001f5bc", "x\n" * 500_000], ids=["odd", "long"])
def test_a_text_comes_back_as_it_was_sent(museum: Museum, text: str) -> None:
    assert museum.call("echo", {"text": text}) == text


@pytest.mark.parametrize(
    ("wing", "header"), [("north", "north"), ("Île", "=?base64?w45sZQ==?="), (" west ", "=?base64?IHdlc3Qg?=")]
)
def test_a_parameter_is_mirrored_in_a_header_by_a_client_that_listed_nothing(
    museum: Museum, wing: str, header: str
) -> None:
    async def flow(client: Client, visitor: Visitor) -> None:
        if museum.over_http:
            async with museum.another() as fresh:
                assert text_of(await fresh.call_tool("wing", {"name": wing})) == f"{wing}, {header}"
        else:
            assert text_of(await client.call_tool("wing", {"name": wing})) == f"{wing}, no headers"

    museum.converse(flow)


def test_a_server_is_reached_with_the_headers_or_the_environment_that_the_user_gave(museum: Museum) -> None:
    target: HTTP | Command
    match museum.target:
        case str(url):
            target = HTTP(url, headers={"X-Badge": "Ada"})
        case command:
            target = Command(command, env={"BADGE": "Ada"})

    async def flow(client: Client, visitor: Visitor) -> None:
        async with Client(target) as badged:
            assert text_of(await badged.call_tool("badge")) == "Ada"

    museum.converse(flow)


def test_an_error_of_a_tool_is_a_result_and_an_error_of_the_protocol_is_raised(museum: Museum) -> None:
    async def flow(client: Client, visitor: Visitor) -> None:
        failed = await client.call_tool("closed")
        assert failed.is_error
        assert text_of(failed).endswith("The museum is closed")
        assert (await client.call_tool("price", {"adults": "two"})).is_error
        with pytest.raises(MCPError, match="alarm") as alarm:
            await client.read_resource("museum://alarm")
        assert (alarm.value.code, alarm.value.data) == (-32050, {"wing": "north"})
        with pytest.raises(MCPError, match="nowhere") as unknown:
            await client.read_resource("museum://nowhere")
        assert (unknown.value.code, unknown.value.data) == (INVALID_PARAMS, {"uri": "museum://nowhere"})
        with pytest.raises(MCPError) as missing:
            await client.request("museum/nothing", {})
        assert missing.value.code == -32601

    museum.converse(flow)


# Questions


def test_a_callback_is_told_who_asks_what_and_for_which_call(museum: Museum) -> None:
    museum.call("cloakroom", {"bags": 2}, {"label": "Ada"})
    assert {asking.key for asking in museum.visitor.asked} == {"label", "a tag, ", "Ämter/1"}
    for asking in museum.visitor.asked:
        assert (asking.method, asking.target, dict(asking.arguments)) == ("tools/call", "cloakroom", {"bags": 2})
        assert (asking.round, asking.server) == (1, museum.address)
    assert museum.visitor.samples[0].max_tokens == 5


def test_every_round_has_its_number(museum: Museum) -> None:
    museum.call("quiz", {}, {"answer": "a"}, {"answer": "b"}, {"answer": "c"})
    asked = [(asking.key, asking.round) for asking in museum.visitor.asked]
    assert asked == [("question-0", 1), ("question-1", 2), ("question-2", 3)]


def test_a_callback_is_shown_the_address_of_a_page_and_its_host(museum: Museum) -> None:
    museum.call("membership", {}, "decline")
    [asking], [page] = museum.visitor.asked, museum.visitor.pages
    assert (page.message, page.url) == ("Become a member?", PAGE)
    assert (asking.url, asking.host, asking.warnings) == (PAGE, "museum.example", ())


def test_defaults_of_a_form_are_filled_in(museum: Museum) -> None:
    said = museum.call("loan", {}, {"until": "2026-08-01", "frame": "plain"})
    assert said == '{"days":7,"frame":"plain","insured":true,"until":"2026-08-01"}'


def test_an_answer_that_does_not_fit_is_not_sent(museum: Museum) -> None:
    async def flow(client: Client, visitor: Visitor) -> None:
        with pytest.raises(InvalidAnswer) as invalid:
            await client.call_tool("loan")
        assert invalid.value.key == "terms"

    museum.converse(flow, {"days": 0, "until": "2026-08-01"})


def test_a_prompt_asks(museum: Museum) -> None:
    async def flow(client: Client, visitor: Visitor) -> None:
        assert text_of(await client.get_prompt("welcome", {"name": "Ada"})) == "Welcome Ada"
        guided = await client.get_prompt("guide", {"room": "hall"})
        assert text_of(guided) == 'Guide {"visitors":3} through the hall, please'
        declined = await client.get_prompt("guide", {"room": "attic"})
        assert text_of(declined) == "Guide decline through the attic, please"

    visitor = museum.converse(flow, {"visitors": 3}, "decline")
    assert visitor.messages == ["How many in the hall?", "How many in the attic?"]
    assert (visitor.asked[0].method, visitor.asked[0].target) == ("prompts/get", "guide")


def test_a_resource_asks(museum: Museum) -> None:
    async def flow(client: Client, visitor: Visitor) -> None:
        assert text_of(await client.read_resource("museum://hours")) == "9 to 5"
        [plan] = (await client.read_resource("museum://plan")).contents
        assert plan.model_dump(by_alias=True, exclude_none=True)["blob"] == "iVBORw0KGgo="
        assert text_of(await client.read_resource("museum://room/hall")) == f'hall: {{"visitors":3}}; {PAPERS}'
        assert text_of(await client.read_resource("museum://room/attic")) == f"attic: cancel; {PAPERS}"

    visitor = museum.converse(flow, {"visitors": 3}, "cancel")
    assert visitor.messages == ["How many in the hall?", "How many in the attic?"]
    assert {asking.key for asking in visitor.asked} == {"party", "roots"}


def test_a_client_without_callbacks_is_refused_by_the_server(museum: Museum) -> None:
    async def flow(client: Client, visitor: Visitor) -> None:
        async with Client(museum.target) as silent:
            for tool, needed in (("caption", "sampling"), ("folders", "roots"), ("donate", "elicitation")):
                with pytest.raises(MCPError) as refused:
                    await silent.call_tool(tool, {"room": "hall"} if tool == "caption" else {})
                assert refused.value.code == CAPABILITY_MISSING
                assert needed in refused.value.data["requiredCapabilities"]

    museum.converse(flow)


def test_twenty_calls_run_side_by_side(museum: Museum) -> None:
    async def flow(client: Client, visitor: Visitor) -> None:
        said: dict[int, str] = {}

        async def caption(number: int) -> None:
            said[number] = text_of(await client.call_tool("caption", {"room": f"room {number}"}))

        async with anyio.create_task_group() as calls:
            for number in range(20):
                calls.start_soon(caption, number)
        assert said == {n: f"room {n}: <A caption for the room {n}> by model-1" for n in range(20)}

    museum.converse(flow)


def test_one_raw_round_shows_what_the_server_asks(museum: Museum) -> None:
    async def flow(client: Client, visitor: Visitor) -> None:
        asked = await client.request("tools/call", {"name": "quiz", "arguments": {}})
        assert asked["resultType"] == "input_required"
        [(key, question)] = asked["inputRequests"].items()
        assert (key, question["params"]["message"]) == ("question-0", QUIZ[0])
        again = {"name": "quiz", "arguments": {}, "requestState": asked["requestState"]}
        answers = {"inputResponses": {key: {"action": "accept", "content": {"answer": "Ada"}}}}
        assert "question-1" in (await client.request("tools/call", {**again, **answers}))["inputRequests"]

    museum.converse(flow)


# Telling


def test_progress_is_reported_in_order(museum: Museum) -> None:
    assert museum.call("restore") == "restored"
    assert museum.visitor.progress == [(1, 2, "cleaned"), (2, 2, None)]


def test_logs_and_progress_arrive_in_every_round(museum: Museum) -> None:
    assert museum.call("narrate", {"level": "warning"}, {"again": True}) == "Told: accept"
    visitor = museum.visitor
    assert visitor.logs == [("warning", "guide", {"asked": False}), ("warning", "guide", {"asked": True})]
    assert visitor.progress == [(1, None, None), (2, None, None)]


def test_logs_below_the_level_that_is_wanted_are_not_sent(museum: Museum) -> None:
    assert museum.call("narrate", {"level": "info"}, "cancel") == "Told: cancel"
    assert museum.visitor.logs == []


def test_changes_are_heard(museum: Museum) -> None:
    async def flow(client: Client, visitor: Visitor) -> None:
        rooms = ["museum://room/hall", "museum://room/attic"]
        async with (
            client.listen(tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True) as lists,
            client.listen(resource_subscriptions=rooms) as hall,
        ):
            await client.call_tool("rebuild")
            heard = {(await anext(lists)).kind for _ in range(3)}
            assert heard == {"tools", "prompts", "resources"}
            for room in ("cellar", "attic", "hall"):
                await client.call_tool("rehang", {"room": room})
            assert [await anext(hall), await anext(hall)] == [Change("resource", uri) for uri in reversed(rooms)]

    museum.converse(flow)


@pytest.mark.parametrize("way", ["time runs out", "the task is cancelled"])
def test_a_call_that_is_given_up_is_cancelled_at_the_server(museum: Museum, way: str) -> None:
    async def flow(client: Client, visitor: Visitor) -> None:
        async with client.listen(resource_subscriptions=["museum://lingering", "museum://left"]) as changes:
            if way == "time runs out":
                with pytest.raises(DeadlineExceeded):
                    await client.call_tool("linger", read_timeout_seconds=0.3)
                assert await anext(changes) == Change("resource", "museum://lingering")
            else:
                async with anyio.create_task_group() as calls:
                    calls.start_soon(client.call_tool, "linger")
                    assert await anext(changes) == Change("resource", "museum://lingering")
                    calls.cancel_scope.cancel()
            assert await anext(changes) == Change("resource", "museum://left")
        assert text_of(await client.call_tool("echo", {"text": "still here"})) == "still here"

    museum.converse(flow)


# Other ways in, and the way out


def test_a_program_without_an_event_loop_calls_tools_that_ask(museum: Museum) -> None:
    heard: list[tuple[float, float | None, str | None]] = []

    def elicit(asking: Asking, params: ElicitRequestParams) -> ElicitResult:
        return answer_with({"answer": f"answer {asking.round}"})

    with SyncClient(museum.target, elicitation_callback=elicit, capabilities={"roots": {}}) as client:
        assert text_of(client.call_tool("quiz")) == "answer 1, answer 2, answer 3"
        restored = client.call_tool("restore", progress_callback=lambda *step: heard.append(step))
        assert text_of(restored) == "restored"
        pending = through_json(client.begin("folders"))
        [key] = pending.unanswered
        assert text_of(finished(client.resume(pending, {key: roots()}))) == PAPERS
    assert heard == [(1, 2, "cleaned"), (2, 2, None)]


@pytest.fixture
def own_museum(museum: Museum, serve: Serve) -> Iterator[Target]:
    """A server of the same kind that nobody else visits."""
    if museum.over_http:
        with serve(museum.command) as (url, _):
            yield url.replace("/mcp", museum.address[museum.address.rindex("/") :])
    else:
        yield museum.target


def test_a_call_that_is_under_way_when_its_client_is_closed_ends(museum: Museum) -> None:
    async def flow(client: Client, visitor: Visitor) -> None:
        leaving, under_way = museum.another(), anyio.Event()

        async def progressed(*_: object) -> None:
            under_way.set()

        async def linger() -> None:
            with pytest.raises(PeerError):
                await leaving.call_tool("linger", progress_callback=progressed)

        async with anyio.create_task_group() as calls, leaving:
            calls.start_soon(linger)
            await under_way.wait()

    museum.converse(flow)


def test_whoever_waits_for_a_server_that_collapses_is_told(museum: Museum, own_museum: Target) -> None:
    async def flow(client: Client, visitor: Visitor) -> None:
        async with client_of(own_museum, visitor) as doomed, doomed.listen(tools_list_changed=True) as changes:
            with pytest.raises(ConnectionLost) as lost:
                await doomed.call_tool("collapse")
            assert lost.value.sent
            with pytest.raises(ConnectionLost):
                await anext(changes)
            if museum.over_http:
                with pytest.raises(ConnectionLost):
                    await doomed.call_tool("echo", {"text": "again"})
            else:
                assert text_of(await doomed.call_tool("echo", {"text": "again"})) == "again"

    museum.converse(flow)
