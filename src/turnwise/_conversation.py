"""A client's rounds: one request at a time is sent, mended where the protocol says how, and read; the loop of
`_driver` strings them together and has its questions answered.

The room knows no transport. What may go wrong on the way has a name in `errors`; nothing is retried that could do its
work twice.
"""

import asyncio
import itertools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple, TypeVar

from . import _pending
from ._bus import Change
from ._driver import Attempt, Drive, Pause, Questions, drive
from ._eager import Started
from ._following import TaskInHand, follow
from ._messages import Channel, Done, Notified, Outgoing
from ._pending import Pending
from .dialects.answering import Asking, check_questions, checked_answer, page_facts
from .dialects.calling import advised, next_cursor, page_params
from .dialects.tasking_client import TaskStatus, status, takes
from .dialects.unfit import kept, unfit_of, unhurried
from .dialects.v2026_07_28_client import HEADER_MISMATCH, MISSING_CAPABILITY, UNSUPPORTED_VERSION, Caller
from .dialects.words import ELICIT, ROOTS, TARGETS
from .errors import (
    BecameTask,
    CallbackFailed,
    ConnectionLost,
    DeadlineExceeded,
    InvalidReply,
    MCPError,
    TurnwiseError,
    Unanswerable,
    UnexpectedStatus,
    UnsupportedVersion,
)

Callback = Callable[..., Any]
"""A function of either colour."""
Progress = Callable[[float, float | None, str | None], Awaitable[None] | None]
AnswerOrder = Literal["together", "one-by-one"]
T = TypeVar("T")

REISSUES = (0.1, 0.3)
"""Pauses before a request is sent again whose reply was lost."""
MOST_PAGES = 1000
MOST_WAITS, LONGEST_WAIT = 3, 30
"""How often, and for how many seconds at a time, a request waits for a server that has too much to do."""

log = logging.getLogger("turnwise.client")


@dataclass(frozen=True, slots=True, kw_only=True)
class Manners:
    """How a client behaves in every call."""

    callbacks: Mapping[str, Callback]
    capabilities: Mapping[str, Any]
    in_hand: Mapping[str, Any]
    """The capabilities of a call that is put down: a person may answer what no callback does."""
    raw_questions: bool = False
    """Whether a call that is put down may hold questions that can only be refused."""
    max_rounds: int = 10
    answer_order: AnswerOrder = "together"
    request_seconds: float | None = 300.0
    deadline: float | None = None
    restart_expired: bool = True
    logging_callback: Callback | None = None
    server: str | None = None


class Wishes(NamedTuple):
    """What one call wants besides."""

    meta: Mapping[str, Any] | None = None
    progress: Progress | None = None
    request_seconds: float | None = None
    deadline: float | None = None
    restart_expired: bool | None = None
    in_hand: bool = False
    """Whether the call can be put down where a person has to answer."""


