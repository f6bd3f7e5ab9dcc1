"""A part of the benchmark: its rows, how they are measured, and what their figures have to say.

What the parts share is here: repeats that each begin with another row, the report, the verdict.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from bench import report
from bench.fleet import Spec
from bench.load import BUSY
from bench.machine import described
from bench.measure import Bench
from bench.report import QUIET, Amount, Bar, Ratio, Repeat, Rows


def nothing(_: Bench, __: Sequence[Spec]) -> None:
    """What most parts need before their first repeat."""


@dataclass(frozen=True, slots=True)
class Part:
    """One part: the servers, the clients, replay, or tasks."""

    name: str
    specs: tuple[Spec, ...]
    repeats: int
    seconds: float
    repeat_once: Callable[[Bench, Sequence[Spec]], Rows]
    table: Callable[[Rows], str]
    ratios: tuple[Ratio | Amount, ...]
    bars: tuple[Bar, ...]
    opposite: str | None = None
    """Who is not to be the limit: the `generator` of a server's load, the `server` of a client's."""
    prepare: Callable[[Bench, Sequence[Spec]], None] = nothing
    absences: Callable[[], Mapping[str, str]] = dict
    """Why rows cannot be measured here, by name. Bars on them do not count."""
    notes: Callable[[], Sequence[str]] = list
    """What else has to be said of the figures."""

    def chosen(self, names: str | None) -> list[Spec]:
        """The rows with these comma-separated names, or all."""
        if names is None:
            return list(self.specs)
        wanted = names.split(",")
        unknown = set(wanted) - {spec.name for spec in self.specs}
        if unknown:
            sys.exit(f"No such {self.name}: {', '.join(sorted(unknown))}")
        return [spec for spec in self.specs if spec.name in wanted]

    def measure(self, bench: Bench, specs: Sequence[Spec], repeats: int) -> list[Rows]:
        """All repeats, each beginning with another row."""
        specs = [spec for spec in specs if spec.name not in self.absences()]
        self.prepare(bench, specs)
        found = []
        for number in range(repeats):
            print(f"{self.name}: repeat {number + 1} of {repeats}", file=sys.stderr, flush=True)
            turn = number % len(specs)
            rows = self.repeat_once(bench, [*specs[turn:], *specs[:turn]])
            found.append({spec.name: rows[spec.name] for spec in specs})
        return found

    def results(self, repeats: Sequence[Repeat], seconds: float) -> dict[str, object]:
        """What goes on record."""
        ratios = report.spreads(repeats, self.ratios)
        return {
            "ratios": {name: round(spread.median, 4) for name, spread in ratios.items()},
            "spread": {name: [round(spread.least, 4), round(spread.most, 4)] for name, spread in ratios.items()},
            "rows": _rounded(report.medians(repeats)),
            "settings": {"repeats": len(repeats), "seconds": seconds},
            "machine": described(),
            **({"notes": said} if (said := self._said()) else {}),
        }

    def shown(self, repeats: Sequence[Repeat]) -> str:
        """What goes on the screen."""
        rows, ratios = report.medians(repeats), report.spreads(repeats, self.ratios)
        return "\n\n".join(
            [self.table(rows), report.ratio_table(ratios, self.bars), *self._said(), *self._warnings(rows)]
        )

    def missed(self, repeats: Sequence[Repeat]) -> list[str]:
        absent = self.absences().keys()
        beside = {ratio.name for ratio in self.ratios if ratio.rows & absent}
        bars = [bar for bar in self.bars if bar.ratio not in beside]
        return report.failures(report.spreads(repeats, self.ratios), bars)

    def _said(self) -> list[str]:
        return [*self.notes(), *(f"{name} is absent: {reason}" for name, reason in self.absences().items())]

    def _warnings(self, rows: Rows) -> list[str]:
        """What makes figures doubtful: an opposite at its limit, or a machine with other things to do."""
        bound = report.above(rows, f"{self.opposite}_share", BUSY) if self.opposite else []
        doubtful = report.above(rows, "disturbance", QUIET)
        found = []
        if bound:
            found.append(f"The {self.opposite} was the limit, so these are too low: {', '.join(bound)}.")
        if doubtful:
            found.append(f"The machine was busy with other things in {len(doubtful)} cells: run it again in quiet.")
        return found


def _rounded(rows: Rows) -> Rows:
    return {name: {figure: round(value, 3) for figure, value in row.items()} for name, row in rows.items()}
