"""A museum served by the official Python SDK, which asks in every way that SDK has, for Turnwise's client.

`python mcp_server.py stdio`, or `python mcp_server.py http PORT`. Long, because it has a tool for each flow.
"""

import json
import os
import sys
from collections import Counter
from typing import Annotated, Any, Literal

import anyio
from mcp.server.caching import CacheHint
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.mcpserver import (
    AcceptedElicitation,
    Context,
    Elicit,
    ElicitationResult,
    Image,
    ListRoots,
    MCPServer,
    Message,
    RequestStateSecurity,
    Resolve,
    Sample,
    UserMessage,
)
from mcp.server.mcpserver.exceptions import ToolError
from mcp.shared.exceptions import MCPError
from mcp_types import (
    Completion,
    CompletionArgument,
    CompletionContext,
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    CreateMessageResultWithTools,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    InputRequests,
    InputRequiredResult,
    ListRootsRequest,
    ListRootsResult,
    LoggingLevel,
    PromptReference,
    ResourceTemplateReference,
    SamplingMessage,
    TextContent,
    Tool,
    ToolUseContent,
)
from pydantic import BaseModel, Field

PAGE = 10
PIXEL = bytes.fromhex("89504e470d0a1a0a")
QUESTIONS = ["Who painted it?", "In which year?", "In which town?"]
HOW_MANY = {"type": "object", "properties": {"visitors": {"type": "integer", "minimum": 1}}, "required": ["visitors"]}
TERMS = {
    "type": "object",
    "properties": {
        "days": {"type": "integer", "minimum": 1, "default": 7},
        "value": {"type": "number"},
        "insured": {"type": "boolean", "default": True},
        "until": {"type": "string", "format": "date"},
        "frame": {"type": "string", "enum": ["gilt", "plain"]},
        "crate": {"type": "string", "oneOf": [{"const": "s", "title": "Small"}, {"const": "l", "title": "Large"}]},
        "extras": {"type": "array", "items": {"type": "string", "enum": ["glass", "lamp"]}, "maxItems": 2},
    },
    "required": ["days", "until"],
}

received: Counter[str] = Counter()


