"""Figures of the documentation, drawn from what is on record.

    python -m bench.plot        # bench/results.json to docs/figures/*.svg

A figure carries its own background and follows the reader's choice of light or dark; where that is not understood, it
is light.
"""

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib as mpl  # type: ignore[import-not-found, unused-ignore]
from matplotlib.axes import Axes  # type: ignore[import-not-found, unused-ignore]
from matplotlib.figure import Figure  # type: ignore[import-not-found, unused-ignore]
from matplotlib.ticker import LogLocator  # type: ignore[import-not-found, unused-ignore]

from bench.fleet import ROOT
from bench.report import RESULTS, Figures
from bench.scale.axes import AXES, Axis

FIGURES = ROOT / "docs" / "figures"
INK, PAPER, RULE = "#1f2328", "#ffffff", "#d1d9e0"
COLOURS = {
    "turnwise": "#0969da",
    "mcp": "#bc4c00",
    "fastmcp": "#8250df",
    "typescript": "#1a7f37",
    "floor": "#59636e",
}
DARK = {
    INK: "#e6edf3",
    PAPER: "#0d1117",
    RULE: "#3d444d",
    "#0969da": "#58a6ff",
    "#bc4c00": "#f0883e",
    "#8250df": "#bc8cff",
    "#1a7f37": "#3fb950",
    "#59636e": "#9198a1",
}
STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",
    "svg.hashsalt": "turnwise",
    "font.size": 11,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "axes.facecolor": PAPER,
    "axes.grid": True,
    "axes.axisbelow": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.facecolor": PAPER,
    "grid.color": RULE,
    "legend.facecolor": PAPER,
    "legend.frameon": False,
    "xtick.color": INK,
    "ytick.color": INK,
}


def colour(row: str) -> str:
    """Rows of one library look alike."""
    return COLOURS[row.partition("_")[0]]


def drawn_flows(rows: Mapping[str, Figures]) -> Figure:
    """Flows per second, a bar for each server."""
    figure = Figure(figsize=(9, 0.45 * len(rows) + 1.1), layout="constrained")
    axes = figure.subplots()
    names = sorted(rows, key=lambda name: rows[name]["flows.per_second"])
    speeds = [rows[name]["flows.per_second"] for name in names]
    bars = axes.barh(names, speeds, color=[colour(name) for name in names])
    axes.bar_label(bars, [f"{speed:,.0f}" for speed in speeds], padding=4)
    axes.set_xlabel("flows per second, 16 connections, server on one core")
    axes.margins(x=0.1)
    axes.grid(visible=False, axis="y")
    return figure


def drawn_axis(axis: Axis, rows: Mapping[str, Figures]) -> Figure:
    """The cost along an axis: Turnwise alone on plain scales, then beside the others on logarithmic ones."""
    series = {name.removeprefix(f"{axis.name}_"): row for name, row in rows.items()}
    figure = Figure(figsize=(9, 3.8), layout="constrained")
    alone, beside = figure.subplots(1, 2)
    _draw_alone(alone, axis, series["turnwise"])
    for library, row in series.items():
        beside.plot(axis.sizes, _costs(axis, row), "o-", color=colour(library), label=library)
    beside.set(xscale="log", yscale="log", title="beside others, logarithmic")
    low, high = beside.get_ylim()
    beside.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high < 100 * low else (1,)))
    beside.legend()
    for panel in (alone, beside):
        panel.set_xticks(_ticks(axis, panel), [str(size) for size in _ticks(axis, panel)])
        panel.minorticks_off()
        panel.yaxis.set_major_formatter("{x:,.0f}")
        panel.set_xlabel(axis.label)
        panel.set_ylabel(f"CPU of the server, µs per {axis.per}")
    return figure


def _draw_alone(panel: Axes, axis: Axis, row: Figures) -> None:
    panel.plot(axis.sizes, _costs(axis, row), "o", color=colour("turnwise"), label="turnwise")
    if axis.straight:
        line = [row["base_us"] + row["slope_us"] * size for size in axis.sizes]
        panel.plot(axis.sizes, line, "--", color=COLOURS["floor"], label="straight line through it")
    else:
        panel.set_xscale("log")
    panel.set_ylim(0, 1.15 * max(_costs(axis, row)))
    panel.set_title("turnwise")
    panel.legend(loc="lower right")


def _ticks(axis: Axis, panel: Axes) -> Sequence[int]:
    """All sizes, where there is room for their numbers."""
    return axis.sizes if panel.get_xscale() == "log" else axis.sizes[-3:]


def _costs(axis: Axis, row: Figures) -> list[float]:
    return [row[f"at_{size}.cpu_us"] for size in axis.sizes]


def saved(figure: Figure, path: Path) -> None:
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
    # Lines do not end in blanks, so that a figure is changed only where its data are.
    plain = re.sub(r"[ \t]+$", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE)
    path.write_text(plain.replace("<defs>", f"{_dark_style()}\n <defs>", 1), encoding="utf-8")


def _dark_style() -> str:
    """Each colour in what it becomes in the dark, stronger than the attributes that have it."""
    rules = [
        f'[style*="{kind}: {light}"]{{{kind}:{dark} !important}}'
        for light, dark in DARK.items()
        for kind in ("fill", "stroke")
    ]
    return f"<style>@media (prefers-color-scheme: dark){{{''.join(rules)}}}</style>"


def drawings(results: Mapping[str, Any]) -> dict[str, Figure]:
    """Figures by name, of what was measured."""
    served = {name: row for name, row in results.get("rows", {}).items() if "flows.per_second" in row}
    found = {"flows": drawn_flows(served)} if served else {}
    rows = results.get("scale", {}).get("rows", {})
    for axis in AXES:
        mine = {name: row for name, row in rows.items() if name.startswith(f"{axis.name}_")}
        if mine:
            found[axis.name] = drawn_axis(axis, mine)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Draw the figures of docs/benchmarks.md.")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--out", type=Path, default=FIGURES)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(STYLE):
        for name, figure in drawings(json.loads(options.results.read_text())).items():
            saved(figure, options.out / f"{name}.svg")
            print(f"{name}.svg")


if __name__ == "__main__":
    main()
