"""An inbox within another application, or under a longer path: calls go on, and every address has the path in it."""

import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi import FastAPI
from starlette.applications import Starlette
from starlette.routing import Mount

from tests.inbox.offices import ANN, KEY, Line, at_url, begun, make_server, run
from tests.wires.serving import serving
from turnwise import Client
from turnwise.inbox.app import create_app
from turnwise.inbox.desk import Inbox
from turnwise.inbox.door import Door
from turnwise.inbox.model import Wanted
from turnwise.inbox.sqlite import SQLiteInboxStore

ADDRESSES = re.compile(r'(?:href|src|action|data-events|data-login)="([^"#?][^"]*)"')


@contextmanager
def mounted(
    path: Path, at: str, outer: Any = Starlette, *, is_run: bool = False, secure: bool = False
) -> Iterator[Line]:
    """An inbox that is mounted in another application; `is_run` where that one's lifespan runs it."""
    store = SQLiteInboxStore(path, [KEY])
    inbox = Inbox(store)
    app = create_app(inbox, Door({ANN: "ann"}, store, is_secure=secure))

    @asynccontextmanager
    async def life(app: Any) -> AsyncIterator[None]:
        if is_run:
            async with inbox.run():
                yield
        else:
            yield

    whole = outer(lifespan=life)
    whole.router.routes.append(Mount(at, app=app))
    with serving(whole, lifespan="on", log_level="critical", timeout_graceful_shutdown=1) as port:
        yield Line(f"http://127.0.0.1:{port}{at.rstrip('/')}", inbox)


def taken(line: Line, url: str) -> Any:
    """A call that was handed over by the API."""
    call = json.loads(run(begun(url)).to_json())
    reply = line.call("POST", "/items", {"pending": call})
    assert reply.status == 201, reply
    return reply


@pytest.mark.parametrize("outer", [Starlette, FastAPI])
@pytest.mark.parametrize("is_run", [False, True])
@pytest.mark.parametrize("at", ["/", "/inbox"])
def test_calls_go_on_where_an_inbox_is_mounted(
    tmp_path: Path, at: str, outer: Any, is_run: bool, caplog: pytest.LogCaptureFixture
) -> None:
    with at_url(make_server()) as url, mounted(tmp_path / "inbox.db", at, outer, is_run=is_run) as line:
        item = taken(line, url)
        assert item.headers["Location"] == f"{at.rstrip('/')}/api/v1/items/{item.body['id']}"
        answers = {"round": 0, "answers": {"title": {"action": "decline"}}}
        assert line.call("POST", f"/items/{item.body['id']}/answers", answers).status == 200
        done = line.follow(item.body["id"], lambda seen: seen["status"] == "done")
        assert done["result"]["content"][0]["text"] == "nothing was filed: decline"

        async def booked() -> Any:
            async with Client(url, inbox=line.url, inbox_token=ANN) as client:
                return await client.wait_for(item.body["id"])

        assert run(booked()).content[0].text == "nothing was filed: decline"
    told = [record.getMessage() for record in caplog.records if "lifespan" in record.getMessage()]
    assert len(told) == (0 if is_run else 1), "who mounts it is told once what is missing"


def test_work_that_a_request_began_ends_with_the_server_and_is_given_back(tmp_path: Path) -> None:
    with mounted(tmp_path / "inbox.db", "/inbox") as line:
        assert line.call("GET", "/items").status == 200
        assert line.inbox.is_running
    assert not line.inbox.is_running


