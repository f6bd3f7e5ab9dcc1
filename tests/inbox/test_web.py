"""The inbox's pages over HTTP, without a browser: who gets in, what is taken, and what never gets out."""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx2
import pytest

from turnwise import Pending
from turnwise.inbox.app import create_app
from turnwise.inbox.desk import Inbox
from turnwise.inbox.door import Door
from turnwise.inbox.model import Earlier, Item
from turnwise.inbox.questions import Asked, address_of, answered, asked
from turnwise.inbox.rendering import folded, moment, render, shown, templates
from turnwise.inbox.sqlite import SQLiteInboxStore

HERE = "http://127.0.0.1:8100"
ANN, BOB = "ann-has-this-token-to-herself", "bob-has-this-token-to-himself"
STATE, SECRET = "the-state-that-nobody-sees", "Bearer the-credentials-that-nobody-sees"
FORM = "application/x-www-form-urlencoded"


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

    def __init__(self, app: Any, inbox: Inbox) -> None:
        self.inbox = inbox
        self.client = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url=HERE)
        self.seen: list[str] = []

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
        hidden = dict(reversed(re.findall(r'name="(csrf|round|question)" value="([^"]*)"', page)))
        return await self.post(f"/items/{item_id}/answers", {**hidden, "action": action, **typed})

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
            one = Visit(create_app(inbox, Door({ANN: "ann", BOB: "bob"}, store), patience=0), inbox)
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
        for path in ("/", "/history", "/items/one", "/items/nothing?x=1"):
            reply = await one.get(path)
            assert reply.status_code == 303
            assert reply.headers["location"].startswith("/login?next=%2F")
            assert (await one.get(path, x_part="live")).status_code == 401
        assert (await one.get("/events")).status_code == 401
        for path in ("/items/one/answers", "/items/one/withdrawal", "/logout"):
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
        cookie = reply.headers["set-cookie"]
        assert "planted" not in cookie
        assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(cookie.split("; "))
        first = await one.word()
        await one.enter()
        assert await one.word() != first

    visiting(work)


@pytest.mark.parametrize(
    "following",
    ["https://evil.example/", "//evil.example/", "/\\evil.example", "javascript:alert(1)", "/items/\r\nX: y"],
)
def test_signing_in_leads_nowhere_else(visiting: Visiting, following: str) -> None:
    async def work(one: Visit) -> None:
        reply = await one.post("/login", {"token": ANN, "next": following})
        assert reply.headers["location"] == "/"

    visiting(work)


