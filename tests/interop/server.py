"""A travel desk whose tools, prompts and resources ask in every way there is; the official clients are its callers.

`python server.py stdio`, or `python server.py http PORT`. Long, because it is one server with a tool for each flow.
"""

import asyncio
import sys
from collections import defaultdict
from datetime import date, time
from typing import Annotated, Literal
from uuid import UUID

from mcp_types import (
    Completion,
    CompletionArgument,
    CompletionContext,
    CreateMessageResult,
    CreateMessageResultWithTools,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequests,
    ListRootsRequest,
    ListRootsResult,
    PromptReference,
    ResourceTemplateReference,
    Root,
    SamplingMessage,
    TextContent,
    Tool,
    ToolChoice,
    ToolResultContent,
    ToolUseContent,
)
from pydantic import BaseModel, Field

from turnwise import (
    AcceptedElicitation,
    CacheHint,
    Context,
    Elicit,
    ElicitationResult,
    ElicitURL,
    Image,
    InputRequiredResult,
    ListRoots,
    MCPServer,
    Message,
    RequestStateSecurity,
    Resolve,
    Sample,
    ToolError,
    URLElicitationRequired,
    UserMessage,
)

# A key of its own, so that a flow begun with one process can be finished with another.
SECURITY = RequestStateSecurity(keys=[b"a key for the tests, of thirty-two bytes or more"])
PIXEL = bytes.fromhex("89504e470d0a1a0a")

server: MCPServer[None] = MCPServer(
    "travel desk",
    title="Travel desk",
    version="1.2.3",
    instructions="Ask for a table.",
    request_state_security=SECURITY,
    cache_hints={"prompts/list": CacheHint(ttl_ms=60_000, scope="public")},
    page_size=10,
)


class Table(BaseModel):
    guests: int = Field(ge=1, le=12, description="How many people")
    seating: Literal["inside", "garden"] = "inside"
    dishes: list[Literal["soup", "fish", "cake"]] = Field(default=["soup"], max_length=2)
    vegetarian: bool = False
    budget: float | None = None
    day: date | None = None
    note: str | None = None


class Slot(BaseModel):
    at: time
    reference: UUID


class Extras(BaseModel):
    seat: Annotated[
        str,
        Field(json_schema_extra={"oneOf": [{"const": "a", "title": "Aisle"}, {"const": "w", "title": "Window"}]}),
    ]
    meals: Annotated[list[str], Field(json_schema_extra={"items": {"anyOf": [{"const": "v", "title": "Vegan"}]}})]


class Region(BaseModel):
    region: str


class City(BaseModel):
    city: str


class Confirmed(BaseModel):
    sure: bool


class Counted(BaseModel):
    answers: list[str]
    drawn: int


def text_of(result: CreateMessageResult | CreateMessageResultWithTools) -> str:
    block = result.content[0] if isinstance(result.content, list) else result.content
    return block.text if isinstance(block, TextContent) else block.type


def names_of(roots: list[Root]) -> str:
    return ", ".join(f"{root.name} at {root.uri}" for root in roots)


# Nothing asked


@server.tool()
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@server.tool()
async def badge() -> list[str | Image]:
    """A text and a picture."""
    return ["Your badge", Image(data=PIXEL, format="png")]


@server.tool()
async def route(region: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})], ctx: Context) -> str:
    """A parameter that an HTTP client repeats in a header."""
    mirrored = "no headers" if ctx.headers is None else ctx.headers.get("mcp-param-region")
    return f"{region}, {mirrored}"


@server.tool()
async def distance() -> float:
    """Return a number that JSON does not have."""
    return float("inf")


@server.tool()
async def closed() -> str:
    """Always fails."""
    raise ToolError("The desk is closed")


# The inline form


@server.tool()
async def book(restaurant: str, ctx: Context) -> str:
    """Ask with a form."""
    answer = await ctx.elicit(f"A table at {restaurant}?", Table, key="table")
    if not isinstance(answer, AcceptedElicitation):
        return f"Not booked: {answer.action}"
    table = answer.data
    return f"{restaurant}: {table.model_dump_json(exclude_none=True)}"


@server.tool()
async def appoint(ctx: Context) -> str:
    """Ask for values of types that a form has no format for."""
    answer = await ctx.elicit("When?", Slot)
    return f"{answer.data.at:%H.%M}, {answer.data.reference.int}" if answer.action == "accept" else answer.action