async def visited(line: Line, base: str, **headers: str) -> None:
    """Sign in, and look at every page and at every address in it."""
    root = line.url.removesuffix(base)
    async with httpx2.AsyncClient(base_url=root, headers=headers) as client:
        reply = await client.get(f"{base}/history?q=x")
        assert (reply.status_code, reply.headers["location"]) == (303, f"{base}/login?next=%2Fhistory%3Fq%3Dx")
        reply = await client.post(f"{base}/login", data={"token": ANN, "next": "/history?q=x"})
        assert (reply.status_code, reply.headers["location"]) == (303, f"{base}/history?q=x")
        cookie = reply.headers["set-cookie"]
        assert f"; Path={base or '/'};" in cookie
        client.headers["cookie"] = cookie.partition(";")[0]
        [item] = (await line.inbox.page(Wanted())).lines
        for path in ("/", "/history", f"/items/{item.id}", "/login"):
            page = await client.get(f"{base}{path}")
            assert page.status_code == 200
            found = [one for one in ADDRESSES.findall(page.text) if not one.startswith("http")]
            assert found
            for address in found:
                assert address.startswith(f"{base}/"), (path, address)
                if "/static/" in address:
                    assert (await client.get(address)).status_code == 200
        word = re.search(r'name="csrf" value="([^"]+)"', (await client.get(f"{base}/")).text)
        assert word is not None
        reply = await client.post(f"{base}/items/{item.id}/withdrawal", data={"csrf": word[1]})
        assert (reply.status_code, reply.headers["location"]) == (303, f"{base}/items/{item.id}")
        reply = await client.post(f"{base}/logout", data={"csrf": word[1]})
        assert (reply.status_code, reply.headers["location"]) == (303, f"{base}/login")
        assert "Max-Age=0" in reply.headers["set-cookie"]
        assert f"; Path={base or '/'};" in reply.headers["set-cookie"]


@pytest.mark.parametrize("at", ["/", "/inbox", "/deep/in/it"])
def test_every_address_has_the_path_at_which_an_inbox_is_mounted(tmp_path: Path, at: str) -> None:
    with at_url(make_server()) as url, mounted(tmp_path / "inbox.db", at) as line:
        taken(line, url)
        run(visited(line, at.rstrip("/")))


def test_a_secure_cookie_is_for_the_whole_host_or_for_a_path_of_it(tmp_path: Path) -> None:
    async def cookie(line: Line) -> str:
        async with httpx2.AsyncClient() as client:
            return str((await client.post(f"{line.url}/login", data={"token": ANN})).headers["set-cookie"])

    with mounted(tmp_path / "inbox.db", "/", secure=True) as line:
        assert run(cookie(line)).startswith("__Host-turnwise_inbox=")
    with mounted(tmp_path / "inbox.db", "/inbox", secure=True) as line:
        assert run(cookie(line)).startswith("__Secure-turnwise_inbox=")  # With __Host- a path is refused by browsers.


@contextmanager
def placed(path: Path, base: str) -> Iterator[Line]:
    store = SQLiteInboxStore(path, [KEY])
    inbox = Inbox(store)
    app = create_app(inbox, Door({ANN: "ann"}, store), base=base)
    with serving(app, lifespan="on", log_level="critical", timeout_graceful_shutdown=1) as port:
        yield Line(f"http://127.0.0.1:{port}{base}", inbox)


def test_an_inbox_under_a_path_serves_proxies_that_leave_the_path_and_those_that_take_it_away(tmp_path: Path) -> None:
    with at_url(make_server()) as url, placed(tmp_path / "inbox.db", "/team/inbox") as line:
        item = taken(line, url)
        stripped = line._replace(url=line.url.removesuffix("/team/inbox"))
        assert stripped.call("GET", f"/items/{item.body['id']}").body["id"] == item.body["id"]

        async def work() -> None:
            async with httpx2.AsyncClient(base_url=stripped.url) as client:
                for path in ("/", "/team/inbox", "/team/inbox/"):
                    reply = await client.get(path)
                    assert reply.headers["location"] == "/team/inbox/login?next=%2F"
                for path in ("/login", "/team/inbox/login"):
                    page = await client.get(path)
                    assert 'action="/team/inbox/login"' in page.text

        run(work())
        run(visited(line, "/team/inbox"))


@pytest.mark.parametrize("base", ["/items", "/api/inbox", "/login", "inbox", "/in box", "/a?b", "/a//b"])
def test_a_path_that_an_inbox_cannot_be_under_is_refused(tmp_path: Path, base: str) -> None:
    store = SQLiteInboxStore(tmp_path / "inbox.db", [KEY])
    with pytest.raises(ValueError, match="under"):
        create_app(Inbox(store), Door({ANN: "ann"}, store), base=base)
