"""What the figures say: medians, ratios within a repeat, bars, and the table.

A ratio is taken between figures of the same repeat and only then the median over repeats, so that a machine
that slows down for a minute slows both sides of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from bench.load import BUSY

QUIET = 0.25
"""How disturbed a machine may be, as a part of one core, before a figure becomes doubtful."""

Figures = Mapping[str, float]
"""The figures of one server in one repeat, by name (`flows.per_second`, `cold_start_ms`, ...)."""
Repeat = Mapping[str, Figures]
"""One repeat: the figures by server."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """A named quotient of one figure between two servers."""

    name: str
    figure: str
    of: str
    to: str


@dataclass(frozen=True, slots=True)
class Spread:
    """A ratio over all repeats."""

    median: float
    least: float
    most: float


@dataclass(frozen=True, slots=True)
class Bar:
    """What a ratio has to reach, or with `at_most` has to stay under."""

    ratio: str
    bound: float
    at_most: bool = False

    def holds(self, value: float) -> bool:
        return value <= self.bound if self.at_most else value >= self.bound


RATIOS = (
    Ratio("flows_vs_mcp_returned", "flows.per_second", "turnwise_inline", "mcp_returned"),
    Ratio("flows_vs_mcp_declared", "flows.per_second", "turnwise_inline", "mcp_declared"),
    Ratio("flows_vs_floor", "flows.per_second", "turnwise_inline", "floor"),
    Ratio("calls_vs_mcp", "calls.per_second", "turnwise_inline", "mcp_returned"),
    Ratio("calls_vs_floor", "calls.per_second", "turnwise_inline", "floor"),
    Ratio("cold_start_vs_mcp", "cold_start_ms", "turnwise_inline", "mcp_returned"),
    Ratio("cpu_per_flow_vs_mcp_returned", "flows.cpu_us", "turnwise_inline", "mcp_returned"),
    Ratio("cpu_per_flow_vs_mcp_declared", "flows.cpu_us", "turnwise_inline", "mcp_declared"),
    Ratio("cpu_per_call_vs_mcp", "calls.cpu_us", "turnwise_inline", "mcp_returned"),
    Ratio("cpu_per_flow_vs_floor", "flows.cpu_us", "turnwise_inline", "floor"),
    Ratio("cpu_per_call_vs_floor", "calls.cpu_us", "turnwise_inline", "floor"),
    Ratio("cost_with_tools", "calls.cpu_us", "turnwise_300_tools", "turnwise_1_tool"),
    Ratio("floor_flows_vs_mcp_returned", "flows.per_second", "floor", "mcp_returned"),
    Ratio("floor_calls_vs_mcp", "calls.per_second", "floor", "mcp_returned"),
    Ratio("floor_cold_start_vs_mcp", "cold_start_ms", "floor", "mcp_returned"),
)

BARS = (
    Bar("flows_vs_mcp_returned", 5.5),
    Bar("flows_vs_mcp_declared", 9.0),
    Bar("flows_vs_floor", 0.55),
    Bar("calls_vs_mcp", 9.0),
    Bar("calls_vs_floor", 0.7),
    Bar("cold_start_vs_mcp", 0.6, at_most=True),
)

COLUMNS = (
    ("calls/s", "calls.per_second", "{:.0f}"),
    ("flows/s", "flows.per_second", "{:.0f}"),
    ("us/call", "calls.cpu_us", "{:.0f}"),
    ("us/flow", "flows.cpu_us", "{:.0f}"),
    ("MB idle", "rss_idle_mb", "{:.0f}"),
    ("loaded", "rss_loaded_mb", "{:.0f}"),
    ("start ms", "cold_start_ms", "{:.0f}"),
)
LATENCIES = (("call x16", "calls"), ("flow x16", "flows"), ("call x1", "calls_1"), ("flow x1", "flows_1"))


def medians(repeats: Sequence[Repeat]) -> dict[str, dict[str, float]]:
    """The median of each figure of each server."""
    return {
        server: {figure: median(repeat[server][figure] for repeat in repeats) for figure in figures}
        for server, figures in repeats[0].items()
    }


def spreads(repeats: Sequence[Repeat]) -> dict[str, Spread]:
    """Each ratio whose two servers were measured."""
    present = repeats[0].keys()
    return {ratio.name: _spread(repeats, ratio) for ratio in RATIOS if {ratio.of, ratio.to} <= present}


def _spread(repeats: Sequence[Repeat], ratio: Ratio) -> Spread:
    values = [repeat[ratio.of][ratio.figure] / repeat[ratio.to][ratio.figure] for repeat in repeats]
    return Spread(median(values), min(values), max(values))


def table(rows: Mapping[str, Figures]) -> str:
    """The servers, one line each: throughput and cost, then latencies and the generator's own load."""
    costs = [["server", *(title for title, _, _ in COLUMNS)]]
    times = [["p50/p99 us (generator)", *(title for title, _ in LATENCIES)]]
    for server, figures in rows.items():
        costs.append([server, *(_cell(figures, figure, shape) for _, figure, shape in COLUMNS)])
        times.append([server, *(_latency(figures, load) for _, load in LATENCIES)])
    return f"{_aligned(costs)}\n\n{_aligned(times)}"