@server.tool()
async def upgrade(ctx: Context) -> str:
    """Ask for choices that have titles; one of them has a single choice."""
    answer = await ctx.elicit("Anything else?", Extras)
    return f"{answer.data.seat} {answer.data.meals}" if answer.action == "accept" else answer.action


@server.tool()
async def sign_in(ctx: Context) -> str:
    """Ask the user to visit a page."""
    answer = await ctx.elicit_url("Sign in to the desk", "https://desk.example/sign-in?flow=1")
    return f"Sign-in: {answer.action}"


MEMBERS: set[str] = set()


@server.tool()
async def enter(name: str) -> str:
    """Nobody enters without a visit to a page; whoever comes a second time has been there."""
    if name not in MEMBERS:
        MEMBERS.add(name)
        raise URLElicitationRequired([ElicitURL("Join first", "https://desk.example/join", "join-1")])
    return f"Welcome, {name}"


@server.tool()
async def slogan(city: str, ctx: Context) -> str:
    """Ask the client's model."""
    result = await ctx.sample(f"A slogan for {city}", max_tokens=20, system_prompt="Be brief", temperature=0.5)
    return f"{text_of(result)} ({result.model})"


@server.tool()
async def consult(city: str, ctx: Context) -> str:
    """Let the client's model use a tool: it names the tool, this function plays it, and the model goes on."""
    look_up = Tool(name="look_up", input_schema={"type": "object", "properties": {"city": {"type": "string"}}})
    question = SamplingMessage(role="user", content=TextContent(type="text", text=f"The river of {city}"))
    wish = await ctx.sample([question], max_tokens=50, tools=[look_up], tool_choice=ToolChoice(mode="auto"))
    used = wish.content[0] if isinstance(wish.content, list) else wish.content
    assert isinstance(used, ToolUseContent)
    found = ToolResultContent(
        tool_use_id=used.id, content=[TextContent(type="text", text=f"{used.input['city']}: Tiber")]
    )
    messages = [
        question,
        SamplingMessage(role="assistant", content=used),
        SamplingMessage(role="user", content=found),
    ]
    return text_of(await ctx.sample(messages, max_tokens=50, tools=[look_up]))


@server.tool()
async def folders(ctx: Context) -> str:
    """Ask for the client's folders."""
    return names_of(await ctx.roots())


@server.tool()
async def prepare(ctx: Context) -> str:
    """Ask three things of three kinds at once."""
    answers = await ctx.ask_all(
        where=Elicit("Where to?", City),
        motto=Sample("A motto", max_tokens=10),
        papers=ListRoots(),
    )
    return f"{answers['where'].data.city}; {text_of(answers['motto'])}; {names_of(answers['papers'])}"


@server.tool()
async def compare(ctx: Context) -> str:
    """Ask two things at once, from tasks of the function's own."""
    async with asyncio.TaskGroup() as tasks:
        here = tasks.create_task(ctx.elicit("From where?", City))
        there = tasks.create_task(ctx.elicit("To where?", City))
    ends = [task.result() for task in (here, there)]
    return " to ".join(end.data.city if isinstance(end, AcceptedElicitation) else end.action for end in ends)


DRAWN: list[str] = []


def draw(lot: str) -> int:
    DRAWN.append(lot)
    return DRAWN.count(lot)


@server.tool()
async def interview(lot: str, ctx: Context) -> Counted:
    """Ask three times, each question made of the answer before; the draw happens once."""
    drawn = await ctx.step(draw, lot)
    answers: list[str] = []
    for turn in ("first", "second", "third"):
        answer = await ctx.elicit(f"The {turn} city, after {answers[-1] if answers else 'none'}?", City)
        if not isinstance(answer, AcceptedElicitation):
            raise ToolError(f"The interview ended at the {turn} city: {answer.action}")
        answers.append(answer.data.city)
    return Counted(answers=answers, drawn=drawn)


# The declared form


def ask_region(city: str) -> Elicit[Region]:
    return Elicit(f"Which region is {city} in?", Region)


def ask_mood(city: str) -> Sample:
    return Sample(f"The mood in {city}", max_tokens=10)


def ask_folders() -> ListRoots:
    return ListRoots()


@server.tool()
async def weather(city: str, region: Annotated[Region, Resolve(ask_region)]) -> str:
    """A parameter that the user gives; without it there is no weather."""
    return f"Rain in {city}, {region.region}"


@server.tool()
async def forecast(city: str, region: Annotated[ElicitationResult[Region], Resolve(ask_region)]) -> str:
    """A parameter that the user may refuse to give."""
    return f"Sun in {city}, {region.data.region if isinstance(region, AcceptedElicitation) else region.action}"


