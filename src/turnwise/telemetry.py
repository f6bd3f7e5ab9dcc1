"""Rounds as OpenTelemetry spans, each linked to the one before, so that a flow is one story over all its instances,
and below them the steps that were taken.

A span says which flow, which round, what came of it and how large the ledger is. It never says what was asked, answered
or returned. The caller's own trace, where it came in `_meta`, is the parent.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from ._messages import Ask, Outcome, Yield, result_type
from .context import Context
from .dialects.words import TARGETS

if TYPE_CHECKING:
    from opentelemetry.trace import Span, TracerProvider

_TARGET_NAMES = {
    "tools/call": "gen_ai.tool.name",
    "prompts/get": "gen_ai.prompt.name",
    "resources/read": "mcp.resource.uri",
}


class OpenTelemetry:
    """For `MCPServer(telemetry=OpenTelemetry())`; needs the extra `turnwise[otel]`. Without a provider of your own the
    global one is used.
    """

    def __init__(self, tracer_provider: "TracerProvider | None" = None) -> None:
        try:
            from opentelemetry import trace
        except ImportError as error:
            raise ImportError("OpenTelemetry needs the extra: pip install 'turnwise[otel]'") from error
        self._tracer = trace.get_tracer("turnwise", tracer_provider=tracer_provider)

    @contextmanager
    def watch(self, context: Context[Any, Any]) -> Iterator[Callable[[Outcome], None]]:
        """A span around one round; what it is called with at the end is told as attributes."""
        from opentelemetry.context import get_current
        from opentelemetry.propagate import extract
        from opentelemetry.trace import SpanKind

        call = context.call
        named = call.method in TARGETS
        attributes: dict[str, Any] = {
            "mcp.method.name": call.method,
            "mcp.protocol.version": call.version,
            "jsonrpc.request.id": str(call.id),
        }
        if named:
            attributes[_TARGET_NAMES[call.method]] = call.target
        carried = {key: value for key, value in call.meta.items() if isinstance(value, str)}
        parent = extract(carried, get_current())
        with self._span(
            f"{call.method} {call.target}" if named else call.method,
            context=parent,
            kind=SpanKind.SERVER,
            links=_links(context.trace),
            attributes=attributes,
        ) as span:
            context.trace = _written(span.get_span_context())

            def tell(outcome: Outcome) -> None:
                span.set_attributes(_facts(outcome))

            try:
                yield tell
            finally:
                span.set_attributes(_flow_facts(context))

    @contextmanager
    def watch_step(self, context: Context[Any, Any], key: str) -> Iterator[Callable[[str], None]]:
        """A span around one step that is taken; one whose result is known already has none."""
        with self._span(f"step {key}", attributes={"turnwise.step.key": key, **_flow_facts(context)}) as span:
            yield partial(_fail, span)

    @contextmanager
    def _span(self, name: str, **options: Any) -> Iterator["Span"]:
        with self._tracer.start_as_current_span(
            name, record_exception=False, set_status_on_exception=False, **options
        ) as span:
            try:
                yield span
            except BaseException as error:
                _fail(span, type(error).__name__)
                raise


def _fail(span: "Span", kind: str) -> None:
    """The words of an error may hold answers; its kind does not."""
    from opentelemetry.trace import Status, StatusCode

    span.set_status(Status(StatusCode.ERROR, kind))


def _facts(outcome: Outcome) -> dict[str, Any]:
    facts: dict[str, Any] = {"mcp.result.type": result_type(outcome)}
    if isinstance(outcome, Ask | Yield):
        facts["turnwise.questions"] = len(outcome.questions) if isinstance(outcome, Ask) else 0
        if isinstance(outcome.carrier, str):  # Where the call waits here, or is a task, nothing goes over the wire.
            facts["turnwise.ledger.bytes"] = len(outcome.carrier)
    return facts


def _flow_facts(context: Context[Any, Any]) -> dict[str, Any]:
    if context.flow is None:
        return {}
    return {
        "turnwise.flow.id": context.flow_id,
        "turnwise.flow.round": context.round,
        "turnwise.flow.sheds": context.flow.sheds,
    }


def _links(trace: str | None) -> list[Any]:
    from opentelemetry.trace import Link, SpanContext, TraceFlags

    if trace is None:
        return []
    trace_id, span_id, flags = trace.split("-")
    return [Link(SpanContext(int(trace_id, 16), int(span_id, 16), True, TraceFlags(int(flags, 16))))]


def _written(span: Any) -> str | None:
    return f"{span.trace_id:032x}-{span.span_id:016x}-{int(span.trace_flags):02x}" if span.is_valid else None
