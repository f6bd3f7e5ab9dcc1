"""The site: every page has its place in it, and the reference has all that is public."""

import ast
import re
from pathlib import Path
from typing import Any

import turnwise
from scripts import check_site, draw_rooms
from tests.docs.loading import ROOT
from tests.house.test_rooms import LEVEL

DOCS = ROOT / "docs"


def parts() -> dict[str, list[str]]:
    """The tree of pages, as docs/conf.py has it; the file itself wants Sphinx."""
    for node in ast.parse((DOCS / "conf.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id == "PARTS":
            found: dict[str, Any] = ast.literal_eval(node.value)
            return found
    raise AssertionError("docs/conf.py has no PARTS")


def test_every_page_is_in_the_tree_once() -> None:
    placed = [name for pages in parts().values() for name in pages]
    assert len(placed) == len(set(placed))
    for page in DOCS.rglob("*.md"):
        name = page.relative_to(DOCS).with_suffix("").as_posix()
        assert name == "index" or name in placed or f"{name.rpartition('/')[0]}/*" in placed, f"{name} is in no part"


def test_every_page_can_be_reached_from_the_first() -> None:
    """Also without the site, by links alone."""
    reached, left = set(), [DOCS / "index.md"]
    while left:
        page = left.pop()
        if page in reached:
            continue
        reached.add(page)
        for link in re.findall(r"\]\(([^)#:\s]+\.md)", page.read_text(encoding="utf-8")):
            left.append((page.parent / link).resolve())
    assert set(DOCS.rglob("*.md")) <= reached


def test_the_reference_has_all_that_is_public() -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in (DOCS / "reference").glob("*.md"))
    named = re.findall(r"^\.\. (?:auto(?!module)|py:)\w+:: turnwise\.(\w+)$", text, re.MULTILINE)
    assert sorted(named) == sorted(turnwise.__all__)


def test_the_drawing_of_the_rooms_is_up_to_date() -> None:
    drawing = draw_rooms.DRAWING.read_text(encoding="utf-8")
    assert drawing == draw_rooms.drawn(), "run: python scripts/draw_rooms.py"


def test_an_import_that_follows_from_others_is_not_drawn() -> None:
    assert draw_rooms.reduced({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == {"a": {"b"}, "b": {"c"}, "c": set()}


def test_the_design_tells_of_every_room() -> None:
    table = (DOCS / "design.md").read_text(encoding="utf-8").partition("| room |")[2].partition("\n\n")[0]
    named = [name for row in table.splitlines()[2:] for name in re.findall(r"`(\w+)/?`", row.split("|")[1])]
    assert sorted(named) == sorted(LEVEL)


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.html").write_text('<p id="here"><a href="b.html#there">b</a> <a href="#here">a</a>')
    (tmp_path / "b.html").write_text('<p id="there"><a href="https://example.com/x">x</a> <img src="picture.svg">')
    assert check_site.broken(tmp_path) == ["b.html: picture.svg"]
    (tmp_path / "b.html").write_text('<a href="c.html">c</a>')
    assert sorted(check_site.broken(tmp_path)) == ["a.html: b.html#there", "b.html: c.html"]
