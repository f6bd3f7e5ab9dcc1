"""The catalogue: what a server offers, and how a call finds its function, is played, and is answered.

An `Endpoint` is a registered function: its definition for the lists, and how one round of it is run. Tools, prompts and
resources differ in where their arguments come from and how their value is written; the rest is one. The catalogue opens
the ledger that a call brings and seals the one that it leaves.
"""

import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, NoReturn

from . import _carrying
from ._binding import Binding
from ._bus import SubscriptionBus
from ._calling import in_thread
from ._carrying import kept
from ._json import decode
from ._ledger import Ledger
from ._messages import Ask, CacheHint, Call, Done, Outcome, Yield
from ._noting import Observer, StepObserver, explain, note_rejected, note_round, note_unused
from ._resolving import Plan, Resolution
from ._rounds import play
from ._schemas import Check
from ._sealed import Bearer, RequestStateSecurity, authenticated_principal
from ._shedding import Gauge
from ._steps import current
from ._templates import Template
from ._terms import Terms
from .context import Context
from .dialects import tasking
from .dialects.asking import is_input_required, pages, returned
from .dialects.tasking import check_takes_tasks, shape_of, takes_tasks
from .dialects.words import TASKS
from .errors import (
    AuthorError,
    EndlessFlow,
    InvalidArguments,
    InvalidParams,
    InvalidRequestState,
    LedgerTooLarge,
    PeerError,
    ResourceNotFound,
    ToolError,
    URLElicitationRequired,
)
from .tasks.following import follow
from .tasks.runtime import Tasks

log = logging.getLogger("turnwise.flows")

ASKING = ("tools/call", "prompts/get", "resources/read")
GIVEN_UP = (
    "given up from outside and not recorded: %s, which runs again in the next round. Put a timeout inside the step, "
    "where it is recorded as a failure"
)
_NO_HINT = CacheHint()

