"""Any tool, in any history, does what it would do if its questions were answered on the spot.

The tools are programs of a small language, drawn at random: questions, steps, branches, loops, groups. `perform` runs
one over a context, round by round, or over the answers themselves, straight through. The histories are drawn as well:
replies are lost, requests are sent again, old tokens come back with other answers, instances are restarted, upgraded
or too busy, clients hang up, and processes die between an effect and its record.
"""

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, Literal, Protocol

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from mcp_types.methods import validate_server_result

from turnwise import (
    AcceptedElicitation,
    Budget,
    Context,
    Elicit,
    MCPServer,
    MemoryStore,
    ReplayMismatch,
    RequestStateSecurity,
    StepFailed,
    ToolError,
    step,
)
from turnwise.testing import Connection

KEY = b"k" * 32
DECLINED, MALFORMED = 4, 5
BULK = "x" * 600
PATIENCE = 1.0
GONE_ON = "This call has gone on from here before: its earlier state is not taken again."
FAILED = "The tool failed; the server's log says why."
EVERYTHING: dict[str, Any] = {"elicitation": {}, "sampling": {}}

# The language


@dataclass(frozen=True)
class Question:
    """Ask the user, or the model; `wording` is what a new version changes."""

    name: str = ""
    is_keyed: bool = False
    is_for_model: bool = False
    wording: int = 0

    @property
    def message(self) -> str:
        return f"{self.name}, wording {self.wording}?"

    @property
    def key(self) -> str | None:
        return self.name if self.is_keyed else None


@dataclass(frozen=True)
class Step:
    """Do something; `uses` the last answer, `pauses` for some turns of the loop, takes a step inside, may fail."""

    name: str = ""
    is_once: bool = False
    is_bulky: bool = False
    uses: bool = False
    pauses: int = 0
    is_nested: bool = False
    fails: Literal["", "error", "refusal"] = ""
    is_caught: bool = False


@dataclass(frozen=True)
class Value:
    """Look at a clock, or throw dice."""

    kind: Literal["now", "random", "uuid"]


@dataclass(frozen=True)
class Together:
    """Ask several things in one call."""

    questions: tuple[Question, ...]
    is_named: bool = False


@dataclass(frozen=True)
class Branch:
    """Go one way or the other by the last answer."""

    even: "Program"
    odd: "Program"


@dataclass(frozen=True)
class Loop:
    """Do the same several times: a fixed number, or as the last answer says."""

    body: "Program"
    times: int | None


@dataclass(frozen=True)
class Group:
    """Do several things at once."""

    branches: "tuple[Program, ...]"
    is_task_group: bool


Node = Question | Step | Value | Together | Branch | Loop | Group
Program = tuple[Node, ...]


class World(Protocol):
    """Where a program is performed. An answer is a number; a refusal to answer is one as well."""

    async def ask(self, question: Question) -> int: ...
    async def ask_all(self, node: Together) -> list[int]: ...
    async def do(self, node: Step, argument: int) -> list[Any]: ...
    def look(self, kind: str) -> None: ...


async def perform(program: Program, world: World, last: int = 0) -> tuple[list[Any], int]:
    """What a program tells in the end, and the last answer it got."""
    told: list[Any] = []
    for node in program:
        match node:
            case Question():
                last = await world.ask(node)
                told.append([node.message, last])
            case Together():
                answers = await world.ask_all(node)
                told.append([[question.message for question in node.questions], answers])
                last = answers[-1]
            case Step():
                told.append(await attempted(node, world, last if node.uses else 0))
            case Value():
                world.look(node.kind)
            case Branch():
                inner, last = await perform(node.even if last % 2 == 0 else node.odd, world, last)
                told.append(inner)
            case Loop():
                for _ in range(1 + last % 3 if node.times is None else node.times):
                    inner, last = await perform(node.body, world, last)
                    told.append(inner)
            case Group():
                told.append(await at_once(node, world, last))
    return told, last


