"""The server that the official conformance suite is run against: `python everything_server.py PORT`.

It serves what the suite's server scenarios call for, of 2026-07-28 and of 2025-11-25, by the names they use, at /mcp on
localhost.
Most questions are asked inline; two tools return their own, the roots tool and a prompt declare theirs.
"""

import asyncio
import base64
import json
import sys
from pathlib import Path
from typing import Annotated, Any, TypeVar

import mcp_types as types
from pydantic import BaseModel, Field

from turnwise import (
    Audio,
    CacheHint,
    Context,
    Elicit,
    ElicitationResult,
    Image,
    InputRequiredResult,
    ListRoots,
    MCPError,
    MCPServer,
    Message,
    Resolve,
    Sample,
    ToolError,
)

T = TypeVar("T")

PIXEL = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="
)
SILENCE = base64.b64decode("UklGRiYAAABXQVZFZm10IBAAAAABAAEAQB8AAIA+AAACABAAZGF0YQIAAAAAAA==")
ADDRESS_SCHEMA = json.loads(Path(__file__).with_name("json_schema_2020_12.json").read_text())

server = MCPServer("everything", version="1.0.0", cache_hints={"tools/list": CacheHint(ttl_ms=1_000)})


class Name(BaseModel):
    name: str


class Color(BaseModel):
    color: str


class About(BaseModel):
    context: str


def accepted(answer: ElicitationResult[T]) -> T:
    """What the user gave, or a tool error."""
    if answer.action == "accept":
        return answer.data
    raise ToolError(f"The user answered with {answer.action}")


def embedded(uri: str, text: str) -> types.EmbeddedResource:
    """A text resource as a content block."""
    contents = types.TextResourceContents(uri=uri, mime_type="text/plain", text=text)
    return types.EmbeddedResource(type="resource", resource=contents)


# Plain tools


@server.tool()
async def test_simple_text() -> str:
    """Returns a text."""
    return "This is a simple text response for testing."


@server.tool()
async def test_image_content() -> Image:
    """Returns a picture of one pixel."""
    return Image(data=PIXEL, format="png")


@server.tool()
async def test_audio_content() -> Audio:
    """Returns a moment of silence."""
    return Audio(data=SILENCE, format="wav")


@server.tool()
async def test_embedded_resource() -> types.EmbeddedResource:
    """Returns a resource in its content."""
    return embedded("test://embedded-resource", "This is an embedded resource content.")


@server.tool()
async def test_multiple_content_types() -> list[str | Image | types.EmbeddedResource]:
    """Returns a text, a picture and a resource."""
    return ["Three kinds:", Image(data=PIXEL, format="png"), embedded("test://mixed-content", "The third.")]


@server.tool()
async def test_error_handling() -> str:
    """Fails, in words meant for the model."""
    raise ToolError("This tool intentionally returns an error for testing")


@server.tool()
async def test_tool_with_progress(ctx: Context) -> str:
    """Reports its progress three times."""
    for progress in (0, 50, 100):
        await ctx.report_progress(progress, 100)
        await asyncio.sleep(0.02)
    return "Done."


@server.tool()
async def test_logging_tool(ctx: Context) -> str:
    """Logs, for clients that asked for log lines."""
    await ctx.info("At work")
    return "Logged."


Region = Annotated[str, Field(json_schema_extra={"x-mcp-header": "Region"})]


@server.tool()
async def test_x_mcp_header(region: Region) -> str:
    """Takes a parameter that clients mirror into the header Mcp-Param-Region."""
    return f"Region: {region}"


@server.tool(input_schema=ADDRESS_SCHEMA)
async def json_schema_2020_12_tool(
    name: str = "", address: Any = None, contactMethod: str = "", phone: str = "", email: str = ""
) -> str:
    """Tool with JSON Schema 2020-12 features."""
    return f"{name} of {address}, by {contactMethod}: {phone or email}"


@server.tool()
async def test_trigger_tool_change(ctx: Context) -> str:
    """Adds a tool, or removes it again, and tells the subscribers."""
    try:
        server.remove_tool("test_dynamic_tool")
    except KeyError:
        server.add_tool(test_simple_text, "test_dynamic_tool")
    await ctx.notify_tools_changed()
    return "The list of tools changed."


@server.tool()
async def test_trigger_prompt_change(ctx: Context) -> str:
    """Adds a prompt, or removes it again, and tells the subscribers."""
    try:
        server.remove_prompt("test_dynamic_prompt")
    except KeyError:
        server.prompt("test_dynamic_prompt")(test_simple_prompt)
    await ctx.notify_prompts_changed()
    return "The list of prompts changed."


# Tools that ask


