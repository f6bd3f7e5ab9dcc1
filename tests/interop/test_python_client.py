"""The official Python client, unmodified, over HTTP and over stdio.

Long, because every flow that the client can take is here, and each is a few lines.
"""

import subprocess
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import anyio
import pytest
from anyio.from_thread import BlockingPortal, start_blocking_portal
from mcp import MCPError
from mcp.client import Client, ClientRequestContext
from mcp.client.stdio import StdioServerParameters
from mcp.client.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ToolsListChanged,
)
from mcp_types import (
    CallToolResult,
    CreateMessageRequestParams,
    CreateMessageResult,
    CreateMessageResultWithTools,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitRequestURLParams,
    ElicitResult,
    ImageContent,
    InputRequiredResult,
    ListRootsResult,
    LoggingLevel,
    LoggingMessageNotificationParams,
    PromptReference,
    RequestParamsMeta,
    ResourceTemplateReference,
    Root,
    SamplingCapability,
    SamplingToolsCapability,
    TextContent,
    TextResourceContents,
    Tool,
    ToolResultContent,
    ToolUseContent,
)
from pydantic import FileUrl

Target: TypeAlias = str | StdioServerParameters
Flow: TypeAlias = Callable[[Client, "Person"], Awaitable[None]]
Content: TypeAlias = dict[str, Any]

TIMEOUT = 20
PAPERS = "papers at file:///home/ada/papers"
CAPABILITY_MISSING = -32021


@dataclass
class Person:
    """Whoever sits at the client: gives the next answer from a list, and remembers what was asked.

    An answer is a form's content, or the name of another action than accept.
    """

    answers: list[Content | str] = field(default_factory=list)
    forms: list[ElicitRequestFormParams] = field(default_factory=list)
    pages: list[ElicitRequestURLParams] = field(default_factory=list)
    samples: list[CreateMessageRequestParams] = field(default_factory=list)
    logs: list[tuple[str, str | None, Any]] = field(default_factory=list)
    progress: list[tuple[float, float | None, str | None]] = field(default_factory=list)

    def begin(self, answers: Sequence[Content | str]) -> None:
        self.answers = list(answers)
        for heard in (self.forms, self.pages, self.samples, self.logs, self.progress):
            heard.clear()

    @property
    def messages(self) -> list[str]:
        return [form.message for form in self.forms]

    async def elicit(self, context: ClientRequestContext, params: ElicitRequestParams) -> ElicitResult:
        if isinstance(params, ElicitRequestURLParams):
            self.pages.append(params)
        else:
            self.forms.append(params)
        answer = self.answers.pop(0)
        match answer:
            case "accept" | "decline" | "cancel":
                return ElicitResult(action=answer)
            case dict():
                return ElicitResult(action="accept", content=answer)
        raise AssertionError(f"not an answer: {answer!r}")

    async def sample(
        self, context: ClientRequestContext, params: CreateMessageRequestParams
    ) -> CreateMessageResult | CreateMessageResultWithTools:
        self.samples.append(params)
        said = params.messages[-1].content
        content = said.content[0] if isinstance(said, ToolResultContent) else said
        if params.tools and content is said:
            use = ToolUseContent(name=params.tools[0].name, id="use-1", input={"city": "Roma"})
            return CreateMessageResultWithTools(role="assistant", content=[use], model="model-1", stop_reason="toolUse")
        assert isinstance(content, TextContent)
        reply = TextContent(type="text", text=f"<{content.text}>")
        return CreateMessageResult(role="assistant", content=reply, model="model-1", stop_reason="endTurn")

    async def list_roots(self, context: ClientRequestContext) -> ListRootsResult:
        return ListRootsResult(roots=[Root(uri=FileUrl("file:///home/ada/papers"), name="papers")])

    async def log(self, params: LoggingMessageNotificationParams) -> None:
        self.logs.append((params.level, params.logger, params.data))

    async def advance(self, progress: float, total: float | None, message: str | None) -> None:
        self.progress.append((progress, total, message))


