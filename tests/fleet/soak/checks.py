"""The verdict: what must hold of a fleet after the storm, each thing told by who could see it.

Orders are told by those who made them, payments by the service that took them, replies by the instances that gave them.
"""

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.fleet.soak.instances import Instance
from tests.fleet.soak.orders import Order

SERVER_ERROR = re.compile(r" status=5\d\d ")
EXPECTED_WARNINGS = ("requestState",)


@dataclass
class Verdict:
    """What was wrong, by kind; a good run has nothing in it."""

    unfinished: list[str] = field(default_factory=list)
    unpaid: list[str] = field(default_factory=list)
    paid_twice: list[str] = field(default_factory=list)
    paid_by_others: list[str] = field(default_factory=list)
    leaks: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    server_errors: list[str] = field(default_factory=list)
    tracebacks: list[str] = field(default_factory=list)

    def wrong(self) -> dict[str, list[str]]:
        """All that is not empty."""
        return {name: found for name, found in vars(self).items() if found}

    def counts(self) -> dict[str, int]:
        return {name: len(found) for name, found in vars(self).items()}


def judge(orders: Sequence[Order], instances: Sequence[Instance], place: Path) -> Verdict:
    """Look at everything."""
    verdict = Verdict()
    paid = payments(place)
    for order in orders:
        if not order.is_complete:
            verdict.unfinished.append(f"{order.marker}: {order.failure}")
        payers = [payer for payer, _ in paid.pop(order.marker, [])]
        if order.is_complete and not payers:
            verdict.unpaid.append(order.marker)
        if len(payers) > 1:
            verdict.paid_twice.append(f"{order.marker}: {len(payers)} times")
        if any(payer != order.user for payer in payers):
            verdict.paid_by_others.append(f"{order.marker}: {payers}")
        verdict.leaks += order.leaks
        verdict.faults += [f"{order.marker}: {fault}" for fault in order.faults]
    verdict.faults += [f"{marker} was paid, and nobody ordered it" for marker in paid]
    for instance in instances:
        verdict.server_errors += [line for line in instance.accesses() if SERVER_ERROR.search(line + " ")]
        verdict.tracebacks += re.findall(r"(?m)^Traceback.*\n(?:\s.*\n)*(.*)$", instance.said())
    return verdict


def payments(place: Path) -> dict[str, list[tuple[str, int]]]:
    """Who paid for each order, and in which process."""
    found: dict[str, list[tuple[str, int]]] = {}
    for pid, what, marker, *more in _effects(place):
        if what == "charge":
            found.setdefault(marker, []).append((more[0], pid))
    return found


def enquiries(place: Path) -> Counter[str]:
    """How often the service was asked about a payment in which a process died, and whether it knew of it."""
    return Counter(what for _, what, *_ in _effects(place) if what != "charge")


def _effects(place: Path) -> list[Any]:
    file = place / "effects.log"
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []
