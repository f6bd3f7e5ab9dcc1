"""What a trial says in numbers."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from tests.fleet.soak.orders import Order
from tests.fleet.soak.trials import Trial

BUCKETS = 60


def figures(trial: Trial) -> dict[str, Any]:
    """All that is told of a trial, as JSON takes it."""
    orders = trial.orders
    complete = [order for order in orders if order.is_complete]
    counts = trial.verdict.counts()
    return {
        "name": trial.name,
        "kind": trial.kind,
        "instances": trial.instances,
        "flows": len(orders),
        "users": trial.load.users,
        "open_at_once": most_at_once(orders),
        "completed": len(complete),
        "rounds": sum(order.rounds for order in orders),
        "requests": sum(trial.statuses.values()),
        "retries": dict(sum((order.retries for order in orders), Counter())),
        "resent_on_purpose": sum(order.resent for order in orders),
        "statuses": {str(status): number for status, number in sorted(trial.statuses.items())},
        "kills": _number(trial, "kill"),
        "upgrades": _number(trial, "upgrade"),
        "rotations": _number(trial, "key dropped"),
        "open_when_key_dropped": open_at(trial, "key dropped"),
        "versions": dict(Counter(" to ".join(map(str, order.versions)) for order in complete if order.versions[0])),
        "refused": _refused(trial),
        "payments_in_which_a_process_died": dict(trial.asked_service),
        "paid_twice": counts["paid_twice"],
        "leaks": counts["leaks"] + counts["paid_by_others"],
        "server_errors": counts["server_errors"],
        "wrong": {name: number for name, number in counts.items() if number},
        "failures": dict(Counter(order.failure for order in orders if order.failure is not None).most_common(8)),
        "seconds": round(trial.seconds, 2),
        "flows_per_second": round(len(complete) / trial.seconds, 1),
        "server_cpu_ms_per_flow": _cpu_ms(trial),
        "p50": percentile([order.seconds for order in complete], 50),
        "p99": percentile([order.seconds for order in complete], 99),
        "p50_without_thinking": percentile([order.seconds - order.thought for order in complete], 50),
        "p99_without_thinking": percentile([order.seconds - order.thought for order in complete], 99),
        "events": trial.events,
        "done_by_then": done_by_then(trial),
    }


def percentile(values: Sequence[float], share: int) -> float | None:
    """The value that so many percent are not above."""
    if not values:
        return None
    ranked = sorted(values)
    return round(ranked[min(len(ranked) - 1, len(ranked) * share // 100)], 3)


def most_at_once(orders: Sequence[Order]) -> int:
    """How many were open at the same time."""
    moments = [(order.began, 1) for order in orders] + [(order.ended or order.began, -1) for order in orders]
    most = count = 0
    for _, change in sorted(moments):
        count += change
        most = max(most, count)
    return most


def open_at(trial: Trial, what: str) -> int:
    """How many orders had begun and not ended when this happened."""
    times = [trial.began + moment for moment, event in trial.events if event == what]
    if not times:
        return 0
    return sum(order.began < times[-1] < (order.ended or order.began) for order in trial.orders)


def done_by_then(trial: Trial) -> list[tuple[float, int]]:
    """How many orders were complete, at so many moments."""
    ends = sorted(order.ended - trial.began for order in trial.orders if order.is_complete and order.ended)
    moments = [trial.seconds * number / BUCKETS for number in range(BUCKETS + 1)]
    return [(round(moment, 2), sum(end <= moment for end in ends)) for moment in moments]


def _cpu_ms(trial: Trial) -> float | None:
    return None if trial.cpu_seconds is None else round(1000 * trial.cpu_seconds / len(trial.orders), 2)


def _number(trial: Trial, what: str) -> int:
    return sum(event == what for _, event in trial.events)


def _refused(trial: Trial) -> dict[str, int]:
    refused = sum((order.refused for order in trial.orders), Counter())
    return {**refused, **({"a forged bearer token": trial.forged} if trial.forged else {})}


def lines(found: dict[str, Any]) -> list[str]:
    """The figures for who watches."""
    skipped = ("events", "done_by_then", "name")
    shown = {name: value for name, value in found.items() if name not in skipped and value not in ({}, None)}
    return [found["name"], *(f"  {name.replace('_', ' ')}: {_shown(value)}" for name, value in shown.items())]


def _shown(value: Any) -> str:
    return ", ".join(f"{key} {number}" for key, number in value.items()) if isinstance(value, dict) else str(value)