@dataclass(frozen=True)
class Desk:
    """A server, a client that stays connected to it, and the person at that client."""

    target: Target
    portal: BlockingPortal
    client: Client
    person: Person

    def run(self, main: Callable[[], Awaitable[None]]) -> None:
        async def bounded() -> None:
            with anyio.fail_after(TIMEOUT):
                await main()

        self.portal.call(bounded)

    def converse(self, flow: Flow, *answers: Content | str) -> Person:
        """Run a flow with a user who gives these answers, all of which must be asked for."""
        self.person.begin(answers)
        self.run(lambda: flow(self.client, self.person))
        assert self.person.answers == []
        return self.person

    def call(self, tool: str, arguments: Content | None = None, *answers: Content | str) -> tuple[str, Person]:
        """What a tool says in the end, and who was asked."""
        said: list[str] = []

        async def flow(client: Client, person: Person) -> None:
            result = await client.call_tool(tool, arguments, progress_callback=person.advance)
            assert not result.is_error, result
            said.append(text_of(result))

        person = self.converse(flow, *answers)
        return said[0], person

    def another(self, log_level: LoggingLevel | None = None) -> Client:
        """One more client of the same person; over stdio, with one more server process."""
        return client_of(self.target, self.person, log_level)


def client_of(target: Target, person: Person, log_level: LoggingLevel | None = None) -> Client:
    return Client(
        target,
        elicitation_callback=person.elicit,
        sampling_callback=person.sample,
        sampling_capabilities=SamplingCapability(tools=SamplingToolsCapability()),
        list_roots_callback=person.list_roots,
        logging_callback=person.log,
        log_level=log_level,
    )


@pytest.fixture(scope="module")
def portal() -> Iterator[BlockingPortal]:
    with start_blocking_portal() as portal:
        yield portal


@pytest.fixture(scope="module", params=["http", "stdio"])
def desk(request: pytest.FixtureRequest, portal: BlockingPortal) -> Iterator[Desk]:
    target: Target
    if request.param == "http":
        target = str(request.getfixturevalue("http_url"))
    else:
        program, *arguments = request.getfixturevalue("stdio_command")
        environment = request.getfixturevalue("stdio_environment")
        target = StdioServerParameters(command=program, args=arguments, env=environment)
    person = Person()
    with portal.wrap_async_context_manager(client_of(target, person)) as client:
        yield Desk(target, portal, client, person)


def text_of(result: CallToolResult) -> str:
    block = result.content[0]
    assert isinstance(block, TextContent)
    return block.text


# Connecting and listing


def test_the_client_learns_who_the_server_is_and_what_it_offers(desk: Desk) -> None:
    async def flow(client: Client, person: Person) -> None:
        assert client.protocol_version == "2026-07-28"
        assert client.server_info is not None
        assert (client.server_info.name, client.server_info.version) == ("travel desk", "1.2.3")
        assert client.instructions == "Ask for a table."
        offered = client.server_capabilities
        assert offered.tools is not None
        assert offered.prompts is not None
        assert offered.resources is not None
        assert offered.resources.subscribe
        assert offered.completions is not None

    desk.converse(flow)


def test_tools_are_listed_page_by_page(desk: Desk) -> None:
    async def flow(client: Client, person: Person) -> None:
        tools: dict[str, Tool] = {}
        cursor, pages = None, 0
        while pages == 0 or cursor is not None:
            page = await client.list_tools(cursor=cursor)
            tools |= {tool.name: tool for tool in page.tools}
            cursor, pages = page.next_cursor, pages + 1
        assert pages == (len(tools) + 9) // 10 > 1
        assert {"add", "book", "journey", "book_table", "linger"} < set(tools)
        assert tools["book"].description == "Ask with a form."
        assert set(tools["weather"].input_schema["properties"]) == {"city"}
        assert tools["interview"].output_schema is not None

    desk.converse(flow)


def test_prompts_resources_and_templates_are_listed(desk: Desk) -> None:
    async def flow(client: Client, person: Person) -> None:
        prompts = await client.list_prompts()
        assert [prompt.name for prompt in prompts.prompts] == ["greeting", "itinerary", "letter"]
        assert [argument.name for argument in prompts.prompts[2].arguments or []] == ["city"]
        assert (prompts.ttl_ms, prompts.cache_scope) == (60_000, "public")
        resources = (await client.list_resources()).resources
        assert [str(resource.uri) for resource in resources] == ["desk://hours", "desk://diary"]
        templates = (await client.list_resource_templates()).resource_templates
        assert [template.uri_template for template in templates] == ["desk://menu/{restaurant}", "desk://map/{city}"]

    desk.converse(flow)


