"""A real browser, an inbox and a server that asks, in processes of their own; one of each for a module."""

import asyncio
import json
import os
import shutil
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, Playwright, expect, sync_playwright

from tests.fleet.processes import Instance, environment
from tests.inbox.browser.serving import ANN, PROGRAM
from tests.interop.conftest import npm_installed
from turnwise import Client, Pending, TaskInHand
from turnwise.dialects.calling import PEOPLE

HERE = Path(__file__).parent
SCREENSHOTS = HERE.parents[2] / ".cache" / "screenshots"
PATIENCE = 15_000
expect.set_options(timeout=PATIENCE)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@dataclass
class Office:
    """An inbox, and a server whose calls are handed over to it. `states` are the secrets of those calls."""

    inbox: Instance
    asker: str
    states: set[str] = field(default_factory=set)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.inbox.port}"

    def hand_over(self, tool: str, arguments: dict[str, Any] | None = None, **more: Any) -> str:
        """Call a tool up to its first question, and leave it to the inbox: the item's id."""
        begun = self._begun(more.pop("server", self.asker), tool, arguments or {})
        with ThreadPoolExecutor(1) as elsewhere:  # Playwright has a loop of its own in this thread.
            return self.lay_in(elsewhere.submit(asyncio.run, begun).result(), **more)

    def lay_in(self, call: Pending | TaskInHand, **more: Any) -> str:
        """Hand over a call that was put down, or a task."""
        if isinstance(call, Pending) and call.state:
            self.states.add(call.state)
        kind = "pending" if isinstance(call, Pending) else "task"
        body = json.dumps({kind: json.loads(call.to_json()), "caller": "nightly build", **more}).encode()
        headers = {"Authorization": f"Bearer {PROGRAM}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.url}/api/v1/items", body, headers)
        with urllib.request.urlopen(request, timeout=10) as response:
            return str(json.load(response)["id"])

    async def _begun(self, server: str, tool: str, arguments: dict[str, Any]) -> Pending | TaskInHand:
        async with Client(server, capabilities=PEOPLE) as client:
            begun = await client.begin(tool, arguments)
            assert isinstance(begun, Pending | TaskInHand)
            return begun


@pytest.fixture(scope="session")
def chromium() -> str:
    path = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    return path


@pytest.fixture(scope="module")
def playwright() -> Iterator[Playwright]:
    """For one module at a time: while it is there, no other test could have a loop in this thread."""
    with sync_playwright() as playwright:
        yield playwright


@pytest.fixture(scope="module")
def browser(playwright: Playwright, chromium: str) -> Iterator[Browser]:
    browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
    yield browser
    browser.close()


@pytest.fixture(scope="module")
def office(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Office]:
    place = tmp_path_factory.mktemp("office")
    with ExitStack() as stack:
        command = [str(HERE / "serving.py"), str(place / "inbox.db")]
        inbox = Instance(command, environment(), place / "inbox.log")
        stack.callback(inbox.close)
        asker = Instance([str(HERE / "asking.py")], environment(), place / "asker.log")
        stack.callback(asker.close)
        for one in (inbox, asker):
            one.await_listener()
        yield Office(inbox, f"http://127.0.0.1:{asker.port}/mcp")
    assert inbox.log.read_text() == ""


Enter = Callable[..., Page]


@pytest.fixture(scope="module")
def wrongs() -> list[str]:
    """What went wrong in pages."""
    return []


@pytest.fixture(scope="module")
def enter(browser: Browser, office: Office, wrongs: list[str]) -> Iterator[Enter]:
    """Open a page as somebody who is signed in. An error of its script, or a breach of its policy, fails the test."""
    contexts: list[BrowserContext] = []
    known: dict[str, Any] = {}

    def enter(path: str = "/", token: str = ANN, **options: Any) -> Page:
        context = browser.new_context(base_url=office.url, **options)
        contexts.append(context)
        context.set_default_timeout(PATIENCE)
        if token and token not in known:
            context.request.post("/login", form={"token": token, "next": ""}, headers={"Origin": office.url})
            known[token] = context.cookies()
        context.add_cookies(known.get(token, []))
        context.on("weberror", lambda error: wrongs.append(str(error.error)))
        context.on("console", lambda said: wrongs.append(said.text) if "Content Security" in said.text else None)
        page = context.new_page()
        page.goto(path)
        return page

    yield enter
    for context in contexts:
        context.close()


@pytest.fixture(autouse=True)
def _closed(enter: Enter, browser: Browser, wrongs: list[str]) -> Iterator[None]:
    yield
    for context in browser.contexts:
        context.close()
    found, wrongs[:] = list(wrongs), []
    assert found == []


Shoot = Callable[[Page, str], None]


@pytest.fixture(scope="session")
def shoot() -> Shoot:
    """Keep a picture of a page: of what is in sight, or with TURNWISE_SCREENSHOTS of all of it, which takes longer."""
    is_whole = "TURNWISE_SCREENSHOTS" in os.environ
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)

    def shoot(page: Page, name: str) -> None:
        page.screenshot(path=SCREENSHOTS / f"{name}.png", full_page=is_whole)

    return shoot


@pytest.fixture(scope="session")
def axe() -> str:
    """The source of axe, installed once and kept."""
    try:
        home = npm_installed(HERE / "axe", HERE.parents[2] / ".cache" / "axe")
    except AssertionError as error:
        pytest.skip(f"axe cannot be installed: {error}")
    return (home / "node_modules" / "axe-core" / "axe.min.js").read_text()
