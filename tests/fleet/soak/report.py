"""`python -m tests.fleet.soak.report`: the figures of the last full run as tables and plots in docs/."""

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.fleet.soak import drawing
from tests.fleet.soak.run import RESULTS

DOCS = Path(__file__).parents[3] / "docs"
PAGE = DOCS / "soak.md"
BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"
Found = dict[str, Any]


def storm_table(trial: Found) -> str:
    """The soak itself."""
    refused = ", ".join(f"{name}: {number:,}" for name, number in trial["refused"].items())
    died = trial["payments_in_which_a_process_died"]
    rows = {
        "flows, of how many users": f"{trial['flows']:,} of {trial['users']}",
        "open at the same time": f"{trial['open_at_once']:,}",
        "completed": f"{trial['completed']:,}",
        "rounds of questions": f"{trial['rounds']:,}",
        "requests at nginx": f"{trial['requests']:,}",
        "replies 502, each retried with the same `requestState`": f"{trial['statuses'].get('502', 0):,}",
        "requests sent twice on purpose": f"{trial['resent_on_purpose']:,}",
        "instances killed": trial["kills"],
        "instances upgraded": trial["upgrades"],
        "key rotations": trial["rotations"],
        "flows that were open when the old key went": f"{trial['open_when_key_dropped']:,}",
        "flows from version to version": ", ".join(f"{way}: {number:,}" for way, number in trial["versions"].items()),
        "effects that ran twice, or not at all": trial["paid_twice"] + trial["wrong"].get("unpaid", 0),
        "effects in which a process died": f"{died.get('found', 0)} done, {died.get('missed', 0)} not done",
        "leaks between users": trial["leaks"],
        "refused": refused,
        "5xx of an instance": trial["server_errors"],
        "seconds in all; a flow without its thinking, p50 and p99": (
            f"{trial['seconds']:.0f}; {trial['p50_without_thinking']:.2f} and {trial['p99_without_thinking']:.2f}"
        ),
    }
    return _table(("", ""), rows.items())


def comparison_table(trials: Sequence[Found]) -> str:
    """All trials in which it matters whether flows are completed."""
    head = ("", "flows", "completed", "kills", "effects that ran twice", "how the others ended")
    rows = [
        (
            trial["name"],
            f"{trial['flows']:,}",
            f"{trial['completed']:,}",
            trial["kills"],
            trial["paid_twice"],
            _ends(trial),
        )
        for trial in trials
        if "speed" not in trial["name"]
    ]
    return _table(head, rows)


def _ends(trial: Found) -> str:
    failures = [f"{_worded(name)} {number:,}" for name, number in trial["failures"].items()]
    return ", ".join(failures)


def _worded(failure: str) -> str:
    return "no reply in time" if failure.startswith("TimeoutError") else failure.removeprefix("MCPError: ")


def speed_table(trials: Sequence[Found]) -> str:
    """The trials without kills and without thinking."""
    head = ("", "flows", "flows a second, each time", "p50 of a flow", "p99", "CPU of the servers a flow")
    rows = [
        (
            trial["name"],
            f"{trial['completed']:,}",
            ", ".join(f"{speed:.0f}" for speed in trial["speeds"]),
            f"{trial['p50']:.2f} s",
            f"{trial['p99']:.2f} s",
            "" if trial["server_cpu_ms_per_flow"] is None else f"{trial['server_cpu_ms_per_flow']:.2f} ms",
        )
        for trial in trials
        if "speed" in trial["name"]
    ]
    return _table(head, rows)


def _table(head: Sequence[str], rows: Any) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)


def written(results: Found) -> str:
    """The part of the page that is made by this."""
    trials, machine = results["trials"], results["machine"]
    versions = f"Turnwise {results['turnwise']}, mcp {results['mcp']}, Python {machine['python']}"
    return f"""{BEGIN}
{versions}, {machine["system"]}, {machine["cores"]} cores for everything: three instances, nginx and all users.

### The storm

{storm_table(trials[0])}

![Flows completed over time](figures/soak-storm.svg)

### The same load elsewhere

{comparison_table(trials)}

![Flows completed](figures/soak-completed.svg)

### Speed

{speed_table(trials)}

{END}"""


def main() -> None:
    """Write the page and the plots."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--results", type=Path, default=RESULTS)
    results = json.loads(parser.parse_args().results.read_text())
    trials = results["trials"]
    (DOCS / "figures").mkdir(exist_ok=True)
    remarks = [(trial, f"{trial['paid_twice']} effects twice" if trial["paid_twice"] else "") for trial in trials]
    rows = [(trial["name"], trial["completed"], trial["flows"], remark) for trial, remark in remarks]
    shown = [row for row in rows if "speed" not in row[0]]
    (DOCS / "figures" / "soak-completed.svg").write_text(drawing.bars(shown, "Flows completed, by wire and weather"))
    (DOCS / "figures" / "soak-storm.svg").write_text(drawing.storm(trials[0], "Three instances in a storm"))
    page = PAGE.read_text()
    PAGE.write_text(re.sub(f"{BEGIN}.*{END}", lambda _: written(results), page, flags=re.DOTALL))


if __name__ == "__main__":
    main()
