"""The inbox's pages over HTTP, without a browser: who gets in, what is taken, and what never gets out."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import replace
from html import unescape
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import aiohttp
import httpx2
import pytest

from tests.inbox import offices
from turnwise import CallerError, Pending, _fields
from turnwise.dialects import answering
from turnwise.inbox import door, events, rendering
from turnwise.inbox.app import create_app
from turnwise.inbox.desk import Inbox
from turnwise.inbox.door import API_HEADERS, PAGE_HEADERS, Door
from turnwise.inbox.halting import held, lapsed
from turnwise.inbox.model import Earlier, Item
from turnwise.inbox.questions import Asked, address_of, answered, asked, folder_address
from turnwise.inbox.rendering import folded, moment, render, shown, spelt, templates
from turnwise.inbox.sqlite import SQLiteInboxStore

HERE = "http://127.0.0.1:8100"
ANN, BOB = "ann-has-this-token-to-herself", "bob-has-this-token-to-himself"
STATE, SECRET = "the-state-that-nobody-sees", "Bearer the-credentials-that-nobody-sees"
FORM = "application/x-www-form-urlencoded"
HERE_STATIC = Path(rendering.__file__).parent / "static"


def elicit(message: str = "Your name?", **properties: Any) -> dict[str, Any]:
    fields = properties or {"value": {"type": "string", "title": "Name"}}
    schema = {"type": "object", "properties": fields, "required": list(fields)}
    return {"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": schema}}


def visit(url: str) -> dict[str, Any]:
    return {
        "method": "elicitation/create",
        "params": {"mode": "url", "message": "Go", "url": url, "elicitationId": "1"},
    }


def pending(item_id: str = "one", **requests: Mapping[str, Any]) -> Pending:
    now = time.time()
    return Pending(
        id=item_id,
        server="https://tools.example/mcp",
        method="tools/call",
        params={"name": "greet", "arguments": {"who": "the cat"}, "_meta": {"progressToken": "meta-that-nobody-sees"}},
        requests=requests or {"name": elicit()},
        state=STATE,
        began=now,
        asked=now,
    )


class Visit:
    """A visitor with a browser's habits, and all that was ever sent to it."""

    def __init__(self, app: Any, inbox: Inbox, door: Door) -> None:
        self.inbox = inbox
        self.door = door
        self.app = app
        self.client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url=HERE)
        self.seen: list[str] = []

    def come_from(self, address: str) -> None:
        self.client._transport = httpx2.ASGITransport(app=self.app, client=(address, 123))

    async def get(self, path: str, **headers: str) -> httpx2.Response:
        return self._kept(
            await self.client.get(path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        )

    async def post(self, path: str, typed: Any = (), **headers: str) -> httpx2.Response:
        known = {
            "origin": HERE,
            "content-type": FORM,
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        body = typed if isinstance(typed, bytes) else urlencode(typed, doseq=True).encode()
        return self._kept(await self.client.post(path, content=body, headers={k: v for k, v in known.items() if v}))

    async def enter(self, token: str = ANN) -> None:
        assert (await self.post("/login", {"token": token})).status_code == 303

    async def word(self) -> str:
        """The session's own word, off a page."""
        found = re.search(r'name="csrf" value="([^"]+)"', (await self.get("/")).text)
        assert found
        return found[1]

    async def answer(self, item_id: str = "one", action: str = "accept", **typed: Any) -> httpx2.Response:
        """Post the first open question's form as it stands on the page."""
        page = (await self.get(f"/items/{item_id}")).text
        hidden = dict(reversed(re.findall(r'name="(csrf|asked)" value="([^"]*)"', page)))
        sent = {"csrf": hidden["csrf"], "asked": hidden["asked"], "send": f"{action} {hidden['asked']}"}
        return await self.post(f"/items/{item_id}/answers", {**sent, **typed})

    def _kept(self, reply: httpx2.Response) -> httpx2.Response:
        self.seen.append(reply.text + repr(reply.headers.multi_items()))
        return reply


@pytest.fixture
def visiting(tmp_path: Path) -> Callable[[Callable[[Visit], Awaitable[None]]], None]:
    """Run a visit to an inbox. Whatever it saw, the secrets were not in it."""

    def run(work: Callable[[Visit], Awaitable[None]]) -> None:
        async def main() -> None:
            store = SQLiteInboxStore(tmp_path / "inbox.db", ["a key of this inbox that is long enough"])
            inbox = Inbox(store)
            behind = Door({ANN: "ann", BOB: "bob"}, store)
            one = Visit(create_app(inbox, behind, patience=0), inbox, behind)
            async with one.client:
                await asyncio.wait_for(work(one), 20)
            await store.aclose()
            for text in one.seen:
                for secret in (STATE, SECRET, "nobody-sees", ANN, BOB):
                    assert secret not in text

        asyncio.run(main())

    return run


Visiting = Callable[[Callable[[Visit], Awaitable[None]]], None]


# Who gets in


def test_without_a_session_every_page_leads_to_the_door(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        await one.inbox.hand_over(pending(), caller="build")
        for path in ("/", "/?q=cat", "/history", "/items/one", "/items/nothing?x=1"):
            reply = await one.get(path)
            assert reply.status_code == 303
            assert reply.headers["location"] == f"/login?next={quote(path, safe='')}"
            assert (await one.get(path, x_part="live")).status_code == 401
        assert (await one.get("/events")).status_code == 401
        for path in (
            "/items/one/answers",
            "/items/one/withdrawal",
            "/items/one/restart",
            "/items/one/retry",
            "/logout",
        ):
            assert (await one.post(path, {"csrf": "x"})).status_code == 303
        assert (await one.inbox.get("one")).status == "waiting"

    visiting(work)


def test_a_link_from_another_site_is_followed_once_more_from_here(visiting: Visiting) -> None:
    """The cookie is not sent along with another site's link."""

    async def work(one: Visit) -> None:
        reply = await one.get("/items/one", sec_fetch_site="cross-site")
        assert reply.status_code == 200
        assert 'http-equiv="refresh" content="0"' in reply.text
        assert (await one.get("/items/one", sec_fetch_site="same-origin")).status_code == 303

    visiting(work)


def test_signing_in_begins_a_session_under_a_new_name(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        one.client.cookies.set("turnwise_inbox", "planted-by-somebody-else")
        reply = await one.post("/login", {"token": f" {ANN} ", "next": "/items/one?x=1"})
        assert (reply.status_code, reply.headers["location"]) == (303, "/items/one?x=1")
        assert (await one.post("/login", {"token": ANN, "next": "/?q=cat"})).headers["location"] == "/?q=cat"
        page = (await one.get("/login?next=/items/" + "x" * 2000)).text
        assert ("x" * 900 in page, "x" * 1000 in page) == (True, False), "as much as fits into an address of ours"
        cookie = reply.headers["set-cookie"]
        assert "planted" not in cookie
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
        first = await one.word()
        await one.enter()
        assert await one.word() != first

    visiting(work)


@pytest.mark.parametrize(
    "following",
    [
        "https://evil.example/",
        "//evil.example/",
        "/\\evil.example",
        "javascript:alert(1)",
        "/items/\r\nX: y",
        "/items/\\x",
    ],
)
def test_signing_in_leads_nowhere_else(visiting: Visiting, following: str) -> None:
    async def work(one: Visit) -> None:
        reply = await one.post("/login", {"token": ANN, "next": following})
        assert reply.headers["location"] == "/"

    visiting(work)


def test_a_wrong_token_is_said_and_too_many_are_stopped(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        one.come_from("203.0.113.9")
        for number in range(10):
            reply = await one.post("/login", {"token": "<b>wrong</b>"}, x_forwarded_for=f"198.51.100.{number}")
            assert reply.status_code == 403
            assert "<b>wrong" not in reply.text
        reply = await one.post("/login", {"token": ANN}, x_forwarded_for="198.51.100.99")
        assert reply.status_code == 429
        assert int(reply.headers["retry-after"]) > 0
        api = await one.get("/api/v1/items", authorization="Bearer wrong")
        assert api.status_code == 429
        one.come_from("203.0.113.10")
        await one.enter()

    visiting(work)


def test_wrong_tokens_through_a_proxy_here_do_not_shut_everybody_out(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        for _ in range(100):
            assert (await one.post("/login", {"token": "wrong"})).status_code == 403
        assert (await one.post("/login", {"token": "wrong"})).status_code == 429
        await one.enter()

    visiting(work)


def test_signing_out_ends_the_session_itself(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        await one.enter()
        kept = dict(one.client.cookies)
        assert (await one.post("/logout", {"csrf": await one.word()})).status_code == 303
        one.client.cookies.update(kept)
        assert (await one.get("/")).status_code == 303

    visiting(work)


async def every_kind_of_reply(one: Visit) -> dict[str, httpx2.Response]:
    """A reply of each status, from pages, posts, files, the stream and the API."""
    await one.inbox.hand_over(pending(), caller="build")
    replies = {
        "no session": await one.get("/"),
        "no session, part": await one.get("/", x_part="live"),
        "no session, events": await one.get("/events"),
        "from elsewhere": await one.get("/", sec_fetch_site="cross-site"),
        "login": await one.get("/login"),
        "wrong token": await one.post("/login", {"token": "wrong"}),
        "forged login": await one.post("/login", {"token": ANN}, origin="https://evil.example"),
        "entered": await one.post("/login", {"token": ANN}),
        "list": await one.get("/"),
        "item": await one.get("/items/one"),
        "part": await one.get("/items/one", x_part="live"),
        "back": await one.get("/items/one/answers"),
        "slash": await one.get("/history/"),
        "head": await one.client.head("/"),
        "options": await one.client.options("/"),
        "delete": await one.client.delete("/items/one"),
        "late": await one.post("/items/one/answers", {"csrf": await one.word()}),
        "faulty": await one.answer(**{"q0-0": ""}),
        "forged": await one.post("/items/one/answers", {"csrf": "x"}),
        "too large": await one.post("/items/one/answers", b"a=" + b"x" * (2 * 1024 * 1024)),
        "no form": await one.post("/items/one/answers", b"{}", content_type="application/json"),
        "no list": await one.get("/?after=elsewhere"),
        "no item": await one.get("/items/none"),
        "nowhere": await one.get("/nowhere"),
        "another host": await one.get("/", host="evil.example"),
        "no file": await one.get("/static/none.js"),
        "answered": await one.answer(**{"q0-0": "Tom"}),
        "signed out": await one.post("/logout", {"csrf": await one.word()}),
        "api without a token": await one.get("/api/v1/items"),
        "api": await one.get("/api/v1/items", authorization=f"Bearer {ANN}"),
        "api nowhere": await one.get("/api/v1/nowhere"),
    }
    for name in ("inbox.js", "inbox.css", "icon.svg"):
        replies[name] = await one.get(f"/static/{name}")
        replies[f"{name} again"] = await one.get(f"/static/{name}", if_none_match=replies[name].headers["etag"])
    return replies


def test_every_reply_has_the_headers_of_a_page(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        replies = await every_kind_of_reply(one)
        await broken(one)
        replies["broken"] = await one.get("/items/one")
        replies["broken, part"] = await one.get("/items/one", x_part="live")
        replies["api broken"] = await one.get("/api/v1/items/one", authorization=f"Bearer {ANN}")
        statuses = {reply.status_code for reply in replies.values()}
        assert statuses >= {200, 303, 304, 400, 401, 403, 404, 405, 409, 413, 415, 421, 422, 500}
        for name, reply in replies.items():
            wanted = dict(API_HEADERS if name.startswith("api") else PAGE_HEADERS)
            if reply.headers.get("etag"):
                wanted["cache-control"] = "no-cache"
            found = {header: reply.headers.get(header) for header in wanted}
            assert found == wanted, name
            has_cookie = "set-cookie" in reply.headers
            assert has_cookie == (name in ("entered", "signed out")), name
            assert "server" not in reply.headers
            assert "access-control-allow-origin" not in reply.headers

    visiting(work)


async def broken(one: Visit) -> None:
    """Have the inbox fail in a way that nobody thought of."""

    async def fail(item_id: str) -> Any:
        raise RuntimeError(f"{STATE} was in the way")

    one.client._transport = httpx2.ASGITransport(app=one.app, raise_app_exceptions=False)
    await one.enter()
    one.inbox.get = fail  # type: ignore[method-assign]


def test_no_template_asks_for_more_than_the_policy_allows() -> None:
    """Neither scripts nor styles in a page, nor anything from elsewhere."""
    for name in templates().list_templates():
        source, _, _ = templates().loader.get_source(templates(), name)  # type: ignore[union-attr]
        assert not re.findall(r"<style|\sstyle=|\son\w+=|javascript:|https?://|<base|<iframe|<object|<embed", source), (
            name
        )
        for script in re.findall(r"<script[^>]*>.*?</script>", source, re.DOTALL):
            assert script == '<script src="{{ base }}/static/inbox.js" defer></script>'
    for name in ("inbox.js", "inbox.css"):
        source = (HERE_STATIC / name).read_text()
        assert not re.findall(
            r"\beval\(|new Function|document\.write|@import|url\(|[\"']https?://(?!example)", source
        ), name
    script = (HERE_STATIC / "inbox.js").read_text()
    assert script.count("innerHTML") == 1, "what is made into HTML is what the inbox rendered"
    assert not re.findall(r"outerHTML\s*=|insertAdjacentHTML|createContextualFragment", script)


def test_a_session_that_was_planted_or_is_old_ends_where_another_begins(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        await one.enter(BOB)
        old = dict(one.client.cookies)
        await one.enter(ANN)
        assert dict(one.client.cookies) != old
        assert "ann" in (await one.get("/")).text
        one.client.cookies.clear()
        one.client.cookies.update(old)
        assert (await one.get("/")).status_code == 303, "who had planted it has nothing in hand"

    visiting(work)


def test_another_name_of_the_machine_is_not_served(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        await one.enter()
        assert (await one.get("/", host="evil.example")).status_code == 421
        assert (await one.post("/login", {"token": ANN}, host="evil.example")).status_code == 421

    visiting(work)


@pytest.mark.parametrize(
    ("headers", "has_word"),
    [
        ({"origin": "https://evil.example"}, True),
        ({"origin": "null"}, True),
        ({"origin": "http://127.0.0.1:9999"}, True),
        ({"sec_fetch_site": "cross-site"}, True),
        ({"sec_fetch_site": "same-site"}, True),
        ({}, False),
    ],
)
def test_a_forged_post_changes_nothing(visiting: Visiting, headers: dict[str, str], has_word: bool) -> None:
    async def work(one: Visit) -> None:
        await one.inbox.hand_over(pending(), caller="build")
        await one.enter()
        word = await one.word() if has_word else "guessed"
        for path in (
            "/items/one/answers",
            "/items/one/withdrawal",
            "/items/one/restart",
            "/items/one/retry",
            "/logout",
        ):
            assert (await one.post(path, {"csrf": word, "send": "decline 0-x"}, **headers)).status_code == 403
        assert (await one.inbox.get("one")).status == "waiting"
        assert (await one.get("/")).status_code == 200

    visiting(work)


class Reader:
    """Reads an inbox over real HTTP, by page, part, API and events, and remembers all of it."""

    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self.session, self.url = session, url
        self.seen: list[str] = []
        self.is_open, self.is_told = asyncio.Event(), asyncio.Event()

    async def listen(self) -> None:
        async with self.session.get(f"{self.url}/events") as stream:
            async for raw in stream.content:
                self.seen.append(raw.decode())
                self.is_open.set()
                if b"data: one" in raw:
                    self.is_told.set()

    async def look(self, *paths: str) -> None:
        for path in paths:
            for headers in ({"X-Part": "live"}, {}):
                await self.ask("GET", path, headers=headers)
            await self.ask("GET", f"/api/v1{path}", headers={"Authorization": f"Bearer {offices.ANN}"})

    async def ask(self, method: str, path: str, **options: Any) -> None:
        async with self.session.request(method, self.url + path, **options) as reply:
            self.seen.append(await reply.text() + repr(reply.headers))

    async def tell(self, method: str, path: str, body: Any = None) -> None:
        headers = {"Authorization": f"Bearer {offices.ANN}"}
        await self.ask(method, f"/api/v1{path}", json=body, headers=headers)


def test_no_state_and_no_credentials_leave_by_pages_events_or_the_api(tmp_path: Path) -> None:
    """Over real HTTP, from the hand-over to the end, whatever is read meanwhile."""

    async def work(url: str) -> str:
        jar = aiohttp.CookieJar(unsafe=True)
        async with aiohttp.ClientSession(cookie_jar=jar, headers={"Origin": url}) as session:
            one = Reader(session, url)
            await one.ask("POST", "/login", data={"token": offices.ANN})
            listening = asyncio.create_task(one.listen())
            await one.is_open.wait()
            call = json.loads(pending("one", a=elicit("First?"), b=elicit("Second?")).to_json())
            await one.tell("POST", "/items", {"pending": call, "authorization": SECRET})
            for key in ("a", "b"):
                await one.look("/", "/items", "/items/one", "/history")
                await one.tell("POST", "/items/one/answers", {"round": 0, "answers": {key: {"action": "decline"}}})
            await one.tell("DELETE", "/items/one")
            await one.look("/items?status=failed", "/items/one", "/history")
            await one.is_told.wait()
            listening.cancel()
            return "".join(one.seen)

    with offices.serving_inbox(tmp_path / "inbox.db") as line:
        whole = offices.run(work(line.url))
    assert "First?" in whole
    assert "withdrawn by ann" in whole
    for secret in (STATE, SECRET, "nobody-sees", offices.ANN):
        assert secret not in whole


def test_the_stream_of_events_gives_signs_of_life_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "BEAT", 0.02)
    monkeypatch.setattr(events, "LONGEST", 0.2)

    async def changes() -> AsyncIterator[frozenset[str]]:
        yield frozenset({"one"})
        await asyncio.Event().wait()

    async def read() -> list[str]:
        return [line async for line in events.told_of(changes(), may_hear)]

    async def may_hear() -> bool:
        return True

    first, changed, *beats = asyncio.run(asyncio.wait_for(read(), 10))
    assert (first, changed) == ("retry: 1000\nevent: change\ndata:\n\n", "event: change\ndata: one\n\n")
    assert len(beats) > 1
    assert set(beats) == {"event: beat\ndata:\n\n"}


async def listen(one: Visit, send: Callable[[Any], Awaitable[None]]) -> None:
    """The stream of events, message by message, until it ends."""

    async def receive() -> Any:
        await asyncio.Event().wait()

    cookie = f"{door.COOKIE}={one.client.cookies[door.COOKIE]}".encode()
    headers = [(b"host", b"127.0.0.1:8100"), (b"cookie", cookie)]
    scope: Any = {"type": "http", "method": "GET", "path": "/events", "raw_path": b"/events", "headers": headers}
    scope |= {"query_string": b"", "scheme": "http", "server": ("127.0.0.1", 8100), "client": ("127.0.0.1", 9)}
    await one.app(scope, receive, send)


def test_the_stream_of_events_ends_where_there_are_no_more_changes() -> None:
    async def changes() -> AsyncIterator[frozenset[str]]:
        yield frozenset({"one"})

    async def may_hear() -> bool:
        return True

    async def read() -> list[str]:
        return [line async for line in events.told_of(changes(), may_hear)]

    assert asyncio.run(read())[1:] == ["event: change\ndata: one\n\n"]


def test_who_is_put_out_hears_no_more(visiting: Visiting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "BEAT", 0.02)

    async def work(one: Visit) -> None:
        await one.enter()
        heard: list[bytes] = []

        async def send(message: Any) -> None:
            heard.append(message.get("body", b""))
            if b"beat" in heard[-1] and one.door.member_of(ANN):
                one.door.use_tokens({BOB: "bob"})
                heard.append(b"out")

        await listen(one, send)
        assert heard[heard.index(b"out") + 1 :] == [b""]

    visiting(work)


def test_the_stream_of_events_goes_on_while_the_store_is_away_and_no_proxy_holds_it_back(
    visiting: Visiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(events, "BEAT", 0.01)

    async def work(one: Visit) -> None:
        await one.enter()
        heard: list[bytes] = []

        async def away(self: Door, cookie: str | None) -> Any:
            if len(heard) > 4:
                return None
            raise CallerError("the store is away")

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                assert (b"x-accel-buffering", b"no") in message["headers"]
                monkeypatch.setattr(Door, "session", away)
            else:
                heard.append(message["body"])

        await listen(one, send)
        assert heard[1:] == [b"event: beat\ndata:\n\n"] * 4 + [b""]

    visiting(work)


# What is taken


def test_a_plain_post_answers(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        await one.inbox.hand_over(pending(), caller="build", authorization=SECRET)
        await one.enter()
        reply = await one.answer(**{"q0-0": "Tom"})
        assert (reply.status_code, reply.headers["location"]) == (303, "/items/one")
        item = await one.inbox.get("one")
        assert item.status == "going"
        assert item.pending.answers["name"] == {"action": "accept", "content": {"value": "Tom"}}
        assert item.given[0].by == "ann"
        page = (await one.get("/items/one")).text
        assert "The call goes on" in page
        assert "Tom" in page
        assert 'http-equiv="refresh"' in page

    visiting(work)


@pytest.mark.parametrize("action", ["decline", "cancel"])
def test_a_question_is_refused_without_what_it_needs(visiting: Visiting, action: str) -> None:
    async def work(one: Visit) -> None:
        await one.inbox.hand_over(pending(), caller="build")
        await one.enter()
        assert (await one.answer(action=action)).status_code == 303
        assert (await one.inbox.get("one")).pending.answers == {"name": {"action": action}}

    visiting(work)


def test_what_is_not_right_is_said_and_what_was_typed_is_kept(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        fields: Any = {
            "mail": {"type": "string", "format": "email", "title": "Mail"},
            "n": {"type": "integer", "maximum": 9},
        }
        await one.inbox.hand_over(pending(name=elicit(**fields)), caller="build")
        await one.enter()
        reply = await one.answer(**{"q0-0": 'no"body', "q0-1": "10"})
        assert reply.status_code == 422
        page = reply.text
        assert 'value="no&#34;body"' in page
        assert '<a href="#q0-0">Mail must be an email address.</a>' in page
        assert "This must be a whole number, at most 9." in page
        assert 'aria-describedby="q0-1-hint q0-1-fault"' in page
        assert page.count('aria-invalid="true"') == 2
        part = await one.post("/items/one/answers", {"csrf": "x"}, x_part="live")
        assert part.status_code == 403

    visiting(work)


def test_the_second_is_told_who_was_first(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        await one.inbox.hand_over(pending(), caller="build")
        await one.enter(BOB)
        page = (await one.get("/items/one")).text
        hidden = dict(re.findall(r'name="(csrf|asked)" value="([^"]*)"', page))
        await one.inbox.answer("one", {"name": {"action": "decline"}}, round=0, by="ann <b>")
        reply = await one.post("/items/one/answers", {**hidden, "send": f"accept {hidden['asked']}", "q0-0": "late"})
        assert reply.status_code == 409
        assert "ann &lt;b&gt; answered this before" in reply.text
        assert "<title>Too late: Greet" in reply.text
        assert (await one.inbox.get("one")).pending.answers == {"name": {"action": "decline"}}

    visiting(work)


def test_who_sends_an_answer_twice_is_told_that_it_was_his_own(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        await one.inbox.hand_over(pending(), caller="build")
        await one.enter()
        held = await all_held(one)
        typed = {**held, "send": f"accept {held['asked'][0]}", "q0-0": "Tom"}
        first = await one.post("/items/one/answers", typed, content_type=f"{FORM}; charset=UTF-8")
        assert first.status_code == 303
        again = await one.post("/items/one/answers", typed)
        assert (again.status_code, "You answered this before" in again.text) == (409, True)

    visiting(work)


def test_after_a_plain_post_what_comes_next_is_waited_for(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        writers: list[asyncio.StreamWriter] = []
        silent = await asyncio.start_server(lambda _, writer: writers.append(writer), "127.0.0.1", 0)
        port = silent.sockets[0].getsockname()[1]
        await one.inbox.hand_over(replace(pending(), server=f"http://127.0.0.1:{port}/mcp"), caller="build")
        one.client._transport = httpx2.ASGITransport(app=create_app(one.inbox, one.door, patience=15))
        await one.enter()
        answering = asyncio.create_task(one.answer(**{"q0-0": "Tom"}))
        while not writers:  # noqa: ASYNC110 - until the call is under way
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)
        assert not answering.done()
        await one.inbox.store.put(lapsed(await one.inbox.get("one"), time.time()))
        assert (await answering).status_code == 303
        for writer in writers:
            writer.close()
        silent.close()

    visiting(work)


def test_who_is_overtaken_while_an_answer_is_on_its_way_is_told_by_whom(
    visiting: Visiting, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def work(one: Visit) -> None:
        await one.inbox.hand_over(pending(), caller="build")
        await one.enter()
        answer = one.inbox.answer

        async def overtaken(*arguments: Any, **options: Any) -> Item:
            await answer("one", {"name": {"action": "decline"}}, round=0, by="bob")
            return await answer(*arguments, **options)

        monkeypatch.setattr(one.inbox, "answer", overtaken)
        late = await one.answer(**{"q0-0": "Ann"})
        assert (late.status_code, "bob answered this before" in late.text) == (409, True)
        assert (await one.inbox.get("one")).pending.answers == {"name": {"action": "decline"}}

    visiting(work)


def test_what_only_the_whole_answer_shows_to_be_wrong_is_said(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        asked = elicit(first={"type": "string"}, last={"type": "string"})
        asked["params"]["requestedSchema"] |= {"required": [], "minProperties": 2}
        await one.inbox.hand_over(pending(name=asked), caller="build")
        await one.enter()
        page = await one.answer(**{"q0-0": "Ann"})
        assert (page.status_code, "does not fit" in page.text, "\nAnn</textarea>" in page.text) == (422, True, True)
        assert (await one.inbox.get("one")).pending.answers == {}
        assert (await one.answer(**{"q0-0": "Ann", "q0-1": "Lee"})).status_code == 303

    visiting(work)


def test_an_answer_never_goes_to_another_question(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        await one.inbox.hand_over(pending(), caller="build")
        await one.enter()
        word = await one.word()
        before = await all_held(one)
        for send in ("accept 0-other", "accept 7-", "accept x", "accept -1", "accept", "", " ", "-"):
            typed = {"csrf": word, "send": send, "q0-0": "x"}
            assert (await one.post("/items/one/answers", typed)).status_code == 409
        assert (await one.inbox.get("one")).pending.answers == {}
        await one.inbox.withdraw("one", by="bob")
        over = await one.post("/items/one/answers", {**before, "send": f"accept {before['asked'][0]}"})
        assert (over.status_code, "This call has come to its end" in over.text) == (409, True)
        assert "q0-0" not in over.text

    visiting(work)


def test_an_answer_never_goes_to_the_same_question_of_another_round(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        await one.inbox.hand_over(pending(), caller="build")
        await one.enter()
        before = await all_held(one)
        answers = {"name": {"action": "accept", "content": {"value": "Tom"}}}
        item = await one.inbox.answer("one", answers, round=0, by="bob")
        again = replace(item, status="waiting", round=1, pending=replace(item.pending, answers={}))
        await one.inbox.store.put(again)
        late = await one.post("/items/one/answers", {**before, "send": f"accept {before['asked'][0]}", "q0-0": "Ann"})
        assert late.status_code == 409
        assert (await one.inbox.get("one")).pending.answers == {}
        assert (await one.answer(**{"q0-0": "Ann"})).status_code == 303

    visiting(work)


def test_a_call_that_came_too_late_is_begun_anew_behind_a_warning(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        item = await one.inbox.hand_over(pending(), caller="build", authorization=SECRET)
        await one.enter()
        word = {"csrf": await one.word()}
        page = await one.post("/items/one/restart", word)
        assert (page.status_code, "no longer asked" in page.text) == (409, True)
        answers = {"name": {"action": "accept", "content": {"value": "Tom"}}}
        item = await one.inbox.answer("one", answers, round=0, by="ann")
        await one.inbox.store.put(lapsed(item, time.time()))
        page = await one.get("/items/one")
        for words in ("The server no longer takes the state", "Tom", "it may do again", "/items/one/restart"):
            assert words in page.text
        assert (await one.post("/items/one/restart", word)).status_code == 303
        again = await one.inbox.get("one")
        assert (again.status, again.restarted_by) == ("going", "ann")
        page = await one.get("/items/one")
        assert "What it did before may have been done twice" in page.text
        assert "/items/one/restart" not in page.text
        for secret in (STATE, SECRET):
            assert secret not in "".join(one.seen)

    visiting(work)


def test_a_call_that_is_held_says_why_and_is_tried_again(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        await one.inbox.hand_over(pending(), caller="build", authorization=SECRET)
        await one.enter()
        word = {"csrf": await one.word()}
        answers = {"name": {"action": "accept", "content": {"value": "Tom"}}}
        item = await one.inbox.answer("one", answers, round=0, by="ann")
        await one.inbox.store.put(held(item, 401, True, time.time()))
        assert ">Held<" in (await one.get("/")).text
        page = await one.get("/items/one")
        for words in ("This call is held", "does not take the credentials", "Tom", "/items/one/retry", "Held: Greet"):
            assert words in page.text
        assert (await one.post("/items/one/retry", word)).status_code == 303
        assert (await one.inbox.get("one")).status == "going"
        assert (await one.post("/items/one/retry", word)).status_code == 409
        for secret in (STATE, SECRET):
            assert secret not in "".join(one.seen)

    visiting(work)


def test_a_call_is_withdrawn(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        await one.inbox.hand_over(pending(), caller="build")
        await one.enter()
        word = {"csrf": await one.word()}
        assert (await one.post("/items/one/withdrawal", word)).status_code == 303
        assert (await one.inbox.get("one")).status == "failed"
        assert (await one.post("/items/one/withdrawal", word)).status_code == 409
        page = (await one.get("/items/one")).text
        assert "It was withdrawn by ann" in page
        assert "<title>Withdrawn: Greet" in page
        assert "It failed" not in page
        assert "Your name?" in page.partition("Not answered</h2>")[2]
        [row] = re.findall(r"<li .*?</li>", (await one.get("/history")).text, re.DOTALL)
        said = " ".join(re.sub(r"<[^>]*>", " ", row).split())
        assert said.startswith("Your name? Withdrawn by ann Greet with who the cat asked by tools.example for build")

    visiting(work)


def test_a_server_that_says_withdrawn_is_not_believed(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        item = await one.inbox.hand_over(pending(), caller="build")
        await one.inbox.store.put(item.ended("failed", time.time(), error="withdrawn by ann"))
        await one.enter()
        assert "It failed" in (await one.get("/items/one")).text
        assert ">Failed<" in (await one.get("/history")).text

    visiting(work)


@pytest.mark.parametrize(
    ("answer", "state", "said"),
    [
        ({"action": "accept", "content": {"menu": "f", "wine": True}}, "Done", "Which menu Fish from the lake"),
        ({"action": "decline"}, "Declined", "by bob"),
        ({"action": "cancel"}, "Cancelled", "by bob"),
    ],
)
def test_the_history_says_what_was_answered_by_whom_and_what_came_of_it(
    visiting: Visiting, answer: Any, state: str, said: str
) -> None:
    async def work(one: Visit) -> None:
        asking = elicit("What is for dinner?", **MENU)
        asking["params"]["requestedSchema"]["required"] = ["menu"]
        await one.inbox.hand_over(pending(q=asking), caller="build")
        item = await one.inbox.answer("one", {"q": answer}, round=0, by="bob")
        result = {"content": [{"type": "text", "text": "Served <b> at eight"}]}
        await one.inbox.store.put(item.ended("done", time.time(), result=result))
        await one.enter()
        [row] = re.findall(r"<li .*?</li>", (await one.get("/history")).text, re.DOTALL)
        text = " ".join(re.sub(r"<[^>]*>", " ", row).split())
        for words in (f"What is for dinner? {state}", said, "by bob", "→ Served &lt;b&gt; at eight"):
            assert words in text
        page = (await one.get("/items/one")).text
        assert f"<title>{state}: Greet" in page
        assert f">{state}</h2>" in page

    visiting(work)


def test_a_search_finds_arguments_answers_who_answered_and_results(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        for name in ("one", "two"):
            await one.inbox.hand_over(pending(name), caller="build")
            answer = {"action": "accept", "content": {"value": f"walrus {name}"}}
            item = await one.inbox.answer(name, {"name": answer}, round=0, by=f"clerk-{name}")
            result = {"content": [{"type": "text", "text": f"Hello from {name}"}]}
            await one.inbox.store.put(item.ended("done", time.time(), result=result))
        await one.enter()
        for words in ("walrus+one", "clerk-one", "hello+one"):
            found = (await one.get(f"/history?q={words}", x_part="live")).text
            assert ("1 call found" in found, "/items/one" in found) == (True, True)
        assert "2 calls found" in (await one.get("/history?q=the+cat", x_part="live")).text

    visiting(work)


def test_earlier_requests_to_a_model_and_for_folders_are_shown_in_words(visiting: Visiting) -> None:
    message = {"role": "user", "content": {"type": "text", "text": "Name a colour"}}
    model = {"method": "sampling/createMessage", "params": {"messages": [message], "maxTokens": 7}}

    async def work(one: Visit) -> None:
        roots = {"method": "roots/list"}
        questions: Any = {"m": model, "r": roots, "s": roots, "x": elicit("More?")}
        await one.inbox.hand_over(pending(**questions), caller="build")
        reply = {"role": "assistant", "content": {"type": "text", "text": "Blue"}, "model": "me"}
        folders = {"roots": [{"uri": "file:///a", "name": "Home"}, {"uri": "file:///b"}]}
        await one.inbox.answer("one", {"m": reply, "r": folders, "s": {"roots": []}}, round=0, by="bob")
        await one.enter()
        page = re.sub(r"<[^>]*>", "", (await one.get("/items/one")).text.partition("Earlier answers")[2])
        for words in ("Name a colour", "Blue", "FoldersNone", "Foldersfile:///a Home\nfile:///b"):
            assert words in page
        assert "{" not in page

    visiting(work)


def test_a_server_that_is_away_is_told_in_words(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        await one.inbox.hand_over(pending(), caller="build")
        item = await one.inbox.answer("one", {"name": {"action": "decline"}}, round=0, by="bob")
        note = "The server cannot be reached: [Connect call failed]. Tried twice, and again at 10:00:00 UTC."
        await one.inbox.store.put(replace(item, tries=2, note=note, due=time.time() + 190))
        await one.enter()
        assert ">Server away<" in (await one.get("/")).text
        page = (await one.get("/items/one")).text
        shown = page.partition('<h2 id="going-head"')[2].partition("</section>")[0]
        words, _, folded_away = shown.partition("<details")
        assert "The server cannot be reached</h2>" in words
        assert "tried 2 times, and is tried again <time" in words
        assert "Connect call" not in words
        assert "Connect call" in folded_away
        assert "The call goes on" not in page

    visiting(work)


def test_several_questions_are_answered_one_by_one(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        questions: Any = {"a": elicit("First?"), "b": elicit("Second?")}
        await one.inbox.hand_over(pending(**questions), caller="build")
        await one.enter()
        assert (await one.answer(**{"q0-0": "1"})).status_code == 200
        assert (await one.inbox.get("one")).status == "waiting"
        assert (await one.answer(**{"q1-0": "2"})).status_code == 303
        assert (await one.inbox.get("one")).status == "going"

    visiting(work)


TICKS: Any = {"type": "array", "items": {"enum": ["x", "y"]}, "default": ["x"], "title": "Ticks"}


async def all_held(one: Visit) -> dict[str, Any]:
    """What a browser would send of a page's form, but for the button."""
    page = (await one.get("/items/one")).text
    word = re.search(r'name="csrf" value="([^"]*)"', page)
    assert word
    return {"csrf": word[1], "asked": re.findall(r'name="asked" value="([^"]*)"', page)}


def test_what_is_typed_into_the_others_is_kept_without_a_script(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        model = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 7}}
        questions: Any = {"a": elicit("First?"), "b": elicit("Second?", t=TICKS, n={"type": "integer"}), "c": model}
        await one.inbox.hand_over(pending(**questions), caller="build")
        await one.enter()
        held = await all_held(one)
        held |= {"q0-0": "1", "q1-1": "<not a number>", "q2-text": "Blue", "q2-model": "me", "q2-role": "user"}
        reply = await one.post("/items/one/answers", {**held, "send": f"accept {held['asked'][0]}"})
        assert reply.status_code == 200
        assert "<h2>Sent</h2>" in reply.text
        assert "There is more to answer before the call goes on." in reply.text
        assert (await one.inbox.get("one")).pending.answers == {"a": {"action": "accept", "content": {"value": "1"}}}
        again = await one.post("/items/one/answers", {**held, "send": f"accept {held['asked'][0]}"})
        assert again.status_code == 409
        for page in (reply.text, again.text):
            assert 'value="&lt;not a number&gt;"' in page
            assert "\nBlue</textarea>" in page
            assert 'value="me"' in page
            assert "<option selected>user" in page
            assert " checked" not in page, "what was not ticked is not ticked again"
            assert "not right yet" not in page, "nobody sent it yet"
        wrong = await one.post("/items/one/answers", {**held, "send": f"accept {held['asked'][1]}"})
        assert wrong.status_code == 422
        assert "\nBlue</textarea>" in wrong.text

    visiting(work)


def test_that_an_answer_was_taken_is_said_where_the_next_question_is(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        questions: Any = {key: elicit(f"{key}?") for key in "abcd"}
        await one.inbox.hand_over(pending(**questions), caller="build")
        await one.enter()
        sent = "<h2>Sent</h2>"
        for place, control, order in ((1, "q1-0", ["q0-0", sent, "q2-0", "q3-0"]), (2, "q3-0", [sent, "q0-0", "q2-0"])):
            held = await all_held(one)
            typed = {**held, "send": f"accept {held['asked'][place]}", control: "yes"}
            main = (await one.post("/items/one/answers", typed)).text.partition("<main")[2]
            assert sorted(order, key=main.index) == order

    visiting(work)


def test_all_answers_of_a_round_are_sent_at_once(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        questions: Any = {"a": elicit("First?"), "b": elicit("Second?", n={"type": "integer"})}
        await one.inbox.hand_over(pending(**questions), caller="build")
        await one.enter()
        page = (await one.get("/items/one")).text
        assert page.count("Send all 2 answers") == 1
        assert page.count("cannot be taken back") == 1, "it is explained once"
        held = await all_held(one) | {"q0-0": "1", "q1-0": "2", "send": "all 0"}
        assert (await one.post("/items/one/answers", held)).status_code == 303
        item = await one.inbox.get("one")
        assert {given.key: given.answer["content"] for given in item.given} == {"a": {"value": "1"}, "b": {"n": 2}}

    visiting(work)


def test_of_all_answers_those_that_fit_are_taken_and_the_rest_is_told_in_its_place(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        number: Any = {"n": {"type": "integer", "title": "Number"}}
        questions: Any = {"a": elicit("First?"), "b": elicit("Second?", **number), "c": elicit("Third?", **number)}
        await one.inbox.hand_over(pending(**questions, d=visit("https://pay.example/x")), caller="build")
        await one.enter()
        held = await all_held(one) | {"q0-0": "1", "q1-0": "<two>", "q2-0": "", "send": "all 0"}
        reply = await one.post("/items/one/answers", held)
        assert reply.status_code == 422
        assert "<h2>Sent</h2>" in reply.text
        _, second, third, visited = re.split(r"\d of 3", reply.text)
        assert "Number must be a whole number." in second
        assert 'value="&lt;two&gt;"' in second
        assert "Number is needed." in third
        assert "not right yet" not in visited
        item = await one.inbox.get("one")
        assert list(item.pending.answers) == ["a"], "and nobody has agreed to visit a page"
        held = await all_held(one) | {"q1-0": "2", "q2-0": "3", "send": "all 0"}
        reply = await one.post("/items/one/answers", held)
        assert (reply.status_code, "<h2>2 answers sent</h2>" in reply.text) == (200, True)
        assert "Send all" not in reply.text

    visiting(work)


def test_nothing_is_sent_with_the_others_that_somebody_has_answered_meanwhile(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        await one.inbox.hand_over(pending(a=elicit("First?"), b=elicit("Second?")), caller="build")
        await one.enter()
        held = await all_held(one) | {"q0-0": "1", "q1-0": "two", "send": "all 0"}
        await one.inbox.answer("one", {"a": {"action": "decline"}}, round=0, by="bob")
        reply = await one.post("/items/one/answers", held)
        assert reply.status_code == 409
        assert "bob answered this before" in reply.text
        assert "\ntwo</textarea>" in reply.text
        assert list((await one.inbox.get("one")).pending.answers) == ["a"]
        for send in ("all 1", "all", "all x"):
            assert (await one.post("/items/one/answers", held | {"send": send})).status_code == 409

    visiting(work)


YES_OR_NO: Any = {"value": {"type": "boolean", "title": "Value"}}


@pytest.mark.parametrize(("action", "value"), [("yes", True), ("no", False)])
def test_yes_and_no_send_by_themselves(visiting: Visiting, action: str, value: bool) -> None:
    async def work(one: Visit) -> None:
        await one.inbox.hand_over(pending(q=elicit("Deploy?", **YES_OR_NO)), caller="build")
        await one.enter()
        page = (await one.get("/items/one")).text
        assert 'type="radio"' not in page
        assert "Send answer" not in page
        assert "“No” is an answer" in page
        assert (await one.answer(action=action)).status_code == 303
        answers = (await one.inbox.get("one")).pending.answers
        assert answers == {"q": {"action": "accept", "content": {"value": value}}}

    visiting(work)


def test_yes_and_no_are_choices_where_more_is_asked_or_it_may_be_left_open(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        left_open = elicit("Deploy?", **YES_OR_NO)
        left_open["params"]["requestedSchema"]["required"] = []
        several: Any = {"q": elicit("Deploy?", **YES_OR_NO), "r": elicit("Why?")}
        for name, asking in {"one": {"q": left_open}, "two": several, "six": {"q": elicit("Why?")}}.items():
            await one.inbox.hand_over(pending(name, **asking), caller="build")
        await one.enter()
        for name in ("one", "two"):
            page = (await one.get(f"/items/{name}")).text
            assert 'type="radio"' in page
            assert 'value="yes ' not in page
        assert (await one.answer("six", action="yes")).status_code == 422

    visiting(work)


def test_after_an_answer_the_next_question_is_offered(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        assert (await one.get("/next")).headers["location"].startswith("/login")
        await one.enter()
        assert (await one.get("/next")).headers["location"] == "/"
        for name in ("one", "two", "six"):
            await one.inbox.hand_over(replace(pending(name), asked=time.time() - 60), caller="build")
        assert "Next question" not in (await one.get("/items/one")).text
        await one.answer("one", **{"q0-0": "x"})
        page = (await one.get("/items/one")).text
        assert '<a class="button" href="/next">Next question (2 waiting)</a>' in page
        assert (await one.get("/next")).headers["location"] == "/items/two"
        await one.inbox.withdraw("two", by="bob")
        await one.inbox.withdraw("six", by="bob")
        assert "Next question" not in (await one.get("/items/six")).text

    visiting(work)


def test_what_is_typed_is_not_put_into_another_question(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        questions: Any = {"a": elicit("First?"), "b": elicit("Second?")}
        await one.inbox.hand_over(pending(**questions), caller="build")
        await one.enter()
        held = await all_held(one) | {"q0-0": "one", "q1-0": "two"}
        held["asked"] = held["asked"][:1]
        reply = await one.post("/items/one/answers", {**held, "send": f"accept {held['asked'][0]}"})
        assert reply.status_code == 200
        assert "\ntwo</textarea>" not in reply.text
        assert "\n</textarea>" in reply.text

    visiting(work)


MENU = {
    "menu": {
        "type": "string",
        "title": "Which menu",
        "oneOf": [{"const": "f", "title": "Fish from the lake"}, {"const": "v", "title": "Vegetables"}],
    },
    "sides": {"type": "array", "title": "Sides", "items": {"enum": ["rice", "salad"]}},
    "wine": {"type": "boolean", "title": "With wine"},
    "guests": {"type": "integer"},
}


def test_earlier_answers_are_shown_in_the_words_of_their_questions(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        single = elicit("How many?", value={"type": "integer", "title": "Value"})
        await one.inbox.hand_over(pending(menu=elicit("What is for dinner?", **MENU), single=single), caller="agent")
        content = {"menu": "f", "sides": ["rice", "salad"], "wine": True, "guests": 3}
        answers = {
            "menu": {"action": "accept", "content": content},
            "single": {"action": "accept", "content": {"value": 4}},
        }
        await one.inbox.answer("one", answers, round=0, by="bob")
        await one.enter()
        page = (await one.get("/items/one")).text
        values = re.findall(
            r"<dt[^>]*>(.*?)</dt><dd>(.*?)</dd>",
            page.partition("Earlier answers")[2].partition("The call")[0],
            re.DOTALL,
        )
        said = [(name, re.sub(r"<[^>]*>", "", text)) for name, text in values]
        assert said == [
            ("Answer", "4"),
            ("Which menu", "Fish from the lake"),
            ("Sides", "rice\nsalad"),
            ("With wine", "Yes"),
            ("guests", "3"),
        ]

    visiting(work)


def test_answers_are_in_the_order_of_their_form_and_an_empty_one_says_so(visiting: Visiting) -> None:
    fields: Any = {
        "name": {"type": "string", "title": "Name"},
        "note": {"type": "string", "title": "Note", "default": "none"},
        "age": {"type": "integer", "title": "Age"},
        "size": {"type": "string", "title": "Size", "default": "l"},
    }

    async def work(one: Visit) -> None:
        asking = elicit(**fields)
        asking["params"]["requestedSchema"]["required"] = ["name", "age"]
        await one.inbox.hand_over(pending(all=asking), caller="agent")
        await one.enter()
        reply = await one.answer(**{"q0-0": "Ann", "q0-1": "", "q0-2": "7", "q0-3": "xl"})
        assert reply.status_code == 303
        [given] = (await one.inbox.get("one")).given
        assert list(given.answer["content"].items()) == [("name", "Ann"), ("note", ""), ("age", 7), ("size", "xl")]
        page = (await one.get("/items/one")).text
        assert re.findall(r"<dt[^>]*>(Name|Note|Age|Size)</dt>", page) == ["Name", "Note", "Age", "Size"]
        assert '<dd><span class="none">empty</span></dd>' in page
        assert "<h2>Earlier answers</h2>" in page
        await one.inbox.withdraw("one", by="bob")
        assert "<h2>Answers</h2>" in (await one.get("/items/one")).text

    visiting(work)


@pytest.mark.parametrize("schema", [None, {"type": "object", "properties": {"menu": {"type": "object"}}}])
def test_an_earlier_answer_to_what_is_no_form_is_shown_as_it_is(schema: Any) -> None:
    request = {"method": "elicitation/create", "params": {"message": "?", "requestedSchema": schema}}
    said: dict[str, Any] = {"action": "accept", "content": {"menu": "f", "many": [1]}}
    one = Earlier(key="k", request=request, answer=said, by="ann", at=0.0, round=0)
    assert answered(one).values == [("menu", "f"), ("many", "[\n  1\n]")]


def test_a_single_value_is_called_your_answer(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        await one.inbox.hand_over(pending(n=elicit(value={"type": "integer", "title": "Value"})), caller="agent")
        await one.enter()
        assert '<span dir="auto">Your answer</span></label>' in (await one.get("/items/one")).text
        reply = await one.answer(**{"q0-0": ""})
        assert (reply.status_code, "Your answer is needed." in reply.text) == (422, True)

    visiting(work)


def test_a_reply_for_a_model_and_folders_are_sent_as_their_kinds(visiting: Visiting) -> None:
    message = {"role": "user", "content": {"type": "text", "text": "Name a colour"}}
    image = {"role": "user", "content": {"type": "image", "mimeType": "image/png", "data": "aGFsbG8="}}
    params = {"messages": [message, image], "systemPrompt": "Be brief", "maxTokens": 7}

    async def work(one: Visit) -> None:
        model = {"method": "sampling/createMessage", "params": params}
        await one.inbox.hand_over(pending("one", m=model), caller="build")
        await one.inbox.hand_over(pending("two", r={"method": "roots/list"}), caller="build")
        await one.enter()
        page = (await one.get("/items/one")).text
        for words in ("Name a colour", "Be brief", "image/png, 5 bytes, not shown", "maxTokens"):
            assert words in page
        assert (await one.answer("one", **{"q0-text": "", "q0-model": "", "q0-role": "boss"})).status_code == 422
        assert (await one.answer("one", action="decline")).status_code == 422
        await one.answer("one", **{"q0-text": "Blue\r\n", "q0-model": "me", "q0-role": "assistant"})
        answer = (await one.inbox.get("one")).pending.answers["m"]
        assert answer == {"role": "assistant", "content": {"type": "text", "text": "Blue\n"}, "model": "me"}
        assert (await one.answer("two", **{"q0-roots": "http://x"})).status_code == 422
        await one.answer("two", **{"q0-roots": "file:///a | My project\r\n\r\n/home/ann/My things"})
        answer = (await one.inbox.get("two")).pending.answers["r"]
        assert answer["roots"] == [{"uri": "file:///a", "name": "My project"}, {"uri": "file:///home/ann/My%20things"}]

    visiting(work)


@pytest.mark.parametrize(
    ("typed", "address"),
    [
        ("file:///home/ann/My Documents", "file:///home/ann/My%20Documents"),
        ("file:///home/ann/My%20Documents", "file:///home/ann/My%20Documents"),
        ("file://host/share", "file://host/share"),
        ("file:///", "file:///"),
        ("/", "file:///"),
        ("/tmp/a#b", "file:///tmp/a%23b"),
        ("C:\\Users\\Ann B", "file:///C:/Users/Ann%20B"),
        ("file://", None),
        ("http://x", None),
        ("home/ann", None),
    ],
)
def test_folders_are_taken_as_people_write_them(typed: str, address: str | None) -> None:
    assert folder_address(typed) == address


def test_what_nobody_chose_is_not_chosen_after_a_refused_send(visiting: Visiting) -> None:
    fields = {"pick": {"type": "string", "enum": list("abcdefghij")}, "other": {"type": "string"}}

    async def work(one: Visit) -> None:
        await one.inbox.hand_over(pending(name=elicit("Which?", **fields)), caller="build")
        await one.enter()
        for _ in range(2):
            reply = await one.answer(**{"q0-0": "", "q0-10": ""})
            assert reply.status_code == 422
            assert '<option value="">Choose</option>' in reply.text

    visiting(work)


def test_pages_say_that_the_store_is_away(visiting: Visiting, caplog: pytest.LogCaptureFixture) -> None:
    async def work(one: Visit) -> None:
        await one.inbox.hand_over(pending(), caller="build")
        await one.enter()
        word = {"csrf": await one.word()}
        with pytest.MonkeyPatch.context() as patch:

            async def away(*facts: Any, **more: Any) -> Any:
                raise CallerError("the store cannot be used") from OSError("no route to it")

            for name in ("page", "get", "withdraw"):
                patch.setattr(one.inbox, name, away)
            for place in ("/", "/history", "/items/one"):
                reply = await one.get(place)
                assert (reply.status_code, "store cannot be used at the moment" in reply.text) == (503, True), place
            patch.setattr(Door, "session", away)
            assert (await one.get("/")).status_code == 503
            assert (await one.post("/items/one/withdrawal", word)).status_code == 503
        assert (await one.get("/")).status_code == 200

    visiting(work)
    assert "/history cannot be shown: the store cannot be used" in caplog.text


@pytest.mark.parametrize(("code", "words"), [(-32603, "refused it, with the code -32603"), (None, "not go on")])
def test_what_a_server_says_of_a_failure_is_quoted(visiting: Visiting, code: int | None, words: str) -> None:
    async def work(one: Visit) -> None:
        item = await one.inbox.hand_over(pending(), caller="build")
        await one.inbox.store.put(item.ended("failed", time.time(), error="Sign in again at evil.example", code=code))
        await one.enter()
        page = (await one.get("/items/one")).text
        own, _, quoted = page.partition("It failed</h2>")[2].partition('<div class="quote">')
        assert (words in own, "evil.example" in own, "evil.example" in quoted) == (True, False, True)

    visiting(work)


MODEL = {"method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 7}}
DRAFT = {"role": "assistant", "content": {"type": "text", "text": "Blue <b>"}, "model": "m1", "stopReason": "endTurn"}


def test_a_draft_is_shown_to_be_changed_and_the_reply_is_shown_as_text_afterwards(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        await one.inbox.hand_over(pending("one", m=MODEL), caller="build", drafts={"m": {**DRAFT, "_meta": {"x": 1}}})
        await one.inbox.hand_over(pending("two", m=MODEL), caller="build")
        await one.enter()
        page = (await one.get("/items/one")).text
        for words in ("A reply to review", "\nBlue &lt;b&gt;</textarea>", 'value="m1"', 'value="endTurn"'):
            assert words in page
        without = (await one.get("/items/two")).text
        assert "A reply to write" in without
        assert "Stop reason" not in without
        changed = {"q0-text": "Red", "q0-model": "m1", "q0-role": "assistant", "q0-stop": "stopSequence"}
        await one.answer("one", **changed)
        answer = (await one.inbox.get("one")).pending.answers["m"]
        assert answer == {
            "role": "assistant",
            "content": {"type": "text", "text": "Red"},
            "model": "m1",
            "stopReason": "stopSequence",
            "_meta": {"x": 1},
        }
        said = re.sub(r"<[^>]*>", "", (await one.get("/items/one")).text.partition("Earlier answers")[2])
        assert "Reply\nRed" in said.replace("ReplyRed", "Reply\nRed")
        assert "{" not in said, "it is no JSON"

    visiting(work)


def test_a_draft_of_more_than_text_is_sent_as_it_is_or_not_at_all(visiting: Visiting) -> None:
    image = {"type": "image", "mimeType": "image/png", "data": "aGFsbG8="}

    async def work(one: Visit) -> None:
        draft = {**DRAFT, "content": image}
        await one.inbox.hand_over(pending("one", m=MODEL), caller="build", drafts={"m": draft})
        await one.enter()
        page = (await one.get("/items/one")).text
        assert "is sent as it is" in page
        assert "<textarea" not in page
        await one.answer("one")
        assert (await one.inbox.get("one")).pending.answers["m"] == draft

    visiting(work)


@pytest.mark.parametrize(
    ("drafts", "words"),
    [
        ({"name": DRAFT}, "nothing else has a draft"),
        ({"unasked": DRAFT}, "nothing else has a draft"),
        ({"m": {"role": "assistant"}}, "content"),
        ({"m": {**DRAFT, "_meta": {"x": json.loads("[" * 190 + "]" * 190)}}}, "180 levels"),
    ],
)
def test_a_draft_that_is_none_is_refused(visiting: Visiting, drafts: Any, words: str) -> None:
    async def work(one: Visit) -> None:
        with pytest.raises(CallerError, match=words):
            await one.inbox.hand_over(pending("one", m=MODEL, name=elicit()), caller="build", drafts=drafts)

    visiting(work)


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"csrf=%ff", {}, 400),
        (b"\xff\xfe", {}, 400),
        ("&".join(f"a{n}=1" for n in range(20_001)).encode(), {}, 400),
        (b"a=" + b"x" * (2 * 1024 * 1024), {}, 413),
        (b"{}", {"content_type": "application/json"}, 415),
        (b"", {"content_type": "multipart/form-data; boundary=x"}, 415),
        (b"", {}, 403),
        (b"csrf=%00&csrf=%E2%80%AE&&&==", {}, 403),
    ],
)
def test_a_post_that_is_none_is_refused(visiting: Visiting, body: bytes, headers: dict[str, str], status: int) -> None:
    async def work(one: Visit) -> None:
        await one.inbox.hand_over(pending(), caller="build")
        await one.enter()
        assert (await one.post("/items/one/answers", body, **headers)).status_code == status

    visiting(work)


def test_what_is_not_there_is_said(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        await one.enter()
        word = await one.word()
        assert (await one.get("/items/none")).status_code == 404
        assert (await one.post("/items/none/answers", {"csrf": word})).status_code == 404
        assert (await one.get("/nowhere")).status_code == 404
        assert (await one.get("/items/one/withdrawal")).status_code == 405
        assert (await one.get("/items/one/answers")).headers["location"] == "/items/one"
        assert (await one.get("/?after=elsewhere")).status_code == 400
        assert (await one.get("/static/..%2fweb.py")).status_code == 404
        for path in ("/items/none", "/nowhere"):
            page = (await one.get(path)).text
            assert 'aria-label="Pages"' in page, "the way back is there"
            assert "Sign out" in page
        one.client.cookies.clear()
        assert 'aria-label="Pages"' not in (await one.get("/nowhere")).text

    visiting(work)


def test_what_is_sealed_under_another_key_is_said(visiting: Visiting, tmp_path: Path) -> None:
    async def work(one: Visit) -> None:
        others = SQLiteInboxStore(tmp_path / "inbox.db", ["a key of others that is long enough too"])
        await Inbox(others).hand_over(pending(), caller="build")
        await others.aclose()
        await one.enter()
        page = await one.get("/items/one")
        assert (page.status_code, "sealed under a key that this inbox does not have" in page.text) == (500, True)

    visiting(work)


# The lists


def test_the_list_has_what_waits_and_the_history_what_ended(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        await one.enter()
        assert "Nothing waits for you" in (await one.get("/")).text
        assert "Nothing has come to its end" in (await one.get("/history")).text
        await one.inbox.hand_over(pending("one", a=elicit("A cat?")), caller="build", seconds=7200)
        await one.inbox.hand_over(pending("two", a=elicit("A dog?"), b=elicit("More?")), caller="night")
        page = (await one.get("/")).text
        assert "2 calls open" in page
        assert "in 1 hour" in page
        assert "2 questions" in page
        found = (await one.get("/?q=DOG+greet", x_part="live")).text
        assert "1 call found" in found
        assert "A cat?" not in found
        assert "<html" not in found
        nothing = (await one.get("/?q=%3Cb%3E")).text
        assert "Nothing matches “&lt;b&gt;”" in nothing
        await one.inbox.withdraw("one", by="ann")
        assert "A cat?" in (await one.get("/history?q=cat")).text

    visiting(work)


def test_the_list_says_what_a_call_was_made_with_and_the_item_what_is_called(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        arguments = {"flight": "TW 2322", "note": "\u202eturned\n<b>", "class": 2}
        made = replace(pending(), params={"name": "book_seat", "arguments": arguments})
        await one.inbox.hand_over(made, caller="build")
        await one.enter()
        page = (await one.get("/")).text
        gist = re.search(r'<span class="line-gist">.*?</span>\n<span class="line-facts">', page, re.DOTALL)
        assert gist
        said = " ".join(re.sub(r"<[^>]*>", "", gist[0]).split())
        assert said == "Book seat with flight TW 2322, note U+202Eturned &lt;b&gt;, class 2"
        assert "<title>(1) Waiting –" in page
        page = (await one.get("/items/one")).text
        assert "<h1>Book seat</h1>" in page
        assert page.index("Called with") < page.index(">Your name?</h3>") < page.index("The call</h2>")
        assert "<title>A question: Book seat –" in page
        assert "<title>Not right yet: Book seat –" in (await one.answer(**{"q0-0": ""})).text

    visiting(work)


def test_a_list_opens_no_item_and_compiles_no_schema(visiting: Visiting, monkeypatch: pytest.MonkeyPatch) -> None:
    compiled: list[Any] = []

    async def work(one: Visit) -> None:
        await one.inbox.hand_over(pending("one", name=elicit("Who is it?", unheard={"type": "string"})), caller="build")
        await one.inbox.hand_over(pending("two", name=elicit("And who?", of={"type": "string"})), caller="build")
        await one.inbox.withdraw("two", by="ann")
        await one.enter()
        answering._of_small.cache_clear()
        monkeypatch.setattr(answering, "read_for_peers", compiled.append)
        monkeypatch.setattr(_fields, "check_for_peers", compiled.append)
        assert "Who is it?" in (await one.get("/")).text
        assert "And who?" in (await one.get("/history")).text
        assert compiled == []

    visiting(work)


def test_an_argument_is_laid_out_where_it_does_not_fit_into_a_line() -> None:
    assert spelt("  as it is\n") == "  as it is\n"
    assert spelt({"state": "Done", "two": "a  b"}) == '{"state": "Done", "two": "a  b"}'
    assert spelt({"text": "x" * 60}) == '{\n  "text": "' + "x" * 60 + '"\n}'
    assert spelt(list(range(30))).count("\n") == 31


def test_more_than_a_few_arguments_fold(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        made = replace(pending(), params={"name": "x", "arguments": {f"a{number}": number for number in range(9)}})
        await one.inbox.hand_over(made, caller="build")
        await one.enter()
        page = (await one.get("/items/one")).text
        assert "4 more</span>" in page
        assert "and 3 more" in (await one.get("/")).text

    visiting(work)


def test_a_long_list_goes_on(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        for number in range(53):
            await one.inbox.hand_over(pending(f"n{number}"), caller="build")
        await one.enter()
        page = (await one.get("/")).text
        assert page.count("<li ") == 50
        further = re.search(r'href="\?(after=[^"]+)"', page)
        assert further
        assert (await one.get(f"/?{further[1]}")).text.count("<li ") == 3

    visiting(work)


def test_what_was_looked_for_is_looked_for_on_the_next_page_too(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        for number in range(54):
            asked = elicit("A dog?" if number > 50 else "A cat & more?")
            await one.inbox.hand_over(pending(f"n{number}", a=asked), caller="build")
        await one.enter()
        page = (await one.get("/?q=cat+%26")).text
        assert page.count("<li ") == 50
        further = re.search(r'href="\?([^"]*after=[^"]+)"', page)
        assert further
        last = (await one.get(f"/?{unescape(further[1])}")).text
        assert (last.count("<li "), "A dog?" in last) == (1, False)
        page = (await one.get("/?q=" + "x" * 300)).text
        assert ("x" * 200 in page, "x" * 201 in page) == (True, False)

    visiting(work)


# What strangers write


SCRIPT = "<script>alert(1)</script>"


OUR_FORMS = {"/", "/logout", "/items/one/answers", "/items/one/withdrawal"}


class Tags(HTMLParser):
    """The tags of a page with their attributes, as a parser of HTML finds them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, Any]]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def every_string(text: str) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [
        {"type": "string", "default": text},
        {"type": "string", "enum": [text, "b"], "default": text},
        {"type": "string", "enum": [text, *"bcdefghij"]},
        {"type": "array", "items": {"anyOf": [{"const": text, "title": text}]}},
        {"type": "string", "pattern": "x", "format": text},
        {"type": "string", "maxLength": 999, "default": f"</textarea>{text}"},
    ]
    fields: Any = {f"{text}{at}": {**part, "title": text, "description": text} for at, part in enumerate(parts)}
    return elicit(text, **fields)


@pytest.mark.parametrize(
    "text", [SCRIPT, '"><img src=x onerror=alert(1)>', "' autofocus onfocus=alert(1) x='", "{{ 7777 * 7777 }}{% raw %}"]
)
def test_a_strangers_words_are_text_everywhere(visiting: Visiting, text: str) -> None:
    async def work(one: Visit) -> None:
        asking: Any = {text: every_string(text)}
        made = pending(**asking)
        made = replace(made, params={"name": text, "arguments": {text: text, "b": [text]}})
        await one.inbox.hand_over(made, caller=text)
        await one.enter()
        wrong = await one.answer(**{"q0-0": text})
        assert wrong.status_code == 422
        pages = [wrong.text, (await one.get("/")).text, (await one.get("/items/one")).text]
        await one.answer(action="decline")
        pages.append((await one.get("/items/one")).text)
        for page in pages:
            tags = Tags(page).found
            assert [facts for tag, facts in tags if tag == "script"] == [{"src": "/static/inbox.js", "defer": None}]
            assert not {tag for tag, _ in tags} & {"img", "iframe", "object", "embed", "style"}
            assert not [name for _, facts in tags for name in facts if name.startswith("on") or name == "style"]
            assert all(facts.get("href", "/").startswith(("/", "#", "?")) for _, facts in tags if facts.get("href"))
            assert {facts.get("action") for tag, facts in tags if tag == "form"} <= OUR_FORMS
            assert "60481729" not in page

    visiting(work)


@pytest.mark.parametrize(
    ("letter", "mark"),
    [("\u202e", "U+202E"), ("\u2066", "U+2066"), ("\x00", "U+0000"), ("\x1b", "U+001B"), ("\U000e0041", "U+E0041")],
)
def test_what_cannot_be_seen_is_made_visible(letter: str, mark: str) -> None:
    assert str(shown(f"a{letter}<b>")) == f'a<i class="hidden">{mark}</i>&lt;b&gt;'


@pytest.mark.parametrize("text", ["שלום", "नमस्ते", "👩‍💻", "a\u00a0b\u3000c", "line\nline\ttab", "\u200f(x)"])
def test_what_people_write_is_left_as_it_is(text: str) -> None:
    assert str(shown(text)) == text


def test_what_turns_text_is_a_number_in_titles_choices_and_lists_too(visiting: Visiting) -> None:
    turned, box, plain = "pay\u202e00.1", 'pay<i class="hidden">U+202E</i>00.1', "pay[U+202E]00.1"

    async def work(one: Visit) -> None:
        many = {"type": "string", "enum": [turned, *"abcdefgh"]}
        few = {"type": "string", "title": turned, "enum": [turned, "b"], "default": turned}
        asking = elicit(turned, few=few, many=many, when={"type": "string", "format": "date-time", "title": turned})
        call = replace(pending(q=asking), params={"name": turned, "arguments": {turned: turned}})
        await one.inbox.hand_over(call, caller="build")
        await one.enter()
        page = (await one.get("/items/one")).text
        assert f'<span dir="auto">{box}</span>' in page, "a title"
        assert page.count(f'<span dir="auto">{box}</span>') == 3, "two titles and a choice"
        assert f">{plain}</option>" in page
        assert f'aria-label="Time zone of {plain}"' in page
        listed = (await one.get("/")).text
        assert listed.count(box) == 4, "what is asked, an argument with its name, the tool"
        for text in (page, listed):
            assert "\ufffd" not in text
            assert turned not in text

    visiting(work)


def test_long_texts_fold_and_very_long_ones_end() -> None:
    assert "<details" not in folded("x" * 2000)
    assert "<details" not in folded("x\n" * 24)
    assert "<details" in folded("x\n" * 25)
    assert "Show 501 more characters" in folded("x" * 2001)
    whole = folded("x" * 1_000_000)
    assert "Show 48,500 more of 1,000,000 characters" in whole
    assert len(whole) < 60_000
    assert "950,000 more characters are not shown" in whole


@pytest.mark.parametrize("text", ["one two " * 400, "line\n" * 60, "שלום " * 900, "x" * 30_000, "a\n\nb " * 700])
def test_what_folds_is_a_beginning_and_a_rest_with_nothing_lost_between(text: str) -> None:
    parts = re.findall(r'<div class="said[^>]*>(.*?)</div>', folded(text), re.DOTALL)
    assert len(parts) == 2
    assert len(parts[0]) >= 18
    assert "".join(parts).replace("\n", "") == text.replace("\n", "")


APPROVAL = "Deploy this?\n\n" + "\n".join(f"service {number}: search, in production" for number in range(12))


def test_what_is_to_be_approved_is_read_whole_and_is_the_heading_of_its_card(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        await one.inbox.hand_over(pending(q=elicit(APPROVAL), r=elicit("x" * 201)), caller="build")
        await one.enter()
        page = (await one.get("/items/one")).text
        first, second = page.partition("1 of 2")[2].split("2 of 2")
        assert 'class="q-title" dir="auto" tabindex="-1" data-focus>Deploy this?</h3>' in first
        assert "service 11: search, in production" in first
        assert "<details" not in first
        assert "q-title" not in second, "a long line is no heading"
        assert "x" * 201 in second

    visiting(work)


@pytest.mark.parametrize(("name", "heading"), [("book_seat", "Book seat"), ("Sign in again!", "Tool that asks")])
def test_tool_and_caller_are_named_once(visiting: Visiting, name: str, heading: str) -> None:
    async def work(one: Visit) -> None:
        made = replace(pending(), params={"name": name, "arguments": {}})
        await one.inbox.hand_over(made, caller="nightly build")
        await one.enter()
        page = (await one.get("/items/one")).text
        assert f"<h1>{heading}</h1>" in page
        assert page.count(f'<code dir="auto">{name}</code>') == 1
        assert page.count("nightly build") == 1
        assert page.count('<b dir="auto">tools.example</b>') == 1

    visiting(work)


@pytest.mark.parametrize(
    "question",
    [
        elicit("Long", **{f"f{number}": {"type": "string", "title": "x" * 100} for number in range(1500)}),
        visit("javascript:alert(1)"),
        visit("file:///etc/" + "x" * 60_000),
        {"method": "elicitation/create", "params": {"mode": "hologram", "message": "Look"}},
        {"method": "elicitation/create", "params": {"message": "Look", "requestedSchema": ["no object"]}},
        {"method": "elicitation/create"},
    ],
)
def test_a_question_that_is_not_what_it_claims_to_be_has_buttons_to_refuse_it_alone(
    visiting: Visiting, question: Any
) -> None:
    async def work(one: Visit) -> None:
        await one.inbox.hand_over(pending(q=question), caller="build")
        await one.enter()
        page = (await one.get("/items/one")).text
        assert len(page) < 120_000
        assert 'value="accept ' not in page
        assert not re.search('href="(javascript|file)', page)
        assert 'value="cancel ' in page
        assert (await one.answer(action="accept")).status_code == 422
        assert (await one.answer(action="decline")).status_code == 303
        assert (await one.inbox.get("one")).pending.answers == {"q": {"action": "decline"}}
        assert (await one.get("/items/one")).status_code == 200

    visiting(work)


@pytest.mark.parametrize("schema_depth", [4, 40, 80])
def test_a_schema_that_is_no_form_is_shown_raw_and_can_be_refused(visiting: Visiting, schema_depth: int) -> None:
    part: dict[str, Any] = {"type": "string"}
    for _ in range(schema_depth):
        part = {"type": "object", "properties": {"x": part}}

    async def work(one: Visit) -> None:
        await one.inbox.hand_over(pending(q=elicit("Deep", x=part)), caller="build")
        await one.enter()
        page = (await one.get("/items/one")).text
        assert 'value="accept ' not in page
        assert "cannot be answered here" in page
        assert (await one.answer(action="accept")).status_code == 422
        assert (await one.answer(action="decline")).status_code == 303

    visiting(work)


@pytest.mark.parametrize(
    ("url", "host", "plain", "refused", "warned"),
    [
        ("https://example.com/a?b#c", "example.com", "", False, False),
        ("https://EXAMPLE.com:8443/a", "EXAMPLE.com", "", False, False),
        ("http://localhost:8000/x", "localhost", "", False, False),
        ("http://127.0.0.1/x", "127.0.0.1", "", False, False),
        ("http://[::1]:80/x", "[::1]", "", False, False),
        ("https://bücher.example/", "bücher.example", "xn--bcher-kva.example", False, True),
        ("https://xn--bcher-kva.example/", "xn--bcher-kva.example", "", False, True),
        ("https://bank.example@evil.example/", "evil.example", "", False, True),
        ("https://evil.example/https://bank.example/", "evil.example", "", False, False),
        ("http://example.com/", "example.com", "", True, False),
        ("http://localhost.evil.example/", "localhost.evil.example", "", True, False),
        ("javascript:alert(1)", "", "", True, False),
        ("JAVASCRIPT://x/%0aalert(1)", "", "", True, False),
        ("data:text/html,<script>", "", "", True, False),
        ("file:///etc/passwd", "", "", True, False),
        ("https://", "", "", True, False),
        ("https://a\u202eb.example/", "", "", True, False),
        ("https://bank.example\\@evil.example/", "", "", True, False),
        ("https://[broken/", "", "", True, False),
        ("https://" + "ü" * 80 + ".example/", "", "", True, False),
        (None, "", "", True, False),
    ],
)
def test_an_address_says_where_it_leads(url: Any, host: str, plain: str, refused: bool, warned: bool) -> None:
    found = address_of(url)
    assert (found.host, found.plain, bool(found.refused), bool(found.warnings)) == (host, plain, refused, warned)
    assert found.before + found.host + found.after == str(url)


@pytest.mark.parametrize(
    ("url", "place", "poses"),
    [
        ("https://bank.example@evil.example/", "evil.example", "bank.example"),
        ("http://127.0.0.1:8101/x", "127.0.0.1:8101", ""),
        ("http://[::1]:80/x", "[::1]:80", ""),
        ("https://bücher.example:8443?x", "xn--bcher-kva.example:8443", ""),
        ("https://evil.example/:80", "evil.example", ""),
    ],
)
def test_an_address_is_named_with_its_port_and_what_poses_as_a_host_is_told(url: str, place: str, poses: str) -> None:
    now = time.time()
    item = Item(id="one", status="waiting", pending=pending(p=visit(url)), caller="x", came=now, changed=now)
    page = re.sub(r"<[^>]*>", "", rendered(item))
    assert f"Open {place} in a new tab" in page
    assert f"I agree to visit {place}" in page
    assert (f"This leads to {place}, not to {poses}," in page) == bool(poses)


def rendered(item: Item) -> str:
    facts: dict[str, Any] = {
        "faults": {},
        "waiting": 0,
        "held": {one.mark: None for one in asked(item)},
        "notice": None,
        "before": "",
        "tell": "",
        "earlier": [],
        "who": "ann",
        "title": "",
        "heading": "",
        "is_named": True,
        "state": item.status,
        "left": [],
        "away": "",
    }
    words = {"waiting": "Waiting", "failed": "Failed"}
    return render(
        "whole.html", item=item, questions=asked(item), base="", csrf="", now=0.0, words=words, may_answer=True, **facts
    )


@pytest.mark.parametrize("url", ["javascript:alert(1)", "data:text/html,x", "ftp://x/", "http://example.com/"])
def test_an_address_of_another_scheme_is_no_link(url: str) -> None:
    now = time.time()
    item = Item(id="one", status="waiting", pending=pending(p=visit(url)), caller="x", came=now, changed=now)
    page = rendered(item)
    assert 'href="' + url not in page
    assert "target=" not in page
    assert 'value="accept ' not in page
    assert 'value="decline ' in page
    [question] = asked(item)
    assert question.answer("accept", {})[1]


def test_a_link_to_a_page_has_its_whole_address_and_agreeing_names_the_host(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        await one.inbox.hand_over(pending(p=visit("https://pay.example/x?a=1&b=2")), caller="build")
        await one.enter()
        page = (await one.get("/items/one")).text
        link = re.search(r'<a class="open".*?</a>', page, re.DOTALL)
        assert link
        assert re.sub(r"<[^>]*>", "", link[0]) == "Open pay.example in a new tabhttps://pay.example/x?a=1&amp;b=2"
        assert page.count(">I agree to visit pay.example</button>") == 1
        assert page.count('class="primary"') == 0, "what is to be done first is the link"
        assert 'href="https://pay.example/x?a=1&amp;b=2" target="_blank" rel="noopener noreferrer"' in link[0]
        await one.answer()
        assert (await one.inbox.get("one")).pending.answers == {"p": {"action": "accept"}}

    visiting(work)


def test_an_unknown_kind_of_question_can_be_shown() -> None:
    now = time.time()
    item = Item(id="one", status="waiting", pending=pending(p={"method": "x/y"}), caller="x", came=now, changed=now)
    [question] = asked(item)
    assert isinstance(question, Asked)
    assert question.kind == "raw"
    assert "x/y" in rendered(item)


@pytest.mark.parametrize(
    ("away", "words"),
    [
        (0, "just now"),
        (-59, "just now"),
        (-61, "1 minute ago"),
        (-7300, "2 hours ago"),
        (-90000, "1 day ago"),
        (30, "in less than a minute"),
        (200, "in 3 minutes"),
    ],
)
def test_times_are_said_from_now(away: float, words: str) -> None:
    now = 1_800_000_000.0
    text = moment(now + away, now)
    assert f">{words}</time>" in text
    assert 'datetime="2027-01-1' in text
    assert "UTC" in text


def test_a_result_is_quoted(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        item = await one.inbox.hand_over(pending(), caller="build")
        content = [{"type": "text", "text": SCRIPT}, {"type": "image", "data": "x", "mimeType": "image/png"}]
        said = Earlier(key="k", request=elicit(SCRIPT), answer={"action": "cancel"}, by="ann", at=1.0, round=0)
        given = replace(item, given=(said,))
        await one.inbox.store.put(given.ended("failed", time.time(), result={"content": content, "isError": True}))
        await one.enter()
        page = (await one.get("/items/one")).text
        assert "The tool failed" in page
        assert "&lt;script&gt;alert(1)" in page
        assert "Cancelled" in page

    visiting(work)


def test_no_template_marks_a_strangers_words_as_safe() -> None:
    for name in templates().list_templates():
        source, _, _ = templates().loader.get_source(templates(), name)  # type: ignore[union-attr]
        assert "|safe" not in source.replace(" ", "")
        assert "autoescape" not in source
        assert "style=" not in source
