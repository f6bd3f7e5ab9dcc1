"""Take the pictures of the inbox in docs/figures, from its real pages with made-up calls.

    python scripts/draw_inbox.py [FOLDER]

It needs Chromium, Playwright and Pillow, which is no dependency of the tests.
"""

import asyncio
import importlib
import io
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from playwright.sync_api import Browser, Page, sync_playwright

from turnwise import Pending
from turnwise.inbox.app import create_app
from turnwise.inbox.desk import Inbox
from turnwise.inbox.door import Door
from turnwise.inbox.model import Earlier, Item
from turnwise.inbox.sqlite import SQLiteInboxStore

FIGURES = Path(__file__).parents[1] / "docs" / "figures"
TOKEN = "a-token-for-pictures-alone"
COLOURS = 160
MINUTE, HOUR = 60.0, 3600.0


def form(message: str, **properties: Any) -> dict[str, Any]:
    """A question with fields, of which those without a default are needed."""
    needed = [name for name, part in properties.items() if not part.pop("optional", False)]
    schema = {"type": "object", "properties": properties, "required": needed}
    return {"method": "elicitation/create", "params": {"message": message, "requestedSchema": schema}}


RESOLUTION = form(
    "Resolving Bug #4522 requires a resolution. How was it resolved?",
    resolution={"type": "string", "title": "Resolution", "enum": ["Fixed", "Won't Fix", "Duplicate", "By Design"]},
    note={
        "type": "string",
        "title": "Note",
        "description": "Goes into the work item's history",
        "maxLength": 500,
        "optional": True,
    },
)
STATE = form("Which state should Bug #4522 have?", state={"type": "string", "title": "State"})
SEAT = form("Which seat on TW 2322?", seat={"type": "string"})
MEAL = form("Which meal?", meal={"type": "string"})
REFUND = form("Confirm the refund of 120.00 EUR for order A-1009", sure={"type": "boolean"})
MODEL = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 200}}


def item(name: str, host: str, tool: str, arguments: dict[str, Any], **facts: Any) -> Item:
    """A call that waits since `ago` seconds, of `caller`, with `questions`, for `left` seconds."""
    now = time.time()
    began = now - facts["ago"]
    pending = Pending(
        id=name,
        server=f"https://{host}/mcp",
        method="tools/call",
        params={"name": tool, "arguments": arguments},
        requests={str(number): one for number, one in enumerate(facts["questions"])},
        began=began,
        asked=began,
    )
    until = now + facts["left"] if "left" in facts else None
    given = facts.get("given", ())
    return Item(
        id=name,
        status="waiting",
        pending=pending,
        caller=facts["caller"],
        came=began,
        changed=began,
        until=until,
        due=until,
        given=given,
        round=len(given),
    )


def items() -> list[Item]:
    """What waits in the pictures."""
    answer = {"action": "accept", "content": {"state": "Resolved"}}
    said = Earlier(key="state", request=STATE, answer=answer, by="bob", at=time.time() - 6.5 * MINUTE, round=0)
    work = {"workItemId": 4522, "fields": {"System.State": "Resolved"}}
    order = {"order": "A-1009", "amount": "120.00 EUR", "reason": "Arrived broken"}
    return [
        item(
            "work",
            "boards.example.com",
            "update_work_item",
            work,
            questions=[RESOLUTION],
            caller="nightly build",
            ago=2.1 * HOUR,
            left=4.1 * HOUR,
            given=(said,),
        ),
        item(
            "book",
            "travel.example.com",
            "book_flight",
            {"flight": "TW 2322", "from": "LIS", "to": "OSL", "passengers": ["Ada Lovelace"]},
            questions=[SEAT, MEAL],
            caller="travel agent",
            ago=50.5 * MINUTE,
        ),
        item(
            "refund",
            "pay.example.com",
            "refund",
            order,
            questions=[REFUND],
            caller="support bot",
            ago=25.5 * MINUTE,
            left=28.5 * MINUTE,
        ),
        item(
            "summarise",
            "writer.example.com",
            "summarise",
            {"document": "Minutes of the board, 12 March", "words": 150},
            questions=[MODEL],
            caller="nightly build",
            ago=3.5 * MINUTE,
        ),
    ]


@contextmanager
def served() -> Iterator[str]:
    """An inbox with these calls, in a thread."""
    with tempfile.TemporaryDirectory() as place:
        store = SQLiteInboxStore(Path(place) / "inbox.db", ["a key for pictures alone, long enough"])

        async def fill() -> None:
            for one in items():
                await store.add(one)

        asyncio.run(fill())
        app = create_app(Inbox(store), Door({TOKEN: "ann"}, store))
        server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run)
        thread.start()
        while not server.started:
            time.sleep(0.02)
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
        server.should_exit = True
        thread.join()


def opened(browser: Browser, url: str, path: str, width: int, height: int, **options: Any) -> Page:
    """A page, after signing in."""
    context = browser.new_context(viewport={"width": width, "height": height}, locale="en-GB", **options)
    context.request.post(f"{url}/login", form={"token": TOKEN}, headers={"Origin": url})
    page = context.new_page()
    page.goto(url + path)
    return page


def kept(page: Page, path: Path) -> None:
    """A picture with few colours, which is a small one."""
    image: Any = importlib.import_module("PIL.Image")
    picture = image.open(io.BytesIO(page.screenshot())).convert("RGB")
    few = picture.quantize(COLOURS, method=image.Quantize.MEDIANCUT, dither=image.Dither.NONE)
    few.save(path, optimize=True)
    print(path, path.stat().st_size)


def main() -> None:
    """Take them, into this folder."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FIGURES
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    with served() as url, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        kept(opened(browser, url, "/", 1060, 730), folder / "inbox-list.png")
        page = opened(browser, url, "/items/work", 1060, 960)
        page.get_by_label("Duplicate").check()
        page.mouse.click(5, 5)
        kept(page, folder / "inbox-question.png")
        kept(opened(browser, url, "/items/work", 360, 900, color_scheme="dark"), folder / "inbox-phone.png")
        browser.close()


if __name__ == "__main__":
    main()