async def attempted(node: Step, world: World, argument: int) -> Any:
    if not node.is_caught:
        return await world.do(node, argument)
    try:
        return await world.do(node, argument)
    except StepFailed as error:
        return ["caught", node.name, error.kind, error.text]
    except ToolError as error:
        return ["caught", node.name, "ToolError", str(error)]


async def at_once(node: Group, world: World, last: int) -> list[Any]:
    works = [perform(branch, world, last) for branch in node.branches]
    if not node.is_task_group:
        return [told for told, _ in await asyncio.gather(*works)]
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(work) for work in works]
    return [task.result()[0] for task in tasks]


QUESTIONS = st.builds(Question, is_keyed=st.booleans(), is_for_model=st.booleans())
STEPS = st.builds(
    Step,
    is_once=st.booleans(),
    is_bulky=st.sampled_from([False, False, True]),
    uses=st.booleans(),
    pauses=st.integers(0, 5),
    is_nested=st.sampled_from([False, False, True]),
    fails=st.sampled_from(["", "", "", "", "error", "refusal"]),
    is_caught=st.sampled_from([True, True, True, False]),
)
VALUES = st.builds(Value, st.sampled_from(["now", "random", "uuid"]))
TOGETHER = st.builds(
    Together, st.lists(st.builds(Question, is_keyed=st.booleans()), min_size=2, max_size=3).map(tuple), st.booleans()
)


def blocks(depth: int, *, in_group: bool = False) -> st.SearchStrategy[Program]:
    """Programs. In a group there are no clocks and dice: those are numbered in the order in which they are reached."""
    leaves: st.SearchStrategy[Node] = QUESTIONS | STEPS | STEPS | TOGETHER | (QUESTIONS if in_group else VALUES)
    if depth == 0:
        return st.lists(leaves, min_size=1, max_size=3).map(tuple)
    inner, beside = blocks(depth - 1, in_group=in_group), blocks(depth - 1, in_group=True)
    groups = st.builds(Group, st.lists(beside, min_size=2, max_size=3).map(tuple), st.booleans())
    loops = st.builds(Loop, inner, st.sampled_from([1, 2, 3, None]))
    nodes = leaves | groups | groups | st.builds(Branch, inner, inner) | loops
    return st.lists(nodes, min_size=1, max_size=4).map(tuple)


Leaf = Question | Step


def rebuilt(program: Program, change: Callable[[Leaf], Leaf]) -> Program:
    """The program with each of its questions and steps changed."""

    def again(node: Node) -> Node:
        match node:
            case Question() | Step():
                return change(node)
            case Together():
                questions = [change(question) for question in node.questions]
                return replace(node, questions=tuple(q for q in questions if isinstance(q, Question)))
            case Branch():
                return Branch(rebuilt(node.even, change), rebuilt(node.odd, change))
            case Loop():
                return Loop(rebuilt(node.body, change), node.times)
            case Group():
                return replace(node, branches=tuple(rebuilt(branch, change) for branch in node.branches))
            case Value():
                return node

    return tuple(again(node) for node in program)


def leaves_of(program: Program) -> list[Leaf]:
    """All questions and steps of a program."""
    found: list[Leaf] = []

    def note(leaf: Leaf) -> Leaf:
        found.append(leaf)
        return leaf

    rebuilt(program, note)
    return found


def named(program: Program, names: Iterator[int]) -> Program:
    """The program with a name of its own for every question and step that has none."""
    return rebuilt(
        program, lambda leaf: leaf if leaf.name else replace(leaf, name=f"{type(leaf).__name__.lower()}{next(names)}")
    )


def has_groups(program: Program) -> bool:
    """Whether some of it is done at once."""
    return any(
        isinstance(node, Group)
        or (isinstance(node, Branch) and has_groups(node.even + node.odd))
        or (isinstance(node, Loop) and has_groups(node.body))
        for node in program
    )


Change = Literal["reword", "turn", "drop", "add", "move"]


