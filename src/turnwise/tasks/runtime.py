"""Tasks at work: how a call becomes one, how it is asked and answered, and how a leg of it is played.

A leg is played as every round is, from the top, with the ledger out of the store. What it settles is appended as it
goes, so that a worker that dies costs the step it was in and no other; that step runs again with the same idempotency
key. The leg ends when the function does, or asks, or sleeps; then the claim is given back and nothing of it is in
memory.
"""

import asyncio
import logging
import os
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

from .._ledger import Entry, Ledger
from .._messages import Ask, Call, Done, Post, Question, Yield
from .._sealed import StateCodec, digest
from ..dialects.tasking import bare, new_id
from ..errors import CallerError, InvalidRequestState, MCPError
from .model import (
    CANCELLED_MESSAGE,
    Claim,
    Limits,
    LostLease,
    NewTask,
    Status,
    Task,
    TaskStore,
    is_late,
    is_over,
    legible,
)
from .news import News
from .options import TaskOptions
from .playing import BY_REQUEST, ELSEWHERE, LEAVING, Playing, is_recorded
from .seats import Player, Remembered
from .vault import Vault

log = logging.getLogger("turnwise.tasks")

SHY_SECONDS = 2.0
"""For how long a leg that cannot be opened here is kept from being tried again."""
LEFT = "#left"
"""Where it is counted how often a leg was left to others. It lies among what the leg has settled, where nothing of an
author's is called so, and goes when that does.
"""
BEAT_SECONDS = 2.0
"""How often a worker says that it is alive, and hears whether its task is to stop."""
LONGEST_TTL = 10**12
"""Milliseconds for which a client may have a task kept where the server would keep it for ever: some thirty years."""
STOP_SECONDS = 5.0
"""For how long a function that is told to stop may go on before its leg is given back over its head."""


class Seen(NamedTuple):
    """A task, opened: what its owner may see."""

    task: Task
    requests: Mapping[str, Any]
    result: dict[str, Any] | None
    error: dict[str, Any] | None


Judge = Callable[[Call, Exception], dict[str, Any]]
"""What becomes of an exception: `{"result": ...}`, or `{"error": ...}` where a call would have been refused."""
Render = Callable[[Question], dict[str, Any]]


