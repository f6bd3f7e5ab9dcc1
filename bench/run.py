"""The benchmark: each side on one core, in turns, several times over; servers, scale, clients, replay, tasks.

`python -m bench.run` prints the tables and writes `bench/results.json`; `--check` makes a missed bar an error.
"""

import argparse
import json
import signal
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from bench.clients_part import CLIENTS
from bench.fleet import Spec
from bench.machine import Yardstick, on_core, two_cores
from bench.measure import Bench
from bench.part import Part
from bench.replay_part import REPLAY
from bench.report import RESULTS, Rows
from bench.scale_part import SCALE
from bench.servers_part import SERVERS
from bench.tasks_part import TASKS

PARTS = (SERVERS, SCALE, CLIENTS, REPLAY, TASKS)
ATTEMPTS = 2
QUICK_REPEATS, QUICK_SECONDS = 2, 0.6


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Measure Turnwise, the official SDK and a floor.")
    parser.add_argument("--quick", action="store_true", help="2 short repeats, to see that it runs")
    parser.add_argument("--only", choices=[part.name for part in PARTS], help="one part, default all")
    parser.add_argument("--servers", help="comma-separated names of rows, default all")
    parser.add_argument("--clients", help="comma-separated names of rows, default all")
    parser.add_argument("--repeats", type=int, help="default 7 for servers, 5 for clients, 3 for the others")
    parser.add_argument(
        "--seconds",
        type=float,
        help="per row and load, default 2 for servers and tasks, 1.2 for scale, 0.6 for clients, 0.3 for replay",
    )
    parser.add_argument("--check", action="store_true", help="exit with 1 when a bar is missed")
    parser.add_argument("--out", type=Path, default=RESULTS)
    return parser.parse_args()


def chosen(options: argparse.Namespace) -> list[tuple[Part, list[Spec]]]:
    names = {"servers": options.servers, "clients": options.clients}
    return [(part, part.chosen(names.get(part.name))) for part in PARTS if options.only in (None, part.name)]


def run(part: Part, specs: Sequence[Spec], options: argparse.Namespace) -> list[Rows]:
    """Measure a part, put it on record, show it."""
    repeats, seconds = (QUICK_REPEATS, QUICK_SECONDS) if options.quick else (part.repeats, part.seconds)
    cores, seconds = two_cores(), options.seconds or seconds
    with on_core(cores[0]):
        bench = Bench(*cores, seconds, 1 if options.quick else ATTEMPTS, Yardstick(cores))
        found = part.measure(bench, specs, options.repeats or repeats)
    write_results(part, part.results(found, seconds), options.out)
    print(f"{part.shown(found)}\n", flush=True)
    return found


def write_results(part: Part, results: dict[str, object], path: Path) -> None:
    """The servers are the file itself, each other part a section of it; what was not measured stays as it was."""
    whole = json.loads(path.read_text()) if path.exists() else {}
    whole |= results if part is SERVERS else {part.name: results}
    path.write_text(json.dumps(whole, indent=2) + "\n")


def main() -> int:
    options = parse_options()
    parts = chosen(options)
    modules = [spec.module for _, specs in parts for spec in specs]
    if any(module.startswith("turnwise") for module in modules) and find_spec("turnwise") is None:
        sys.exit("turnwise is not importable: install it, or name other rows with --servers and --clients.")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    missed = [bar for part, specs in parts for bar in part.missed(run(part, specs, options))]
    if options.check and missed:
        print(f"Missed: {', '.join(missed)}")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
