"""The context: what a tool, prompt or resource can say and ask while it runs.

It is the engine's `Leg` with the author's vocabulary. Questions may be asked inline, declared or returned; all three
settle on the same ledger. The room knows no wire: questions and notifications are rendered next door.
"""

import asyncio
import math
import random
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, Literal, cast, overload

from typing_extensions import TypeVar, Unpack

from ._bus import Change
from ._ledger import CHECKPOINT, CLOCK, MARKER, Entry
from ._messages import (
    ElicitationResult,
    ListRoots,
    Marker,
    Question,
    Sample,
    SampleOptions,
    SampleWithTools,
    UrlElicitationResult,
)
from ._official import OfficialNames
from ._pacing import Pace
from ._rounds import Leg
from ._steps import Manner, OnChange, OnUnknown, claim_step, plain_data, take
from .dialects import asking, notifying, tasking
from .dialects.words import CLIENT_INFO, LEVELS, LOG_LEVEL
from .errors import AuthorError, InvalidParams, RoundOver

if TYPE_CHECKING:
    from mcp_types import (
        ClientCapabilities,
        CreateMessageResult,
        CreateMessageResultWithTools,
        Implementation,
        Root,
        SamplingMessage,
    )

T = TypeVar("T")
LifespanT = TypeVar("LifespanT", default=Any)
RequestT = TypeVar("RequestT", default=Any)
LoggingLevel = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]
_OF_THE_ENGINE = {"now", "suspending"}
LONGEST_SLEEP, LONGEST_REPORT = 100 * 365 * 86_400.0, 1000


