"""Two plots as SVG, written by hand: bars of what was completed, and an afternoon in the storm."""

from collections.abc import Sequence
from typing import Any
from xml.sax.saxutils import escape

WIDTH, LEFT, RIGHT = 760, 230, 110
INK, FAINT, GOOD, BAD, KILL, KEY, ROLL = "#222", "#bbb", "#2a7f62", "#d8d8d8", "#c0392b", "#8e5ea2", "#2f6fb0"
ROW = 34


def bars(rows: Sequence[tuple[str, int, int, str]], title: str) -> str:
    """One row for each trial: its name, how many of how many flows were completed, and a word on it."""
    height, scale = 60 + ROW * len(rows), WIDTH - LEFT - RIGHT
    parts = [_text(20, 26, title, size=15, weight="bold")]
    for number, (name, done, of, remark) in enumerate(rows):
        top, share = 48 + ROW * number, done / of if of else 0.0
        parts += [
            _text(LEFT - 12, top + 14, name, anchor="end"),
            _box(LEFT, top, scale, 20, BAD),
            _box(LEFT, top, scale * share, 20, GOOD),
            _text(LEFT + scale + 8, top + 14, f"{done} of {of}"),
            _text(LEFT + 8, top + 14, remark, colour="#fff" if share > 0.5 else INK),
        ]
    return _drawn(height, parts)


def storm(trial: dict[str, Any], title: str) -> str:
    """How many flows were completed over time, and what befell the fleet meanwhile."""
    height, top, bottom, left = 380, 60, 310, 60
    seconds, flows = trial["seconds"], trial["flows"]
    across, up = (WIDTH - left - 30) / seconds, (bottom - top) / flows
    points = " ".join(f"{left + t * across:.1f},{bottom - n * up:.1f}" for t, n in trial["done_by_then"])
    parts = [_text(20, 26, title, size=15, weight="bold")]
    for share in (0, 0.25, 0.5, 0.75, 1):
        y = bottom - share * flows * up
        parts += [_line(left, y, WIDTH - 30, y, FAINT), _text(left - 8, y + 4, str(round(share * flows)), anchor="end")]
    for second in range(0, int(seconds) + 1, 10):
        parts.append(_text(left + second * across, bottom + 18, f"{second} s", anchor="middle"))
    for moment, what in trial["events"]:
        if what in MARKS:
            colour, tall = MARKS[what]
            parts.append(_line(left + moment * across, bottom, left + moment * across, bottom - tall, colour, 2))
    parts.append(f'<polyline points="{points}" fill="none" stroke="{GOOD}" stroke-width="3"/>')
    legend = (
        ("flows completed", GOOD),
        ("an instance killed", KILL),
        ("a new version", ROLL),
        ("a phase of the keys", KEY),
    )
    for number, (word, colour) in enumerate(legend):
        parts += [
            _box(left + 170 * number, height - 30, 12, 12, colour),
            _text(left + 170 * number + 18, height - 19, word),
        ]
    return _drawn(height, parts)


MARKS = {
    "kill": (KILL, 60),
    "upgrade": (ROLL, 110),
    "key added": (KEY, 160),
    "key moved": (KEY, 160),
    "key dropped": (KEY, 160),
}


def _drawn(height: int, parts: Sequence[str]) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}"'
    font = 'font-family="Helvetica, Arial, sans-serif"'
    return "\n".join(
        [f"{head} {font}>", f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>', *parts, "</svg>", ""]
    )


def _text(
    x: float, y: float, words: str, anchor: str = "start", size: int = 12, weight: str = "normal", colour: str = INK
) -> str:
    style = f'text-anchor="{anchor}" font-size="{size}" font-weight="{weight}" fill="{colour}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {style}>{escape(words)}</text>'


def _box(x: float, y: float, width: float, height: float, colour: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" fill="{colour}"/>'


def _line(x: float, y: float, to_x: float, to_y: float, colour: str, width: int = 1) -> str:
    ends = f'x1="{x:.1f}" y1="{y:.1f}" x2="{to_x:.1f}" y2="{to_y:.1f}"'
    return f'<line {ends} stroke="{colour}" stroke-width="{width}"/>'
