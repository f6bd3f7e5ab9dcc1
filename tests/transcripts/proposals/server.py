"""The servers of the proposals' own examples: `python server.py NAME` serves one of them over standard streams.

All are instances of one service: they share a name and a key, and differ in version, in load and in what they ask.
"""

import asyncio
import sys
from typing import Any

from mcp_types import (
    CallToolResult,
    CreateMessageRequest,
    CreateMessageRequestParams,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestURLParams,
    ElicitResult,
    InputRequests,
    ListRootsRequest,
    ModelHint,
    ModelPreferences,
    SamplingMessage,
    TextContent,
)
from pydantic import BaseModel

from turnwise import (
    Context,
    Elicit,
    InputRequiredResult,
    MCPError,
    MCPServer,
    RequestStateSecurity,
    SQLiteTaskStore,
    TaskOptions,
    ToolError,
)

DRAFTS = ["DRAFT-SEP-1858", "DRAFT-2026-v1", "DRAFT-2026-02-03"]
KEY = "a key that all instances of the examples share"
NEVER_ASKING = [
    *("ping", "completion/complete", "logging/setLevel", "prompts/list", "resources/list"),
    *("resources/templates/list", "resources/subscribe", "resources/unsubscribe", "tools/list"),
    *("tasks/get", "tasks/list", "tasks/cancel", "tasks/input_response"),
]
"""The requests that "MUST NOT" be answered with a question, but for `initialize`, which no author can serve."""

GITHUB = ElicitRequest(
    params=ElicitRequestFormParams(
        message="Please provide your GitHub username",
        requested_schema={"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    )
)
CAPITAL = CreateMessageRequest(
    params=CreateMessageRequestParams(
        messages=[
            SamplingMessage(role="user", content=TextContent(type="text", text="What is the capital of France?"))
        ],
        model_preferences=ModelPreferences(
            hints=[ModelHint(name="claude-3-sonnet")], intelligence_priority=0.8, speed_priority=0.5
        ),
        system_prompt="You are a helpful assistant.",
        max_tokens=100,
    )
)


def text(words: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=words)], is_error=False)


# The weather, as both texts of the proposal have it


async def get_weather(location: str, ctx: Context) -> CallToolResult | InputRequiredResult:
    login = (ctx.input_responses or {}).get("github_login")
    if login is None:
        return InputRequiredResult(input_requests={"github_login": GITHUB})
    return text(f"Current weather in {location}:\nTemperature: 72°F\nConditions: Partly cloudy")


async def ask_two_things(ctx: Context) -> CallToolResult | InputRequiredResult:
    answers = ctx.input_responses or {}
    if answers.keys() != {"github_login", "capital_of_france"}:
        questions: InputRequests = {"github_login": GITHUB, "capital_of_france": CAPITAL}
        return InputRequiredResult(input_requests=questions)
    login, capital = answers["github_login"], answers["capital_of_france"]
    return text(f"{login.content['name']}: {capital.content.text} ({capital.model})")


# A rolling upgrade


class Login(BaseModel):
    name: str


async def old_sign_in(ctx: Context) -> CallToolResult:
    found = await ctx.ask_all(github_login=Elicit("GitHub?", Login), google_login=Elicit("Google?", Login))
    return text(f"old: {found['github_login'].data.name}, {found['google_login'].data.name}")


async def new_sign_in(ctx: Context) -> CallToolResult:
    found = await ctx.ask_all(github_login=Elicit("GitHub?", Login), microsoft_login=Elicit("Microsoft?", Login))
    return text(f"new: {found['github_login'].data.name}, {found['microsoft_login'].data.name}")


# A computation that may move


def compute_at(instance: str) -> Any:
    async def part(number: int) -> str:
        return f"part {number} by {instance}"

    async def compute(ctx: Context) -> CallToolResult:
        return text(", ".join([await ctx.step(part, number) for number in (1, 2, 3)]))

    return compute


# A work item


class Resolved(BaseModel):
    resolution: str


class Original(BaseModel):
    duplicateOf: int


async def update_work_item(workItemId: int, state: str, ctx: Context) -> CallToolResult:
    """Rules require a resolution of what is resolved, and the original of a duplicate."""
    if state != "Resolved":
        return text(f"Bug #{workItemId}: {state}")
    how = await ctx.elicit(f"How was Bug #{workItemId} resolved?", Resolved, key="resolution")
    if how.action != "accept":
        raise ToolError(f"Bug #{workItemId} stays as it is")
    if how.data.resolution != "Duplicate":
        return text(f"Bug #{workItemId}: Resolved, {how.data.resolution}")
    original = await ctx.elicit("Which work item is the original?", Original, key="duplicate_of")
    if original.action != "accept":
        raise ToolError(f"Bug #{workItemId} stays as it is")
    return text(f"Bug #{workItemId}: Resolved, Duplicate of #{original.data.duplicateOf}")