@dataclass(slots=True)
class Conversation:
    """One client's exchanges with one server."""

    channel: Channel
    caller: Caller
    manners: Manners
    on_change: Callable[[Change], None]
    """Who is told that something known has changed."""

    async def request(
        self,
        method: str,
        params: Mapping[str, Any],
        wishes: Wishes,
        capabilities: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """One round: the result, which may be a question."""
        seconds = self.manners.request_seconds if wishes.request_seconds is None else wishes.request_seconds
        declared = self.manners.capabilities if capabilities is None else capabilities
        mended: tuple[int, ...] = ()
        losses = waits = 0
        while True:
            outgoing = self.caller.request(
                method, params, declared, wishes.meta, with_progress=wishes.progress is not None
            )
            try:
                notified = self._notified(wishes, outgoing)
                exchange = Started(self.channel.exchange(outgoing, notified))
                if exchange.waits:
                    await self._patiently(exchange, seconds, notified, f"no reply to {method} within {seconds} s")
                return self.caller.read(outgoing, exchange.result)
            except ConnectionLost as lost:
                if losses == len(REISSUES) or (lost.sent and not outgoing.safe):
                    raise
                await asyncio.sleep(REISSUES[losses])
                losses += 1
            except UnexpectedStatus as refused:
                # Who is told when to come again was not served, so that nothing is done twice.
                if waits == MOST_WAITS or (pause := refused.retry_after) is None or pause > LONGEST_WAIT:
                    raise
                await asyncio.sleep(pause)
                waits += 1
            except MCPError as error:
                if error.code in mended or not await self._mend(method, error):
                    raise
                mended += (error.code,)

    async def aclose(self) -> None:
        """Let go of everything."""
        await self.channel.aclose()

    async def ask_once(self, method: str, params: Mapping[str, Any], seconds: float | None) -> dict[str, Any]:
        """One request, which is not sent again whatever comes of it."""
        outgoing = self.caller.request(method, params, self.manners.capabilities)
        exchange = self.channel.exchange(outgoing, self._notified(Wishes(), outgoing))
        return self.caller.read(outgoing, await limited(exchange, seconds, f"no reply to {method} within {seconds} s"))

    def _patiently(
        self, exchange: "Started[Any]", seconds: float | None, notified: Notified, complaint: str
    ) -> Awaitable[None]:
        return limited(exchange, seconds, complaint)

    async def _mend(self, method: str, error: MCPError) -> bool:
        """Whether a refused request is worth another try, after what the protocol says to do first."""
        if error.code == UNSUPPORTED_VERSION:
            supported = error.data.get("supported") if isinstance(error.data, dict) else None
            versions = [item for item in supported if isinstance(item, str)] if isinstance(supported, list) else []
            if self.caller.version not in versions:
                raise UnsupportedVersion(self.caller.version, versions) from error
            return True
        if error.code == MISSING_CAPABILITY:
            raise advised(error, self.manners.callbacks) from None
        if error.code == HEADER_MISMATCH and method == "tools/call":
            self.on_change(Change("tools"))
            async for page in pages("tools/list", self._tools):
                self.caller.learn(page)
            return True
        return False

    def _tools(self, cursor: str | None) -> Awaitable[dict[str, Any]]:
        return self.request("tools/list", page_params(cursor), Wishes())

    async def call(self, method: str, params: Mapping[str, Any], wishes: Wishes) -> tuple[dict[str, Any], int]:
        """As many rounds as it takes: the complete result, and how many those were."""
        manners = self.manners
        loop = drive(params, manners.max_rounds, restart=_restarts(manners, wishes))
        answer = partial(self.answers, method=method, params=params)
        on_task = partial(self._followed, params=params, wishes=wishes)
        finished: tuple[dict[str, Any], int] = await self._in_time(
            method, wishes, self._run(loop, partial(self.request, method, wishes=wishes), answer, on_task, method)
        )
        return finished

    async def _followed(self, became: BecameTask, params: Mapping[str, Any], wishes: Wishes) -> dict[str, Any]:
        """The result of a call that has become a task; what the task says of itself is its progress."""
        count, heard = itertools.count(1), self._notified(wishes, None)

        async def on_status(seen: TaskStatus) -> None:
            progress = {"progress": next(count), "message": seen.message}
            await heard({"method": "notifications/progress", "params": progress})

        first = status(became.result).poll
        return await follow(self, self._task(became, params), self.manners.max_rounds, on_status, first)

    async def _handed_out(self, became: BecameTask, params: Mapping[str, Any]) -> TaskInHand:
        return self._task(became, params)

    def _task(self, became: BecameTask, params: Mapping[str, Any]) -> TaskInHand:
        if not takes(self.manners.capabilities):
            raise InvalidReply("the server made a task of a call whose client takes none")
        task_id, tool = status(became.result).id, params[TARGETS["tools/call"]]
        return TaskInHand(task_id, tool, params.get("arguments", {}), self.manners.server)

    async def ask(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """One request, with nothing special about it."""
        return await self.request(method, params, Wishes())

    async def carry_on(self, pending: Pending, wishes: Wishes) -> Done[dict[str, Any]] | Pending | TaskInHand:
        """As far as a call gets without a person: its result, itself at the next questions, or the task it became."""
        manners, method = self.manners, pending.method
        loop = drive(pending.params, manners.max_rounds, held=pending.held, restart=_restarts(manners, wishes))
        wishes = wishes._replace(in_hand=True)
        send = partial(self.request, method, wishes=wishes, capabilities=manners.in_hand)
        answer, on_task = partial(self._partly, pending=pending), partial(self._handed_out, params=pending.params)
        work = self._run(loop, send, answer, on_task, f"{method} {pending.id}")
        outcome, _ = await self._in_time(method, wishes, work)
        return outcome if isinstance(outcome, Pending | TaskInHand) else Done(outcome)

    def _in_time(self, method: str, wishes: Wishes, work: Coroutine[Any, Any, T]) -> Coroutine[Any, Any, T]:
        """All rounds of a call within its deadline; what is under way then is cancelled, which the server hears of."""
        seconds = self.manners.deadline if wishes.deadline is None else wishes.deadline
        return work if seconds is None else limited(work, seconds, f"{method} was not finished within {seconds} s")

    async def _run(
        self,
        loop: Drive,
        send: Callable[[Mapping[str, Any]], Awaitable[dict[str, Any]]],
        answer: Callable[[Questions], Awaitable[dict[str, Any] | Pending]],
        on_task: Callable[[BecameTask], Awaitable[Any]],
        named: str,
    ) -> tuple[Any, int]:
        """What comes of the loop, a result or a call that is put down, and after how many requests."""
        outcome: Any = None
        requests = 0
        while True:
            try:
                step = _next_step(loop, outcome, named, self.manners.server)
            except StopIteration as done:
                return done.value, requests
            if isinstance(step, Attempt):
                requests += 1
                try:
                    outcome = await send(step.params)
                except MCPError as error:
                    outcome = error
                except BecameTask as became:
                    return await on_task(became), requests
            elif isinstance(step, Questions):
                outcome = await answer(step)
                if isinstance(outcome, Pending):
                    return outcome, requests
            else:
                outcome = await asyncio.sleep(step.seconds, None)

    async def _partly(self, step: Questions, pending: Pending) -> dict[str, Any] | Pending:
        """The answers that are there and that callbacks give, or the call, put down where a person's are missing."""
        callbacks, is_raw = self.manners.callbacks, self.manners.raw_questions
        unfit = await unhurried(unfit_of, step.requests, are_shown=is_raw)
        own = {
            key: request
            for key, request in step.requests.items()
            if key in step.known or (request["method"] in callbacks and key not in unfit)
        }
        answers = await self.answers(step._replace(requests=own), pending.method, pending.params)
        if len(answers) == len(step.requests):
            return answers
        shown = await unhurried(kept, step.requests) if is_raw else step.requests
        return _pending.put_down(pending, step._replace(requests=shown), answers)

    async def answers(self, step: Questions, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        """An answer to every question of a round, each asked once; nobody is asked where one cannot be."""
        callbacks = self.manners.callbacks
        asked = step.requests
        if step.known:
            asked = {key: request for key, request in asked.items() if key not in step.known}
        typed = await unhurried(check_questions, asked)
        for key, request in asked.items():
            if request["method"] not in callbacks:
                raise Unanswerable(key, request["method"])
        waiting: list[Callable[[], Coroutine[Any, Any, Any]]] = []
        for key, request in asked.items():
            asking = asking_of(key, request, step.round, method, params, self.manners.server)
            waiting.append(partial(answered, callbacks[request["method"]], asking, request, typed[key]))
        if len(waiting) == 1:
            return {**step.known, key: await waiting[0]()}
        return {**step.known, **dict(zip(asked, await self._gathered(waiting), strict=True))}

    async def _gathered(self, waiting: list[Callable[[], Coroutine[Any, Any, Any]]]) -> list[Any]:
        if len(waiting) < 2 or self.manners.answer_order == "one-by-one":
            return [await answer() for answer in waiting]
        tasks = [asyncio.ensure_future(answer()) for answer in waiting]
        try:
            return await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    def _notified(self, wishes: Wishes, outgoing: Outgoing | None) -> Notified:
        """Who hears what a server says while it works."""
        progress = wishes.progress
        if progress is None and self.manners.logging_callback is None:
            return _unheard

        async def notified(message: Any) -> None:
            params = message.get("params")
            params = params if isinstance(params, dict) else {}
            try:
                match message.get("method"):
                    case "notifications/progress" if progress is not None:
                        await called(progress, float(params["progress"]), params.get("total"), params.get("message"))
                    case "notifications/message" if self.manners.logging_callback is not None:
                        await self._logged(params)
                    case _:
                        log.debug("the server said %.200r", message)
            except Exception:  # The call goes on: its result matters more than how it was announced.
                log.exception("a callback for %s failed", message.get("method"))

        return notified

    async def _logged(self, params: Mapping[str, Any]) -> None:
        from mcp_types import LoggingMessageNotificationParams

        if self.manners.logging_callback is not None:
            await called(self.manners.logging_callback, LoggingMessageNotificationParams.model_validate(params))


async def _unheard(message: Any) -> None:
    log.debug("the server said %.200r", message)


async def called(callback: Callable[..., Any], *args: Any) -> None:
    """Call a function of either colour."""
    result = callback(*args)
    if hasattr(result, "__await__"):
        await result


async def answered(callback: Callback, asking: Asking, request: Mapping[str, Any], typed: Any) -> dict[str, Any]:
    """What a callback says to a question, checked."""
    key, method = asking.key, request["method"]
    try:
        answer = callback(asking) if method == ROOTS else callback(asking, typed)
        if hasattr(answer, "__await__"):
            answer = await answer
    except TurnwiseError:
        raise
    except Exception as error:
        raise CallbackFailed(key, method, f"{type(error).__name__}: {error}") from error
    return checked_answer(key, request, answer)


def asking_of(
    key: str, request: Mapping[str, Any], number: int, method: str, params: Mapping[str, Any], server: str | None
) -> Asking:
    """Who asks, and in which call."""
    target = params[TARGETS[method]] if method in TARGETS else ""
    asking = Asking(key, method, target, params.get("arguments", {}), number + 1, server)
    asked = request.get("params", {})
    if request["method"] != ELICIT or asked.get("mode") != "url":
        return asking
    url, host, warnings = page_facts(key, asked.get("url"))
    return asking._replace(url=url, host=host, warnings=warnings)


def _restarts(manners: Manners, wishes: Wishes) -> bool:
    return manners.restart_expired if wishes.restart_expired is None else wishes.restart_expired


def _next_step(loop: Drive, outcome: Any, named: str, server: str | None) -> Attempt | Questions | Pause:
    if not isinstance(outcome, MCPError):
        return loop.send(outcome)
    step = loop.throw(outcome)
    words = "%s at %s is begun anew, for the server no longer takes its state: steps of it may run again"
    log.warning(words, named, server or "this server")
    return step


async def limited(work: Awaitable[T], seconds: float | None, complaint: str) -> T:
    """So long and no longer; another timeout than ours stays what it is."""
    try:
        async with asyncio.timeout(seconds) as limit:
            return await work
    except TimeoutError as error:
        if limit.expired() and not isinstance(error, DeadlineExceeded):
            raise DeadlineExceeded(complaint) from None
        raise


async def pages(method: str, fetch: Callable[[str | None], Awaitable[dict[str, Any]]]) -> AsyncIterator[dict[str, Any]]:
    """Every page of a list, as it comes; a list that does not end is the server's mistake."""
    cursor: str | None = None
    seen: set[str] = set()
    while True:
        result = await fetch(cursor)
        yield result
        cursor = next_cursor(result)
        if cursor is None:
            return
        if cursor in seen or len(seen) >= MOST_PAGES:
            raise InvalidReply(f"the pages of {method} do not end")
        seen.add(cursor)
