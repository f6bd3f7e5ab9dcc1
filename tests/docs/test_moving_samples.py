"""The guides to moving: what was written for another library, and the same for Turnwise, give the same to a client."""

import ast
import asyncio
import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import mcp
import mcp.server.mcpserver as sdk
import mcp.types
import mcp_types
import pytest
from mcp.server import elicitation
from mcp.server.mcpserver import exceptions
from mcp_types import ElicitResult
from pydantic import BaseModel

import turnwise
from tests.docs.loading import ENVIRONMENT, ROOT, SAMPLES, load
from tests.docs.test_client_samples import at_url
from tests.interop.conftest import fastmcp_command
from turnwise import Client, Command, _hosting, _moving, _registering

__all__ = ["fastmcp_command"]

Calls = list[tuple[str, dict[str, Any], dict[str, Any]]]
BANK: Calls = [
    ("transfer", {"amount": 7}, {"account": {"account": "savings"}, "sure": {"sure": True}}),
    ("transfer", {"amount": 7}, {"account": {"account": "savings"}, "sure": {"sure": False}}),
    ("transfer", {"amount": 7}, {"account": {"account": "savings"}, "sure": None}),
    ("transfer", {"amount": 7}, {"account": None}),
]
TRIPS: Calls = [
    ("book", {"city": "Lyon"}, {"nights": {"nights": 3}}),
    ("book", {"city": "Lyon"}, {"nights": None}),
    ("book", {"city": "Atlantis"}, {}),
    ("distance", {"a": 3, "b": 7}, {}),
]


def called(program: str, sample: str, calls: Calls, prompt: tuple[str, dict[str, str]], resource: str) -> list[Any]:
    """What a client gets from a sample that is served over standard streams: texts, data, and what was asked."""

    async def run() -> list[Any]:
        found: list[Any] = []
        answers: dict[str, Any] = {}

        async def answer(asking: Any, params: Any) -> dict[str, Any]:
            content = answers[asking.key]
            found.append((asking.key, params.message, sorted(params.requested_schema["properties"])))
            return {"action": "decline"} if content is None else {"action": "accept", "content": content}

        env = {"PYTHONPATH": ENVIRONMENT["PYTHONPATH"], "PYTHONWARNINGS": "ignore"}
        command = Command([program, str(SAMPLES / sample)], env=env)
        async with Client(command, elicitation_callback=answer) as client:
            for tool, arguments, answers in calls:  # noqa: B007 - the callback reads them
                result = await client.call_tool(tool, arguments)
                found.append([result.content[0].text, result.structured_content, result.is_error])  # type: ignore[union-attr]
            filled = await client.get_prompt(*prompt)
            found += [(message.role, message.content.text) for message in filled.messages]  # type: ignore[union-attr]
            found += [part.text for part in (await client.read_resource(resource)).contents]  # type: ignore[union-attr]
            tools = {tool.name: tool for tool in (await client.list_tools()).tools}
            found += [(name, tools[name].description, tools[name].input_schema["required"]) for name in sorted(tools)]
        return found

    return asyncio.run(run())


def printed(program: str, sample: str, server: Any) -> str:
    """What a sample of a client prints that visits a server."""
    with at_url(server) as url:
        command = [program, "-W", "ignore", str(SAMPLES / sample), url]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=ENVIRONMENT, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_server_gives_the_same_when_it_has_moved_from_the_official_sdk() -> None:
    rest: Any = (BANK, ("complain", {"about": "fees"}), "bank://savings/balance")
    before = called(sys.executable, "moving/sdk_before.py", *rest)
    assert before == called(sys.executable, "moving/sdk_after.py", *rest)
    assert ["7 transferred from savings.", None, False] in before
    assert "savings has 100." in before


def test_a_client_prints_the_same_when_it_has_moved_from_the_official_sdk() -> None:
    for sample in ("moving/sdk_client_before.py", "moving/sdk_client_after.py"):
        assert printed(sys.executable, sample, load("moving/sdk_after.py").mcp) == "7 transferred from savings.\n"


class Sure(BaseModel):
    sure: bool