# Turns


async def report_weather(location: str, ctx: Context) -> CallToolResult:
    """The same question, and progress on either side of it."""
    await ctx.report_progress(1, 2)
    login = await ctx.elicit("Please provide your GitHub username", Login, key="github_login")
    await ctx.report_progress(2, 2)
    return text(f"{location}: {login.action}")


# Questions that belong to a call, and one that does not

background: list["asyncio.Task[str]"] = []


async def analyze_data(data: str, ctx: Context) -> str:
    """The pattern that remains supported."""
    result = await ctx.session.create_message(
        messages=[SamplingMessage(role="user", content=TextContent(type="text", text=f"Analyze: {data}"))],
        max_tokens=100,
    )
    assert isinstance(result.content, TextContent)
    return result.content.text


async def start_watching(ctx: Context) -> str:
    """The pattern that is prohibited: a task of its own, which asks when nobody has called."""
    over = asyncio.Event()

    async def background_task() -> str:
        await over.wait()
        try:
            await ctx.session.create_message(
                messages=[SamplingMessage(role="user", content=TextContent(type="text", text="Anything new?"))],
                max_tokens=100,
            )
        except Exception as error:
            return type(error).__name__
        return "asked"

    background.append(asyncio.create_task(background_task()))
    asyncio.get_running_loop().call_later(0.01, over.set)
    return "watching"


async def what_happened() -> str:
    """What came of the tasks in the background."""
    return ", ".join(await asyncio.gather(*background))


# The official page


REGION = ElicitRequest(
    params=ElicitRequestFormParams(
        message="Which region?",
        requested_schema={"type": "object", "properties": {"region": {"type": "string"}}, "required": ["region"]},
    )
)


def given(ctx: Context) -> str | None:
    answer = (ctx.input_responses or {}).get("region")
    return str(answer.content["region"]) if isinstance(answer, ElicitResult) and answer.content else None


async def deploy(app: str, ctx: Context) -> str | InputRequiredResult:
    region = given(ctx)
    if region is None:
        return InputRequiredResult(input_requests={"region": REGION}, request_state=f"asked about {app}")
    return f"{app} is deployed in {region}; {ctx.request_state}"


async def briefing(topic: str, ctx: Context) -> str | InputRequiredResult:
    region = given(ctx)
    return InputRequiredResult(input_requests={"region": REGION}) if region is None else f"{topic} in {region}"


async def status(app: str, ctx: Context) -> str | InputRequiredResult:
    region = given(ctx)
    return InputRequiredResult(input_requests={"region": REGION}) if region is None else f"{app} in {region} is well"


async def sign_in(ctx: Context) -> str | InputRequiredResult:
    if ctx.input_responses is None:
        page = ElicitRequestURLParams(message="Sign in", url="https://example.com/sign-in", elicitation_id="sign-in")
        return InputRequiredResult(input_requests={"page": ElicitRequest(params=page)})
    return f"Signed in: {ctx.input_responses['page'].action}"


async def not_done_yet(ctx: Context) -> str | InputRequiredResult:
    if ctx.request_state is None:
        return InputRequiredResult(request_state="begun")
    return f"Done, after {ctx.request_state}"


async def everything(ctx: Context) -> str | InputRequiredResult:
    answers = ctx.input_responses or {}
    if not answers:
        questions: InputRequests = {"region": REGION, "capital": CAPITAL, "folders": ListRootsRequest()}
        return InputRequiredResult(input_requests=questions)
    return f"{given(ctx)}, {answers['capital'].content.text}, {answers['folders'].roots[0].uri}"


async def complete(ref: Any, argument: Any, context: Any) -> list[str]:
    return ["Rome"]


def curious(method: str) -> Any:
    """Somebody who serves a method by hand, and asks where nobody may."""

    async def ask(ctx: Context, params: dict[str, Any]) -> InputRequiredResult:
        return InputRequiredResult(input_requests={"github_login": GITHUB}, request_state=method)

    return ask


# Tasks


