"""The benchmark: each server on one core, the load generator on another, in turns, several times over.

`python -m bench.run` prints the table and writes `bench/results.json`; `--check` makes a missed bar an error.
"""

import argparse
import json
import os
import signal
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from bench import report
from bench.fleet import Spec
from bench.machine import Yardstick, described, two_cores
from bench.measure import Bench, Rows, repeat_once

RESULTS = Path(__file__).parent / "results.json"
ATTEMPTS = 2
SPECS = (
    Spec("floor", "floor"),
    Spec("mcp_returned", "mcp_returned"),
    Spec("mcp_declared", "mcp_declared"),
    Spec("mcp_returned_uvloop", "mcp_returned", ("--fast",)),
    Spec("turnwise_inline", "turnwise_inline"),
    Spec("turnwise_asgi", "turnwise_inline", ("--asgi",)),
    Spec("turnwise_1_tool", "turnwise_inline", ("--tools", "1"), ("calls",)),
    Spec("turnwise_300_tools", "turnwise_inline", ("--tools", "300"), ("calls",)),
)


def run_all(specs: Sequence[Spec], options: argparse.Namespace) -> list[Rows]:
    """All repeats, each beginning with another server, after a start of each that fills the disk caches."""
    cores = two_cores()
    bench = Bench(*cores, options.seconds, 1 if options.quick else ATTEMPTS, Yardstick(cores))
    os.sched_setaffinity(0, {bench.generator_core})
    for spec in specs:
        bench.start(spec).stop()
    found = []
    for number in range(options.repeats):
        print(f"repeat {number + 1} of {options.repeats}", file=sys.stderr, flush=True)
        turn = number % len(specs)
        rows = repeat_once(bench, [*specs[turn:], *specs[:turn]])
        found.append({spec.name: rows[spec.name] for spec in specs})
    return found


def write_results(repeats: Sequence[report.Repeat], seconds: float, path: Path) -> None:
    ratios = report.spreads(repeats)
    results = {
        "ratios": {name: round(spread.median, 4) for name, spread in ratios.items()},
        "spread": {name: [round(spread.least, 4), round(spread.most, 4)] for name, spread in ratios.items()},
        "rows": rounded(report.medians(repeats)),
        "settings": {"repeats": len(repeats), "seconds": seconds},
        "machine": described(),
    }
    path.write_text(json.dumps(results, indent=2) + "\n")


def rounded(rows: Rows) -> Rows:
    return {name: {figure: round(value, 3) for figure, value in row.items()} for name, row in rows.items()}


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure Turnwise, the official SDK and a floor.")
    parser.add_argument("--quick", action="store_true", help="2 short repeats, to see that it runs")
    parser.add_argument("--repeats", type=int, help="default 7")
    parser.add_argument("--seconds", type=float, help="per server and load, default 2")
    parser.add_argument("--check", action="store_true", help="exit with 1 when a bar is missed")
    parser.add_argument("--servers", help="comma-separated names of rows, default all")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    options.repeats = options.repeats or (2 if options.quick else 7)
    options.seconds = options.seconds or (0.6 if options.quick else 2.0)
    return options


def chosen(names: str | None) -> list[Spec]:
    if names is None:
        return list(SPECS)
    wanted = names.split(",")
    unknown = set(wanted) - {spec.name for spec in SPECS}
    if unknown:
        sys.exit(f"No such rows: {', '.join(sorted(unknown))}")
    return [spec for spec in SPECS if spec.name in wanted]


def main() -> int:
    options = parse_options()
    specs = chosen(options.servers)
    if any(spec.module.startswith("turnwise") for spec in specs) and find_spec("turnwise") is None:
        sys.exit("turnwise is not importable: install it, or name other rows with --servers.")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    repeats = run_all(specs, options)
    write_results(repeats, options.seconds, options.out)
    ratios = report.spreads(repeats)
    print(f"{report.table(report.medians(repeats))}\n\n{report.ratio_table(ratios)}")
    for warning in report.warnings(repeats):
        print(f"\n{warning}")
    if options.check and (missed := report.failures(ratios)):
        print(f"\nMissed: {', '.join(missed)}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
