"""The tables of `docs/benchmarks.md`, written from what is on record.

    python -m bench.page        # bench/results.json to docs/benchmarks.md

What stands between `<!-- figures: PART -->` and `<!-- end -->` is replaced; the words around it are left alone.
"""

import argparse
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.fleet import ROOT
from bench.part import Part
from bench.report import QUIET, RESULTS, Bar, above
from bench.run import PARTS
from bench.servers_part import SERVERS

PAGE = ROOT / "docs" / "benchmarks.md"
PLACE = re.compile(r"(<!-- figures: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def rewritten(page: str, results: Mapping[str, Any]) -> str:
    """The page with the figures on record."""
    parts = {part.name: part for part in PARTS}

    def section(place: re.Match[str]) -> str:
        part = parts[place[2]]
        found = results if part is SERVERS else results.get(part.name, {})
        return f"{place[1]}\n{figures(part, found)}\n\n{place[3]}"

    return PLACE.sub(section, page)


def figures(part: Part, found: Mapping[str, Any]) -> str:
    """What is on record of a part: how it was measured, the rows, the ratios."""
    if "rows" not in found:
        return "Not on record yet."
    rows = f"```text\n{part.table(found['rows'])}\n```"
    notes = [*found.get("notes", []), *_doubts(found["rows"])]
    return "\n\n".join([_setting(found), rows, *notes, _ratios(found, part.bars)])


def _setting(found: Mapping[str, Any]) -> str:
    settings, machine = found["settings"], found["machine"]
    versions = ", ".join(f"{name} {machine['libraries'][name]}" for name in ("mcp", "pydantic", "uvicorn"))
    place = f"{machine['python']}, {machine['architecture']}, {machine['cores']} cores; {versions}"
    return f"On record: {settings['repeats']} repeats of {settings['seconds']:g} s; {place}."


def _doubts(rows: Mapping[str, Mapping[str, float]]) -> list[str]:
    busy = above(rows, "disturbance", QUIET)
    return [f"The machine was busy with other things in {len(busy)} cells."] if busy else []


def _ratios(found: Mapping[str, Any], bars: Sequence[Bar]) -> str:
    """A line for each ratio, then one for each bar that has no figure yet."""
    bar_of = {bar.ratio: bar for bar in bars}
    lines = ["| ratio | median | smallest | largest | bar | |", "|---|---:|---:|---:|---:|---|"]
    for name, value in found["ratios"].items():
        least, most = found["spread"][name]
        lines.append(f"| `{name}` | {value:.2f} | {least:.2f} | {most:.2f} | {_verdict(bar_of.get(name), value)} |")
    lines += [
        f"| `{name}` | | | | {_bound(bar)} | not on record |"
        for name, bar in bar_of.items()
        if name not in found["ratios"]
    ]
    return "\n".join(lines)


def _verdict(bar: Bar | None, value: float) -> str:
    return f"{_bound(bar)} | {'holds' if bar.holds(value) else 'missed'}" if bar else " |"


def _bound(bar: Bar) -> str:
    return f"{'≤' if bar.at_most else '≥'} {bar.bound:g}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the figures on record into docs/benchmarks.md.")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--page", type=Path, default=PAGE)
    options = parser.parse_args()
    page = options.page.read_text(encoding="utf-8")
    options.page.write_text(rewritten(page, json.loads(options.results.read_text())), encoding="utf-8")


if __name__ == "__main__":
    main()