@server.tool()
async def brief(
    city: str,
    region: Annotated[Region, Resolve(ask_region)],
    mood: Annotated[CreateMessageResult, Resolve(ask_mood)],
    papers: Annotated[list[Root], Resolve(ask_folders)],
) -> str:
    """Three parameters of three kinds, asked for at once."""
    return f"{city}, {region.region}; {text_of(mood)}; {names_of(papers)}"


# The returned form


def form(message: str, schema: type[BaseModel]) -> ElicitRequest:
    requested = schema.model_json_schema()
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=requested))


@server.tool()
async def ticket(city: str, ctx: Context) -> str | InputRequiredResult:
    """Return two questions and a state, and read them back."""
    if ctx.input_responses is None:
        questions: InputRequests = {"sure": form(f"A ticket to {city}?", Confirmed), "papers": ListRootsRequest()}
        return InputRequiredResult(input_requests=questions, request_state=f"offered {city}")
    sure, papers = ctx.input_responses["sure"], ctx.input_responses["papers"]
    assert isinstance(sure, ElicitResult)
    assert isinstance(papers, ListRootsResult)
    return f"{ctx.request_state}: {sure.action} {sure.content}; {names_of(papers.roots)}"


@server.tool()
async def come_back(ctx: Context) -> str | InputRequiredResult:
    """Ask nothing, but be called again."""
    if ctx.request_state is None:
        return InputRequiredResult(request_state="once")
    return f"Called again after: {ctx.request_state}"


# All three forms in one function


@server.tool()
async def journey(city: str, region: Annotated[Region, Resolve(ask_region)], ctx: Context) -> str | InputRequiredResult:
    """A declared question, then an inline one, then a returned one."""
    table = await ctx.elicit(f"Dinner in {region.region}?", Table)
    guests = table.data.guests if isinstance(table, AcceptedElicitation) else 0
    if ctx.input_responses is None:
        question = form(f"{city} with {guests}, all right?", Confirmed)
        return InputRequiredResult(input_requests={"sure": question}, request_state=f"{guests} guests")
    sure = ctx.input_responses["sure"]
    assert isinstance(sure, ElicitResult)
    return f"{city}, {region.region}, {ctx.request_state}, {sure.content}"


# Written for the official SDK; only the import of Context differs


class BookingPreferences(BaseModel):
    checkAlternative: bool = Field(description="Would you like to check another date?")
    alternativeDate: str = Field(default="2024-12-26", description="Alternative date (YYYY-MM-DD)")


@server.tool()
async def book_table(date: str, time: str, party_size: int, ctx: Context) -> str:
    """Book a table with date availability check."""
    if date == "2024-12-25":
        result = await ctx.elicit(
            message=(f"No tables available for {party_size} on {date}. Would you like to try another date?"),
            schema=BookingPreferences,
        )
        if result.action == "accept" and result.data:
            if result.data.checkAlternative:
                return f"[SUCCESS] Booked for {result.data.alternativeDate}"
            return "[CANCELLED] No booking made"
        return "[CANCELLED] Booking cancelled"
    return f"[SUCCESS] Booked for {date} at {time}"


@server.tool()
async def generate_poem(topic: str, ctx: Context) -> str:
    """Generate a poem using LLM sampling."""
    prompt = f"Write a short poem about {topic}"

    result = await ctx.session.create_message(
        messages=[SamplingMessage(role="user", content=TextContent(type="text", text=prompt))],
        max_tokens=100,
    )

    if result.content.type == "text":
        return result.content.text
    return str(result.content)


@server.tool()
async def show_roots(ctx: Context) -> str:
    """Name the client's roots."""
    result = await ctx.session.list_roots()
    return "\n".join(str(root.uri) for root in result.roots)


