"""Draw docs/diagrams/rooms.svg: the rooms of the house, level by level, and what each imports.

The levels are those of tests/house/test_rooms.py, the imports are read from the sources. An import that follows from
others is left out: a line from A to C is not drawn where A imports B and B imports C.
"""

import sys
from collections.abc import Mapping
from html import escape
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from tests.house.test_rooms import LEVEL, MODULES, ROOMS, imported_rooms, room_of  # noqa: E402

DRAWING = ROOT / "docs" / "diagrams" / "rooms.svg"
WIDTH, ROW, HEIGHT, BOX, PADDING = 1180, 66, 26, 7.4, 18
COLOURS = {"both": "#e8e8ea", "server": "#cfe3f7", "client": "#fbe3c4"}
WORDS = {"both": "both sides, or neither", "server": "the server's side", "client": "the client's side"}

Imports = Mapping[str, set[str]]


def imports() -> dict[str, set[str]]:
    """The rooms that each room imports."""
    found: dict[str, set[str]] = {room: set() for room in LEVEL}
    for path in MODULES:
        found[room_of(path)] |= imported_rooms(path) - {room_of(path)}
    return found


def reached(start: set[str], found: Imports) -> set[str]:
    """These rooms, and all that they import, directly or not."""
    seen: set[str] = set()
    left = list(start)
    while left:
        room = left.pop()
        if room not in seen:
            seen.add(room)
            left += found[room]
    return seen


def reduced(found: Imports) -> dict[str, set[str]]:
    """Only the imports that do not follow from others."""
    return {
        room: {other for other in others if other not in reached(others - {other}, found)}
        for room, others in found.items()
    }


def sides(found: Imports) -> dict[str, str]:
    """Whether a room is the server's, the client's, or both's."""
    server, client = reached({"server"}, found), reached({"client"}, found)
    return {
        room: "server" if room in server - client else "client" if room in client - server else "both" for room in found
    }


def places(found: Imports) -> dict[str, tuple[float, float, float]]:
    """Where each box is: its middle, its top, its width. Boxes stand below what they import, where they can."""
    placed: dict[str, tuple[float, float, float]] = {}
    for level, rooms in enumerate(ROOMS):

        def wanted(room: str) -> tuple[float, str]:
            above = [placed[other][0] for other in sorted(found[room])]
            return (sum(above) / len(above) if above else WIDTH / 2, room)

        row = sorted(rooms, key=wanted)
        widths = [len(room) * BOX + PADDING for room in row]
        gap = (WIDTH - sum(widths)) / (len(row) + 1)
        left = gap
        for room, width in zip(row, widths, strict=True):
            placed[room] = (round(left + width / 2, 1), 40 + level * ROW, round(width, 1))
            left += width + gap
    return placed


def drawn() -> str:
    """The picture."""
    everything = imports()
    found, side = reduced(everything), sides(everything)
    placed = places(found)
    lines = [_line(placed[room], placed[other]) for room in placed for other in sorted(found[room])]
    boxes = [_box(room, placed[room], COLOURS[side[room]]) for room in placed]
    height = 40 + len(ROOMS) * ROW
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"',
            'font-family="monospace" font-size="12">',
            "<title>The rooms of the house: each imports only rooms above it</title>",
            f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
            *_legend(),
            *lines,
            *boxes,
            "</svg>\n",
        ]
    )


def _line(start: tuple[float, float, float], end: tuple[float, float, float]) -> str:
    x, y, to_x, to_y = start[0], start[1], end[0], end[1] + HEIGHT
    bend = round((y - to_y) / 2, 1)
    path = f"M{x} {y} C{x} {y - bend} {to_x} {to_y + bend} {to_x} {to_y}"
    return f'<path d="{path}" fill="none" stroke="#9aa0a6" stroke-width="1"/>'


def _box(room: str, place: tuple[float, float, float], colour: str) -> str:
    x, y, width = place
    name = escape(room)
    return (
        f'<rect x="{round(x - width / 2, 1)}" y="{y}" width="{width}" height="{HEIGHT}" rx="4" fill="{colour}" '
        f'stroke="#5f6368"/><text x="{x}" y="{y + 17}" text-anchor="middle" fill="#202124">{name}</text>'
    )


def _legend() -> list[str]:
    lines = []
    for number, (side, words) in enumerate(WORDS.items()):
        x = 10 + number * 220
        lines.append(f'<rect x="{x}" y="8" width="14" height="14" fill="{COLOURS[side]}" stroke="#5f6368"/>')
        lines.append(f'<text x="{x + 20}" y="20" fill="#202124">{words}</text>')
    return lines


if __name__ == "__main__":
    DRAWING.parent.mkdir(exist_ok=True)
    DRAWING.write_text(drawn(), encoding="utf-8")
    sys.stdout.write(f"{DRAWING}\n")