ECHO = ElicitRequest(
    params=ElicitRequestFormParams(
        message="Please provide the input string to echo back",
        requested_schema={"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]},
    )
)
NAME = ElicitRequest(
    params=ElicitRequestFormParams(
        message="Please enter your name.",
        requested_schema={"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
    )
)
WORKING = 0.4
"""For how many seconds those are at work who are to be seen at it."""


def given_text(ctx: Context, key: str, member: str) -> str | None:
    answer = (ctx.input_responses or {}).get(key)
    content = answer.content if isinstance(answer, ElicitResult) and answer.content else {}
    return str(content[member]) if member in content else None


async def echo(ctx: Context) -> CallToolResult | InputRequiredResult:
    """The proposals' Echo Tool, and what its author says of it."""
    said = given_text(ctx, "echo_input", "input")
    if said is None:
        await ctx.report("Input Required to Proceed call tasks/result")
        return InputRequiredResult(input_requests={"echo_input": ECHO})
    await ctx.report("Task has been completed successfully, call get/result")
    return text(f"Echo: {said}")


async def echo_later(ctx: Context) -> CallToolResult | InputRequiredResult:
    """The same: asks as an ordinary call does, and becomes a task when it has what it needs."""
    said = given_text(ctx, "echo_input", "input")
    if said is None:
        return InputRequiredResult(input_requests={"echo_input": ECHO})
    await ctx.become_task()
    return text(f"Echo: {said}")


async def hello_world(ctx: Context) -> CallToolResult | InputRequiredResult:
    await ctx.sleep(WORKING)
    name = given_text(ctx, "name", "name")
    if name is None:
        return InputRequiredResult(input_requests={"name": NAME})
    await ctx.sleep(WORKING)
    return text(f"Hello, {name}!")


async def weather_task(city: str, ctx: Context) -> CallToolResult:
    await ctx.report("The operation is now in progress.")
    await ctx.sleep(WORKING)
    return text(f"Current weather in {city}:\nTemperature: 72°F\nConditions: Partly cloudy")


async def api_task(ctx: Context) -> CallToolResult:
    raise ToolError("Failed to process request: invalid input")


async def limited_task(ctx: Context) -> CallToolResult:
    raise MCPError(-32603, "API rate limit exceeded")


async def stuck_task(ctx: Context) -> CallToolResult:
    await asyncio.Event().wait()
    raise AssertionError("nothing sets it")


async def plain() -> CallToolResult:
    return text("plain")


def tasks_server(name: str) -> MCPServer:
    """Instances that keep tasks: the drafts', and the released texts'."""
    is_draft = name == "drafts"
    server = MCPServer(
        "examples",
        version="1",
        dialects=DRAFTS,
        request_state_security=RequestStateSecurity(keys=[KEY], ttl=600),
        tasks=TaskOptions(store=SQLiteTaskStore(), poll=0.1 if is_draft else 5.0, ttl=3600),
        page_size=2 if name == "listing" else None,
    )
    server.add_tool(plain, structured_output=False, task="never")
    server.add_tool(echo, structured_output=False, task="always")
    if name == "listing":
        server.add_tool(weather_task, "get_weather", structured_output=False, task="optional")
        return server
    server.add_tool(echo_later, structured_output=False)
    for tool, known_as in (
        (hello_world, None),
        (weather_task, "get_weather"),
        (api_task, None),
        (limited_task, None),
        (stuck_task, None),
    ):
        server.add_tool(tool, known_as, structured_output=False, task="optional" if tool is weather_task else "always")
    return server


def make_server(name: str) -> MCPServer:
    if name in KEEPING_TASKS:
        return tasks_server(name)
    server = MCPServer(
        "examples",
        version="1",
        dialects=DRAFTS,
        request_state_security=RequestStateSecurity(keys=[KEY], ttl=600),
        shed_when=(lambda load: True) if name == "busy" else None,
    )
    tools: list[Any] = [get_weather, ask_two_things, update_work_item, report_weather, analyze_data, start_watching]
    for tool in (*tools, what_happened, deploy, sign_in, not_done_yet, everything):
        server.add_tool(tool, structured_output=False)
    server.add_tool(new_sign_in if name == "new" else old_sign_in, "sign_in_twice")
    server.add_tool(compute_at(name), "compute")
    server.prompt()(briefing)
    server.resource("status://{app}")(status)
    server.completion()(complete)
    if name == "curious":
        for method in NEVER_ASKING:
            server.handler(method)(curious(method))
    return server


KEEPING_TASKS = ("drafts", "tasks", "listing")
INSTANCES = ("main", "old", "new", "busy", "curious", *KEEPING_TASKS)

if __name__ == "__main__":
    make_server(sys.argv[1]).run("stdio")