def changed(program: Program, how: Change, place: int, new: Node) -> Program:
    """A new version that keeps most of the old one. A question may be reworded, or turn into a step, or the other way
    round; on the outside something may go, come, or change its place.
    """
    target = leaves_of(program)[place % len(leaves_of(program))].name
    nodes = list(program)
    match how:
        case "reword":
            return rebuilt(program, lambda leaf: reworded(leaf) if leaf.name == target else leaf)
        case "turn":
            return tuple(turned(node) if getattr(node, "name", "") == target else node for node in nodes)
        case "drop" if len(leaves_of(tuple(nodes[1:]))) > 0:
            del nodes[0]
        case "move":
            nodes.append(nodes.pop(place % len(nodes)))
        case _:
            nodes.insert(place % len(nodes), new)
    return tuple(nodes)


def reworded(leaf: Leaf) -> Leaf:
    return replace(leaf, wording=leaf.wording + 1) if isinstance(leaf, Question) else replace(leaf, uses=not leaf.uses)


def turned(node: Node) -> Node:
    if isinstance(node, Question):
        return Step(node.name)
    return Question(node.name, is_keyed=True) if isinstance(node, Step) else node


# The worlds


class Straight:
    """A world in which a question is answered on the spot, or waits for ever. `done` holds what was done."""

    def __init__(self, answers: dict[str, int]) -> None:
        self._answers = answers
        self._uses: Counter[str] = Counter()
        self.done: list[str] = []
        self.guarded: list[str] = []

    async def ask(self, question: Question) -> int:
        return await self._answer(question, question.key)

    async def ask_all(self, node: Together) -> list[int]:
        keys = [question.name if node.is_named else question.key for question in node.questions]
        return [await self._answer(question, key) for question, key in zip(node.questions, keys, strict=True)]

    async def _answer(self, question: Question, key: str | None) -> int:
        name = key or question.message
        self._uses[name] += 1
        identity = f"{question.message}#{self._uses[name]}"
        if identity not in self._answers:
            await asyncio.Event().wait()
        return self._answers[identity]

    async def do(self, node: Step, argument: int) -> list[Any]:
        self._uses[node.name] += 1
        identity = f"{node.name}#{self._uses[node.name]}"
        deeds = [identity, f"{identity} inside"] if node.is_nested else [identity]
        (self.guarded if node.is_once else self.done).extend(deeds)
        if node.fails == "error":
            raise StepFailed(node.name, "LookupError", identity)
        if node.fails:
            raise ToolError(identity)
        return [identity, argument, BULK if node.is_bulky else ""]

    def look(self, kind: str) -> None:
        """Nothing is told of it."""


@dataclass(eq=False, repr=False)
class Flow:
    """One call, with all the histories that clients made of it."""

    number: int
    names: set[str] = field(default_factory=set)
    turns: list["Turn"] = field(default_factory=list)
    guarded: Counter[str] = field(default_factory=Counter)
    keys: dict[str, str] = field(default_factory=dict)
    dice: dict[str, Any] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    """Steps whose record a crash kept from being written."""

    @property
    def is_forked(self) -> bool:
        """Whether there are histories of which none is the beginning of the other."""
        ways = {turn.way() for turn in self.turns}
        return len(ways) > len({len(way) for way in ways})


@dataclass(eq=False, repr=False)
class Turn:
    """One request: the turn whose token it brought, and what came of it."""

    flow: Flow
    parent: "Turn | None"
    answers: dict[str, Any]
    version: int
    reply: dict[str, Any] | None = None
    failure: BaseException | None = None
    done: list[str] = field(default_factory=list)
    clocks: dict[str, float] = field(default_factory=dict)

    @property
    def asked(self) -> dict[str, str]:
        """The identity of each question in the reply, by key: its message, and which use of its name it is."""
        requests: dict[str, Any] = {} if self.reply is None else self.reply.get("inputRequests", {})
        messages = {
            key: request["params"].get("message") or request["params"]["messages"][0]["content"]["text"]
            for key, request in requests.items()
        }
        return {key: f"{message}#{key.partition('#')[2] or '1'}" for key, message in messages.items()}

    @property
    def is_open(self) -> bool:
        return self.reply is not None and self.reply["resultType"] == "input_required"

    def chain(self) -> "list[Turn]":
        return [*([] if self.parent is None else self.parent.chain()), self]

    def way(self) -> tuple[str, ...]:
        return tuple(json.dumps([turn.version, turn.answers], sort_keys=True) for turn in self.chain())

    def given(self) -> dict[str, int]:
        """The answers that count in this history: the first good one to each question that was asked."""
        found: dict[str, int] = {}
        for turn in self.chain():
            for key, identity in ({} if turn.parent is None else turn.parent.asked).items():
                if key in turn.answers and (number := meant(turn.answers[key], identity)) is not None:
                    found.setdefault(identity, number)
        return found