def test_arguments_are_completed(desk: Desk) -> None:
    async def flow(client: Client, person: Person) -> None:
        prompt = PromptReference(type="ref/prompt", name="letter")
        found = await client.complete(prompt, {"name": "city", "value": "Ro"})
        assert found.completion.values == ["Rome", "Rouen"]
        template = ResourceTemplateReference(type="ref/resource", uri="desk://menu/{restaurant}")
        found = await client.complete(template, {"name": "restaurant", "value": "Tri"}, {"city": "Rome"})
        assert (found.completion.values, found.completion.total) == (["Trio in Rome"], 7)
        assert found.completion.has_more is True

    desk.converse(flow)


# Without questions


def test_a_tool_that_asks_nothing_answers_at_once(desk: Desk) -> None:
    async def flow(client: Client, person: Person) -> None:
        result = await client.call_tool("add", {"a": 2, "b": 3})
        assert (text_of(result), result.structured_content) == ("5", {"result": 5})

    desk.converse(flow)


def test_a_picture_arrives_beside_a_text(desk: Desk) -> None:
    async def flow(client: Client, person: Person) -> None:
        words, picture = (await client.call_tool("badge")).content
        assert isinstance(words, TextContent)
        assert isinstance(picture, ImageContent)
        assert (picture.mime_type, picture.data) == ("image/png", "iVBORw0KGgo=")

    desk.converse(flow)


def test_a_parameter_is_mirrored_in_a_header_over_http(desk: Desk) -> None:
    mirrored = "=?base64?w45sZS1kZS1GcmFuY2U=?=" if isinstance(desk.target, str) else "no headers"
    assert desk.call("route", {"region": "Île-de-France"})[0] == f"Île-de-France, {mirrored}"


def test_an_error_of_the_tool_is_a_result_and_an_error_of_the_caller_is_raised(desk: Desk) -> None:
    async def flow(client: Client, person: Person) -> None:
        failed = await client.call_tool("closed")
        assert (failed.is_error, text_of(failed)) == (True, "The desk is closed")
        invalid = await client.call_tool("add", {"a": "two", "b": 3})
        assert invalid.is_error
        with pytest.raises(MCPError, match="nothing_of_the_kind"):
            await client.call_tool("nothing_of_the_kind")
        with pytest.raises(MCPError, match="desk://nowhere"):
            await client.read_resource("desk://nowhere")

    desk.converse(flow)


def test_a_number_that_json_does_not_have_is_an_error_of_the_tool(desk: Desk) -> None:
    async def flow(client: Client, person: Person) -> None:
        assert (await client.call_tool("distance")).is_error

    desk.converse(flow)


# The inline form


def test_a_form_is_filled_in(desk: Desk) -> None:
    full = {"guests": 4, "seating": "garden", "dishes": ["fish", "cake"], "vegetarian": True, "budget": 90.5}
    said, person = desk.call("book", {"restaurant": "Da Rosa"}, full | {"day": "2026-08-01", "note": "a\nb\u2028c"})
    assert said.startswith('Da Rosa: {"guests":4,"seating":"garden","dishes":["fish","cake"],"vegetarian":true,')
    assert said.endswith('"budget":90.5,"day":"2026-08-01","note":"a\\nb\u2028c"}')
    [form] = person.forms
    assert form.message == "A table at Da Rosa?"
    assert form.requested_schema["required"] == ["guests"]
    fields = form.requested_schema["properties"]
    assert {name: part["type"] for name, part in fields.items()} == {
        "guests": "integer",
        "seating": "string",
        "dishes": "array",
        "vegetarian": "boolean",
        "budget": "number",
        "day": "string",
        "note": "string",
    }
    assert fields["seating"]["enum"] == ["inside", "garden"]
    assert fields["dishes"]["items"]["enum"] == ["soup", "fish", "cake"]


def test_a_form_is_filled_in_as_far_as_it_must_be(desk: Desk) -> None:
    said, _ = desk.call("book", {"restaurant": "Da Rosa"}, {"guests": 1})
    assert said == 'Da Rosa: {"guests":1,"seating":"inside","dishes":["soup"],"vegetarian":false}'


def test_a_form_names_only_the_formats_that_a_form_has(desk: Desk) -> None:
    reference = "00000000-0000-0000-0000-000000000007"
    said, person = desk.call("appoint", None, {"at": "19:30", "reference": reference})
    assert said == "19.30, 7"
    fields = person.forms[0].requested_schema["properties"]
    assert {part.get("format") for part in fields.values()} <= {None, "email", "uri", "date", "date-time"}