@server.tool()
async def test_streaming_elicitation(ctx: Context) -> str:
    """Reports progress, then asks; on the stream there are notifications and one result."""
    await ctx.report_progress(1, 2, "about to ask")
    return f"Hello, {accepted(await ctx.elicit('What is your name?', Name)).name}!"


def form(message: str, member: str, kind: str) -> types.ElicitRequest:
    """A form with one required member, built by hand."""
    schema = {"type": "object", "properties": {member: {"type": kind}}, "required": [member]}
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


@server.tool()
async def test_input_required_result_elicitation(ctx: Context) -> str | InputRequiredResult:
    """Returns its question, and takes an answer that comes ahead of it too."""
    match (ctx.input_responses or {}).get("user_name"):
        case types.ElicitResult(action="accept", content={"name": str(name)}):
            return f"Hello, {name}!"
    return InputRequiredResult(input_requests={"user_name": form("What is your name?", "name", "string")})


@server.tool("test_missing_capability")
@server.tool("test_input_required_result_sampling")
async def ask_model(ctx: Context) -> str:
    """Asks the client's model; a client that does not sample is told so."""
    answer = await ctx.sample("What is the capital of France?", max_tokens=100, key="capital_question")
    return f"The model said: {answer.content}"


def ask_roots() -> ListRoots:
    return ListRoots(key="client_roots")


@server.tool()
async def test_input_required_result_list_roots(dirs: Annotated[list[types.Root], Resolve(ask_roots)]) -> str:
    """Declares that it needs the client's roots."""
    return f"Roots: {', '.join(str(root.uri) for root in dirs)}"


@server.tool("test_input_required_result_request_state")
@server.tool("test_input_required_result_tampered_state")
async def confirm(ctx: Context) -> str | InputRequiredResult:
    """Returns its question, with state of its own beside it; state that was changed never gets here."""
    if not ctx.input_responses:
        question = form("Please confirm", "ok", "boolean")
        return InputRequiredResult(input_requests={"confirm": question}, request_state="unconfirmed")
    return "state-ok" if ctx.request_state == "unconfirmed" else "state-lost"


@server.tool()
async def test_input_required_result_multiple_inputs(ctx: Context) -> str:
    """Asks the user, the model and the client in one round."""
    answers = await ctx.ask_all(
        user_name=Elicit("What is your name?", Name),
        greeting=Sample(messages="Generate a greeting", max_tokens=50),
        client_roots=ListRoots(),
    )
    return f"{accepted(answers['user_name']).name} of {len(answers['client_roots'])} roots"


@server.tool()
async def test_input_required_result_multi_round(ctx: Context) -> str:
    """Asks twice, one round after the other."""
    name = accepted(await ctx.elicit("Step 1: What is your name?", Name, key="step1")).name
    color = accepted(await ctx.elicit("Step 2: What is your favorite color?", Color, key="step2")).color
    return f"{name} likes {color}."


@server.tool()
async def test_input_required_result_capabilities(ctx: Context) -> str:
    """Asks whoever the client says it can ask."""
    if ctx.client_capabilities.elicitation is not None:
        return accepted(await ctx.elicit("What is your name?", Name, key="user_name")).name
    return str((await ctx.sample("Make up a name.", max_tokens=20, key="made_up_name")).content)


# Resources, prompts and completion


# Tasks


@server.tool()
async def greet(name: str) -> str:
    """Greets, at once."""
    return f"Hello, {name}!"


@server.tool(task="optional")
async def slow_compute(seconds: float, label: str, ctx: Context) -> str:
    """Takes its time."""
    await ctx.report(f"computing {label}")
    await ctx.sleep(seconds)
    return f"{label} took {seconds} s"


@server.tool(task="always")
async def failing_job(ctx: Context) -> str:
    """Fails after a while, as tools do."""
    await ctx.sleep(0.5)
    raise ToolError("This job always fails")


@server.tool(task="always")
async def protocol_error_job(ctx: Context) -> str:
    """Fails after a while, as protocols do."""
    await ctx.sleep(0.5)
    raise MCPError(-32603, "This job fails with a JSON-RPC error")


class Confirmation(BaseModel):
    confirm: bool


@server.tool(task="always")
async def confirm_delete(filename: str, ctx: Context) -> str:
    """Asks before it deletes."""
    answer = accepted(await ctx.elicit(f"Delete {filename}?", Confirmation, key="confirm"))
    return f"Deleted {filename}" if answer.confirm else "Kept"


@server.tool(task="always")
async def multi_input(ctx: Context) -> str:
    """Asks two things at once."""
    answers = await ctx.ask_all(first=Elicit("Your first name?", Name), last=Elicit("Your last name?", Name))
    return " ".join(accepted(answer).name for answer in answers.values())


def ask_name() -> Elicit[Name]:
    return Elicit("What is your name?", Name, key="user_name")


