"""Ten thousand calls that wait: the list opens and filters at once. `pytest -s` shows the figures."""

import asyncio
import statistics
import time
from pathlib import Path

import pytest

from tests.inbox.offices import KEY, NOW, Line, item, question, run, serving_inbox
from turnwise.inbox.model import Item
from turnwise.inbox.sqlite import SQLiteInboxStore

MANY, FEW = 10_000, 100
QUERIES = {
    "first page": "/items?limit=50",
    "words that many have": "/items?limit=50&q=work",
    "words that one has": "/items?limit=50&q=needle",
    "words that none has": "/items?limit=50&q=haystack",
    "of one caller": "/items?limit=50&caller=agent7",
}
SLOWER = 150.0
"""A hundred times as many may take so many times as long, and some: a search looks at each, a page does not."""


async def fill(path: Path, count: int) -> None:
    store = SQLiteInboxStore(path, [KEY])
    for start in range(0, count, 500):
        batch = range(start, min(start + 500, count))
        await asyncio.gather(*(store.add(one(number, count)) for number in batch))
    await store.aclose()


def one(number: int, count: int) -> Item:
    text = f"What is work item {number} about?" + (" The needle." if number == count - 1 else "")
    return item(f"c{number}", asked=NOW + number, caller=f"agent{number % 50}", requests={"title": question(text)})


def times(line: Line) -> dict[str, tuple[float, float]]:
    """Seconds for the first time, and usually."""
    found = {}
    for name, path in QUERIES.items():
        taken = []
        for _ in range(6):
            began = time.perf_counter()
            reply = line.call("GET", path)
            taken.append(time.perf_counter() - began)
            assert reply.status == 200
        found[name] = (taken[0], statistics.median(taken[1:]))
    return found


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[int, dict[str, tuple[float, float]]]:
    found = {}
    for count in (FEW, MANY):
        path = tmp_path_factory.mktemp("inbox") / "inbox.db"
        run(fill(path, count))
        with serving_inbox(path) as line:
            assert line.call("GET", "/items").body["total"] == count
            found[count] = times(line)
            assert line.call("GET", QUERIES["words that many have"]).body["total"] == count
            assert line.call("GET", QUERIES["words that one has"]).body["total"] == 1
            assert line.call("GET", QUERIES["words that none has"]).body["total"] == 0
            assert [one["id"] for one in line.call("GET", QUERIES["words that one has"]).body["items"]] == [
                f"c{count - 1}"
            ]
    return found


def test_the_list_opens_and_filters_at_once(measured: dict[int, dict[str, tuple[float, float]]]) -> None:
    for name in QUERIES:
        (few_first, few), (first, usual) = measured[FEW][name], measured[MANY][name]
        print(
            f"\n{name}: {usual * 1000:.1f} ms of {MANY} ({first * 1000:.1f} ms the first time), "
            f"{few * 1000:.1f} ms of {FEW} ({few_first * 1000:.1f} ms)",
            end="",
        )
    for name in QUERIES:
        assert measured[MANY][name][1] < SLOWER * measured[FEW][name][1], name
    assert measured[MANY]["first page"][1] < 10 * measured[FEW]["first page"][1]
