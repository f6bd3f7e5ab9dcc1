"""Scale: how the cost of a server grows with its catalogue, the arguments, the answers recorded, and the rounds.

The cost is CPU time of the server process under load. It has to stay the same however many tools there are, and may
grow in a straight line with the others.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache

from bench import report
from bench.fleet import Server, Spec
from bench.load import Measured, run_talks
from bench.measure import Bench, in_quiet, pressed
from bench.part import Part
from bench.peers import FASTMCP_PYTHON, NODE, TYPESCRIPT_SERVER, fastmcp, missing, typescript
from bench.report import Amount, Bar, Figures, Ratio, Rows
from bench.scale.axes import AXES, TOOLS, Axis
from bench.scale.lines import straightness
from bench.wire import Talk

CONNECTIONS = 16
TURNS = 3
WARM_UP = 0.2
SPECS = (
    Spec("tools_turnwise", "turnwise_inline"),
    Spec("tools_mcp_returned", "mcp_returned"),
    Spec("tools_fastmcp", "fastmcp_returned", python=str(FASTMCP_PYTHON)),
    Spec("tools_typescript", "typescript", program=(str(NODE), str(TYPESCRIPT_SERVER))),
    Spec("arguments_turnwise", "turnwise_scale"),
    Spec("arguments_mcp_declared", "mcp_scale"),
    Spec("ledger_turnwise", "turnwise_scale"),
    Spec("ledger_mcp_declared", "mcp_scale"),
    Spec("rounds_turnwise", "turnwise_scale"),
    Spec("rounds_mcp_declared", "mcp_scale"),
)
STRAIGHT = tuple(axis.name for axis in AXES if axis.straight)
FIRST, LAST = (f"at_{size}.cpu_us" for size in (TOOLS[0], TOOLS[-1]))

RATIOS: tuple[Ratio | Amount, ...] = (
    *(
        Ratio(f"{spec.name}_{TOOLS[-1]}_vs_{TOOLS[0]}", LAST, spec.name, spec.name, FIRST)
        for spec in SPECS
        if spec.name.startswith("tools")
    ),
    *(Amount(f"{spec.name}_off_line", "off_line", spec.name) for spec in SPECS if spec.name.startswith(STRAIGHT)),
    *(Amount(f"{spec.name}_for_double", "for_double", spec.name) for spec in SPECS if spec.name.startswith(STRAIGHT)),
)
BARS = (
    Bar(f"tools_turnwise_{TOOLS[-1]}_vs_{TOOLS[0]}", 1.15, at_most=True),
    *(Bar(f"{axis}_turnwise_off_line", 0.1, at_most=True) for axis in STRAIGHT),
    Bar("ledger_turnwise_for_double", 2.0, at_most=True),
    # A body above 64 kB takes a longer road, so there is a step. A square would cost 4.
    Bar("arguments_turnwise_for_double", 2.5, at_most=True),
)


@dataclass(slots=True)
class Cell:
    """One size of one row: a server, and an endless supply of conversations with it."""

    row: str
    size: int
    server: Server
    talks: Iterator[Talk]

    def press(self, seconds: float) -> Measured:
        return run_talks(self.server.port, self.talks, CONNECTIONS, seconds)

    def turn(self, bench: Bench) -> dict[str, float]:
        return in_quiet(bench, lambda: pressed(bench, self.server, lambda: self.press(bench.seconds / TURNS)))


def axis_of(spec: Spec) -> str:
    return spec.name.partition("_")[0]


def repeat_once(bench: Bench, specs: Sequence[Spec]) -> Rows:
    """One axis after the other; along each, all sizes of all rows take turns."""
    rows: Rows = {}
    for axis in AXES:
        rows |= _along(bench, axis, [spec for spec in specs if axis_of(spec) == axis.name])
    return rows


def _along(bench: Bench, axis: Axis, specs: Sequence[Spec]) -> Rows:
    with ExitStack() as running:
        servers: dict[Spec, Server] = {}
        for spec in (axis.spec_at(spec, size) for spec in specs for size in axis.sizes):
            if spec not in servers:
                servers[spec] = bench.start(spec)
                running.callback(servers[spec].stop)
        cells = [_cell(axis, servers[axis.spec_at(spec, size)], size) for spec in specs for size in axis.sizes]
        for cell in cells:
            cell.press(WARM_UP)
        turns = [[cell.turn(bench) for cell in cells] for _ in range(TURNS)]
    rows: Rows = {spec.name: {} for spec in specs}
    for cell, taken in zip(cells, zip(*turns, strict=True), strict=True):
        rows[cell.row] |= {f"at_{cell.size}.{name}": value for name, value in _cheapest(taken).items()}
    if axis.straight:
        for row in rows.values():
            row.update(straightness(axis.sizes, costs(axis, row)))
    return rows


def _cell(axis: Axis, server: Server, size: int) -> Cell:
    row = server.spec.name
    return Cell(row, size, server, axis.talks(server.port, row.removeprefix(f"{axis.name}_"), size))


def _cheapest(turns: Sequence[Figures]) -> dict[str, float]:
    """The turn that counts: other processes can only add to one."""
    best = min(turns, key=lambda turn: turn["cpu_us"])
    return {name: best[name] for name in ("cpu_us", "talks", "generator_share", "disturbance")}


def costs(axis: Axis, row: Figures) -> list[float]:
    """What a row costs along its axis."""
    return [row[f"at_{size}.cpu_us"] for size in axis.sizes]


def table(rows: Rows) -> str:
    """A table for each axis: the rows, a column for each size, and the line through them."""
    return "\n\n".join(_axis_table(axis, rows) for axis in AXES)


def _axis_table(axis: Axis, rows: Rows) -> str:
    mine = {name: row for name, row in rows.items() if name.startswith(f"{axis.name}_")}
    columns = [(str(size), f"at_{size}.cpu_us", "{:.0f}") for size in axis.sizes]
    line = [("each adds", "slope_us", "{:.2f}"), ("base", "base_us", "{:.0f}")] if axis.straight else []
    return report.table(f"us/{axis.per} by {axis.label}", mine, [*columns, *line])


@cache
def absences() -> dict[str, str]:
    """Which peers cannot be measured here, and why."""
    rows = {spec.name: spec for spec in SPECS}
    return missing([rows["tools_fastmcp"]], fastmcp) | missing([rows["tools_typescript"]], typescript)


def notes() -> list[str]:
    """What the figures of others depend on."""
    return [*fastmcp().described("FastMCP"), *typescript().described("TypeScript")]


SCALE = Part(
    name="scale",
    specs=SPECS,
    repeats=3,
    seconds=1.2,
    repeat_once=repeat_once,
    table=table,
    ratios=RATIOS,
    bars=BARS,
    opposite="generator",
    absences=absences,
    notes=notes,
)