@server.tool(task="always")
async def test_tool_with_task(user: Annotated[Name, Resolve(ask_name)]) -> str:
    """Asks before it becomes a task."""
    return f"Hello, {user.name}!"


# What only the scenarios of 2025-11-25 call


@server.tool()
async def test_tool_with_logging(ctx: Context) -> str:
    """Logs three lines."""
    for line in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await ctx.info(line)
        await asyncio.sleep(0.05)
    return "Logged"


@server.tool()
async def test_sampling(prompt: str, ctx: Context) -> str:
    """Asks the client's model."""
    reply = await ctx.sample(prompt, max_tokens=100)
    assert isinstance(reply.content, types.TextContent)
    return f"LLM response: {reply.content.text}"


class Reply(BaseModel):
    username: str = Field(description="User's response")
    email: str = Field(description="User's email address")


def told(answer: Any) -> str:
    """An answer, as the suite wants to read it."""
    return f"Elicitation completed: action={answer.action}, content={json.dumps(answer.content)}"


@server.tool()
async def test_elicitation(message: str, ctx: Context) -> str:
    """Asks the user."""
    answer = await ctx.elicit(message, Reply)
    return f"User response: {answer}"


@server.tool()
async def test_elicitation_sep1034_defaults(ctx: Context) -> str:
    """Asks with a default for every primitive type."""
    properties = {
        "name": {"type": "string", "default": "John Doe"},
        "age": {"type": "integer", "default": 30},
        "score": {"type": "number", "default": 95.5},
        "status": {"type": "string", "enum": ["active", "inactive", "pending"], "default": "active"},
        "verified": {"type": "boolean", "default": True},
    }
    return told(await ctx.session.elicit_form("Defaults", {"type": "object", "properties": properties}))


@server.tool()
async def test_elicitation_sep1330_enums(ctx: Context) -> str:
    """Asks with every kind of choice."""
    titled = [{"const": f"value{n}", "title": f"{word} Option"} for n, word in enumerate(("First", "Second"), 1)]
    options = ["option1", "option2", "option3"]
    names = ["Option One", "Option Two", "Option Three"]
    properties = {
        "untitledSingle": {"type": "string", "enum": options},
        "titledSingle": {"type": "string", "oneOf": titled},
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2", "opt3"], "enumNames": names},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": options}},
        "titledMulti": {"type": "array", "items": {"anyOf": titled}},
    }
    return told(await ctx.session.elicit_form("Choices", {"type": "object", "properties": properties}))


@server.tool()
async def test_reconnection(ctx: Context) -> str:
    """Lets its client go, and has the answer ready when it comes back."""
    ctx.close_stream()
    await asyncio.sleep(0.1)
    return "Reconnected"


@server.resource("test://watched-resource", mime_type="text/plain")
async def watched_resource() -> str:
    """A resource to subscribe to."""
    return "Watched"


@server.resource("test://static-text", mime_type="text/plain")
async def static_text() -> str:
    """A text that never changes."""
    return "This is the content of the static text resource."


@server.resource("test://static-binary", mime_type="image/png")
async def static_binary() -> bytes:
    """A picture that never changes."""
    return PIXEL


@server.resource("test://template/{id}/data", mime_type="application/json")
async def template_data(id: str) -> dict[str, Any]:
    """Data by id."""
    return {"id": id, "templateTest": True, "data": f"Data for ID: {id}"}


@server.prompt()
async def test_simple_prompt() -> str:
    """A prompt without arguments."""
    return "This is a simple prompt for testing."


@server.prompt()
async def test_prompt_with_arguments(arg1: str, arg2: str) -> str:
    """A prompt that says what it was given."""
    return f"Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"


@server.prompt()
async def test_prompt_with_embedded_resource(resourceUri: str) -> list[Message | str]:
    """A prompt that holds a resource."""
    resource = embedded(resourceUri, "Embedded resource content for testing.")
    return [Message("user", resource), "Please process the embedded resource above."]


@server.prompt()
async def test_prompt_with_image() -> list[Message | str]:
    """A prompt that holds a picture."""
    return [Message("user", Image(data=PIXEL, format="png")), "Please analyze the image above."]


def ask_about() -> Elicit[About]:
    return Elicit("What context should the prompt use?", About, key="user_context")


@server.prompt()
async def test_input_required_result_prompt(about: Annotated[About, Resolve(ask_about)]) -> str:
    """A prompt that declares what it must ask first."""
    return f"Use this context: {about.context}"


@server.completion()
async def complete(ref: Any, argument: types.CompletionArgument, context: Any) -> list[str]:
    """Completes every argument from the same few words."""
    return [word for word in ("paris", "park", "party") if word.startswith(argument.value)]


if __name__ == "__main__":
    server.run("http", port=int(sys.argv[1]))