def told(library: Any, client: Any, outcome: Any, error: type[Exception]) -> list[str]:
    """What a client is told by tools that know outcomes and errors by these names: of an answer, an error, a crash,
    and of arguments that do not fit.
    """
    server = library.MCPServer("bank")

    async def ask(ctx: Any) -> str:
        return f"accepted: {isinstance(await ctx.elicit('Sure?', Sure), outcome)}"

    def pay(amount: int) -> str:
        raise error("No money.") if amount else ZeroDivisionError

    ask.__annotations__["ctx"] = library.Context
    for tool in (ask, pay):
        server.tool()(tool)

    async def answer(asking: Any, params: Any) -> ElicitResult:
        return ElicitResult(action="accept", content={"sure": True})

    async def run() -> list[str]:
        texts = []
        async with client(server, elicitation_callback=answer) as visitor:
            for name, arguments in (("ask", {}), ("pay", {"amount": 7}), ("pay", {"amount": 0}), ("pay", {})):
                try:
                    texts.append((await visitor.call_tool(name, arguments)).content[0].text)
                except mcp.MCPError as refused:
                    texts.append(str(refused))
        return texts

    return asyncio.run(run())


def test_asking_inline_works_after_the_move_and_error_texts_are_others() -> None:
    asked, failed, crashed, invalid = told(sdk, mcp.Client, elicitation.AcceptedElicitation, exceptions.ToolError)
    assert "no back-channel" in asked
    assert failed == "Error executing tool pay: No money."
    assert crashed == "Error executing tool pay"
    assert invalid.startswith("Error executing tool pay: 1 validation error")
    assert told(turnwise, Client, turnwise.AcceptedElicitation, turnwise.ToolError) == [
        "accepted: True",
        "No money.",
        "The tool failed; the server's log says why.",
        "Invalid arguments: amount: Field required",
    ]


def test_an_import_that_is_left_over_does_not_match() -> None:
    asked, failed, *_ = told(turnwise, Client, elicitation.AcceptedElicitation, exceptions.ToolError)
    assert asked == "accepted: False"
    assert failed == "The tool failed; the server's log says why."


def test_every_outcome_of_the_official_sdk_has_its_name_here_and_in_the_table() -> None:
    rows = (ROOT / "docs/guides/from-official-sdk.md").read_text().partition("## Name by name")[2]
    names = [name for name in dir(elicitation) if name.endswith("Elicitation")]
    assert len(names) == 4
    for name in names:
        assert f"`{name}`" in rows
        assert hasattr(turnwise, name)


ORDINARY = """
from mcp.server.mcpserver import Context, Icon, MCPServer
from starlette.requests import Request
from starlette.responses import JSONResponse

logo = Icon(src="https://bank.example/logo.png")
mcp = MCPServer("bank", "The Bank", "A bank.", "Be polite.", "https://bank.example", [logo], "1.2", log_level="WARNING")


@mcp.tool(title="Add", icons=[logo])
async def add(a: int, b: int, ctx: Context) -> int:
    await ctx.close_sse_stream()
    return a + b


@mcp.custom_route("/health", methods=["GET"])
async def health(request: Request) -> JSONResponse:
    return JSONResponse({"server": [mcp.name, mcp.title, mcp.version]})


app = mcp.streamable_http_app(host="127.0.0.1")
"""


def seen_of(source: str, client: Any) -> list[Any]:
    """What is seen of a server from outside: its tools, a result, a page."""
    names: dict[str, Any] = {}
    exec(source, names)

    async def run() -> list[Any]:
        async with client(names["mcp"]) as visitor:
            (tool,) = (await visitor.list_tools()).tools
            result = await visitor.call_tool("add", {"a": 1, "b": 2})
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=names["app"])) as pages:
            page = await pages.get("http://127.0.0.1/health")
        return [tool.name, tool.title, tool.icons, result.structured_content, page.json()]

    return asyncio.run(run())


def test_an_ordinary_server_moves_by_its_imports_alone() -> None:
    moved = ORDINARY.replace("from mcp.server.mcpserver import", "from turnwise import")
    before = seen_of(ORDINARY, mcp.Client)
    assert before[-2:] == [{"result": 3}, {"server": ["bank", "The Bank", "1.2"]}]
    assert seen_of(moved, Client) == before


class Plain:
    x: int

    def __init__(self, x: int) -> None:
        self.x = x


