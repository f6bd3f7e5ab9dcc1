"""Rounds as OpenTelemetry spans, each linked to the one before, so that a flow is one story over all its instances.

A span says which flow, which round, what came of it and how large the ledger is. It never says what was asked, answered
or returned. The caller's own trace, where it came in `_meta`, is the parent.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ._messages import Ask, Outcome, Yield, result_type
from .context import Context
from .dialects.words import TARGETS

if TYPE_CHECKING:
    from opentelemetry.trace import TracerProvider

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
        from opentelemetry.trace import SpanKind, Status, StatusCode

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
        with self._tracer.start_as_current_span(
            f"{call.method} {call.target}" if named else call.method,
            context=parent,
            kind=SpanKind.SERVER,
            links=_links(context.trace),
            attributes=attributes,
            record_exception=False,
            set_status_on_exception=False,
        ) as span:
            context.trace = _written(span.get_span_context())

            def tell(outcome: Outcome) -> None:
                span.set_attributes(_facts(context, outcome))

            try:
                yield tell
            except BaseException as error:
                span.set_attributes(_flow_facts(context))
                # The words of an error may hold answers; its kind does not.
                span.set_status(Status(StatusCode.ERROR, type(error).__name__))
                raise


def _facts(context: Context[Any, Any], outcome: Outcome) -> dict[str, Any]:
    facts: dict[str, Any] = {"mcp.result.type": result_type(outcome), **_flow_facts(context)}
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