def test_choices_may_have_titles(desk: Desk) -> None:
    said, person = desk.call("upgrade", None, {"seat": "w", "meals": ["v"]})
    assert said == "w ['v']"
    fields = person.forms[0].requested_schema["properties"]
    assert fields["seat"]["oneOf"] == [{"const": "a", "title": "Aisle"}, {"const": "w", "title": "Window"}]
    assert fields["meals"]["items"] == {"anyOf": [{"const": "v", "title": "Vegan"}]}


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_form_is_refused(desk: Desk, action: str) -> None:
    assert desk.call("book", {"restaurant": "Da Rosa"}, action)[0] == f"Not booked: {action}"


def test_an_answer_that_does_not_fit_is_asked_for_again(desk: Desk) -> None:
    said, person = desk.call("book", {"restaurant": "Da Rosa"}, {"guests": 0}, "accept", {"guests": 1})
    assert said.startswith('Da Rosa: {"guests":1,')
    assert person.messages == ["A table at Da Rosa?"] * 3


@pytest.mark.parametrize("action", ["accept", "decline", "cancel"])
def test_a_page_is_visited_or_not(desk: Desk, action: str) -> None:
    said, person = desk.call("sign_in", None, action)
    assert said == f"Sign-in: {action}"
    assert [page.url for page in person.pages] == ["https://desk.example/sign-in?flow=1"]


def test_the_clients_model_is_asked(desk: Desk) -> None:
    said, person = desk.call("slogan", {"city": "Rome"})
    assert said == "<A slogan for Rome> (model-1)"
    [asked] = person.samples
    assert (asked.max_tokens, asked.system_prompt, asked.temperature) == (20, "Be brief", 0.5)


def test_the_clients_model_uses_a_tool(desk: Desk) -> None:
    said, person = desk.call("consult", {"city": "Rome"})
    assert said == "<Roma: Tiber>"
    assert [len(asked.messages) for asked in person.samples] == [1, 3]
    assert [tool.name for tool in person.samples[0].tools or []] == ["look_up"]


def test_the_clients_folders_are_asked_for(desk: Desk) -> None:
    assert desk.call("folders")[0] == PAPERS


def test_questions_of_three_kinds_go_out_in_one_round(desk: Desk) -> None:
    async def flow(client: Client, person: Person) -> None:
        first = await client.session.call_tool("prepare", allow_input_required=True)
        assert isinstance(first, InputRequiredResult)
        kinds = {key: request.method for key, request in (first.input_requests or {}).items()}
        assert kinds == {"where": "elicitation/create", "motto": "sampling/createMessage", "papers": "roots/list"}
        said = text_of(await client.call_tool("prepare"))
        assert said == f"Rome; <A motto>; {PAPERS}"

    desk.converse(flow, {"city": "Rome"})


def test_questions_from_tasks_go_out_in_one_round(desk: Desk) -> None:
    async def flow(client: Client, person: Person) -> None:
        first = await client.session.call_tool("compare", allow_input_required=True)
        assert isinstance(first, InputRequiredResult)
        assert len(first.input_requests or {}) == 2
        assert text_of(await client.call_tool("compare")) == "Rome to Oslo"

    desk.converse(flow, {"city": "Rome"}, {"city": "Oslo"})


def test_three_rounds_build_on_each_other_and_a_step_is_taken_once(desk: Desk) -> None:
    async def flow(client: Client, person: Person) -> None:
        result = await client.call_tool("interview", {"lot": "python"})
        assert result.structured_content == {"answers": ["Rome", "Oslo", "Riga"], "drawn": 1}

    person = desk.converse(flow, {"city": "Rome"}, {"city": "Oslo"}, {"city": "Riga"})
    assert person.messages == [
        "The first city, after none?",
        "The second city, after Rome?",
        "The third city, after Oslo?",
    ]


def test_a_refusal_in_a_later_round_ends_the_flow(desk: Desk) -> None:
    async def flow(client: Client, person: Person) -> None:
        result = await client.call_tool("interview", {"lot": "refused"})
        assert (result.is_error, text_of(result)) == (True, "The interview ended at the second city: decline")

    desk.converse(flow, {"city": "Rome"}, "decline")