def given(library: Any, client: Any) -> dict[str, Any]:
    """What a client gets of values that the two libraries write each in its own way."""
    server = library.MCPServer("values")
    returned: dict[str, tuple[Any, Any]] = {
        "nothing": (None, None),
        "things": ([1], list[Any]),
        "plain": (Plain(3), Plain),
    }
    kept: dict[str, tuple[Any, Any]] = {"dict": ({"a": 1}, dict), "bytes": (b"1", bytes)}

    def function(value: Any, returns: Any) -> Any:
        def give() -> Any:
            return value

        give.__annotations__["return"] = returns
        return give

    for name, (value, returns) in returned.items():
        server.tool(name)(function(value, returns))
    for name, (value, returns) in kept.items():
        server.resource(f"values://{name}", name=name)(function(value, returns))

    @server.resource("values://of/{name}")  # type: ignore[untyped-decorator]
    def template(name: str) -> str:
        return name

    async def run() -> dict[str, Any]:
        async with client(server) as visitor:
            tools = {tool.name: tool.output_schema is not None for tool in (await visitor.list_tools()).tools}
            found: dict[str, Any] = {}
            for name, has_schema in tools.items():
                result = await visitor.call_tool(name, {})
                found[name] = "fails" if result.is_error else (has_schema, result.structured_content)
            for one in (await visitor.list_resources()).resources:
                (read,) = (await visitor.read_resource(one.uri)).contents
                found[one.name] = (one.mime_type, read.mime_type)
            (listed,) = (await visitor.list_resource_templates()).resource_templates
            return {**found, "template": listed.mime_type}

    return asyncio.run(run())


def test_values_are_written_as_the_guide_says() -> None:
    assert given(sdk, mcp.Client) == {
        "nothing": (True, {"result": None}),
        "things": (True, {"result": [1]}),
        "plain": (True, {"x": 3}),
        "dict": ("text/plain", "text/plain"),
        "bytes": ("text/plain", "text/plain"),
        "template": "text/plain",
    }
    assert given(turnwise, Client) == {
        "nothing": (False, None),
        "things": (False, None),
        "plain": "fails",
        "dict": (None, "application/json"),
        "bytes": (None, "application/octet-stream"),
        "template": None,
    }


def test_the_official_types_are_those_that_turnwise_brings() -> None:
    assert not [name for name in mcp.types.__all__ if getattr(mcp.types, name) is not getattr(mcp_types, name)]


@pytest.mark.parametrize("name", ["files/read", "has space"])
def test_a_name_that_the_official_sdk_warns_of_is_refused(name: str) -> None:
    sdk.MCPServer("names").add_tool(lambda: "x", name)
    with pytest.raises(turnwise.InvalidSignature, match="a tool's name has 1 to 128 of the characters"):
        turnwise.MCPServer("names").add_tool(lambda: "x", name)


def guide(name: str, heading: str) -> str:
    return (ROOT / "docs/guides" / name).read_text().partition(heading)[2].partition("\n#")[0]


def first_column(name: str, heading: str) -> set[str]:
    """The names in the first column of a guide's table; options have a `=`."""
    rows = [line.split("|")[1] for line in guide(name, heading).splitlines() if line.startswith("|")]
    return {word for row in rows for word in re.findall(r"`([^`]+)`", row)}


def taken(function: Any, options: Any = None) -> set[str]:
    """The parameters of a function, of which those by keyword may be in a TypedDict."""
    parameters = inspect.signature(function).parameters.values()
    named = {one.name for one in parameters if one.kind is not inspect.Parameter.VAR_KEYWORD}
    return named | set(getattr(options, "__annotations__", ()))


class Running(_hosting.HttpOptions):
    port: int
    log_level: str


OFFICIAL, FASTMCP = "### The server, name by name", "### Server and context, name by name"
HERE: dict[str, Any] = {
    "tool": _registering.ToolOptions,
    "add_tool": _registering.ToolOptions,
    "prompt": _registering.PromptOptions,
    "resource": _registering.ResourceOptions,
    "streamable_http_app": _hosting.HttpOptions,
    "run_streamable_http_async": Running,
}


def public(kind: type[Any], without: type[Any] = object) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_") and not hasattr(without, name)}


def test_every_name_of_the_official_server_is_here_or_in_the_table() -> None:
    told = first_column("from-official-sdk.md", OFFICIAL)
    server = turnwise.MCPServer("bank")
    missing = {name for name in public(sdk.MCPServer) if not hasattr(server, name)}
    missing |= {f"ctx.{name}" for name in public(sdk.Context, BaseModel) if not hasattr(turnwise.Context, name)}
    missing |= {name for name in sdk.__all__ if name not in turnwise.__all__}
    missing |= {f"MCPServer({name}=)" for name in taken(sdk.MCPServer) - taken(turnwise.MCPServer)}
    for name in sorted(public(sdk.MCPServer)):
        theirs, ours = getattr(sdk.MCPServer, name), getattr(turnwise.MCPServer, name, None)
        if inspect.isfunction(theirs) and ours is not None and name != "run":
            lacking = taken(theirs) - taken(ours, HERE.get(name))
            missing |= {f"{one}=" if f"{one}=" in told else f"{name}({one}=)" for one in lacking}
    for name in public(sdk.Context, BaseModel) & public(turnwise.Context):
        if inspect.isfunction(theirs := getattr(sdk.Context, name)):
            missing |= {f"ctx.{name}({one}=)" for one in taken(theirs) - taken(getattr(turnwise.Context, name))}
    assert len(missing) > 20
    assert missing <= told


