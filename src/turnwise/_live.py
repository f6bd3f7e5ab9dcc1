"""Questions that a server asks while a call waits, as servers with a handshake do, and what it says besides.

The same callbacks answer them as on every other wire, and the same checks are made. The stream is read on meanwhile.
What cannot be answered is an error to the server, which decides what becomes of the call.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any

from ._conversation import REISSUES, Conversation, Wishes, answered, asking_of
from ._eager import Started
from ._json import decode
from ._messages import Notified, Outgoing, lacking
from ._standing import Session
from .dialects import handshake_client as handshake
from .dialects.answering import check_question, needs
from .dialects.words import CHANGES, ELICIT, ROOTS, SAMPLE, TARGETS
from .errors import (
    CallbackFailed,
    ConnectionLost,
    DeadlineExceeded,
    MalformedQuestion,
    PeerError,
    TurnwiseError,
    Unanswerable,
)

ATTEND_SECONDS = 2.0
"""How long a client waits until it can hear what a server says unasked; some never say whether they will."""
MOST_OPEN = 100
"""Questions of one call that may be open at the same time."""
_QUESTIONS = (ELICIT, SAMPLE, ROOTS)
_CHANGES = tuple(CHANGES.values())

log = logging.getLogger("turnwise.client")


@dataclass(slots=True)
class LiveConversation(Conversation):
    """A client's exchanges with a server that asks in their course. `listeners` are told what changes; `watching` hears
    what is said unasked, always where `attends`.
    """

    session: Session
    attends: bool = False
    listeners: set[Callable[[Any], None]] = field(default_factory=set)
    subscribed: Counter[str] = field(default_factory=Counter)
    watching: "asyncio.Task[None] | None" = None
    under_way: "list[Live]" = field(default_factory=list)

    def unasked(self, message: Any) -> None:
        """Take what belongs to no request of ours. "`ping` [...] MAY be sent by either party at any time"."""
        method, number = message.get("method"), message.get("id")
        if "id" not in message:
            self.session.run(self.heard(message, super(LiveConversation, self)._notified(Wishes(), None)))
        elif not isinstance(number, str | int):
            log.warning("the server asks under an id that is none: %.200r", message)
        elif method == "ping":
            self.session.run(self.session.tell(handshake.response(number, {})))
        elif method in _QUESTIONS and (live := self._asker()) is not None:
            live.ask(number, message)
        elif method in _QUESTIONS:
            log.warning("the server asks %s outside of any request; it is told that it must not", method)
            text = handshake.UNASSOCIATED.format(method=method)
            self.session.run(self.session.tell(handshake.refusal(number, handshake.INVALID_PARAMS, text)))
        else:
            text = f"Method not found: {method}"
            self.session.run(self.session.tell(handshake.refusal(number, handshake.METHOD_NOT_FOUND, text)))

    def _asker(self) -> "Live | None":
        """The request that a question belongs to which does not say so: some servers ask beside the stream of the call.
        It is the last one that may ask, if there is any.
        """
        calls = [live for live in self.under_way if live.request.method in TARGETS]
        return calls[-1] if calls else None

    async def attend(self) -> None:
        """Begin to hear what the server says unasked, if it says anything."""
        opened = asyncio.Event()
        self.watch(opened).add_done_callback(self._attended)
        with suppress(TimeoutError):
            async with asyncio.timeout(ATTEND_SECONDS):
                await opened.wait()

    def _attended(self, stream: "asyncio.Task[None]") -> None:
        """How a stream ended matters to whoever listens. One that broke is begun again with the next request."""
        error = None if stream.cancelled() else stream.exception()
        if error is not None:
            log.debug("the server says nothing unasked: %s", error)
            self.attends = self.attends and isinstance(error, ConnectionLost)

    def watch(self, opened: asyncio.Event) -> "asyncio.Task[None]":
        """What the server says unasked, heard once for everybody; `opened` is set when it begins, or cannot."""

        async def heard(message: Any) -> None:
            self.unasked(message)

        stream = self.watching = asyncio.create_task(self.session.watch(heard, opened.set))
        stream.add_done_callback(lambda _: opened.set())
        return stream

    async def leave(self) -> None:
        """Hear nothing any more."""
        stream, self.watching = self.watching, None
        if stream is not None:
            stream.cancel()
            await asyncio.wait([stream])

    async def aclose(self) -> None:
        """Leave the session."""
        try:
            await self.leave()
        finally:
            await self.session.aclose()

    async def greet(self) -> None:
        """Tell a new session what the one before knew."""
        for uri in tuple(self.subscribed):
            await self.session.ask("resources/subscribe", {"uri": uri})

    async def heard(self, message: Any, otherwise: Notified) -> None:
        """Take a notification: changes are for those who listen, the rest for the callbacks."""
        if message.get("method") in _CHANGES:
            for listener in tuple(self.listeners):
                listener(message)
        else:
            await otherwise(message)

    def _notified(self, wishes: Wishes, outgoing: Outgoing | None) -> Notified:
        heard = super(LiveConversation, self)._notified(wishes, outgoing)
        if self.attends and self.watching is not None and self.watching.done():
            self.watch(asyncio.Event()).add_done_callback(self._attended)
        return heard if outgoing is None else Live(self, outgoing, heard, wishes.in_hand)

    async def _patiently(
        self, exchange: Started[Any], seconds: float | None, notified: Notified, complaint: str
    ) -> None:
        """So long and no longer, without the time that people take to answer."""
        assert isinstance(notified, Live)
        self.under_way.append(notified)
        try:
            async with asyncio.timeout(seconds) as notified.limit:
                await exchange
        except TimeoutError as error:
            if notified.failure is not None:
                raise notified.failure from None
            if notified.limit is not None and notified.limit.expired() and not isinstance(error, DeadlineExceeded):
                raise DeadlineExceeded(complaint) from None
            raise
        finally:
            self.under_way.remove(notified)
            notified.close()


class Live:
    """What a server says in the course of one request."""

    def __init__(self, conversation: LiveConversation, request: Outgoing, heard: Notified, in_hand: bool) -> None:
        self.limit: asyncio.Timeout | None = None
        self.failure: TurnwiseError | None = None
        self.request = request
        self._conversation = conversation
        self._heard = heard
        self._in_hand = in_hand
        self._questions: dict[str | int, asyncio.Task[None]] = {}
        self._count = 0
        self._thinking = 0
        self._left: float | None = None
        self._is_over = False
        one_by_one = conversation.manners.answer_order == "one-by-one"
        self._order: Any = asyncio.Lock() if one_by_one else nullcontext()

    async def __call__(self, message: Any) -> None:
        """Take a message. Questions are answered on the side, so that the stream is read on."""
        method, number = message.get("method"), message.get("id")
        if "id" not in message:
            if method == "notifications/cancelled":
                self._withdrawn(message.get("params"))
            await self._conversation.heard(message, self._heard)
        elif method not in _QUESTIONS or not isinstance(number, str | int):
            self._conversation.unasked(message)
        else:
            self.ask(number, message)

    def ask(self, number: str | int, message: Mapping[str, Any]) -> None:
        """Take a question."""
        if number in self._questions or len(self._questions) == MOST_OPEN:
            text = f"{message['method']} is asked twice under one id, or beside {MOST_OPEN} other questions"
            self._run(self._deliver(handshake.refusal(number, handshake.INVALID_REQUEST, text)))
        else:
            self._count += 1
            task = asyncio.create_task(self._answer(number, message, self._count))
            self._questions[number] = task
            task.add_done_callback(lambda _: self._questions.pop(number, None))

    def close(self) -> None:
        """The request is over: its questions are no longer asked by anything, and that is said."""
        self._is_over = True
        for number, task in tuple(self._questions.items()):
            if task.cancel():
                self._run(self._deliver(handshake.refusal(number, handshake.INVALID_PARAMS, handshake.OVER)))

    def _withdrawn(self, params: Any) -> None:
        number = params.get("requestId") if isinstance(params, dict) else None
        task = self._questions.get(number) if isinstance(number, str | int) else None
        if task is not None:
            log.info("the server withdrew question %r: %.200r", number, params.get("reason"))
            task.cancel()

    async def _answer(self, number: str | int, message: Mapping[str, Any], count: int) -> None:
        with self._in_thought():
            async with self._order:
                body = await self._response(number, message, count)
        self._run(self._deliver(body))

    async def _response(self, number: str | int, message: Mapping[str, Any], count: int) -> bytes:
        """The answer, or the error that says why there is none."""
        method, manners = message["method"], self._conversation.manners
        key = str(number)
        try:
            typed = check_question(key, message)
            callback = manners.callbacks.get(method)
            if callback is None and self._in_hand:
                self._fail(Unanswerable(key, method, is_live=True))
            if callback is None or lacking(needs(message), manners.capabilities):
                code, text = handshake.missing_callback(self._conversation.caller.version, method)
                return handshake.refusal(number, code, text)
            params = decode(self.request.body).get("params", {})
            asking = asking_of(key, message, count - 1, self.request.method, params, manners.server)
            return handshake.response(number, await answered(callback, asking, message, typed))
        except MalformedQuestion as error:
            return handshake.refusal(number, handshake.INVALID_PARAMS, str(error))
        except CallbackFailed as error:
            if error.told is not None:
                return handshake.refusal(number, error.told.code, error.told.message, error.told.data)
            return _failed(number)
        except (TurnwiseError, TypeError, ValueError):  # An answer may be of a kind that JSON does not have.
            return _failed(number)

    async def _deliver(self, body: bytes) -> None:
        """Send an answer. One that does not get through leaves the server waiting, so the call is given up."""
        for pause in (*REISSUES, None):
            try:
                await self._conversation.session.tell(body)
                return
            except ConnectionLost as error:
                if pause is None:
                    self._fail(ConnectionLost(f"an answer did not get through: {error}", sent=True))
                    return
                await asyncio.sleep(pause)
            except PeerError as error:
                self._fail(error)
                return

    def _run(self, errand: Coroutine[Any, Any, None]) -> None:
        self._conversation.session.run(errand)

    def _fail(self, error: TurnwiseError) -> None:
        if self.limit is not None and not self._is_over:
            self.failure = error
            self.limit.reschedule(asyncio.get_running_loop().time())

    @contextmanager
    def _in_thought(self) -> Iterator[None]:
        """The time for a reply stands still while somebody thinks about a question."""
        clock, limit = asyncio.get_running_loop().time, self.limit
        if self._thinking == 0 and limit is not None and (due := limit.when()) is not None:
            self._left = due - clock()
            limit.reschedule(None)
        self._thinking += 1
        try:
            yield
        finally:
            self._thinking -= 1
            is_needed = self._thinking == 0 and not self._is_over and self.failure is None
            if is_needed and limit is not None and self._left is not None:
                limit.reschedule(clock() + self._left)


def _failed(number: str | int) -> bytes:
    log.exception("a question of the server's cannot be answered")
    return handshake.refusal(number, handshake.INTERNAL_ERROR, "The client could not answer")