class Playing:
    """A world behind a context: one round of a program."""

    def __init__(self, ctx: Context, machine: "Histories", turn: Turn) -> None:
        self._ctx = ctx
        self._uses: Counter[str] = Counter()
        self.machine = machine
        self.turn = turn
        turn.flow.names.add(ctx.flow_id)

    async def ask(self, question: Question) -> int:
        number = self._numbered(question.key or question.message)
        if question.is_for_model:
            said: Any = await self._ctx.sample(question.message, key=question.key)
            return self._read(question, number, said.content.text)
        answer = await self._ctx.elicit(question.message, str, key=question.key)
        return self._read(question, number, answer.data if isinstance(answer, AcceptedElicitation) else None)

    async def ask_all(self, node: Together) -> list[int]:
        questions = node.questions
        numbers = [self._numbered(q.name if node.is_named else q.key or q.message) for q in questions]
        if node.is_named:
            by_name = await self._ctx.ask_all(**{q.name: Elicit(q.message, str) for q in questions})
            answers = [by_name[question.name] for question in questions]
        else:
            answers = await self._ctx.ask_all(*(Elicit(q.message, str, key=q.key) for q in questions))
        texts = [answer.data if isinstance(answer, AcceptedElicitation) else None for answer in answers]
        return [self._read(*item) for item in zip(questions, numbers, texts, strict=True)]

    def _read(self, question: Question, number: int, text: str | None) -> int:
        if text is None:
            return DECLINED
        identity, _, value = text.rpartition("|")
        if identity != f"{question.message}#{number}":
            self.machine.faults.append(f"{question.message}#{number} was given the answer to {identity}")
        return int(value)

    def _numbered(self, name: str) -> int:
        self._uses[name] += 1
        return self._uses[name]

    async def do(self, node: Step, argument: int) -> list[Any]:
        identity = f"{node.name}#{self._numbered(node.name)}"
        token = playing.set(self)
        try:
            work = guarded if node.is_once else attempt
            told: list[Any] = await self._ctx.step(work, identity, argument, node, name=node.name)
        finally:
            playing.reset(token)
        if told[:2] != [identity, argument]:
            self.machine.faults.append(f"{identity} was given the result of {told[:2]}")
        return told

    async def go_deeper(self, identity: str, node: Step) -> None:
        """Take a step inside of a step, and throw dice there: neither concerns those outside."""
        self._ctx.random()
        await self._ctx.step(attempt_inside, identity, node, name="inside")

    def happen(self, identity: str, node: Step) -> None:
        """Note an effect."""
        flow = self.turn.flow
        key = self._ctx.idempotency_key(identity)
        if flow.keys.setdefault(identity, key) != key or list(flow.keys.values()).count(key) > 1:
            self.machine.faults.append(f"{identity} has not one idempotency key of its own")
        if node.is_once:
            flow.guarded[identity] += 1
        else:
            self.turn.done.append(identity)

    def look(self, kind: str) -> None:
        use = f"{kind}#{self._numbered(kind)}"
        if kind == "now":
            known = [turn.clocks[use] for turn in self.turn.chain() if use in turn.clocks]
            seen: Any = self._ctx.now()
            self.turn.clocks[use] = seen
            expected = known[0] if known else seen
        else:
            seen = self._ctx.random() if kind == "random" else self._ctx.uuid()
            expected = self.turn.flow.dice.setdefault(use, seen)
        if seen != expected:
            self.machine.faults.append(f"{use} was {expected}, and is {seen}")


playing: ContextVar[Playing] = ContextVar("playing")
doomed: ContextVar[str] = ContextVar("doomed", default="")


