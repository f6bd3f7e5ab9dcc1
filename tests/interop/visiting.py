"""Whoever visits the museums of `mcp_server.py` and `typescript_server.mjs` with Turnwise's client."""

import subprocess
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import anyio
from anyio.from_thread import BlockingPortal
from mcp_types import (
    CallToolResult,
    CreateMessageRequestParams,
    CreateMessageResult,
    CreateMessageResultWithTools,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitRequestURLParams,
    ElicitResult,
    GetPromptResult,
    ListRootsResult,
    LoggingMessageNotificationParams,
    ReadResourceResult,
    Root,
    TextContent,
    TextResourceContents,
    ToolUseContent,
)
from pydantic import FileUrl

from turnwise import Asking, Client, Done, Pending
from turnwise.client import Begun

Target: TypeAlias = str | list[str]
Served: TypeAlias = tuple[str, "subprocess.Popen[bytes]"]
Serve: TypeAlias = Callable[[list[str]], AbstractContextManager[Served]]
Content: TypeAlias = dict[str, Any]
Flow: TypeAlias = Callable[[Client, "Visitor"], Awaitable[None]]

TIMEOUT = 10
PAPERS = "papers at file:///home/ada/papers"
PYTHON = ("python over http", "python over stdio")
TYPESCRIPT = ("typescript over http", "typescript over events", "typescript over stdio")


@dataclass
class Visitor:
    """Gives the next answer from a list, and remembers what was asked.

    An answer is a form's content, or the name of an action.
    """

    answers: list[Content | str] = field(default_factory=list)
    asked: list[Asking] = field(default_factory=list)
    forms: list[ElicitRequestFormParams] = field(default_factory=list)
    pages: list[ElicitRequestURLParams] = field(default_factory=list)
    samples: list[CreateMessageRequestParams] = field(default_factory=list)
    logs: list[tuple[str, str | None, Any]] = field(default_factory=list)
    progress: list[tuple[float, float | None, str | None]] = field(default_factory=list)

    def begin(self, answers: Sequence[Content | str]) -> None:
        self.answers = list(answers)
        for heard in (self.asked, self.forms, self.pages, self.samples, self.logs, self.progress):
            heard.clear()

    @property
    def messages(self) -> list[str]:
        return [form.message for form in self.forms]

    async def elicit(self, asking: Asking, params: ElicitRequestParams) -> ElicitResult:
        self.asked.append(asking)
        if isinstance(params, ElicitRequestURLParams):
            self.pages.append(params)
        else:
            self.forms.append(params)
        return answer_with(self.answers.pop(0))

    async def sample(
        self, asking: Asking, params: CreateMessageRequestParams
    ) -> CreateMessageResult | CreateMessageResultWithTools:
        self.asked.append(asking)
        self.samples.append(params)
        if params.tools:
            use = ToolUseContent(name=params.tools[0].name, id="use-1", input={"year": 1632})
            return CreateMessageResultWithTools(role="assistant", content=[use], model="model-1", stop_reason="toolUse")
        said = params.messages[-1].content
        assert isinstance(said, TextContent)
        reply = TextContent(text=f"<{said.text}>")
        return CreateMessageResult(role="assistant", content=reply, model="model-1", stop_reason="endTurn")

    async def list_roots(self, asking: Asking) -> ListRootsResult:
        self.asked.append(asking)
        return roots()

    async def log(self, params: LoggingMessageNotificationParams) -> None:
        self.logs.append((params.level, params.logger, params.data))

    async def advance(self, progress: float, total: float | None, message: str | None) -> None:
        self.progress.append((progress, total, message))


@dataclass(frozen=True)
class Museum:
    """A server, a client that stays connected to it, and the visitor at that client."""

    command: list[str]
    target: Target
    portal: BlockingPortal
    client: Client
    visitor: Visitor

    @property
    def over_http(self) -> bool:
        return isinstance(self.target, str)

    def run(self, main: Callable[[], Awaitable[None]]) -> None:
        async def bounded() -> None:
            with anyio.fail_after(TIMEOUT):
                await main()

        self.portal.call(bounded)

    def converse(self, flow: Flow, *answers: Content | str) -> Visitor:
        """Run a flow with a visitor who gives these answers, all of which must be asked for."""
        self.visitor.begin(answers)
        self.run(lambda: flow(self.client, self.visitor))
        assert self.visitor.answers == []
        return self.visitor

    def call(self, tool: str, arguments: Content | None = None, *answers: Content | str) -> str:
        """What a tool says in the end."""
        said: list[str] = []

        async def flow(client: Client, visitor: Visitor) -> None:
            result = await client.call_tool(tool, arguments, progress_callback=visitor.advance)
            assert not result.is_error, result
            said.append(text_of(result))

        self.converse(flow, *answers)
        return said[0]

    @property
    def address(self) -> str:
        return self.target if isinstance(self.target, str) else " ".join(self.target)

    def another(self, **options: Any) -> Client:
        """One more client of the same visitor; over stdio, with one more server process."""
        return client_of(self.target, self.visitor, **options)

    def desk(self, **options: Any) -> Client:
        """A client at which nobody sits: its calls wait for answers from elsewhere."""
        return Client(self.target, **{"capabilities": {"sampling": {}, "roots": {}}, **options})


def client_of(target: Target, visitor: Visitor, **options: Any) -> Client:
    own: dict[str, Any] = {
        "elicitation_callback": visitor.elicit,
        "sampling_callback": visitor.sample,
        "list_roots_callback": visitor.list_roots,
        "logging_callback": visitor.log,
        "log_level": "warning",
        "capabilities": {"sampling": {"tools": {}}},
    }
    return Client(target, **{**own, **options})


def answer_with(answer: Content | str) -> ElicitResult:
    match answer:
        case "accept" | "decline" | "cancel":
            return ElicitResult(action=answer)
        case dict():
            return ElicitResult(action="accept", content=answer)
    raise AssertionError(f"not an answer: {answer!r}")


def roots() -> ListRootsResult:
    return ListRootsResult(roots=[Root(uri=FileUrl("file:///home/ada/papers"), name="papers")])


def text_of(result: CallToolResult | GetPromptResult | ReadResourceResult) -> str:
    """The first text of a result."""
    match result:
        case CallToolResult(content=[TextContent() as block, *_]):
            return block.text
        case GetPromptResult(messages=[message, *_]) if isinstance(message.content, TextContent):
            return message.content.text
        case ReadResourceResult(contents=[TextResourceContents() as contents, *_]):
            return contents.text
    raise AssertionError(f"no text: {result!r}")


def through_json(outcome: Begun) -> Pending:
    """A call that waits, as another process would read it."""
    assert isinstance(outcome, Pending)
    return Pending.from_json(outcome.to_json())


def finished(outcome: Begun) -> Any:
    """The result of a call that waits no longer."""
    assert isinstance(outcome, Done)
    return outcome.result