def test_flows_run_side_by_side_on_one_connection(desk: Desk) -> None:
    said: list[str] = []

    async def flow(client: Client, person: Person) -> None:
        async def one(city: str) -> None:
            said.append(text_of(await client.call_tool("slogan", {"city": city})))

        async with anyio.create_task_group() as tasks:
            for number in range(20):
                tasks.start_soon(one, f"city {number}")

    desk.converse(flow)
    assert sorted(said) == sorted(f"<A slogan for city {number}> (model-1)" for number in range(20))


# The declared form


def test_a_declared_parameter_is_asked_for(desk: Desk) -> None:
    said, person = desk.call("weather", {"city": "Rome"}, {"region": "Lazio"})
    assert said == "Rain in Rome, Lazio"
    assert person.messages == ["Which region is Rome in?"]


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_declared_parameter_that_is_refused_ends_the_call(desk: Desk, action: str) -> None:
    async def flow(client: Client, person: Person) -> None:
        result = await client.call_tool("weather", {"city": "Rome"})
        assert result.is_error
        assert "region" in text_of(result)

    desk.converse(flow, action)


@pytest.mark.parametrize(("answer", "outcome"), [({"region": "Lazio"}, "Lazio"), ("decline", "decline")])
def test_a_declared_outcome_is_given_whatever_it_is(desk: Desk, answer: Content | str, outcome: str) -> None:
    assert desk.call("forecast", {"city": "Rome"}, answer)[0] == f"Sun in Rome, {outcome}"


def test_declared_parameters_of_three_kinds_are_asked_for_in_one_round(desk: Desk) -> None:
    async def flow(client: Client, person: Person) -> None:
        first = await client.session.call_tool("brief", {"city": "Rome"}, allow_input_required=True)
        assert isinstance(first, InputRequiredResult)
        assert len(first.input_requests or {}) == 3
        said = text_of(await client.call_tool("brief", {"city": "Rome"}))
        assert said == f"Rome, Lazio; <The mood in Rome>; {PAPERS}"

    desk.converse(flow, {"region": "Lazio"})


# The returned form, and all forms at once


def test_returned_questions_come_back_with_their_state(desk: Desk) -> None:
    said, _ = desk.call("ticket", {"city": "Rome"}, {"sure": True})
    assert said == f"offered Rome: accept {{'sure': True}}; {PAPERS}"


def test_returned_questions_may_be_refused(desk: Desk) -> None:
    assert desk.call("ticket", {"city": "Rome"}, "decline")[0].startswith("offered Rome: decline None")


def test_a_state_without_questions_is_brought_back(desk: Desk) -> None:
    assert desk.call("come_back")[0] == "Called again after: once"


def test_the_three_forms_mix_in_one_function(desk: Desk) -> None:
    answers: list[Content] = [{"region": "Lazio"}, {"guests": 2}, {"sure": True}]
    said, person = desk.call("journey", {"city": "Rome"}, *answers)
    assert said == "Rome, Lazio, 2 guests, {'sure': True}"
    assert person.messages == ["Which region is Rome in?", "Dinner in Lazio?", "Rome with 2, all right?"]


def test_a_flow_begun_with_one_client_is_finished_with_another(desk: Desk) -> None:
    """Over stdio each client has a server process of its own, so nothing but the state can carry the flow."""

    async def flow(client: Client, person: Person) -> None:
        first = await client.session.call_tool("journey", {"city": "Rome"}, allow_input_required=True)
        assert isinstance(first, InputRequiredResult)
        [key] = first.input_requests or {}
        answer = ElicitResult(action="accept", content={"region": "Lazio"})
        async with desk.another() as other:
            result = await other.call_tool(
                "journey", {"city": "Rome"}, input_responses={key: answer}, request_state=first.request_state
            )
        assert text_of(result) == "Rome, Lazio, 3 guests, {'sure': False}"

    desk.converse(flow, {"guests": 3}, {"sure": False})


def test_a_state_is_refused_for_another_call(desk: Desk) -> None:
    async def flow(client: Client, person: Person) -> None:
        first = await client.session.call_tool("journey", {"city": "Rome"}, allow_input_required=True)
        assert isinstance(first, InputRequiredResult)
        with pytest.raises(MCPError, match="requestState"):
            await client.call_tool("journey", {"city": "Oslo"}, request_state=first.request_state)

    desk.converse(flow)


# Written for the official SDK


