"""The servers: which are compared, by which ratios, and the bars that Turnwise has to reach."""

from collections.abc import Sequence
from functools import cache

from bench import report
from bench.fleet import Spec
from bench.load import BUSY
from bench.measure import Bench, repeat_once
from bench.part import Part
from bench.peers import FASTMCP_PYTHON, NODE, TYPESCRIPT_SERVER, fastmcp, missing, typescript
from bench.report import Bar, Figures, Ratio, Rows

SPECS = (
    Spec("floor", "floor"),
    Spec("mcp_returned", "mcp_returned"),
    Spec("mcp_declared", "mcp_declared"),
    Spec("mcp_returned_uvloop", "mcp_returned", ("--fast",)),
    Spec("fastmcp", "fastmcp_returned", python=str(FASTMCP_PYTHON)),
    Spec("typescript", "typescript", program=(str(NODE), str(TYPESCRIPT_SERVER))),
    Spec("turnwise_inline", "turnwise_inline"),
    Spec("turnwise_asgi", "turnwise_inline", ("--asgi",)),
)

RATIOS = (
    Ratio("flows_vs_mcp_returned", "flows.per_second", "turnwise_inline", "mcp_returned"),
    Ratio("flows_vs_mcp_declared", "flows.per_second", "turnwise_inline", "mcp_declared"),
    Ratio("flows_vs_floor", "flows.per_second", "turnwise_inline", "floor"),
    Ratio("flows_vs_fastmcp", "flows.per_second", "turnwise_inline", "fastmcp"),
    Ratio("flows_vs_typescript", "flows.per_second", "turnwise_inline", "typescript"),
    Ratio("calls_vs_mcp", "calls.per_second", "turnwise_inline", "mcp_returned"),
    Ratio("calls_vs_floor", "calls.per_second", "turnwise_inline", "floor"),
    Ratio("calls_vs_fastmcp", "calls.per_second", "turnwise_inline", "fastmcp"),
    Ratio("calls_vs_typescript", "calls.per_second", "turnwise_inline", "typescript"),
    Ratio("asgi_flows_vs_mcp_returned", "flows.per_second", "turnwise_asgi", "mcp_returned"),
    Ratio("asgi_flows_vs_floor", "flows.per_second", "turnwise_asgi", "floor"),
    Ratio("asgi_calls_vs_floor", "calls.per_second", "turnwise_asgi", "floor"),
    Ratio("rss_loaded_vs_mcp", "rss_loaded_mb", "turnwise_inline", "mcp_returned"),
    Ratio("cold_start_vs_mcp", "cold_start_ms", "turnwise_inline", "mcp_returned"),
    Ratio("cpu_per_flow_vs_mcp_returned", "flows.cpu_us", "turnwise_inline", "mcp_returned"),
    Ratio("cpu_per_flow_vs_mcp_declared", "flows.cpu_us", "turnwise_inline", "mcp_declared"),
    Ratio("cpu_per_call_vs_mcp", "calls.cpu_us", "turnwise_inline", "mcp_returned"),
    Ratio("cpu_per_flow_vs_floor", "flows.cpu_us", "turnwise_inline", "floor"),
    Ratio("cpu_per_call_vs_floor", "calls.cpu_us", "turnwise_inline", "floor"),
    Ratio("floor_flows_vs_mcp_returned", "flows.per_second", "floor", "mcp_returned"),
    Ratio("floor_calls_vs_mcp", "calls.per_second", "floor", "mcp_returned"),
    Ratio("floor_cold_start_vs_mcp", "cold_start_ms", "floor", "mcp_returned"),
)

BARS = (
    Bar("flows_vs_mcp_returned", 8.0),
    Bar("flows_vs_mcp_declared", 12.0),
    Bar("flows_vs_floor", 0.75),
    Bar("flows_vs_fastmcp", 1.0),
    Bar("flows_vs_typescript", 1.0),
    Bar("calls_vs_mcp", 9.0),
    Bar("calls_vs_floor", 0.7),
    Bar("rss_loaded_vs_mcp", 1.0, at_most=True),
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


def fill_caches(bench: Bench, specs: Sequence[Spec]) -> None:
    """Start each once, so that no cold start reads its modules from the disk."""
    for spec in specs:
        bench.start(spec).stop()


@cache
def absences() -> dict[str, str]:
    """Which peers cannot be measured here, and why."""
    rows = {spec.name: spec for spec in SPECS}
    return missing([rows["fastmcp"]], fastmcp) | missing([rows["typescript"]], typescript)


def notes() -> list[str]:
    """What the figures of others depend on."""
    return [*fastmcp().described("FastMCP"), *typescript().described("TypeScript")]


def table(rows: Rows) -> str:
    """The servers, one line each: throughput and cost, then latencies and the generator's own load."""
    times = [["p50/p99 us (generator)", *(title for title, _ in LATENCIES)]]
    times += [[server, *(_latency(figures, load) for _, load in LATENCIES)] for server, figures in rows.items()]
    return f"{report.table('server', rows, COLUMNS)}\n\n{report.aligned(times)}"


def _latency(figures: Figures, load: str) -> str:
    if f"{load}.p50_us" not in figures:
        return "-"
    share = figures[f"{load}.generator_share"]
    flag = "!" if share > BUSY else ""
    return f"{figures[f'{load}.p50_us']:.0f}/{figures[f'{load}.p99_us']:.0f} ({share:.2f}{flag})"


SERVERS = Part(
    name="servers",
    specs=SPECS,
    repeats=7,
    seconds=2.0,
    repeat_once=repeat_once,
    table=table,
    ratios=RATIOS,
    bars=BARS,
    opposite="generator",
    prepare=fill_caches,
    absences=absences,
    notes=notes,
)
