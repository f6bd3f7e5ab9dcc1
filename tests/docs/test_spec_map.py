"""The map of the specification: each row is whole, and every file and test that it names is there. Only what is left to
authors, operators and callbacks has none.
"""

import re
from typing import NamedTuple

import pytest

from tests.docs.loading import ROOT

PAGE = ROOT / "docs" / "spec-map.md"
LEVELS = {"MUST", "MUST NOT", "SHOULD", "SHOULD NOT", "SHALL", "SHALL NOT", "MAY", "REQUIRED", "RECOMMENDED"}
LINK = re.compile(r"\[`[^`]+`\]\(\.\./([^)]+)\)")


class Row(NamedTuple):
    section: str
    level: str
    rule: str
    by: str
    shown_by: str


def rows() -> list[Row]:
    found, section = [], ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            section = line.removeprefix("## ")
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if line.startswith("| ") and cells[0] and not set(cells[0]) <= {"-"}:
            assert len(cells) == 4, line
            found.append(Row(section, *cells))
    return found


ROWS = rows()


def test_the_map_is_read() -> None:
    assert len(ROWS) > 300
    for section in ("Multi round-trip requests", "Tasks", "Streamable HTTP", "stdio"):
        for side in ("", ", for clients"):
            assert any(row.section == section + side for row in ROWS), section + side


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.section}: {row.rule[:60]}")
def test_a_row_names_what_is_there(row: Row) -> None:
    assert row.level in LEVELS
    assert row.rule
    files = LINK.findall(row.by)
    is_yours = "**yours**" in row.by
    assert files or is_yours, row.by
    for name in files:
        assert name.startswith("src/turnwise/")
        assert (ROOT / name).is_file(), name
    shown = re.findall(LINK.pattern + r" `(test_\w+)`", row.shown_by)
    assert shown or "make conformance" in row.shown_by or (is_yours and row.shown_by == "–"), row.shown_by
    for path, name in shown:
        assert f"def {name}(" in (ROOT / path).read_text(encoding="utf-8"), f"{path} has no {name}"