def test_an_sdk_tool_elicits(desk: Desk) -> None:
    arguments = {"date": "2024-12-25", "time": "19:00", "party_size": 2}
    said, person = desk.call("book_table", arguments, {"checkAlternative": True, "alternativeDate": "2024-12-27"})
    assert said == "[SUCCESS] Booked for 2024-12-27"
    assert person.messages == ["No tables available for 2 on 2024-12-25. Would you like to try another date?"]
    assert desk.call("book_table", arguments, "decline")[0] == "[CANCELLED] Booking cancelled"
    assert desk.call("book_table", arguments | {"date": "2024-12-24"})[0] == "[SUCCESS] Booked for 2024-12-24 at 19:00"


def test_an_sdk_tool_samples(desk: Desk) -> None:
    said, person = desk.call("generate_poem", {"topic": "rain"})
    assert said == "<Write a short poem about rain>"
    assert person.samples[0].max_tokens == 100


def test_an_sdk_tool_lists_roots(desk: Desk) -> None:
    assert desk.call("show_roots")[0] == "file:///home/ada/papers"


def test_an_sdk_tool_opens_a_page_and_shows_a_form_of_its_own(desk: Desk) -> None:
    said, person = desk.call("connect_service", None, "accept", {"name": "post"})
    assert said == "accept: {'name': 'post'}"
    assert [page.url for page in person.pages] == ["https://example.com/oauth/authorize"]
    assert person.messages == ["Name the connection"]
    assert desk.call("connect_service", None, "cancel")[0] == "Not connected: cancel"


def test_an_sdk_tool_reports_progress_and_logs(desk: Desk) -> None:
    async def flow(_: Client, person: Person) -> None:
        arguments = {"task_name": "packing", "steps": 2}
        async with desk.another(log_level="info") as client:
            result = await client.call_tool("long_running_task", arguments, progress_callback=person.advance)
        assert text_of(result) == "Task 'packing' completed"

    person = desk.converse(flow)
    assert person.progress == [(0.5, 1.0, "Step 1/2"), (1.0, 1.0, "Step 2/2")]
    assert person.logs == [("info", None, "Starting: packing")]


# Telling


def test_progress_and_logs_arrive_around_a_question(desk: Desk) -> None:
    async def flow(client: Client, person: Person) -> None:
        wanted: RequestParamsMeta = {"io.modelcontextprotocol/logLevel": "warning"}  # type: ignore[typeddict-unknown-key]
        result = await client.call_tool("tell_then_ask", progress_callback=person.advance, meta=wanted)
        assert text_of(result) == "Told: accept"

    person = desk.converse(flow, {"city": "Rome"})
    assert person.progress == [(1, 2, "before"), (2, 2, "after")]
    assert person.logs == [("warning", "desk", {"about": "to ask"})]


def test_logs_stay_away_from_a_client_that_did_not_ask_for_them(desk: Desk) -> None:
    assert desk.call("tell_then_ask", None, {"city": "Rome"})[1].logs == []


def test_a_listener_hears_of_changed_lists(desk: Desk) -> None:
    async def flow(client: Client, person: Person) -> None:
        async with client.listen(
            tools_list_changed=True, prompts_list_changed=True, resources_list_changed=True
        ) as subscription:
            assert subscription.honored.tools_list_changed
            await client.call_tool("announce")
            heard = [await anext(subscription) for _ in range(3)]
        assert heard == [ToolsListChanged(), PromptsListChanged(), ResourcesListChanged()]

    desk.converse(flow)


def test_a_listener_hears_only_of_the_resources_it_named(desk: Desk) -> None:
    async def flow(client: Client, person: Person) -> None:
        async with client.listen(resource_subscriptions=["desk://hours"]) as subscription:
            assert subscription.honored.resource_subscriptions == ["desk://hours"]
            assert not subscription.honored.tools_list_changed
            await client.call_tool("announce")
            await client.call_tool("touch", {"uri": "desk://diary"})
            await client.call_tool("touch", {"uri": "desk://hours"})
            assert await anext(subscription) == ResourceUpdated(uri="desk://hours")

    desk.converse(flow)


def test_a_listener_is_told_when_the_server_stops(
    own_http_server: tuple[str, "subprocess.Popen[bytes]"], portal: BlockingPortal
) -> None:
    url, process = own_http_server

    async def main() -> None:
        with anyio.fail_after(TIMEOUT):
            async with Client(url) as client, client.listen(tools_list_changed=True) as subscription:
                process.terminate()
                assert [event async for event in subscription] == []

    portal.call(main)


