"""What figures say: medians, ratios within a repeat, bars, and tables.

A ratio is taken between figures of the same repeat and only then the median over repeats, so that a machine
that slows down for a minute slows both sides of it. Which rows, ratios and bars there are, each part knows.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median

RESULTS = Path(__file__).parent / "results.json"
QUIET = 0.25
"""How disturbed a machine may be, as a part of one core, before a figure becomes doubtful."""

Figures = Mapping[str, float]
"""The figures of one row in one repeat, by name (`flows.per_second`, `cold_start_ms`, ...)."""
Repeat = Mapping[str, Figures]
"""One repeat: the figures by row."""
Rows = dict[str, dict[str, float]]
Column = tuple[str, str, str]
"""A column of a table: its title, its figure, how the figure is written."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """A named quotient of one figure between two rows, or of a figure to another one, `over`."""

    name: str
    figure: str
    of: str
    to: str
    over: str | None = None

    @property
    def rows(self) -> set[str]:
        return {self.of, self.to}

    def value(self, repeat: Repeat) -> float:
        return repeat[self.of][self.figure] / repeat[self.to][self.over or self.figure]


@dataclass(frozen=True, slots=True)
class Amount:
    """A figure that is compared with nothing, because it is the same on every machine, or has to be."""

    name: str
    figure: str
    of: str

    @property
    def rows(self) -> set[str]:
        return {self.of}

    def value(self, repeat: Repeat) -> float:
        return repeat[self.of][self.figure]


@dataclass(frozen=True, slots=True)
class Spread:
    """A ratio or an amount over all repeats."""

    median: float
    least: float
    most: float


@dataclass(frozen=True, slots=True)
class Bar:
    """What a ratio or an amount has to reach, or with `at_most` must not exceed."""

    ratio: str
    bound: float
    at_most: bool = False

    def holds(self, value: float) -> bool:
        return value <= self.bound if self.at_most else value >= self.bound


def medians(repeats: Sequence[Repeat]) -> Rows:
    """The median of each figure of each row."""
    return {
        row: {figure: median(repeat[row][figure] for repeat in repeats) for figure in figures}
        for row, figures in repeats[0].items()
    }


def spreads(repeats: Sequence[Repeat], ratios: Sequence[Ratio | Amount]) -> dict[str, Spread]:
    """Each ratio or amount whose rows were measured."""
    present = repeats[0].keys()
    return {ratio.name: _spread(repeats, ratio) for ratio in ratios if ratio.rows <= present}


def _spread(repeats: Sequence[Repeat], ratio: Ratio | Amount) -> Spread:
    values = [ratio.value(repeat) for repeat in repeats]
    return Spread(median(values), min(values), max(values))


def table(corner: str, rows: Mapping[str, Figures], columns: Sequence[Column]) -> str:
    """One line for each row; a figure that was not measured is a dash."""
    lines = [[corner, *(title for title, _, _ in columns)]]
    lines += [[row, *(_cell(figures, *column[1:]) for column in columns)] for row, figures in rows.items()]
    return aligned(lines)


def _cell(figures: Figures, figure: str, shape: str) -> str:
    return shape.format(figures[figure]) if figure in figures else "-"


def aligned(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(_padded(line, widths) for line in lines)


def _padded(line: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = zip(line, widths, strict=True)
    return "  ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in rest)]).rstrip()


def ratio_table(ratios: Mapping[str, Spread], bars: Sequence[Bar]) -> str:
    bar_of = {bar.ratio: bar for bar in bars}
    lines = [["ratio", "median", "min", "max", "bar", ""]]
    for name, spread in ratios.items():
        figures = [f"{value:.2f}" for value in (spread.median, spread.least, spread.most)]
        lines.append([name, *figures, *_judgement(bar_of.get(name), spread)])
    return aligned(lines)


def _judgement(bar: Bar | None, spread: Spread) -> tuple[str, str]:
    if bar is None:
        return "", ""
    sign = "<=" if bar.at_most else ">="
    return f"{sign} {bar.bound:g}", "PASS" if bar.holds(spread.median) else "FAIL"


def failures(ratios: Mapping[str, Spread], bars: Sequence[Bar]) -> list[str]:
    """The bars that are missed; one whose ratio was not measured is missed."""
    return [bar.ratio for bar in bars if bar.ratio not in ratios or not bar.holds(ratios[bar.ratio].median)]


def above(rows: Mapping[str, Figures], share: str, most: float) -> list[str]:
    """The loads, with their rows, whose share exceeds what is allowed."""
    return [
        f"{row} {figure.removesuffix(f'.{share}')}"
        for row, figures in rows.items()
        for figure, value in figures.items()
        if figure.endswith(f".{share}") and value > most
    ]