@server.tool()
async def connect_service(ctx: Context) -> str:
    """Send the user to a page, then ask with a schema written by hand."""
    page = await ctx.elicit_url(
        message="Authorization required",
        url="https://example.com/oauth/authorize",
        elicitation_id="auth-1",
    )
    if page.action != "accept":
        return f"Not connected: {page.action}"
    form = await ctx.session.elicit_form(
        message="Name the connection",
        requested_schema={"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    )
    await ctx.session.send_log_message(level="info", data="connected", logger="service")
    return f"{form.action}: {form.content}"


@server.tool()
async def long_running_task(task_name: str, ctx: Context, steps: int = 3) -> str:
    """Execute a task with progress updates."""
    await ctx.info(f"Starting: {task_name}")

    for i in range(steps):
        progress = (i + 1) / steps
        await ctx.report_progress(progress=progress, total=1.0, message=f"Step {i + 1}/{steps}")
        await ctx.debug(f"Completed step {i + 1}")

    return f"Task '{task_name}' completed"


# Telling


@server.tool()
async def tell_then_ask(ctx: Context) -> str:
    """Progress and a log line around a question: the stream that carries them ends in one."""
    await ctx.report_progress(1, 2, "before")
    await ctx.warning({"about": "to ask"}, logger_name="desk")
    answer = await ctx.elicit("Where to?", City)
    await ctx.report_progress(2, 2, "after")
    return f"Told: {answer.action}"


RELEASED: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)


@server.tool()
async def hold(line: str, ctx: Context) -> str:
    """Report progress, and go on when `release` is called for the same line."""
    await ctx.report_progress(1, 3, "holding")
    await ctx.report_progress(2, 3)
    await RELEASED[line].wait()
    return f"{line} released"


@server.tool()
async def release(line: str) -> str:
    """Let `hold` go on."""
    RELEASED[line].set()
    return line


@server.tool()
async def nap(ctx: Context) -> str:
    """Send the client away, where that is possible, and ask when it is back."""
    ctx.close_stream()
    answer = await ctx.elicit("Where were we?", City)
    return f"Rested in {answer.data.city}" if isinstance(answer, AcceptedElicitation) else answer.action


@server.tool()
async def touch(uri: str, ctx: Context) -> str:
    """Say that a resource changed."""
    await ctx.notify_resource_updated(uri)
    return uri


@server.tool()
async def announce(ctx: Context) -> str:
    """Say that the lists changed."""
    await ctx.notify_tools_changed()
    await ctx.notify_prompts_changed()
    await ctx.notify_resources_changed()
    return "announced"


@server.tool()
async def linger(ctx: Context) -> str:
    """Wait until the call is cancelled, and tell the listeners of it."""
    try:
        await ctx.report_progress(0, message="lingering")
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        await ctx.notify_resource_updated("desk://lingered")
        raise
    return "never"


# Prompts


@server.prompt()
def greeting(name: str) -> str:
    """Greet someone."""
    return f"Greet {name}"


@server.prompt()
async def itinerary(city: str, ctx: Context) -> list[Message | str]:
    """Ask inline."""
    answer = await ctx.elicit(f"Where in {city}?", Region)
    if not isinstance(answer, AcceptedElicitation):
        return [f"A day in {city}"]
    return [UserMessage(f"A day in {answer.data.region}, {city}")]


@server.prompt()
async def letter(city: str, region: Annotated[Region, Resolve(ask_region)]) -> str:
    """Ask by declaring."""
    return f"A letter from {city}, {region.region}"


# Resources


@server.resource("desk://hours", mime_type="text/plain")
def hours() -> str:
    """When the desk is open."""
    return "9 to 5"


@server.resource("desk://diary", mime_type="text/markdown")
async def diary(ctx: Context) -> str:
    """Ask inline, for one fixed address."""
    answer = await ctx.elicit("Open the diary?", Confirmed)
    return f"# Diary\n{answer.data.sure if isinstance(answer, AcceptedElicitation) else answer.action}"


@server.resource("desk://menu/{restaurant}")
async def menu(restaurant: str, ctx: Context) -> dict[str, str]:
    """Ask inline, for each address of a template."""
    answer = await ctx.elicit(f"Where is {restaurant}?", City)
    return {"restaurant": restaurant, "city": answer.data.city if isinstance(answer, AcceptedElicitation) else "?"}


@server.resource("desk://map/{city}", mime_type="text/plain")
async def city_map(city: str, region: Annotated[Region, Resolve(ask_region)]) -> str:
    """Ask by declaring."""
    return f"{city} in {region.region}"


# Completions


@server.completion()
async def complete(
    ref: PromptReference | ResourceTemplateReference,
    argument: CompletionArgument,
    context: CompletionContext | None,
) -> Completion | list[str] | None:
    if isinstance(ref, PromptReference):
        cities = ["Rome", "Rouen", "Riga"]
        return [city for city in cities if city.startswith(argument.value)]
    if argument.name == "restaurant":
        known = (context.arguments or {}) if context is not None else {}
        return Completion(values=[f"{argument.value}o in {known.get('city', '?')}"], total=7, has_more=True)
    return None


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        server.run("http", port=int(sys.argv[2]), log_level="warning")