async def attempt(identity: str, argument: int, node: Step) -> list[Any]:
    """The effect of a step."""
    world = playing.get()
    world.happen(identity, node)
    for _ in range(node.pauses):
        await asyncio.sleep(0)
    if node.is_nested:
        await world.go_deeper(identity, node)
    if node.is_once and world.machine.doom in ("raise", "die"):
        doomed.set(world.machine.doom)
        world.turn.flow.lost.add(node.name)
        world.machine.doom = ""
    if node.fails:
        raise LookupError(identity) if node.fails == "error" else ToolError(identity)
    return [identity, argument, BULK if node.is_bulky else ""]


async def attempt_inside(identity: str, node: Step) -> None:
    """The effect of a step that another one takes; all of those have one name."""
    playing.get().happen(f"{identity} inside", node)
    for _ in range(node.pauses):
        await asyncio.sleep(0)


guarded = step(once=True)(attempt)


class Fragile(MemoryStore):
    """A store on the way to which things go wrong."""

    def __init__(self) -> None:
        super().__init__()
        self.died = asyncio.Event()

    async def finish(self, key: str, record: bytes, ttl: float) -> None:
        """Say what came of it, unless the process is to die first, or the line to break."""
        if doomed.get() == "raise":
            raise ConnectionError("the store is gone")
        if doomed.get() == "die":
            self.died.set()
            await asyncio.Event().wait()
        await super().finish(key, record, ttl)


# The histories


def answer_to(identity: str, request: dict[str, Any], number: int) -> Any:
    """An answer that says which question it is for."""
    if number == MALFORMED:
        return {"action": "accept", "content": {"value": [7]}}
    text = f"{identity}|{number}"
    if request["method"] == "sampling/createMessage":
        return {"role": "assistant", "model": "m", "content": {"type": "text", "text": text}}
    return {"action": "decline"} if number == DECLINED else {"action": "accept", "content": {"value": text}}


def meant(answer: Any, identity: str) -> int | None:
    """The number that an answer stands for; None where it is no answer to this question."""
    if answer == {"action": "decline"}:
        return DECLINED
    content = answer["content"]
    text = content.get("text", content.get("value"))
    return int(text.rpartition("|")[2]) if isinstance(text, str) and text.startswith(f"{identity}|") else None