def _cell(figures: Figures, figure: str, shape: str) -> str:
    return shape.format(figures[figure]) if figure in figures else "-"


def _latency(figures: Figures, load: str) -> str:
    if f"{load}.p50_us" not in figures:
        return "-"
    share = figures[f"{load}.generator_share"]
    flag = "!" if share > BUSY else ""
    return f"{figures[f'{load}.p50_us']:.0f}/{figures[f'{load}.p99_us']:.0f} ({share:.2f}{flag})"


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(_padded(line, widths) for line in lines)


def _padded(line: Sequence[str], widths: Sequence[int]) -> str:
    first, *rest = zip(line, widths, strict=True)
    return "  ".join([first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in rest)]).rstrip()


def ratio_table(ratios: Mapping[str, Spread]) -> str:
    bars = {bar.ratio: bar for bar in BARS}
    lines = [["ratio", "median", "min", "max", "bar", ""]]
    for name, spread in ratios.items():
        figures = [f"{value:.2f}" for value in (spread.median, spread.least, spread.most)]
        lines.append([name, *figures, *_judgement(bars.get(name), spread)])
    return _aligned(lines)


def _judgement(bar: Bar | None, spread: Spread) -> tuple[str, str]:
    if bar is None:
        return "", ""
    sign = "<=" if bar.at_most else ">="
    return f"{sign} {bar.bound:g}", "PASS" if bar.holds(spread.median) else "FAIL"


def failures(ratios: Mapping[str, Spread]) -> list[str]:
    """The bars that are missed; one whose ratio was not measured is missed."""
    return [bar.ratio for bar in BARS if bar.ratio not in ratios or not bar.holds(ratios[bar.ratio].median)]


def warnings(repeats: Sequence[Repeat]) -> list[str]:
    """What makes figures doubtful: a generator at its limit, or a machine with other things to do."""
    bound = _where(repeats, "generator_share", BUSY)
    doubtful = _where(repeats, "disturbance", QUIET)
    found = []
    if bound:
        found.append(f"The generator was the limit, so these are too low: {', '.join(bound)}.")
    if doubtful:
        found.append(f"The machine was busy with other things in {len(doubtful)} cells: run it again in quiet.")
    return found


def _where(repeats: Sequence[Repeat], share: str, most: float) -> list[str]:
    """The loads, with their servers, whose share exceeds what is allowed in the median."""
    return [
        f"{server} {load}"
        for server, figures in medians(repeats).items()
        for _, load in LATENCIES
        if figures.get(f"{load}.{share}", 0.0) > most
    ]
