"""A tool, played and replayed: whether each round, run again from what it recorded, comes to the same end.

Every round is run as a server would run it, and then once more with the ledger that it left. The second time must
settle nothing new and end as the first did. Effects outside of steps are watched for all the while.
"""

from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

from ._catalogue import Catalogue, Endpoint
from ._ledger import Ledger
from ._messages import Ask, Call, Post, Question, Yield
from ._rounds import play
from ._steps import current
from ._watching import Effect, watched, watching
from .context import Context
from .dialects.words import TASKS, VERSION
from .errors import AuthorError, ToolError

MOST_ROUNDS = 100
CAPABILITIES: dict[str, Any] = {
    "elicitation": {"form": {}, "url": {}},
    "sampling": {"tools": {}},
    "roots": {},
    "extensions": {TASKS: {}},
}

Answer = Callable[[str, str, Mapping[str, Any]], Awaitable[Any]]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that a replay would do otherwise: in which round, what, and what to do about it."""

    round: int
    what: str
    advice: str
    where: str | None = None

    def __str__(self) -> str:
        place = f" ({self.where})" if self.where else ""
        return f"round {self.round}: {self.what}{place}: {self.advice}"


@dataclass(frozen=True, slots=True)
class ReplayReport:
    """What came of a check: the tool's result, if it came to an end, how many rounds it took, and what was found."""

    result: dict[str, Any] | None
    rounds: int
    findings: tuple[Finding, ...]

    def raise_for_findings(self) -> None:
        """AssertionError with everything that was found, where something was."""
        __tracebackhide__ = True
        if self.findings:
            raise AssertionError("\n".join(str(finding) for finding in self.findings))


class Check:
    """One tool under examination."""

    def __init__(self, catalogue: Catalogue, host: Any, endpoint: Endpoint) -> None:
        binding = endpoint.binding
        if not binding.is_async:
            endpoint = replace(endpoint, binding=replace(binding, fn=watched(binding.fn)))
        self._endpoint = endpoint
        self._host = host
        self._findings: list[Finding] = []
        self._round = 0
        self._desk = _Desk() if endpoint.terms.task in ("always", "optional") else None

    async def run(self, call: Call, answer: Answer, now: Callable[[], float]) -> ReplayReport:
        """Play the tool to its end, each round twice."""
        ledger: Ledger | None = None
        for self._round in range(1, MOST_ROUNDS + 1):
            asked = {} if ledger is None else ledger.asked
            outcome, after, context = await self._leg(call, ledger, is_replay=False)
            if isinstance(outcome, AuthorError):
                self._find("the round failed", str(outcome))
                break
            again, settled, _ = await self._leg(call, _copied(after, asked), is_replay=True)
            self._compare(outcome, again, after, settled)
            if isinstance(again, AuthorError):
                break
            if not isinstance(outcome, Ask | Yield):
                return ReplayReport(outcome, self._round, tuple(dict.fromkeys(self._findings)))
            ledger = after
            questions = outcome.questions if isinstance(outcome, Ask) else {}
            if changed := [key for key in questions if key in call.answers]:
                self._ask_again(changed, questions, asked)
                break
            answers = {key: await answer(key, item.method, item.params) for key, item in questions.items()}
            if context.becoming:
                self._desk = _Desk()
            post = replace(call.post, now=max(now(), context.wake_at or 0.0))  # Nobody sleeps here.
            call = replace(call, answers=answers, state="held", post=post)
        else:
            self._find(f"{MOST_ROUNDS} rounds were not enough", "does a question change from round to round?")
        return ReplayReport(None, self._round, tuple(dict.fromkeys(self._findings)))

    def _ask_again(self, keys: list[str], questions: Mapping[str, Question], asked: Mapping[str, str]) -> None:
        names = ", ".join(repr(key) for key in keys)
        if all(questions[key].fingerprint == asked.get(key) for key in keys):
            raise ValueError(f"the answer to {names} does not fit the question")
        self._find(f"{names} was answered and is asked again", "a question must not change from round to round")

    async def _leg(self, call: Call, ledger: Ledger | None, *, is_replay: bool) -> Any:
        context: Context[Any, Any] = Context(call, self._host, ledger, self._endpoint.terms)
        context.desk = self._desk
        token = current.set(context)
        try:
            with nullcontext() if is_replay else watching(self._seen):
                outcome: Any = await play(context, self._endpoint.run)
        except AuthorError as error:
            outcome = error
        except ToolError as error:
            outcome = {"content": [{"type": "text", "text": str(error)}], "isError": True}
        except Exception as error:
            outcome = AuthorError(f"{type(error).__name__}: {error}")
        finally:
            current.reset(token)
        if not is_replay and not isinstance(outcome, Ask | Yield | AuthorError) and (unused := context.unused()):
            names = ", ".join(repr(key) for key in unused)
            self._find(f"{names} was settled, and not come by again", "give steps and questions steady names")
        return outcome, context.flow, context

    def _seen(self, effect: Effect) -> None:
        if not any((found.what, found.where) == (effect.what, effect.where) for found in self._findings):
            self._findings.append(Finding(self._round, effect.what, effect.advice, effect.where))

    def _compare(self, first: Any, second: Any, after: Ledger | None, settled: Ledger | None) -> None:
        if isinstance(second, AuthorError):
            self._find("the round failed when it was replayed", str(second))
            return
        known = set() if after is None else after.entries.keys()
        if new := [key for key in ({} if settled is None else settled.entries) if key not in known]:
            names = ", ".join(repr(key) for key in new)
            self._find(f"the replay settled {names}, which the round had not", "give steps and questions steady names")
        if _shape(first) != _shape(second):
            self._find(
                f"the round ended with {_words(first)}, its replay with {_words(second)}",
                "what the function does must depend on its arguments, answers and steps alone",
            )

    def _find(self, what: str, advice: str) -> None:
        self._findings.append(Finding(self._round, what, advice))


class _Desk:
    """A task's way to a store, where there is none."""

    async def keep(self, ledger: Ledger) -> None:
        """The ledger is kept by the check itself."""

    async def report(self, message: str | None) -> None:
        """Nobody looks at how far it has come."""


def _copied(ledger: Ledger | None, asked: Mapping[str, str]) -> Ledger | None:
    """The ledger as the round left it, with its questions as they were before: for the same round once more."""
    if ledger is None:
        return None
    copy = Ledger.decode(ledger.lineage, ledger.encode())
    copy.sequence, copy.asked = max(0, copy.sequence - 1), dict(asked)
    return copy


def _shape(outcome: Any) -> Any:
    if isinstance(outcome, Ask):
        return {key: question.fingerprint for key, question in outcome.questions.items()}
    return "moved" if isinstance(outcome, Yield) else ["result", outcome]


def _words(outcome: Any) -> str:
    if isinstance(outcome, Ask):
        asked = (
            f"{key} ({question.params.get('message', question.method)})" for key, question in outcome.questions.items()
        )
        return f"the questions {', '.join(asked)}"
    if isinstance(outcome, Yield):
        return "a move to another instance"
    texts = [str(part.get("text", part.get("type"))) for part in outcome.get("content", ())]
    return f"the result {' '.join(texts)!r:.200}"


def first_call(tool: str, arguments: Mapping[str, Any], now: float) -> Call:
    """The call that begins the flow."""
    params = {"name": tool, "arguments": dict(arguments)}
    post = Post(b"", _silent, now)
    return Call(1, "tools/call", params, tool, dict(arguments), {}, None, {}, CAPABILITIES, VERSION, post)


async def _silent(message: bytes) -> None:
    """What the tool says on its way is not looked at."""
