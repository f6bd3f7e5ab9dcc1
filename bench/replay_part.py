"""Replay: what a round of a long flow costs, what an answer weighs in the token, what a waiting flow holds.

A leg is measured as a server pays for it, over HTTP, and, without a bar, inside the process at its ASGI application,
where what replay adds stands out.
"""

import json
import subprocess
import sys
from collections.abc import Sequence

from bench import report
from bench.fleet import PATIENCE, ROOT, Spec
from bench.machine import on_core
from bench.measure import Bench
from bench.part import Part
from bench.report import Amount, Bar, Ratio, Rows

SPECS = (
    Spec("turnwise_served", "turnwise_served"),
    Spec("turnwise", "turnwise_legs"),
    Spec("turnwise_unnamed", "turnwise_legs"),
    Spec("mcp_declared", "mcp_legs"),
    Spec("turnwise_waiting", "turnwise_flows"),
)

RATIOS = (
    Ratio("leg_10_vs_1", "finish_10.cpu_us", "turnwise_served", "turnwise_served", "finish_1.cpu_us"),
    Ratio("asking_leg_10_vs_1", "ask_10.cpu_us", "turnwise_served", "turnwise_served", "ask_1.cpu_us"),
    Ratio("leg_10_vs_1_in_process", "finish_10.cpu_us", "turnwise", "turnwise", "finish_1.cpu_us"),
    Ratio("asking_leg_10_vs_1_in_process", "ask_10.cpu_us", "turnwise", "turnwise", "ask_1.cpu_us"),
    Ratio("mcp_leg_10_vs_1", "finish_10.cpu_us", "mcp_declared", "mcp_declared", "finish_1.cpu_us"),
    Ratio("mcp_asking_leg_10_vs_1", "ask_10.cpu_us", "mcp_declared", "mcp_declared", "ask_1.cpu_us"),
    Ratio("leg_10_vs_mcp_declared", "finish_10.cpu_us", "turnwise", "mcp_declared"),
    Amount("us_per_replayed_answer", "replay_us", "turnwise"),
    Amount("bytes_per_answer", "answer_bytes", "turnwise"),
    Amount("bytes_per_unnamed_answer", "answer_bytes", "turnwise_unnamed"),
    Amount("bytes_per_cjk_answer", "cjk_answer_bytes", "turnwise"),
    Amount("mb_for_waiting_flows", "rss_growth_mb", "turnwise_waiting"),
)

BARS = (
    Bar("leg_10_vs_1", 1.5, at_most=True),
    Bar("asking_leg_10_vs_1", 1.5, at_most=True),
    Bar("bytes_per_answer", 120, at_most=True),
    Bar("bytes_per_unnamed_answer", 120, at_most=True),
    Bar("mb_for_waiting_flows", 5, at_most=True),
)

COLUMNS = (
    ("us/end 1", "finish_1.cpu_us", "{:.0f}"),
    ("10", "finish_10.cpu_us", "{:.0f}"),
    ("us/question 1", "ask_1.cpu_us", "{:.0f}"),
    ("10", "ask_10.cpu_us", "{:.0f}"),
    ("us/replayed", "replay_us", "{:.1f}"),
    ("token 1", "token_1_bytes", "{:.0f}"),
    ("10", "token_10_bytes", "{:.0f}"),
    ("bytes/answer", "answer_bytes", "{:.1f}"),
    ("CJK", "cjk_answer_bytes", "{:.1f}"),
    ("MB before", "rss_before_mb", "{:.1f}"),
    ("after", "rss_after_mb", "{:.1f}"),
)


def table(rows: Rows) -> str:
    return report.table("replay", rows, COLUMNS)


def repeat_once(bench: Bench, specs: Sequence[Spec]) -> Rows:
    """Let each module measure its rows, one process after the other."""
    rows: Rows = {}
    for module in dict.fromkeys(spec.module for spec in specs):
        rows |= _measured(bench, module)
    return rows


def _measured(bench: Bench, module: str) -> Rows:
    command = [sys.executable, "-m", f"bench.replay.{module}", "--seconds", str(bench.seconds)]
    with on_core(bench.server_core):
        done = subprocess.run(
            command, cwd=ROOT, check=True, stdout=subprocess.PIPE, timeout=PATIENCE + 60 * bench.seconds
        )
    rows: Rows = json.loads(done.stdout)
    return rows


REPLAY = Part(
    name="replay",
    specs=SPECS,
    repeats=3,
    seconds=0.3,
    repeat_once=repeat_once,
    table=table,
    ratios=RATIOS,
    bars=BARS,
)
