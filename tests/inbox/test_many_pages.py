"""The pages of an inbox where ten thousand calls wait, through the real application. `pytest -s` shows the figures.

What is shown is how long they take; what is compared is what they cost this process, whatever others do meanwhile.
"""

import asyncio
import statistics
import time
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest

from tests.inbox.offices import ANN, KEY, NOW, Line, item, question, run, serving_inbox
from tests.inbox.test_many import FEW, MANY, fill
from turnwise.inbox.sqlite import SQLiteInboxStore

PAGES = {
    "the list": "/",
    "the list as it changes": "/",
    "a filter that many pass": "/?q=work",
    "a filter that one passes": "/?q=needle",
    "a filter that none passes": "/?q=haystack",
    "an item": "/items/c7",
    "the history": "/history",
}
SLOWER = dict.fromkeys(("a filter that many pass", "a filter that one passes", "a filter that none passes"), 100.0)
"""Of a hundred times as many calls these may take so many times as long, for each is looked at and counted; the others
`EVEN` times.
"""
EVEN = 5.0
LOOKS = 9


class Took(NamedTuple):
    """Seconds for the first time, and usually: by the clock, and of the processor's time."""

    first: float
    usual: float
    first_cost: float
    usual_cost: float


Times = dict[str, Took]


async def timed(line: Line) -> Times:
    async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as session:
        form: dict[str, Any] = {"data": {"token": ANN}, "headers": {"Origin": line.url}, "allow_redirects": False}
        assert (await session.post(f"{line.url}/login", **form)).status == 303
        return {name: await usual(session, line, name) for name in PAGES}


async def usual(session: aiohttp.ClientSession, line: Line, name: str) -> Took:
    taken, costs = [], []
    headers = {"X-Part": "live"} if "changes" in name else {}
    for _ in range(LOOKS):
        began, cost = time.perf_counter(), time.process_time()
        async with session.get(line.url + PAGES[name], headers=headers) as reply:
            text = await reply.text()
        taken.append(time.perf_counter() - began)
        costs.append(time.process_time() - cost)
        assert reply.status == 200
        assert ("Sign out" in text) != bool(headers)
    return Took(taken[0], statistics.median(taken[1:]), costs[0], statistics.median(costs[1:]))


async def fill_with_large_forms(path: Path) -> None:
    """As many calls as a list has on a page, and more, each of which asks for a hundred things of its own."""
    store = SQLiteInboxStore(path, [KEY])
    for number in range(FEW):
        fields = {f"f{at}": {"type": "string", "title": f"{number}", "minLength": at} for at in range(100)}
        await store.add(item(f"c{number}", asked=NOW + number, requests={"all": question("All of it?", **fields)}))
    await store.aclose()


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> dict[int, Times]:
    found = {}
    for count in (FEW, MANY):
        path = tmp_path_factory.mktemp("inbox") / "inbox.db"
        asyncio.run(fill(path, count))
        with serving_inbox(path) as line:
            found[count] = run(timed(line))
    return found


def test_no_page_is_slower_for_what_it_does_not_show(measured: dict[int, Times]) -> None:
    for name in PAGES:
        few, many = measured[FEW][name], measured[MANY][name]
        print(
            f"\n{name}: {many.usual * 1000:.1f} ms of {MANY} ({many.first * 1000:.1f} ms the first time), "
            f"{few.usual * 1000:.1f} ms of {FEW} ({few.first * 1000:.1f} ms)",
            end="",
        )
    for name in PAGES:
        assert measured[MANY][name].usual_cost < SLOWER.get(name, EVEN) * measured[FEW][name].usual_cost, name
    assert measured[MANY]["the list"].first_cost < EVEN * measured[FEW]["the list"].first_cost


def test_the_list_is_not_slower_for_what_its_calls_ask(measured: dict[int, Times], tmp_path: Path) -> None:
    run(fill_with_large_forms(tmp_path / "inbox.db"))
    with serving_inbox(tmp_path / "inbox.db") as line:
        large = run(timed(line))["the list"]
    print(
        f"\nforms of 100 fields: {large.first * 1000:.1f} ms the first time, then {large.usual * 1000:.1f} ms", end=""
    )
    assert large.first_cost < EVEN * measured[MANY]["the list"].first_cost
