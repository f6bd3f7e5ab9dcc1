"""Figures for Prometheus: what is called, how rounds end, which tokens are refused, how tasks stand.

`MCPServer(telemetry=PrometheusMetrics())` counts rounds into the registry of `prometheus_client`, which you expose as
you do elsewhere. `turnwise serve --metrics-port` does both, over all its workers. Needs the extra `turnwise[metrics]`.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, get_args

from ._messages import Ask, Call, Outcome, Yield, result_type
from .context import Context
from .errors import InvalidRequestState, ToolError
from .errors.peers import Kind
from .tasks.model import Status
from .tasks.runtime import Tasks

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

log = logging.getLogger("turnwise.metrics")

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
ROUNDS = (1, 2, 3, 4, 5, 7, 10, 20, 50, 100)
BYTES = (256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072, 262144)
TASK_SECONDS = 15.0
"""How often tasks are counted."""
_BY_NAME = ("tools/call", "prompts/get")
"""What these are aimed at has one of a few names; a resource may be anything."""


class PrometheusMetrics:
    """Counts rounds, as an observer, and requests, as a witness."""

    def __init__(self, registry: "CollectorRegistry | None" = None) -> None:
        try:
            from prometheus_client import REGISTRY, Counter, Gauge, Histogram
        except ImportError as error:
            raise ImportError("PrometheusMetrics needs the extra: pip install 'turnwise[metrics]'") from error
        where: dict[str, Any] = {"registry": registry or REGISTRY, "namespace": "turnwise"}
        named = ("method", "target")
        self._calls = Counter("calls", "Rounds of calls, by how they ended.", (*named, "result"), **where)
        self._seconds = Histogram("call_seconds", "How long rounds take.", named, buckets=SECONDS, **where)
        self._rounds = Histogram("flow_rounds", "Rounds of flows that came to an end.", named, buckets=ROUNDS, **where)
        self._questions = Counter("questions", "Questions that were asked, by kind.", ("kind",), **where)
        self._tokens = Histogram("token_bytes", "Sizes of the states that went out.", buckets=BYTES, **where)
        self._rejected = Counter("rejected_states", "States that were refused, by reason.", ("reason",), **where)
        for kind in get_args(Kind):
            self._rejected.labels(kind)  # From 0 on: what begins with 1 has not grown, as far as Prometheus can see.
        self._sheds = Counter("sheds", "Calls that were handed on to another instance.", **where)
        self._responses = Counter("http_responses", "Responses, by status.", ("status",), **where)
        self._under_way = Gauge(
            "http_requests_in_flight", "Requests that are under way.", multiprocess_mode="livesum", **where
        )
        self._tasks = Gauge("tasks", "Tasks, by status.", ("status",), multiprocess_mode="mostrecent", **where)
        self._oldest = Gauge(
            "task_oldest_seconds",
            "How long ago the oldest task of a status was begun.",
            ("status",),
            multiprocess_mode="mostrecent",
            **where,
        )

    @contextmanager
    def watch(self, context: Context[Any, Any]) -> Iterator[Callable[[Outcome], None]]:
        """Count one round."""
        call = context.call
        labels = (call.method, call.target if call.method in _BY_NAME else "")
        began, results = time.perf_counter(), []

        def tell(outcome: Outcome) -> None:
            results.append(result_type(outcome))
            self._count_round(context, labels, outcome)

        try:
            yield tell
        except BaseException as error:
            results.append("tool_error" if isinstance(error, ToolError) else "failed")
            raise
        finally:
            self._calls.labels(*labels, results[0] if results else "failed").inc()
            self._seconds.labels(*labels).observe(time.perf_counter() - began)

    def _count_round(self, context: Context[Any, Any], labels: tuple[str, str], outcome: Outcome) -> None:
        match outcome:
            case Ask(questions, carrier):
                for question in questions.values():
                    self._questions.labels(question.method).inc()
            case Yield(carrier):
                if context.wake_at is None and not context.becoming:
                    self._sheds.inc()
            case _:
                carrier = None
                self._rounds.labels(*labels).observe(context.round)
        if isinstance(carrier, str):
            self._tokens.observe(len(carrier))

    def rejected(self, call: Call, error: InvalidRequestState) -> None:
        """Count a token that was refused."""
        self._rejected.labels(error.kind).inc()

    def arrived(self, headers: Mapping[bytes, bytes], client: str | None) -> None:
        """A request came."""
        self._under_way.inc()

    def left(self, note: None, status: int | None, principal: str | None) -> None:
        """Its response is over; 499 where the client went first."""
        self._under_way.dec()
        self._responses.labels(str(status or 499)).inc()

    async def follow_tasks(self, tasks: Tasks) -> None:
        """Count a server's tasks now and then, for as long as this is awaited."""
        while True:
            try:
                counts = await tasks.store.counts(time.time())
            except Exception:  # A store that is away may come back.
                log.exception("the tasks cannot be counted")
            else:
                for status in get_args(Status):
                    count, oldest = counts.get(status, (0, 0.0))
                    self._tasks.labels(status).set(count)
                    self._oldest.labels(status).set(oldest)
            await asyncio.sleep(TASK_SECONDS)