def test_a_cancelled_call_is_cancelled_on_the_server(desk: Desk) -> None:
    async def flow(client: Client, person: Person) -> None:
        lingering = anyio.Event()

        async def begun(progress: float, total: float | None, message: str | None) -> None:
            lingering.set()

        async def linger() -> None:
            await client.call_tool("linger", progress_callback=begun)

        async with client.listen(resource_subscriptions=["desk://lingered"]) as subscription:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(linger)
                await lingering.wait()
                tasks.cancel_scope.cancel()
            assert await anext(subscription) == ResourceUpdated(uri="desk://lingered")

    desk.converse(flow)


# Prompts and resources


def test_a_prompt_asks(desk: Desk) -> None:
    async def flow(client: Client, person: Person) -> None:
        plain = await client.get_prompt("greeting", {"name": "Ada"})
        assert [message.content for message in plain.messages] == [TextContent(type="text", text="Greet Ada")]
        inline = await client.get_prompt("itinerary", {"city": "Rome"})
        assert inline.messages[0].content == TextContent(type="text", text="A day in Trastevere, Rome")
        refused = await client.get_prompt("itinerary", {"city": "Oslo"})
        assert refused.messages[0].content == TextContent(type="text", text="A day in Oslo")
        declared = await client.get_prompt("letter", {"city": "Rome"})
        assert declared.messages[0].content == TextContent(type="text", text="A letter from Rome, Lazio")

    person = desk.converse(flow, {"region": "Trastevere"}, "decline", {"region": "Lazio"})
    assert person.messages == ["Where in Rome?", "Where in Oslo?", "Which region is Rome in?"]


def test_a_prompt_whose_declared_question_is_refused_is_an_error(desk: Desk) -> None:
    async def flow(client: Client, person: Person) -> None:
        with pytest.raises(MCPError, match="region"):
            await client.get_prompt("letter", {"city": "Rome"})

    desk.converse(flow, "decline")


async def read(client: Client, uri: str) -> tuple[str | None, str]:
    [contents] = (await client.read_resource(uri)).contents
    assert isinstance(contents, TextResourceContents)
    return contents.mime_type, contents.text


def test_a_static_resource_asks(desk: Desk) -> None:
    async def flow(client: Client, person: Person) -> None:
        assert await read(client, "desk://hours") == ("text/plain", "9 to 5")
        assert await read(client, "desk://diary") == ("text/markdown", "# Diary\nTrue")
        assert await read(client, "desk://diary") == ("text/markdown", "# Diary\ncancel")

    desk.converse(flow, {"sure": True}, "cancel")


def test_a_template_resource_asks(desk: Desk) -> None:
    async def flow(client: Client, person: Person) -> None:
        kind, text = await read(client, "desk://menu/Da%20Rosa")
        assert (kind, "Da Rosa" in text, "Rome" in text) == ("application/json", True, True)
        assert await read(client, "desk://map/Rome") == ("text/plain", "Rome in Lazio")
        assert await read(client, "desk://map/Zürich") == ("text/plain", "Zürich in ZH")

    person = desk.converse(flow, {"city": "Rome"}, {"region": "Lazio"}, {"region": "ZH"})
    assert person.messages == ["Where is Da Rosa?", "Which region is Rome in?", "Which region is Zürich in?"]


# What the client cannot do


def test_a_client_that_cannot_answer_is_told_what_it_lacks(desk: Desk) -> None:
    lacking: dict[str, tuple[Content, Content]] = {
        "weather": ({"city": "Rome"}, {"elicitation": {"form": {}}}),
        "sign_in": ({}, {"elicitation": {"url": {}}}),
        "generate_poem": ({"topic": "rain"}, {"sampling": {}}),
        "show_roots": ({}, {"roots": {}}),
        "ticket": ({"city": "Rome"}, {"elicitation": {"form": {}}}),
    }

    async def main() -> None:
        async with Client(desk.target) as client:
            for tool, (arguments, required) in lacking.items():
                with pytest.raises(MCPError) as refused:
                    await client.call_tool(tool, arguments)
                assert refused.value.code == CAPABILITY_MISSING
                assert refused.value.error.data == {"requiredCapabilities": required}

    desk.run(main)


def test_a_client_of_the_handshake_is_served_as_well(desk: Desk) -> None:
    async def main() -> None:
        async with Client(desk.target, mode="legacy") as client:
            assert client.protocol_version == "2025-11-25"
            assert (await client.list_tools()).tools

    desk.run(main)