class Tasks:
    """The tasks of one server."""

    def __init__(
        self, options: TaskOptions, store: TaskStore, codec: StateCodec, player: Player, judge: Judge, render: Render
    ) -> None:
        self.options = options
        self.store = store
        self.tools: Mapping[str, Any] = {}
        self.woken = asyncio.Event()
        self.news = News()
        self.owner = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"
        self._vault = Vault(codec)
        self._player = player
        self._judge = judge
        self._render = render
        self._running: dict[str, Playing] = {}
        self._stopping: set[str] = set()
        """Tasks that are to stop whose leg this process has claimed and not begun."""
        if hasattr(options.dispatcher, "attach"):
            options.dispatcher.attach(store)

    @property
    def limits(self) -> Limits:
        """What this server's workers may play."""
        return Limits(tuple(self.tools), self.options.most or {})

    # For callers

    async def create(self, call: Call, ledger: Ledger | None, principal: str | None) -> Task:
        """Make a task of a call; it is durable when this returns."""
        await self._check_room(call, principal)
        task_id = new_id(call.version)
        ledger = ledger or Ledger(lineage=os.urandom(16), started=call.post.now)
        facts = [
            call.method,
            bare(call.params),
            call.target,
            call.arguments,
            dict(call.meta),
            dict(call.capabilities),
            call.version,
        ]
        who = None if call.post.access is None else call.post.access.principal
        ttl = self._ttl(call)
        await self.store.create(
            NewTask(
                task_id,
                _digest(principal),
                call.target,
                self._vault.seal(task_id, "call", [*facts, who]),
                self._vault.seal(task_id, "state", _written(ledger, {}, [], 0)),
                call.post.now,
                ttl,
            )
        )
        log.info("task %s: %s %r began", task_id, call.method, call.target)
        self.woken.set()
        return Task(task_id, "", call.target, "working", None, call.post.now, call.post.now, ttl)

    async def _check_room(self, call: Call, principal: str | None) -> None:
        most = self.options.per_caller
        if most is None or principal is None:
            return
        if await self.store.unfinished(_digest(principal), most, call.post.now) >= most:
            raise MCPError(-32603, f"There are {most} tasks of yours already that are not over; no more are begun")

    def _ttl(self, call: Call) -> float | None:
        """For how long a task is kept: what the server allows, or less where the client asks for less."""
        asked = call.params.get("task")
        wanted = asked.get("ttl") if isinstance(asked, dict) else None
        most = self.options.ttl
        if not isinstance(wanted, int | float) or isinstance(wanted, bool) or not wanted > 0:
            return most
        # Bounded before it is divided: a whole number may be larger than any float.
        seconds = min(wanted, LONGEST_TTL) / 1000
        return seconds if most is None else min(most, seconds)

    async def get(self, task_id: str, principal: str | None, now: float) -> Seen | None:
        """A task, for who began it; None where there is none, or it is over its time, or another's."""
        task = await self.store.get(task_id, _digest(principal))
        return None if task is None or is_late(task, now) else self.seen(task)

    def seen(self, task: Task) -> Seen:
        """A task with what its store keeps sealed. Of its questions those are shown that wait for an answer."""
        if task.payload is None:
            return Seen(task, {}, None, None)
        opened = self._vault.open(task.id, "payload", task.payload)
        requests = {key: opened["requests"][key] for key in task.waits} if task.status == "input_required" else {}
        return Seen(task, requests, opened.get("result"), opened.get("error"))

    async def own(self, principal: str | None, after: str, most: int, now: float) -> list[Task]:
        """The tasks of one caller, by id."""
        own: list[Task] = []
        while len(own) < most:
            page = await self.store.list(principal=_digest(principal), after=after, most=most)
            if not page:
                break
            after = page[-1].id
            own += [task for task in page if not is_late(task, now)]
        return own[:most]

    async def peek(self, task_id: str, principal: str | None, now: float) -> Task | None:
        """A task as it is seen from outside, whatever it is sealed under."""
        task = await self.store.get(task_id, _digest(principal))
        return None if task is None or is_late(task, now) else task

    async def update(self, task_id: str, principal: str | None, answers: Mapping[str, Any], now: float) -> bool:
        """Answer questions of a task; whether there is such a task."""
        sealed = {
            key: self._vault.seal(task_id, f"answer:{key}", answer)
            for key, answer in answers.items()
            if isinstance(answer, dict)
        }
        is_known = await self.store.respond(task_id, _digest(principal), sealed, now)
        self.news.tell(task_id)
        self.woken.set()
        return is_known

    async def cancel(self, task_id: str, principal: str | None, now: float) -> Task | None:
        """Stop a task, if it can be stopped; the task as it is then."""
        task = await self.store.cancel(task_id, _digest(principal), now)
        self.news.tell(task_id)
        if task is not None and not is_over(task.status):
            self.heard("stop", task_id)
            if task.owner == self.owner and task_id not in self._running:
                self._stopping.add(task_id)
        return task

    def heard(self, what: str, task_id: str) -> None:
        """Take notice of what another process did: see `Telling`."""
        if what == "due":
            self.woken.set()
        elif (playing := self._running.get(task_id)) is not None:
            playing.stop(BY_REQUEST)

    # For workers

    async def play(self, claim: Claim) -> bool:
        """One leg, from a claim to wherever it ends; whether the end is on record, here or by another worker."""
        playing = self._running[claim.id] = Playing()
        playing.task = asyncio.create_task(self._play(claim, playing))
        beat = asyncio.create_task(self._beat(claim, playing))
        try:
            await asyncio.wait([playing.task])
        except asyncio.CancelledError:
            playing.stop(LEAVING)
            playing.task.add_done_callback(partial(is_recorded, claim))
            if not (await asyncio.wait([playing.task], timeout=STOP_SECONDS))[0]:
                log.warning("task %s: %r does not stop; its leg is given back", claim.id, claim.tool)
                await self.store.release(claim, time.time())
            raise
        finally:
            beat.cancel()
            self.news.tell(claim.id)
            if self._running.get(claim.id) is playing:
                del self._running[claim.id]
        return is_recorded(claim, playing.task)

    async def _beat(self, claim: Claim, playing: Playing) -> None:
        pause = min(BEAT_SECONDS, self.options.lease / 3)
        while True:
            await asyncio.sleep(pause)
            try:
                if await self.store.renew(claim, time.time() + self.options.lease):
                    playing.stop(BY_REQUEST)
            except LostLease:
                playing.stop(ELSEWHERE)
                return
            except Exception:  # A store that is away may come back before the lease is over.
                log.exception("task %s: the store does not hear that it is alive", claim.id)

    async def _opened(self, claim: Claim, playing: Playing) -> tuple[Call, Any] | None:
        """What a claim has inside; None where this leg is not to be played, which is then on record."""
        playing.is_ending = True
        if claim.id in self._stopping or playing.reason is not None:
            self._stopping.discard(claim.id)
            await self._left(claim, playing.reason or BY_REQUEST)
            return None
        settled = dict(claim.entries)
        left = int(settled.pop(LEFT, b"0"))
        try:
            call, state = self._call(claim), self._vault.open(claim.id, "state", claim.state)
        except InvalidRequestState as error:
            log.error("task %s cannot be opened here, and is left to others: %s", claim.id, error)
            await self.store.append(claim, [(LEFT, b"%d" % (left + 1))], time.time() + SHY_SECONDS)
            return None
        tries = claim.epoch - state[4] - left  # Who left it to others did not fall silent over it.
        if self.options.attempts is not None and tries > self.options.attempts + len(settled):
            words = f"Given up: {tries - 1} workers fell silent over one leg of this task"
            await self._finish(claim, {"error": {"code": -32603, "message": words}})
            return None
        log.info("task %s: %r, leg %d", claim.id, claim.tool, claim.epoch)
        playing.is_ending = False
        return call, state

    async def _play(self, claim: Claim, playing: Playing) -> None:
        playing.has_begun = True
        if (opened := await self._opened(claim, playing)) is None:
            return
        call, state = opened
        desk = _Desk(self, claim, call.state)
        try:
            outcome, wake_at = await self._player.leg(call, desk)
        except asyncio.CancelledError:
            playing.is_ending = True
            await self._left(claim, playing.reason)
            return
        except Exception as error:
            playing.is_ending = True
            await self._finish(claim, self._judge(call, error))
            return
        playing.is_ending = True
        try:
            if isinstance(outcome, Done):
                await self._finish(claim, {"result": outcome.result})
            elif isinstance(outcome, Ask):
                await self._park(claim, outcome, state[3])
            else:
                await self._postpone(claim, outcome, wake_at, state)
        except (
            TypeError,
            ValueError,
            RecursionError,
            OverflowError,
        ) as error:  # What it gave, or asks, cannot be written down.
            await self._finish(claim, self._judge(call, error))

    def _call(self, claim: Claim) -> Call:
        facts = self._vault.open(claim.id, "call", claim.call)
        method, params, target, arguments, meta, capabilities, version, who = facts
        lineage, written, keys, *_ = self._vault.open(claim.id, "state", claim.state)
        ledger = Ledger.decode(bytes.fromhex(lineage), written)
        for key, blob in claim.entries:
            if key == LEFT:
                continue
            ledger.entries[key] = Entry(*self._vault.open(claim.id, f"entry:{key}", blob))
        answers = {
            keys[key]: self._vault.open(claim.id, f"answer:{key}", blob)
            for key, blob in claim.answers.items()
            if key in keys
        }
        access = None if who is None else Remembered(who)
        post = Post(b"", _silent, claim.woken, access=access)
        return Call(
            claim.id, method, params, target, arguments, answers, ledger, meta, capabilities, version, post, True
        )

    async def _finish(self, claim: Claim, end: dict[str, Any]) -> None:
        status: Status = "completed" if "result" in end else "failed"
        message = None if "result" in end else legible(str(end["error"].get("message")))
        payload = self._vault.seal(claim.id, "payload", end)
        await self.store.finish(claim, status, payload, message, time.time())
        log.info("task %s: %r %s", claim.id, claim.tool, status)

    async def _park(self, claim: Claim, outcome: Ask, used: list[str]) -> None:
        """End the leg at its questions. A key that was used before in this task is not used again."""
        keys: dict[str, str] = {}
        for key in outcome.questions:
            name, number = key, 1
            while name in used or name in keys:
                number += 1
                name = f"{key}~{number}"
            keys[name] = key
        requests = {name: self._render(outcome.questions[key]) for name, key in keys.items()}
        state = self._vault.seal(claim.id, "state", _written(outcome.carrier, keys, [*used, *keys], claim.epoch))
        payload = self._vault.seal(claim.id, "payload", {"requests": requests})
        await self.store.park(claim, state, list(keys), payload, time.time())

    async def _postpone(self, claim: Claim, outcome: Yield, wake_at: float | None, state: Any) -> None:
        now = time.time()
        sealed = self._vault.seal(claim.id, "state", _written(outcome.carrier, {}, state[3], claim.epoch))
        await self.store.postpone(claim, sealed, max(now, wake_at or now), now)
        self.woken.set()

    async def _left(self, claim: Claim, reason: str | None) -> None:
        if reason == BY_REQUEST:
            await self.store.finish(claim, "cancelled", None, CANCELLED_MESSAGE, time.time())
            log.info("task %s: %r cancelled", claim.id, claim.tool)
        elif reason == LEAVING:
            await self.store.release(claim, time.time())
        else:
            raise LostLease(claim.id)

    async def keep(self, claim: Claim, entries: Mapping[str, Entry]) -> None:
        """Append what a leg has settled; a task that is to stop is stopped here."""
        rows = [(key, self._vault.seal(claim.id, f"entry:{key}", list(entry))) for key, entry in entries.items()]
        try:
            is_cancelling = await self.store.append(claim, rows, time.time() + self.options.lease)
        except Exception as error:  # What is not on record must not be built upon; nor is it the function's failure.
            raise LostLease(claim.id) from error
        if is_cancelling and (playing := self._running.get(claim.id)) is not None:
            playing.stop(BY_REQUEST)


class _Desk:
    """One leg's way to the store."""

    def __init__(self, tasks: Tasks, claim: Claim, ledger: Ledger) -> None:
        self._tasks = tasks
        self._claim = claim
        self._known = dict(ledger.entries)

    async def keep(self, ledger: Ledger) -> None:
        fresh = {key: entry for key, entry in ledger.entries.items() if self._known.get(key) != entry}
        self._known |= fresh
        await self._tasks.keep(self._claim, fresh)

    async def report(self, message: str | None) -> None:
        try:
            await self._tasks.store.note(self._claim, None if message is None else legible(message), time.time())
            self._tasks.news.tell(self._claim.id)
        except CallerError as error:
            log.warning("task %s: nobody hears how far it has come: %s", self._claim.id, error)


def _written(ledger: Ledger, keys: Mapping[str, str], used: list[str], epoch: int) -> list[Any]:
    return [ledger.lineage.hex(), ledger.encode(), keys, used, epoch]


def _digest(principal: str | None) -> str:
    return "" if principal is None else digest(b"task principal|" + principal.encode())


async def _silent(message: bytes) -> None:
    """A task has no stream to speak on; `ctx.report` is what it has."""