class Heard(logging.Handler):
    """Keeps what is logged."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.records: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)


@dataclass(eq=False, repr=False)
class Instance:
    """One of the processes that serve the tool."""

    version: int
    client: Connection
    is_busy: bool = False


Send = Callable[[Turn, Instance], Any]
PICK = st.integers(0, 60)
NUMBERS = st.lists(st.integers(0, MALFORMED), min_size=1, max_size=4)
BUDGETS = [Budget(patience=0), Budget(patience=0, warn_bytes=500, spill_bytes=700)]


class Histories(RuleBasedStateMachine):
    """A tool on several instances with one store, and clients to whom everything happens."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.heard = Heard()
        logging.getLogger("turnwise").addHandler(self.heard)
        self.faults: list[str] = []
        self.doom = ""
        self.flows: list[Flow] = []
        self.instances: list[Instance] = []
        self.names = count(1)

    @initialize(
        program=st.builds(lambda first, rest, last: (*first, *rest, last), blocks(1), blocks(2), QUESTIONS),
        manner=st.sampled_from(["plain", "plain", "effects", "single_use"]),
        budget=st.sampled_from(BUDGETS),
        is_steady=st.booleans(),
        busy=st.sampled_from([0, 1, 3]),
    )
    def open(self, program: Program, manner: str, budget: Budget, is_steady: bool, busy: int) -> None:
        self.versions = [named(program, self.names)]
        self.manner, self.budget, self.is_steady = manner, budget, is_steady
        self.store = Fragile()
        self.instances = [self.instance(0) for _ in range(3)]
        for instance in self.instances[:busy]:
            instance.is_busy = True
        self.a_call_begins(0)

    def teardown(self) -> None:
        logging.getLogger("turnwise").removeHandler(self.heard)
        self.runner.close()

    def instance(self, version: int) -> Instance:
        """A process that begins."""

        async def tool(ctx: Context) -> str:
            told, _ = await perform(self.versions[version], Playing(ctx, self, serving.get()))
            return json.dumps(told)

        server: MCPServer[Any] = MCPServer(
            "machine",
            request_state_security=RequestStateSecurity(keys=[KEY]),
            store=self.store,
            budget=self.budget,
            shed_when=lambda load: found.is_busy,
        )
        server.add_tool(
            tool,
            "it",
            structured_output=False,
            version=f"v{version}",
            effects=self.manner == "effects",
            single_use=self.manner == "single_use",
        )
        found = Instance(version, Connection(server, {}, access=None, max_rounds=0))
        found.client.capabilities = EVERYTHING
        return found

    # What clients do

    @precondition(lambda self: len(self.flows) < 3 and not self.open_turns())
    @rule(where=PICK)
    def a_call_begins(self, where: int) -> None:
        self.flows.append(Flow(len(self.flows)))
        self.send(self.flows[-1], None, {}, where)

    @precondition(lambda self: self.tips())
    @rule(which=PICK, where=PICK, numbers=NUMBERS, missing=st.booleans(), meddles=st.booleans())
    def questions_are_answered(self, which: int, where: int, numbers: list[int], missing: bool, meddles: bool) -> None:
        parent = picked(self.tips(), which)
        self.send(parent.flow, parent, self.answers(parent, numbers, missing, meddles), where)

    @precondition(lambda self: self.tips())
    @rule(which=PICK, where=PICK, numbers=NUMBERS)
    def a_call_is_seen_through(self, which: int, where: int, numbers: list[int]) -> None:
        turn: Turn | None = picked(self.tips(), which)
        good = [number % MALFORMED for number in numbers]
        for n in range(25):
            if turn is None or not turn.is_open:
                return
            turn = self.send(turn.flow, turn, self.answers(turn, good, False, False), where + n)

    @precondition(lambda self: self.later_turns())
    @rule(which=PICK, where=PICK)
    def a_reply_is_lost_and_the_request_sent_again(self, which: int, where: int) -> None:
        turn = picked(self.later_turns(), which)
        self.send(turn.flow, turn.parent, turn.answers, where)

    @precondition(lambda self: self.old_turns())
    @rule(which=PICK, where=PICK, numbers=NUMBERS)
    def an_old_token_comes_back_with_other_answers(self, which: int, where: int, numbers: list[int]) -> None:
        old = picked(self.old_turns(), which)
        self.send(old.flow, old, self.answers(old, numbers, False, False), where)

    @precondition(lambda self: self.manner != "single_use" and self.open_turns())
    @rule(which=PICK, where=PICK, numbers=NUMBERS, ticks=st.integers(0, 12))
    def a_client_hangs_up_and_calls_again(self, which: int, where: int, numbers: list[int], ticks: int) -> None:
        async def hang_up(turn: Turn, instance: Instance) -> None:
            task = asyncio.ensure_future(self.request(turn, instance))
            for _ in range(ticks):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait({task})
            for _ in range(40):  # What was begun is finished, though nobody waits.
                await asyncio.sleep(0)

        parent = picked(self.open_turns(), which)
        answers = self.answers(parent, numbers, False, False)
        self.send(parent.flow, parent, answers, where, hang_up)
        self.send(parent.flow, parent, answers, where + 1)

    # What happens to servers

    @rule(which=PICK, is_busy=st.booleans())
    def an_instance_is_restarted_and_soon_busy_or_idle(self, which: int, is_busy: bool) -> None:
        which %= len(self.instances)
        self.instances[which] = self.instance(self.instances[which].version)
        self.instances[which].is_busy = is_busy

    @precondition(lambda self: not self.is_steady and len(self.versions) < 4)
    @rule(
        which=PICK,
        how=st.sampled_from(["reword", "drop", "add", "move", "turn"]),
        place=PICK,
        new=QUESTIONS | STEPS,
    )
    def an_instance_is_upgraded(self, which: int, how: Change, place: int, new: Node) -> None:
        self.versions.append(named(changed(self.versions[-1], how, place, new), self.names))
        self.instances[which % len(self.instances)] = self.instance(len(self.versions) - 1)

    @precondition(lambda self: self.manner != "single_use" and self.open_turns())
    @rule(which=PICK, where=PICK, numbers=NUMBERS, doom=st.sampled_from(["raise", "die"]))
    def a_process_is_cut_off_between_an_effect_and_its_record(
        self, which: int, where: int, numbers: list[int], doom: str
    ) -> None:
        async def die(turn: Turn, instance: Instance) -> dict[str, Any] | None:
            self.store.died.clear()
            task = asyncio.ensure_future(self.request(turn, instance))
            death = asyncio.ensure_future(self.store.died.wait())
            await asyncio.wait({task, death}, return_when=asyncio.FIRST_COMPLETED)
            if not death.cancel():
                while not task.done():
                    task.cancel()
                    await asyncio.sleep(0)
                self.instances[self.instances.index(instance)] = self.instance(instance.version)
                return None
            return await task

        parent = picked(self.open_turns(), which)
        self.doom = doom
        self.send(parent.flow, parent, self.answers(parent, numbers, False, False), where, die)
        self.doom = ""

    # How it is done

    def open_turns(self) -> list[Turn]:
        return [turn for flow in self.flows for turn in flow.turns if turn.is_open]

    def tips(self) -> list[Turn]:
        return [turn for turn in self.open_turns() if not self.children(turn)]

    def old_turns(self) -> list[Turn]:
        return [turn for turn in self.open_turns() if self.children(turn)]

    def later_turns(self) -> list[Turn]:
        return [turn for flow in self.flows for turn in flow.turns if turn.parent is not None]

    def children(self, parent: Turn) -> list[Turn]:
        return [turn for turn in parent.flow.turns if turn.parent is parent and turn.reply is not None]

    def answers(self, parent: Turn, numbers: Sequence[int], missing: bool, meddles: bool) -> dict[str, Any]:
        """Answers to what a turn asked: to all of it, or not to the first; and to what was asked long ago as well."""
        assert parent.reply is not None
        asked = list(parent.asked.items())[1 if missing else 0 :]
        requests = parent.reply["inputRequests"]
        answers = {
            key: answer_to(identity, requests[key], numbers[n % len(numbers)])
            for n, (key, identity) in enumerate(asked)
        }
        if meddles and parent.parent is not None and parent.parent.reply is not None:
            for key, identity in parent.parent.asked.items():
                again = answer_to(identity, parent.parent.reply["inputRequests"][key], (numbers[0] + 1) % DECLINED)
                answers.setdefault(key, again)
        return answers

    def send(
        self, flow: Flow, parent: Turn | None, answers: dict[str, Any], where: int, how: Send | None = None
    ) -> Turn | None:
        """One request on one of the instances; the turn, unless its reply was lost or is none of its own."""
        instance = self.instances[where % len(self.instances)]
        turn = Turn(flow, parent, answers, instance.version)
        earlier = self.children(parent) if parent is not None and self.manner == "single_use" else []
        before = earlier[0] if earlier else None
        is_over = before is not None and bool(self.children(before))
        self.heard.records.clear()
        turn.reply = self.runner.run((how or self.request)(turn, instance))
        for record in self.heard.records:
            if record.levelno >= logging.ERROR and record.exc_info:
                turn.failure = record.exc_info[1]
        if before is not None and before.reply is not None and turn.reply is not None:
            is_same = turn.reply == before.reply or (turn.reply.get("isError") and before.reply.get("isError"))
            assert turn.reply["content"][0]["text"] == GONE_ON if is_over else is_same
            return None
        flow.turns.append(turn)
        self.check(turn)
        return turn

    async def request(self, turn: Turn, instance: Instance) -> dict[str, Any] | None:
        params: dict[str, Any] = {"name": "it"}
        if turn.parent is not None and turn.parent.reply is not None:
            params |= {"requestState": turn.parent.reply["requestState"], "inputResponses": turn.answers}
        serving.set(turn)
        return await instance.client.request("tools/call", params)

    # What has to hold

    def check(self, turn: Turn) -> None:
        flow, chain = turn.flow, turn.chain()
        assert not self.faults, self.faults
        assert len({name for flow in self.flows for name in flow.names}) == len([f for f in self.flows if f.names])
        assert not [identity for identity, times in flow.guarded.items() if times > 1], "a guarded effect, twice"
        assert turn.parent is not None or self.manner == "plain" or not (turn.done or flow.guarded)
        assert sum(1 for past in chain if past.is_open and not past.asked) <= 2, "handed on more than twice"
        if turn.reply is None:
            return
        done = Counter(identity for past in chain for identity in past.done)
        assert not [identity for identity, times in done.items() if times > 1], "an effect, twice on one way"
        validate_server_result("tools/call", "2026-07-28", turn.reply)
        is_unchanged = len({past.version for past in chain}) == 1
        if turn.is_open:
            assert not turn.failure
            if is_unchanged:
                assert not turn.given().keys() & set(turn.asked.values()), "asked again what was answered"
        elif turn.reply.get("isError"):
            self.check_failure(turn, is_unchanged)
        elif is_unchanged:
            self.check_result(turn, done)
        if is_unchanged:
            self.check_log(turn)

    def check_failure(self, turn: Turn, is_unchanged: bool) -> None:
        """A call ends in an error only for a reason: the program's own, a crash, or a step that a fork did before."""
        assert turn.reply is not None
        flow, text = turn.flow, turn.reply["content"][0]["text"]
        if text.startswith("It is not known whether"):
            assert text.split("'")[1].partition("#")[0] in flow.lost
            return
        if text == FAILED:
            failures = flattened(turn.failure)
            if any(isinstance(error, ConnectionError) for error in failures):
                assert flow.lost
                return
            if any(isinstance(error, ReplayMismatch) for error in failures):
                assert flow.is_forked or not is_unchanged
                return
            assert all(isinstance(error, StepFailed | ToolError) for error in failures), failures
        if is_unchanged and not flow.lost:
            outcome, _ = self.straight(turn)
            assert isinstance(outcome, StepFailed | ToolError | ExceptionGroup), outcome

    def check_result(self, turn: Turn, done: Counter[str]) -> None:
        """A result is what the program gives when it runs straight through, and so is what was done."""
        assert turn.reply is not None
        if turn.flow.lost:
            return
        outcome, world = self.straight(turn)
        assert outcome == json.loads(turn.reply["content"][0]["text"])
        assert done == Counter(world.done)
        assert all(turn.flow.guarded[identity] == 1 for identity in world.guarded)

    def straight(self, turn: Turn) -> tuple[Any, Straight]:
        """What the program gives, or raises, when it runs straight through; None where an answer is missing."""
        world = Straight(turn.given())

        async def run() -> Any:
            task = asyncio.ensure_future(perform(self.versions[turn.version], world))
            await asyncio.wait({task}, timeout=PATIENCE)
            if not task.done():
                task.cancel()
                return None
            return task.exception() or task.result()[0]

        return self.runner.run(run()), world

    def check_log(self, turn: Turn) -> None:
        """Nothing looks odd to a server whose tool did not change, but that a question in one branch of a group may
        keep those in the others from being reached.
        """
        usual = ["travels twice"]
        if has_groups(self.versions[turn.version]):
            usual.append("came, but was not asked for again")
        records = [record for record in self.heard.records if record.name in ("turnwise.rounds", "turnwise.flows")]
        odd = [text for record in records if not any(words in (text := record.getMessage()) for words in usual)]
        assert not odd, odd


def picked(turns: list[Turn], which: int) -> Turn:
    """One of them; the latest ones have the small numbers."""
    return turns[-1 - which % len(turns)]


def flattened(error: BaseException | None) -> list[BaseException | None]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in flattened(inner)]
    return [error]


serving: ContextVar[Turn] = ContextVar("serving")

TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=settings().max_examples * 3 // 2, stateful_step_count=30)