def test_a_wrong_token_is_said_and_too_many_are_stopped(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        for _ in range(10):
            reply = await one.post("/login", {"token": "<b>wrong</b>"})
            assert reply.status_code == 403
            assert "<b>wrong" not in reply.text
        reply = await one.post("/login", {"token": ANN})
        assert reply.status_code == 429
        assert int(reply.headers["retry-after"]) > 0

    visiting(work)


def test_signing_out_ends_the_session_itself(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        await one.enter()
        kept = dict(one.client.cookies)
        assert (await one.post("/logout", {"csrf": await one.word()})).status_code == 303
        one.client.cookies.update(kept)
        assert (await one.get("/")).status_code == 303

    visiting(work)


def test_every_reply_has_the_headers_of_a_page(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        paths = ("/", "/login", "/static/inbox.js", "/static/inbox.css", "/static/icon.svg", "/nowhere", "/static/no")
        for path in paths:
            reply = await one.get(path)
            policy = reply.headers["content-security-policy"]
            for part in ("default-src 'none'", "script-src 'self'", "frame-ancestors 'none'", "form-action 'self'"):
                assert part in policy, path
            assert "unsafe" not in policy
            assert reply.headers["x-content-type-options"] == "nosniff"
            assert reply.headers["x-frame-options"] == "DENY"
            assert reply.headers["referrer-policy"] == "same-origin"

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
        for path in ("/items/one/answers", "/items/one/withdrawal", "/logout"):
            assert (await one.post(path, {"csrf": word, "round": 0, "action": "decline"}, **headers)).status_code == 403
        assert (await one.inbox.get("one")).status == "waiting"
        assert (await one.get("/")).status_code == 200

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
        hidden = dict(re.findall(r'name="(csrf|round|question)" value="([^"]*)"', page))
        await one.inbox.answer("one", {"name": {"action": "decline"}}, round=0, by="ann <b>")
        reply = await one.post("/items/one/answers", {**hidden, "action": "accept", "q0-0": "late"})
        assert reply.status_code == 409
        assert "ann &lt;b&gt; answered this before" in reply.text
        assert (await one.inbox.get("one")).pending.answers == {"name": {"action": "decline"}}

    visiting(work)


def test_an_answer_never_goes_to_another_question(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        await one.inbox.hand_over(pending(), caller="build")
        await one.enter()
        word = await one.word()
        for round_, question in (("0", "other"), ("7", ""), ("x", ""), ("-1", "")):
            typed = {"csrf": word, "round": round_, "question": question, "action": "accept", "q0-0": "x"}
            assert (await one.post("/items/one/answers", typed)).status_code == 409
        assert (await one.inbox.get("one")).pending.answers == {}

    visiting(work)


def test_a_call_is_withdrawn(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        await one.inbox.hand_over(pending(), caller="build")
        await one.enter()
        word = {"csrf": await one.word()}
        assert (await one.post("/items/one/withdrawal", word)).status_code == 303
        assert (await one.inbox.get("one")).status == "failed"
        assert (await one.post("/items/one/withdrawal", word)).status_code == 409
        assert "withdrawn by ann" in (await one.get("/items/one")).text
        assert "Your name?" in (await one.get("/history")).text

    visiting(work)


def test_several_questions_are_answered_one_by_one(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        questions: Any = {"a": elicit("First?"), "b": elicit("Second?")}
        await one.inbox.hand_over(pending(**questions), caller="build")
        await one.enter()
        assert (await one.answer(**{"q0-0": "1"})).status_code == 303
        assert (await one.inbox.get("one")).status == "waiting"
        assert (await one.answer(**{"q1-0": "2"})).status_code == 303
        assert (await one.inbox.get("one")).status == "going"

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
        values = re.findall(r"<dt[^>]*>(.*?)</dt><dd>(.*?)</dd>", page.partition("Earlier answers")[2], re.DOTALL)
        said = [(name, re.sub(r"<[^>]*>", "", text)) for name, text in values]
        assert said == [
            ("Answer", "4"),
            ("Which menu", "Fish from the lake"),
            ("Sides", "rice\nsalad"),
            ("With wine", "Yes"),
            ("guests", "3"),
        ]

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
        await one.answer("two", **{"q0-roots": "file:///a My project\r\n\r\nfile:///b"})
        answer = (await one.inbox.get("two")).pending.answers["r"]
        assert answer == {"roots": [{"uri": "file:///a", "name": "My project"}, {"uri": "file:///b"}]}

    visiting(work)


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"csrf=%ff", {}, 400),
        (b"\xff\xfe", {}, 400),
        ("&".join(f"a{n}=1" for n in range(2001)).encode(), {}, 400),
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
        assert (await one.get("/items/one/answers")).status_code == 405
        assert (await one.get("/?after=elsewhere")).status_code == 400
        assert (await one.get("/static/..%2fweb.py")).status_code == 404

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
    "text", [SCRIPT, '"><img src=x onerror=alert(1)>', "' autofocus onfocus=alert(1) x='", "{{ 7 * 7 }}{% raw %}"]
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
            assert "49" not in page

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


def test_long_texts_fold_and_very_long_ones_end() -> None:
    assert "<details" not in folded("short")
    assert "<details" in folded("x" * 601)
    assert "<details" in folded("x\n" * 20)
    whole = folded("x" * 1_000_000)
    assert len(whole) < 60_000
    assert "950,000 more characters are not shown" in whole


@pytest.mark.parametrize("schema_depth", [4, 40, 80])
def test_a_schema_that_is_no_form_is_shown_raw_and_can_be_refused(visiting: Visiting, schema_depth: int) -> None:
    part: dict[str, Any] = {"type": "string"}
    for _ in range(schema_depth):
        part = {"type": "object", "properties": {"x": part}}

    async def work(one: Visit) -> None:
        await one.inbox.hand_over(pending(q=elicit("Deep", x=part)), caller="build")
        await one.enter()
        page = (await one.get("/items/one")).text
        assert 'value="accept"' not in page
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


def rendered(item: Item) -> str:
    facts: dict[str, Any] = {
        "typed": None,
        "faults": [],
        "picked": "",
        "notice": None,
        "tell": "",
        "earlier": [],
        "who": "ann",
    }
    words = {"waiting": "Waiting", "failed": "Failed"}
    return render("whole.html", item=item, questions=asked(item), base="", csrf="", now=0.0, words=words, **facts)


@pytest.mark.parametrize("url", ["javascript:alert(1)", "data:text/html,x", "ftp://x/", "http://example.com/"])
def test_an_address_of_another_scheme_is_no_link(url: str) -> None:
    now = time.time()
    item = Item(id="one", status="waiting", pending=pending(p=visit(url)), caller="x", came=now, changed=now)
    page = rendered(item)
    assert 'href="' + url not in page
    assert "target=" not in page
    assert 'value="accept"' not in page
    assert 'value="decline"' in page
    [question] = asked(item)
    assert question.answer("accept", {})[1]


def test_a_link_to_a_page_stands_behind_a_confirmation_that_names_its_host(visiting: Visiting) -> None:
    async def work(one: Visit) -> None:
        await one.inbox.hand_over(pending(p=visit("https://pay.example/x?a=1&b=2")), caller="build")
        await one.enter()
        page = (await one.get("/items/one")).text
        link = re.search(r'<details class="confirm">.*?</details>', page, re.DOTALL)
        assert link
        assert 'href="https://pay.example/x?a=1&amp;b=2" target="_blank" rel="noopener noreferrer"' in link[0]
        assert "You are leaving the inbox for" in link[0]
        assert page.count("pay.example/x?a=1&amp;b=2") == 1
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