async def count(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    received[ctx.method] += 1
    return await call_next(ctx)


async def paginate(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Cut the list of tools into pages, which the SDK leaves to its users."""
    result = await call_next(ctx)
    if ctx.method != "tools/list" or not isinstance(result, dict):
        return result
    start = int((ctx.params or {}).get("cursor") or 0)
    tools = result["tools"]
    page = {**result, "tools": tools[start : start + PAGE]}
    return page if start + PAGE >= len(tools) else {**page, "nextCursor": str(start + PAGE)}


# A key of its own, so that a flow begun with one process can be finished with another.
server: MCPServer[Any] = MCPServer(
    "museum",
    title="The museum",
    version="2.3.0",
    instructions="Mind the step.",
    log_level="ERROR",
    request_state_security=RequestStateSecurity(keys=[b"a key for the tests, of thirty-two bytes or more"]),
    cache_hints={"prompts/list": CacheHint(ttl_ms=60_000, scope="public")},
    middleware=[count, paginate],
)


class Price(BaseModel):
    total: int
    currency: str


class Language(BaseModel):
    language: Literal["it", "nb", "lv"]


class Floor(BaseModel):
    floor: int = Field(ge=0, le=3)


class Gift(BaseModel):
    euros: int = Field(gt=0, description="How much")
    name: str | None = None


class Town(BaseModel):
    town: str


def form(message: str, **properties: Any) -> ElicitRequest:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


def said(text: str) -> SamplingMessage:
    return SamplingMessage(role="user", content=TextContent(text=text))


def text_of(result: CreateMessageResult) -> str:
    return result.content.text if isinstance(result.content, TextContent) else result.content.type


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


def outcome(answer: ElicitResult) -> str:
    return compact(answer.content) if answer.action == "accept" else answer.action


def places(result: ListRootsResult) -> str:
    return ", ".join(f"{root.name} at {root.uri}" for root in result.roots)


# Nothing asked


@server.tool()
def price(adults: int, children: int = 0) -> Price:
    """Structured output."""
    return Price(total=12 * adults + 5 * children, currency="EUR")


@server.tool()
def poster() -> list[str | Image]:
    """A text and a picture."""
    return ["The poster", Image(data=PIXEL, format="png")]


@server.tool()
def echo(text: str) -> str:
    """The same again."""
    return text


@server.tool()
def wing(name: Annotated[str, Field(json_schema_extra={"x-mcp-header": "Wing"})], ctx: Context) -> str:
    """A parameter that an HTTP client repeats in a header."""
    mirrored = "no headers" if ctx.headers is None else ctx.headers.get("mcp-param-wing")
    return f"{name}, {mirrored}"


@server.tool()
def badge(ctx: Context) -> str:
    """What the visitor wears."""
    return os.environ.get("BADGE", "none") if ctx.headers is None else ctx.headers.get("x-badge", "none")


@server.tool()
def visitor(ctx: Context) -> str:
    """What the client says about itself."""
    client = ctx.session.client_params
    return "nobody" if client is None else f"{client.client_info.name} {client.client_info.version}"


@server.tool()
def closed() -> str:
    """Always fails."""
    raise ToolError("The museum is closed")


@server.tool()
def collapse() -> str:
    """The end of the process."""
    os._exit(3)


@server.tool()
def times(method: str) -> int:
    """How often a method was called."""
    return received[method]


# The declared form


def ask_language(room: str) -> Elicit[Language]:
    return Elicit(f"Which language in the {room}?", Language)


def ask_gift() -> Elicit[Gift]:
    return Elicit("A gift for the museum?", Gift)


def ask_whence() -> Elicit[Town]:
    return Elicit("From which town?", Town)


def ask_whither() -> Elicit[Town]:
    return Elicit("To which town?", Town)


def ask_floor(language: Annotated[Language, Resolve(ask_language)]) -> Elicit[Floor]:
    return Elicit(f"Which floor, in {language.language}?", Floor)


def write_caption(room: str) -> Sample:
    return Sample([said(f"A caption for the {room}")], max_tokens=20, system_prompt="Be brief.", temperature=0.5)


def look_up(room: str) -> Sample:
    archive = Tool(name="archive", description="Look it up", input_schema={"type": "object"})
    return Sample([said(f"Look up the {room}")], max_tokens=20, tools=[archive])


def list_folders() -> ListRoots:
    return ListRoots()


@server.tool()
async def tour(room: str, language: Annotated[Language, Resolve(ask_language)]) -> str:
    """A question that must be accepted."""
    return f"{room} in {language.language}"


@server.tool()
async def donate(gift: Annotated[ElicitationResult[Gift], Resolve(ask_gift)]) -> str:
    """A question that may be declined."""
    return gift.data.model_dump_json(exclude_none=True) if isinstance(gift, AcceptedElicitation) else gift.action


@server.tool()
async def courier(
    whence: Annotated[Town, Resolve(ask_whence)],
    whither: Annotated[Town, Resolve(ask_whither)],
) -> str:
    """Two forms in one round."""
    return f"{whence.town} to {whither.town}"


@server.tool()
async def visit(
    room: str,
    language: Annotated[Language, Resolve(ask_language)],
    floor: Annotated[Floor, Resolve(ask_floor)],
) -> str:
    """A question that depends on another: two rounds."""
    return f"{room} in {language.language} on floor {floor.floor}"


@server.tool()
async def caption(room: str, text: Annotated[CreateMessageResult, Resolve(write_caption)]) -> str:
    """Sampling."""
    return f"{room}: {text_of(text)} by {text.model}"


@server.tool()
async def research(room: str, found: Annotated[CreateMessageResultWithTools, Resolve(look_up)]) -> str:
    """Sampling with tools."""
    blocks = found.content if isinstance(found.content, list) else [found.content]
    uses = [f"{block.name} {compact(block.input)}" for block in blocks if isinstance(block, ToolUseContent)]
    return f"{room}: {found.stop_reason}, {', '.join(uses)}"


@server.tool()
async def folders(roots: Annotated[ListRootsResult, Resolve(list_folders)]) -> str:
    """Roots."""
    return places(roots)


@server.tool()
async def exhibit(
    room: str,
    language: Annotated[Language, Resolve(ask_language)],
    text: Annotated[CreateMessageResult, Resolve(write_caption)],
    roots: Annotated[ListRootsResult, Resolve(list_folders)],
) -> str:
    """Three kinds in one round."""
    return f"{room} in {language.language}; {text_of(text)}; {places(roots)}"


# The returned form


@server.tool()
async def cloakroom(bags: int, ctx: Context) -> str | InputRequiredResult:
    """A form, a sample and the roots in one round, and a state."""
    answers = ctx.input_responses or {}
    label, tag, roots = answers.get("label"), answers.get("a tag, "), answers.get("Ämter/1")
    if isinstance(label, ElicitResult) and isinstance(tag, CreateMessageResult) and isinstance(roots, ListRootsResult):
        return f"{ctx.request_state}: {outcome(label)}; {text_of(tag)}; {places(roots)}"
    asked: InputRequests = {
        "label": form(f"A label for {bags} bags?", label={"type": "string"}),
        "a tag, ": CreateMessageRequest(params=CreateMessageRequestParams(messages=[said("A tag")], max_tokens=5)),
        "Ämter/1": ListRootsRequest(),
    }
    return InputRequiredResult(input_requests=asked, request_state=f"{bags} bags")


@server.tool()
async def quiz(ctx: Context) -> str | InputRequiredResult:
    """Three rounds, whose answers are kept in the state."""
    given = [part for part in (ctx.request_state or "").split("\n") if part]
    answer = (ctx.input_responses or {}).get(f"question-{len(given)}")
    if isinstance(answer, ElicitResult):
        given.append(str((answer.content or {}).get("answer", answer.action)))
    if len(given) == len(QUESTIONS):
        return ", ".join(given)
    asked: InputRequests = {f"question-{len(given)}": form(QUESTIONS[len(given)], answer={"type": "string"})}
    return InputRequiredResult(input_requests=asked, request_state="\n".join(given))


@server.tool()
async def loan(ctx: Context) -> str | InputRequiredResult:
    """A form with a field of every kind."""
    answer = (ctx.input_responses or {}).get("terms")
    if isinstance(answer, ElicitResult):
        return outcome(answer)
    terms = ElicitRequestFormParams(message="The terms of the loan?", requested_schema=TERMS)
    return InputRequiredResult(input_requests={"terms": ElicitRequest(params=terms)})


@server.tool()
async def membership(ctx: Context) -> str | InputRequiredResult:
    """A page to open."""
    answer = (ctx.input_responses or {}).get("page")
    if isinstance(answer, ElicitResult):
        return f"{ctx.request_state}: {answer.action}"
    page = ElicitRequestURLParams(message="Become a member?", url="https://museum.example/join?flow=1")
    return InputRequiredResult(input_requests={"page": ElicitRequest(params=page)}, request_state="flow 1")


@server.tool()
async def queue(ctx: Context) -> str | InputRequiredResult:
    """Nothing to ask, but not yet done, twice."""
    turn = int(ctx.request_state or 0)
    return "Your turn" if turn == 2 else InputRequiredResult(request_state=str(turn + 1))


@server.tool()
async def raffle(ctx: Context) -> str | InputRequiredResult:
    """Draws a ticket, asks, and refuses the call."""
    received["raffle"] += 1
    if ctx.input_responses:
        raise MCPError(code=-32602, message=f"Ticket {ctx.request_state} did not win")
    asked: InputRequests = {"luck": form("Feeling lucky?", luck={"type": "boolean"})}
    return InputRequiredResult(input_requests=asked, request_state=str(received["raffle"]))


@server.tool()
async def maze(ctx: Context) -> str | InputRequiredResult:
    """Never stops asking."""
    return InputRequiredResult(input_requests={"way": form("Left or right?", way={"type": "string"})})


# Telling


@server.tool()
async def restore(ctx: Context) -> str:
    """Progress."""
    await ctx.report_progress(1, 2, "cleaned")
    await ctx.report_progress(2, 2)
    return "restored"


@server.tool()
async def narrate(level: LoggingLevel, ctx: Context) -> str | InputRequiredResult:
    """Progress and logs around a question."""
    answer = (ctx.input_responses or {}).get("again")
    await ctx.log(level, {"asked": answer is not None}, logger_name="guide")
    await ctx.report_progress(1 if answer is None else 2)
    if isinstance(answer, ElicitResult):
        return f"Told: {answer.action}"
    return InputRequiredResult(input_requests={"again": form("Again?", again={"type": "boolean"})})


@server.tool()
async def linger(ctx: Context) -> None:
    """Does not end by itself; tells when it was cancelled."""
    await ctx.notify_resource_updated("museum://lingering")
    await ctx.report_progress(1)
    try:
        await anyio.sleep_forever()
    finally:
        with anyio.CancelScope(shield=True):
            await ctx.notify_resource_updated("museum://left")


@server.tool()
async def rehang(room: str, ctx: Context) -> str:
    """Change a resource."""
    await ctx.notify_resource_updated(f"museum://room/{room}")
    return "rehung"


@server.tool()
async def rebuild(ctx: Context) -> str:
    """Change every list."""
    await ctx.notify_tools_changed()
    await ctx.notify_prompts_changed()
    await ctx.notify_resources_changed()
    return "rebuilt"


# Prompts, resources, completion


@server.prompt()
def welcome(name: str) -> str:
    """Nothing asked."""
    return f"Welcome {name}"


@server.prompt()
async def guide(room: str, ctx: Context) -> list[Message] | InputRequiredResult:
    """Ask for the number of visitors."""
    answer = (ctx.input_responses or {}).get("party")
    if isinstance(answer, ElicitResult):
        return [UserMessage(f"Guide {outcome(answer)} through the {room}, {ctx.request_state}")]
    party = ElicitRequestFormParams(message=f"How many in the {room}?", requested_schema=HOW_MANY)
    return InputRequiredResult(input_requests={"party": ElicitRequest(params=party)}, request_state="please")


@server.resource("museum://hours")
def hours() -> str:
    """Nothing asked."""
    return "9 to 5"


@server.resource("museum://plan", mime_type="image/png")
def plan() -> bytes:
    """Bytes."""
    return PIXEL


@server.resource("museum://alarm")
def alarm() -> str:
    """Always ends in an error of the protocol."""
    raise MCPError(code=-32050, message="The alarm is on", data={"wing": "north"})


@server.resource("museum://room/{name}")
async def room(name: str, ctx: Context) -> str | InputRequiredResult:
    """Ask for the roots and the number of visitors."""
    answers = ctx.input_responses or {}
    party, roots = answers.get("party"), answers.get("roots")
    if isinstance(party, ElicitResult) and isinstance(roots, ListRootsResult):
        return f"{name}: {outcome(party)}; {places(roots)}"
    asked = ElicitRequestFormParams(message=f"How many in the {name}?", requested_schema=HOW_MANY)
    return InputRequiredResult(input_requests={"party": ElicitRequest(params=asked), "roots": ListRootsRequest()})


@server.completion()  # type: ignore[no-untyped-call, untyped-decorator] # the SDK leaves it without annotations
async def complete(
    ref: PromptReference | ResourceTemplateReference, argument: CompletionArgument, context: CompletionContext | None
) -> Completion | None:
    if isinstance(ref, ResourceTemplateReference):
        return Completion(values=[f"{argument.value}ll"], total=7, has_more=True)
    known = (context.arguments or {}) if context else {}
    return Completion(values=[argument.value + end for end in ("me", "uen", *known.values())])


if __name__ == "__main__":
    if sys.argv[1] == "http":
        server.run("streamable-http", port=int(sys.argv[2]))
    else:
        server.run("stdio")