class Context(OfficialNames, Leg, Generic[LifespanT, RequestT]):
    """Handed to any function that has a parameter annotated `Context`. It is good for one round.

    Methods that ask or take a step claim their place when they are called, so `gather` over them is deterministic.
    """

    # Asking

    def elicit(
        self, message: str, schema: type[T] | list[T], key: str | None = None
    ) -> Coroutine[Any, Any, ElicitationResult[T]]:
        """Ask the user to fill in a form: a pydantic model or a dataclass; for one value a plain type, or a list of
        texts to choose from.
        """
        question = asking.form(message, schema, key)
        place = question.key
        if place in (claims := self._claims) or self._working or self._over:
            place = self.claim(place)
        else:  # What a replay mostly does.
            claims[place] = 1
        self._owed += 1
        return self.answer(place, question)

    def elicit_url(
        self, message: str, url: str, elicitation_id: str | None = None, key: str | None = None
    ) -> Coroutine[Any, Any, UrlElicitationResult]:
        """Ask the user to visit a page. A page's address must be the same in every round: see `ctx.uuid()`."""
        return self._ask(asking.url(message, url, key, elicitation_id))

    @overload
    def sample(
        self, messages: "str | list[SamplingMessage]", *, key: str | None = None, **options: Unpack[SampleOptions]
    ) -> "Coroutine[Any, Any, CreateMessageResult]": ...
    @overload
    def sample(
        self, messages: "str | list[SamplingMessage]", *, key: str | None = None, **options: Unpack[SampleWithTools]
    ) -> "Coroutine[Any, Any, CreateMessageResultWithTools]": ...
    def sample(self, messages: Any, *, key: str | None = None, **options: Any) -> Coroutine[Any, Any, Any]:
        """Ask the client's model. With `tools`, what it gives may use them."""
        return self._ask(asking.sample(Sample(messages, key, **options)))

    def roots(self, *, key: str | None = None) -> "Coroutine[Any, Any, list[Root]]":
        """Ask which folders the client works in."""
        return self._ask(asking.question(ListRoots(key)))

    def ask(self, marker: Marker) -> Coroutine[Any, Any, Any]:
        """Ask what a marker says: `Elicit`, `ElicitURL`, `Sample` or `ListRoots`."""
        return self._ask(asking.question(marker))

    def ask_all(self, *markers: Marker, **named: Marker) -> Coroutine[Any, Any, Any]:
        """Ask several things in one round: a tuple of answers by place, or a dict by name; the names are the keys."""
        if markers and named:
            raise TypeError("ask_all takes questions by place or by name, not both")
        questions = [asking.question(marker) for marker in (*markers, *named.values())]
        keys = [self.claim(name) for name in named or [question.key for question in questions]]
        self._owed += 1
        return self._all_answers(dict(zip(keys, questions, strict=True)), None if markers else [*named])

    async def _all_answers(self, asked: dict[str, Question], names: list[str] | None) -> Any:
        self._owed -= 1
        settled = {key: self.settled(key, question) for key, question in asked.items()}
        if None in settled.values():
            self.open({key: question for key, question in asked.items() if settled[key] is None})
            self.suspend()
        values = tuple(answer[0] for answer in settled.values() if answer is not None)
        return values if names is None else dict(zip(names, values, strict=True))

    def _ask(self, question: Question) -> Coroutine[Any, Any, Any]:
        key = self.claim(question.key)
        self._owed += 1
        return self.answer(key, question)

    @property
    def input_responses(self) -> "dict[str, Any] | None":
        """For the returned form: the answers to the questions that were returned, by key; None where there are none.

        They stay until something else is returned, so that a function may go on and ask inline. Answers without a token
        are here as well, as in the official SDK: nothing pins them to a question, so check them yourself.
        """
        if self.call.state is None or self._ledger is None:
            asked: Mapping[str, str | None] = dict.fromkeys(self.call.answers)
            given: Mapping[str, Any] = self.call.answers
        else:
            asked, self._looked = self._ledger.handed, True
            recorded = {key: self._ledger.entries[key].answer for key in asked if key in self._ledger.entries}
            given = {**self.call.answers, **recorded}
        answers = {}
        for key, method in asked.items():
            with suppress(ValueError):
                answers[key] = asking.typed_answer(method, given.get(key))
        return answers or None

    @property
    def request_state(self) -> str | None:
        """For the returned form: the state that was returned with the questions, as it was written."""
        return None if self._ledger is None else self._ledger.state

    # Doing

    @overload
    def step(self, fn: Callable[..., Awaitable[T]], *args: Any, **options: Any) -> Coroutine[Any, Any, T]: ...
    @overload
    def step(self, fn: Callable[..., T], *args: Any, **options: Any) -> Coroutine[Any, Any, T]: ...
    def step(
        self,
        fn: Callable[..., Any],
        *args: Any,
        name: str | None = None,
        once: bool = False,
        on_change: OnChange = "fail",
        on_unknown: OnUnknown = "fail",
        **kwargs: Any,
    ) -> Coroutine[Any, Any, Any]:
        """Run something once in the whole flow. Its result is plain data; later rounds get it from the ledger.

        `once=True` keeps it from running again in any history of the flow, by a record in the server's store. Where
        such a step began and never reported, EffectUnknown is raised; with `on_unknown="rerun"` it runs again.
        """
        return take(self, claim_step(self, fn, args, kwargs, Manner(name, once, on_change, on_unknown)))

    @property
    def is_task(self) -> bool:
        """Whether this is a leg of a task."""
        return self.desk is not None

    async def become_task(self) -> None:
        """From here on, go on as a task: the client gets its id now, and the result later. There is no way back.

        A client that takes no tasks gets an error that says so.
        """
        if self.desk is None:
            if self.call.method != "tools/call":
                raise AuthorError(f"{self.call.method} cannot become a task; only tools/call can")
            if self.service.tasks is None:
                raise AuthorError("this server keeps no tasks: give it a store, MCPServer(tasks=SQLiteTaskStore(path))")
            tasking.check_takes_tasks(self.call)
            self.becoming = True
            self.move()

    async def report(self, message: str | None) -> None:
        """Say in a few words how far a task has come, for who looks at it. Outside of tasks nobody does."""
        if not isinstance(message, str | None):
            raise TypeError(f"a report is a text, not {type(message).__name__}")
        if self.desk is not None and not self._over and not self.is_behind():
            await self.desk.report(None if message is None else message[:LONGEST_REPORT])

    async def sleep(self, seconds: float) -> None:
        """Wait. A task is put away meanwhile, and wakes wherever there is a worker; it is not waited for twice."""
        if not isinstance(seconds, int | float) or not -1 < seconds / LONGEST_SLEEP < 1:
            raise ValueError(f"sleep takes a number of seconds, of a hundred years at most, not {seconds!r}")
        key, entries = self.claim("!sleep"), self.book().entries
        if key not in entries:
            now = self.call.post.now if self.desk is None else time.time()  # A leg's own clock stands still.
            entries[key] = Entry(CLOCK, "", round(now + max(0.0, seconds), 6))
            if self.desk is None:
                await asyncio.sleep(seconds)
        if self.desk is not None and self.call.post.now < (until := float(entries[key].value)):
            self.wake_at = until
            self.move()

    async def checkpoint(self, state: Any = None) -> None:
        """Keep plain data for whoever goes on, and let the call move if this instance has too much to do."""
        if self._over:
            raise RoundOver
        entries, entry = self.book().entries, Entry(MARKER, "", plain_data("checkpoint", "state", state))
        is_new, self._kept = entries.get(CHECKPOINT) != entry, True
        entries[CHECKPOINT] = entry
        if is_new:
            self.boundary()

    @property
    def checkpointed(self) -> Any:
        """What the last `checkpoint` of this flow kept; None before the first."""
        entry = None if self._ledger is None else self._ledger.entries.get(CHECKPOINT)
        return None if entry is None else entry.value

    def patched(self, change: str) -> bool:
        """Whether this flow runs the code after a change: true unless it had passed this place before the change.

        Use it where a new version does something else at a place that running flows may have behind them.
        """
        key, entries = f"!patched:{change}", self.book().entries
        if key not in entries:
            entries[key] = Entry(MARKER, "", not self.is_behind())
        return bool(entries[key].value)

    def random(self) -> float:
        """A number from 0 up to 1, the same on every replay."""
        return random.Random(self.book().derive(self.claim("!random"))).random()

    def uuid(self) -> uuid.UUID:
        """A random UUID, the same on every replay."""
        return uuid.UUID(bytes=self.book().derive(self.claim("!uuid"))[:16], version=4)

    @property
    def flow_version(self) -> str | None:
        """The `version=` of the tool under which this flow began."""
        return self.terms.version if self._ledger is None or self.call.state is None else self._ledger.version

    @property
    def flow_id(self) -> str:
        """One value for all rounds of a flow."""
        return self.book().flow_id

    def idempotency_key(self, step: str) -> str:
        """A key for a service that refuses to do a thing twice: the same for this flow and step, whatever is passed."""
        return self.book().derive(f"idempotency:{step}").hex()[:32]

    # Telling

    async def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Say how far the call has come, if the client wants to know. A replay does not say it again, and only what is
        further than before is sent, at most 50 times a second.
        """
        if self._over or not math.isfinite(progress) or not math.isfinite(total or 0) or self.is_behind():
            return
        token = self.call.meta.get("progressToken")
        if self.desk is not None:
            await self.report(message or (f"{progress:g}" if total is None else f"{progress:g} of {total:g}"))
        elif isinstance(token, str | int) and not isinstance(token, bool) and self._pace.allows(progress, total):
            await self.call.post.emit(notifying.progress(token, progress, total, message))

    @property
    def _pace(self) -> Pace:
        self.call.post.pace = pace = self.call.post.pace or Pace()
        return cast("Pace", pace)

    async def log(self, level: LoggingLevel, data: Any, *, logger_name: str | None = None) -> None:
        """Send a log line, if the client asked for lines of this level. A replay does not send it again."""
        wanted = self.call.meta.get(LOG_LEVEL)
        if level not in LEVELS:
            raise ValueError(f"not a log level: {level!r}")
        if self._over:
            return
        if wanted is not None and LEVELS.index(level) >= LEVELS.index(wanted) and not self.is_behind():
            await self.call.post.emit(notifying.log_message(level, data, logger_name))

    async def debug(self, data: Any, *, logger_name: str | None = None) -> None:
        """Log at level debug."""
        await self.log("debug", data, logger_name=logger_name)

    async def info(self, data: Any, *, logger_name: str | None = None) -> None:
        """Log at level info."""
        await self.log("info", data, logger_name=logger_name)

    async def warning(self, data: Any, *, logger_name: str | None = None) -> None:
        """Log at level warning."""
        await self.log("warning", data, logger_name=logger_name)

    async def error(self, data: Any, *, logger_name: str | None = None) -> None:
        """Log at level error."""
        await self.log("error", data, logger_name=logger_name)

    def close_stream(self) -> None:
        """Let the client go without an answer, and come back for it: a long call need not hold a connection.

        On wires with sessions over HTTP; elsewhere nothing happens.
        """
        line = self.call.post.line
        if line is not None and line.cut is not None:
            line.cut()

    async def notify_tools_changed(self) -> None:
        """Tell subscribers that the list of tools changed."""
        await self.service.publish(Change("tools"))

    async def notify_prompts_changed(self) -> None:
        """Tell subscribers that the list of prompts changed."""
        await self.service.publish(Change("prompts"))

    async def notify_resources_changed(self) -> None:
        """Tell subscribers that the list of resources changed."""
        await self.service.publish(Change("resources"))

    async def notify_resource_updated(self, uri: str) -> None:
        """Tell those who subscribed to this resource that it changed."""
        await self.service.publish(Change("resource", str(uri)))

    async def read_resource(self, uri: str) -> Iterable[Any]:
        """The contents of one of this server's own resources; one that asks cannot be read from inside a call."""
        return cast("Iterable[Any]", await self.service.read_resource(str(uri), self))

    # Knowing

    @property
    def client_capabilities(self) -> "ClientCapabilities":
        """What the client says it can do, in this very request."""
        from mcp_types import ClientCapabilities

        try:
            return ClientCapabilities.model_validate(self.call.capabilities)
        except ValueError:
            raise InvalidParams("clientCapabilities is malformed", status=400) from None

    @property
    def client_info(self) -> "Implementation | None":
        """Who the client says it is; not to be relied on."""
        from mcp_types import Implementation

        info = self.call.meta.get(CLIENT_INFO)
        try:
            return None if info is None else Implementation.model_validate(info)
        except ValueError:
            return None

    @property
    def headers(self) -> Mapping[str, str] | None:
        """The request's HTTP headers by lower-case name, or None on other transports. The client wrote them."""
        headers = self.call.post.headers
        if headers is None:
            return None
        return {name.decode("latin-1"): value.decode("latin-1") for name, value in headers.items()}

    @property
    def request_id(self) -> str:
        """The id of this round's request."""
        return str(self.call.id)

    @property
    def protocol_version(self) -> str:
        """The version that the request speaks."""
        return self.call.version

    @property
    def access_token(self) -> Any:
        """The caller's verified access token, where the server asks for one."""
        return self.call.post.access

    @property
    def lifespan(self) -> LifespanT:
        """What the server's lifespan yielded."""
        return cast("LifespanT", self.service.lifespan_state)

    @property
    def mcp_server(self) -> Any:
        """The server that this call reached."""
        return self.service

    def __dir__(self) -> list[str]:
        """The vocabulary, without what the engine keeps under public names."""
        own = {name for kind in type(self).__mro__ if kind not in Leg.__mro__ for name in vars(kind)}
        return [name for name in super().__dir__() if name.startswith("_") or name in own or name in _OF_THE_ENGINE]