Run = Callable[[Any], Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One tool, prompt, resource or resource template."""

    definition: dict[str, Any]
    binding: Binding
    plans: tuple[Plan, ...]
    render: Callable[[Call, Any], dict[str, Any]]
    marks: Mapping[bytes, tuple[str, ...]] = field(default_factory=dict)
    cache: CacheHint | None = None
    terms: Terms = field(default_factory=Terms)
    template: Template | None = None
    check: Check | None = None

    def bound(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments as the function takes them; InvalidArguments where they do not fit."""
        if self.check is not None:
            _checked(self.check, arguments)
        return self.binding.validate(arguments)

    async def run(self, context: Context[Any, Any]) -> dict[str, Any]:
        """Play the function once: arguments in, result body out."""
        binding = self.binding
        arguments = self.bound(context.call.arguments)
        try:
            if self.plans:
                arguments |= await Resolution(arguments, context, invoke, context.ask).fill(self.plans)
                if self.terms.task is not None and takes_tasks(context.call):
                    await context.become_task()  # What was declared is asked first; the function itself is the task.
            if binding.context is not None:
                arguments[binding.context] = context
            value = await (binding.fn(**arguments) if binding.is_async else in_thread(binding.fn, **arguments))
        except URLElicitationRequired as required:
            visit(context, required)
        if is_input_required(value):
            context.hand_out(*returned(value))
        return self.render(context.call, value)


def _is_nested(arguments: Mapping[str, Any]) -> bool:
    for value in arguments.values():  # noqa: SIM110 - `any` takes three times as long for what is mostly one or two
        if type(value) is dict or type(value) is list:
            return True
    return False


def _checked(check: Check, arguments: Mapping[str, Any]) -> None:
    try:
        check(arguments)
    except ValueError as error:
        raise InvalidArguments(f"Invalid arguments: {error}") from None


def visit(context: Context[Any, Any], required: URLElicitationRequired) -> NoReturn:
    """Have pages visited first: by an error where a client waits for the call, and else by asking."""
    if context.call.held and not context.is_task:
        raise required
    context.hand_out(pages(required.elicitations), None)


async def invoke(binding: Binding, arguments: dict[str, Any]) -> Any:
    """Call a function of either colour."""
    return await (binding.fn(**arguments) if binding.is_async else in_thread(binding.fn, **arguments))


class Catalogue:
    """Everything that one server serves. `host` is the server itself, for the context."""

    def __init__(
        self,
        host: Any,
        info: Mapping[str, Any],
        security: RequestStateSecurity,
        bus: SubscriptionBus | None,
        terms: Terms,
    ) -> None:
        self.info = info
        self.instructions: str | None = None
        self.page_size: int | None = None
        self.bus = bus
        self.terms = terms
        self.gauge: Gauge | None = None
        self.observers: tuple[Observer, ...] = ()
        self.is_watched = False
        self._around_steps: tuple[Callable[..., Any], ...] = ()
        self.hints: dict[str, CacheHint] = {}
        self.tools: dict[str, Endpoint] = {}
        self.marked: dict[str, Mapping[bytes, tuple[str, ...]]] = {}
        self.prompts: dict[str, Endpoint] = {}
        self.resources: dict[str, Endpoint] = {}
        self.templates: dict[str, Endpoint] = {}
        self.handlers: dict[str, Callable[[Call], Awaitable[Outcome]]] = dict.fromkeys(ASKING, self._serve)
        self._host = host
        self._security = security
        self._name: str = info["name"]
        self.is_closing = False
        self.tasks: Tasks | None = None

    def mark(self, tool: str, marks: Mapping[bytes, tuple[str, ...]]) -> None:
        """Note which headers mirror a tool's parameters; most tools have none."""
        self.marked.pop(tool, None)
        if marks:
            self.marked[tool] = marks

    def _serve(self, call: Call) -> Awaitable[Outcome]:
        endpoint = self.tools.get(call.target) if call.method == "tools/call" else None
        if endpoint is None:
            endpoint, call = self.find(call)
        is_tool = self.tasks is not None and call.method == "tools/call"
        if is_tool and (endpoint.terms.task is not None or "task" in call.params):
            return self._tasked(call, endpoint)
        return self.serve(call, endpoint.run, endpoint.terms)

    async def _tasked(self, call: Call, endpoint: Endpoint) -> Outcome:
        """A call of a tool that is a task: always, or for those who take one. What it declares is asked first."""
        terms = endpoint.terms
        if terms.task in (None, "never"):
            tasking.check_plain(call, terms.task)
        if terms.task in (None, "never") or (terms.task == "optional" and not takes_tasks(call)):
            return await self.serve(call, endpoint.run, terms)
        check_takes_tasks(call)
        if endpoint.plans:
            return await self.serve(call, endpoint.run, terms)
        endpoint.bound(call.arguments)
        return await self._begun(call, None)

    async def _begun(self, call: Call, ledger: Ledger | None) -> Outcome:
        """A task, in place of a result."""
        assert self.tasks is not None
        task = await self.tasks.create(call, ledger, self.principal(call))
        return Done(shape_of(call.version).created(task, self.tasks.options.poll))

    async def leg(self, call: Call, desk: Any) -> tuple[Outcome, float | None]:
        """One leg of a task, and when the next is due where the function sleeps."""
        endpoint, call = self.find(call)
        context: Context[Any, Any] = Context(call, self._host, call.state, endpoint.terms)
        context.desk = desk
        if self.is_watched:
            outcome = await self._watched(call, endpoint.run, endpoint.terms, context)
        else:
            outcome = await self.play(call, endpoint.run, endpoint.terms, context)
        return outcome, context.wake_at

    def serve(self, call: Call, run: Run, terms: Terms) -> Awaitable[Outcome]:
        """One round of a call, watched where somebody wants to watch."""
        if self.is_watched or (terms.single_use and not call.held):
            return self._watched(call, run, terms)
        return self.play(call, run, terms)

    def watch(self, gauge: Gauge | None, *observers: Observer) -> None:
        """Have every round counted, or told of."""
        self.gauge, self.observers = gauge, observers
        self.is_watched = gauge is not None or bool(observers)
        self._around_steps = tuple(one.watch_step for one in observers if isinstance(one, StepObserver))

    async def _watched(self, call: Call, run: Run, terms: Terms, context: Context[Any, Any] | None = None) -> Outcome:
        """One round that is counted, told of, or answered only once."""
        if context is None:
            context = Context(call, self._host, await self._noted(call, terms), terms)
        context.around_steps = self._around_steps
        played = partial(self.play, call, run, terms, context)
        with ExitStack() as stack:
            if self.gauge is not None:
                stack.enter_context(self.gauge)
            told = [stack.enter_context(observer.watch(context)) for observer in self.observers]
            if terms.single_use and terms.guard is not None and context.flow is not None and not call.held:
                context.detach()
                outcome = await _carrying.answer_once(context, terms.guard, played)
            else:
                outcome = await played()
            for tell in told:
                tell(outcome)
            return outcome

    async def _noted(self, call: Call, terms: Terms) -> Ledger | None:
        """The ledger that a call brings; that there is none to be had of its token is told."""
        try:
            return await self._brought(call, terms)
        except InvalidRequestState as error:
            note_rejected(self.observers, call, error)
            raise

    async def play(self, call: Call, run: Run, terms: Terms, context: Context[Any, Any] | None = None) -> Outcome:
        """One round of a call: open its ledger, run it, and seal what is to be carried on."""
        if context is None:
            ledger = None if call.state is None else await self._brought(call, terms)
            context = Context(call, self._host, ledger, terms)
        playing = current.set(context)  # For functions that are steps by themselves.
        try:
            outcome = await play(context, run)
        except Exception as error:
            if not isinstance(error, ToolError | PeerError):
                explain(context, error)
            raise
        finally:
            current.reset(playing)
        if isinstance(outcome, (Ask, Yield)):
            return await self._suspended(call, terms, context, outcome)
        if call.state is not None and (unused := context.unused()):
            note_unused(context, unused)
        return Done(outcome)

    async def _suspended(self, call: Call, terms: Terms, context: Context[Any, Any], outcome: Ask | Yield) -> Outcome:
        """What is carried on: the ledger itself where the call waits here, and else the token it is sealed into."""
        if context.given_up:
            log.warning(GIVEN_UP, ", ".join(sorted(context.given_up)))
        if call.method not in ASKING:
            raise AuthorError(f"{call.method} may not ask; only {', '.join(ASKING)} may")
        settled: Ledger = outcome.carrier
        if context.becoming:
            return await self._begun(call, kept(settled, terms, is_task=True))
        if call.held:
            return outcome._replace(carrier=kept(settled, terms, is_task=context.desk is not None))
        try:
            token = self._seal(call, terms, isinstance(outcome, Yield), settled)
            if len(token) > terms.budget.small_bytes:
                seal = partial(self._seal, call, terms, isinstance(outcome, Yield))
                token = await _carrying.shrink(token, settled, terms, seal)
        except (EndlessFlow, LedgerTooLarge):
            if self.tasks is None or terms.task == "never" or not takes_tasks(call):
                raise
            return await self._begun(call, kept(settled, terms, is_task=True))  # A store has more room than a token.
        if log.isEnabledFor(logging.INFO):
            note_round(context, len(token))
        return Ask(outcome.questions, token) if isinstance(outcome, Ask) else Yield(token)

    async def _brought(self, call: Call, terms: Terms) -> Ledger | None:
        """The ledger that a call brings, whole."""
        if call.state is None or call.held:
            ledger: Ledger | None = call.state
            return ledger
        if len(call.post.body) > terms.budget.small_bytes:
            _carrying.check_sizes(call, terms.budget)
        bearer = Bearer(self.principal(call), self._name)
        lineage, written, is_expired = self._security.unseal(call, bearer, call.state)
        ledger = Ledger.decode(lineage, written)
        if is_expired or call.post.now > ledger.started + terms.budget.deadline:
            await _carrying.refuse_late(ledger, terms, is_expired=is_expired)
        if ledger.is_spilled:
            await _carrying.restore(ledger, terms.guard)
        return ledger

    def _seal(self, call: Call, terms: Terms, is_shed: bool, ledger: Ledger) -> str:
        if ledger.sequence > terms.budget.rounds:
            raise EndlessFlow(terms.budget.rounds)
        if ledger.sequence == 1:
            ledger.version = terms.version
        ttl = terms.budget.shed_ttl if is_shed else None
        if _is_nested(call.arguments):
            # The function may have changed what it was given; the retry comes with what was sent.
            call = replace(call, arguments=decode(call.post.body)["params"]["arguments"])
        bearer = Bearer(self.principal(call), self._name)
        return self._security.seal(call, bearer, ledger.encode(), ledger.lineage, ttl)

    def principal(self, call: Call) -> str | None:
        """Who is calling, as far as tokens and tasks are bound to it."""
        bind = self._security.bind_principal
        if bind is authenticated_principal:
            access = call.post.access
            return None if access is None else access.principal
        return None if bind is None else bind(Context(call, self._host, None))

    def find(self, call: Call) -> tuple[Endpoint, Call]:
        """The endpoint that a call is aimed at, and the call with that endpoint's arguments."""
        if call.method == "resources/read":
            return self._find_resource(call)
        endpoint = (self.tools if call.method == "tools/call" else self.prompts).get(call.target)
        if endpoint is None:
            raise InvalidParams(f"Unknown {'tool' if call.method == 'tools/call' else 'prompt'}: {call.target}")
        return endpoint, call

    def _find_resource(self, call: Call) -> tuple[Endpoint, Call]:
        if (endpoint := self.resources.get(call.target)) is not None:
            return endpoint, replace(call, arguments={})
        for endpoint in self.templates.values():
            if endpoint.template is not None and (values := endpoint.template.match(call.target)) is not None:
                return endpoint, replace(call, arguments=dict(values))
        raise ResourceNotFound(call.target)

    def entries(self, method: str) -> Mapping[str, dict[str, Any]]:
        """The definitions that a list method shows."""
        shelves = {
            "tools/list": self.tools,
            "prompts/list": self.prompts,
            "resources/list": self.resources,
            "resources/templates/list": self.templates,
        }
        return {name: endpoint.definition for name, endpoint in shelves[method].items()}

    async def own_tasks(self, call: Call, task_ids: list[str]) -> list[str]:
        """Those of these tasks that are the caller's."""
        if self.tasks is None:
            return []
        who = self.principal(call)
        return [task for task in task_ids if await self.tasks.get(task, who, call.post.now) is not None]

    def follow_tasks(self, call: Call, task_ids: list[str]) -> AsyncIterator[dict[str, Any]]:
        """These tasks, which are the caller's, as they change."""
        assert self.tasks is not None
        return follow(self.tasks, task_ids, self.principal(call), tasking.detailed)

    def task_support(self, tool: str) -> str | None:
        """Whether a tool is called as a task, for versions in which the client has to know."""
        endpoint = self.tools.get(tool)
        return (
            None if endpoint is None else {"always": "required", "optional": "optional"}.get(endpoint.terms.task or "")
        )

    def hint(self, call: Call) -> CacheHint:
        """How long a result keeps."""
        if call.method == "resources/read" and call.method in self.handlers:
            try:
                own = self._find_resource(call)[0].cache
            except ResourceNotFound:
                own = None
            if own is not None:
                return own
        return self.hints.get(call.method, _NO_HINT)

    def capabilities(self) -> dict[str, Any]:
        """What the server offers, by what is registered now."""
        changes = {"listChanged": True} if self.bus is not None else {}
        watched = {"subscribe": True} if self.bus is not None else {}
        offered: dict[str, Any] = {"logging": {}}
        if self.tools or "tools/list" in self.handlers:
            offered["tools"] = changes
        if self.prompts or "prompts/list" in self.handlers:
            offered["prompts"] = changes
        if self.resources or self.templates or "resources/list" in self.handlers:
            offered["resources"] = changes | watched
        if "completion/complete" in self.handlers:
            offered["completions"] = {}
        if self.tasks is not None:
            offered["extensions"] = {TASKS: {}}
        return offered