def test_names_that_are_refused_with_words_are_in_a_table_and_not_here() -> None:
    tables = guide("from-official-sdk.md", OFFICIAL) + guide("from-fastmcp.md", FASTMCP)
    server = turnwise.MCPServer("bank")
    words = [name for names in (_moving.SERVER, _moving.HTTP, _moving.FUNCTION) for name in names]
    assert not [name for name in words if not re.search(rf"\b{name}=", tables)]
    assert not [name for name in _moving.ATTRIBUTES if not re.search(rf"\b{name}\b", tables) or hasattr(server, name)]
    assert not [name for name in _moving.CONTEXT if f"`ctx.{name}`" not in tables or hasattr(turnwise.Context, name)]
    assert not [name for name in _moving.ASKED if f"`ctx.elicit({name}=)`" not in tables]
    assert not _moving.ASKED.keys() & taken(turnwise.Context.elicit)
    assert not _moving.SERVER.keys() & taken(turnwise.MCPServer)
    assert not _moving.HTTP.keys() & taken(turnwise.MCPServer.run, HERE["run_streamable_http_async"])
    assert not _moving.FUNCTION.keys() & {name for options in HERE.values() for name in options.__annotations__}


@pytest.mark.parametrize("sample", ["moving/fastmcp_before.py", "moving/fastmcp_client_before.py"])
def test_what_was_written_for_fastmcp_is_python(sample: str) -> None:
    assert "fastmcp" in {
        (node.module or "").partition(".")[0]
        for node in ast.parse((SAMPLES / sample).read_text()).body
        if isinstance(node, ast.ImportFrom)
    }


def test_a_server_gives_the_same_when_it_has_moved_from_fastmcp(fastmcp_command: list[str]) -> None:
    rest: Any = (TRIPS, ("itinerary", {"city": "Lyon"}), "trips://Lyon/weather")
    before = called(fastmcp_command[0], "moving/fastmcp_before.py", *rest)
    assert before == called(sys.executable, "moving/fastmcp_after.py", *rest)
    assert ["3 nights in Lyon.", None, False] in before
    assert ["Atlantis is under water.", None, True] in before


def test_a_client_prints_the_same_when_it_has_moved_from_fastmcp(fastmcp_command: list[str]) -> None:
    server = load("moving/fastmcp_after.py").mcp
    after = printed(sys.executable, "moving/fastmcp_client_after.py", server)
    assert after == "3 nights in Lyon.\n{'result': 4}\n"
    assert printed(fastmcp_command[0], "moving/fastmcp_client_before.py", server) == after


def test_every_name_of_fastmcp_is_here_or_in_the_table(fastmcp_command: list[str]) -> None:
    script = [fastmcp_command[0], "-W", "ignore", str(Path(__file__).with_name("fastmcp_names.py"))]
    theirs = json.loads(subprocess.run(script, capture_output=True, text=True, check=True).stdout)
    told = {word.removeprefix("ctx.elicit(") for word in first_column("from-fastmcp.md", FASTMCP)}
    told = {word.removeprefix("FastMCP(").removesuffix(")") for word in told}
    server: Any = turnwise.MCPServer("trips")
    missing = {name for name in theirs["server"] if not hasattr(server, name)}
    missing |= {f"ctx.{name}" for name in theirs["context"] if not hasattr(turnwise.Context, name)}
    ours = {
        "MCPServer": taken(turnwise.MCPServer),
        "elicit": taken(turnwise.Context.elicit),
        "run": taken(server.run),
        "run_stdio_async": taken(server.run_stdio_async),
        "run_http_async": taken(server.run_http_async, HERE["run_streamable_http_async"]),
        "http_app": taken(server.asgi, HERE["streamable_http_app"]),
    } | {name: taken(getattr(server, name), HERE[name]) for name in ("tool", "prompt", "resource")}
    for function, known in ours.items():
        missing |= {f"{name}=" for name in theirs[function] if name not in known}
    assert len(missing) > 50
    assert missing <= told
    imported = first_column("from-fastmcp.md", "## Name by name")
    for module, names in theirs["modules"].items():
        assert module in imported
        assert imported & {name for one in names for name in (one, f"{one}()")}
