"""The door: tokens with names, sessions for browsers, and what is turned away."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.inbox.offices import ANN, BOB, KEY, run
from turnwise.cli.app import app
from turnwise.inbox import door as door_module
from turnwise.inbox.door import PAGE_HEADERS, Attempts, Door, Session, TooManyAttempts, read_tokens
from turnwise.inbox.rights import Member
from turnwise.inbox.sqlite import SQLiteInboxStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SQLiteInboxStore]:
    found = SQLiteInboxStore(tmp_path / "inbox.db", [KEY])
    yield found
    asyncio.run(found.aclose())


def make(store: Any, **options: Any) -> Door:
    return Door(options.pop("tokens", {ANN: "ann", BOB: "bob"}), store, **options)


async def let_in(door: Door, token: str = ANN, address: str = "1") -> Session:
    session = await door.login(token, address)
    assert session is not None
    return session


def test_a_token_has_a_name_and_nothing_else_has(store: Any) -> None:
    door = make(store)
    assert (door.member_of(ANN), door.member_of(BOB)) == (Member("ann"), Member("bob"))
    for wrong in ("", ANN[:-1], ANN + " ", ANN.upper(), "é", "\ud800", "\0", "x" * 100_000):
        assert door.member_of(wrong) is None
    assert door.caller(f"Bearer {ANN}", "1") == Member("ann")
    assert door.caller(f"BEARER   {ANN}  ", "1") == Member("ann")
    for header in (None, "", "Bearer", "Bearer ", f"Basic {ANN}", ANN, f"Bearer{ANN}", f"Bearer {ANN}, {BOB}"):
        assert door.caller(header, "1") is None


def test_a_host_that_is_not_served_is_named_to_who_sent_it_and_once_in_the_log(
    store: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door_module, "MOST_STRANGERS", 2)
    door = make(store)
    assert door.refusal("127.0.0.1") is None
    for host in ("a.example", "a.example", "b.example", "c.example"):
        assert f"The Host '{host}' is not served here" in str(door.refusal(host))
    assert "The Host '' is not served here" in str(door.refusal(None))
    told = [record.getMessage().partition(" was refused")[0] for record in caplog.records]
    assert told == ["a request for the Host 'a.example'", "a request for the Host 'b.example'"]


def test_doors_without_good_tokens_are_not_made(store: Any) -> None:
    wrong = ({"short": "ann"}, {"with space in it, long enough": "ann"}, {ANN: ""}, {ANN: "a\nb"}, {"é" * 30: "ann"})
    for tokens in ({}, *wrong):
        with pytest.raises(ValueError, match=r"token|name"):
            make(store, tokens=tokens)


def test_tokens_are_read_from_lines() -> None:
    lines = "# people\n\n ann : one:two \nbob:three\nnightly build:four\tcaller\nboss:five   reader\n"
    assert read_tokens(lines) == {
        "one:two": Member("ann"),
        "three": Member("bob"),
        "four": Member("nightly build", "caller"),
        "five": Member("boss", "reader"),
    }
    for wrong in (
        "ann",
        ":token",
        "ann:",
        "ann: ",
        "ann:same\nbob:same",
        "ann:a b",
        "ann:a reader caller",
        "ann:a everything",
    ):
        with pytest.raises(ValueError, match="line"):
            read_tokens(wrong)


def test_a_session_begins_under_a_name_of_its_own_and_ends_with_logout(store: Any) -> None:
    async def work() -> None:
        door = make(store)
        assert await door.login("wrong", "1") is None
        first, second = await let_in(door), await let_in(door, f" {ANN}\n")
        assert (first.name, first.id != second.id, first.csrf != second.csrf) == ("ann", True, True)
        assert len({first.id, first.csrf, ANN}) == 3
        assert await door.session(first.id) == first
        for wrong in (None, "", "x", first.id + "x", first.csrf, ANN, "x" * 10_000, "\0"):
            assert await door.session(wrong) is None
        assert await make(store).session(first.id) == first, "another process knows it"
        await door.logout(first)
        assert await door.session(first.id) is None
        assert await door.session(second.id) == second

    run(work())


def test_a_session_ends_with_its_time_and_with_its_token(store: Any) -> None:
    async def work() -> None:
        brief = make(store, session_seconds=0.05)
        session = await let_in(brief)
        await asyncio.sleep(0.06)
        assert await brief.session(session.id) is None
        session = await let_in(make(store))
        assert await make(store, tokens={BOB: "bob"}).session(session.id) is None
        assert await make(store, tokens={ANN: "another", BOB: "bob"}).session(session.id) is None

    run(work())


def test_the_store_holds_neither_tokens_nor_cookies(store: Any, tmp_path: Path) -> None:
    session = run(let_in(make(store)))
    kept = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert ANN.encode() not in kept
    assert session.id.encode() not in kept


def test_a_cookie_is_kept_from_scripts_and_other_sites(store: Any) -> None:
    door = make(store)
    session = run(let_in(door))
    cookie = door.set_cookie(session)
    assert cookie.startswith(f"turnwise_inbox={session.id}; ")
    for word in ("Path=/", "HttpOnly", "SameSite=Strict", "Max-Age=43200"):
        assert word in cookie
    assert "Secure" not in cookie
    assert "Domain" not in cookie
    assert "Max-Age=0" in door.clear_cookie()
    secure = make(store, is_secure=True)
    assert secure.set_cookie(session).startswith("__Host-turnwise_inbox=")
    assert "; Secure" in secure.set_cookie(session)


def test_a_forged_request_lacks_the_word_or_the_origin(store: Any) -> None:
    door = make(store, origins=["https://inbox.example"])
    session, other = run(let_in(door)), run(let_in(door, BOB))
    assert door.has_word(session, session.csrf)
    for wrong in (None, "", other.csrf, session.id, session.csrf[:-1], "é"):
        assert not door.has_word(session, wrong)
    host = {"host": "127.0.0.1:8420"}
    good: tuple[dict[str, str], ...] = (
        {},
        {"origin": "http://127.0.0.1:8420"},
        {"origin": "https://127.0.0.1:8420"},
        {"origin": "https://inbox.example"},
        {"sec-fetch-site": "same-origin", "origin": "http://127.0.0.1:8420"},
        {"sec-fetch-site": "none"},
    )
    for headers in good:
        assert door.is_ours({**host, **headers}), headers
    bad = (
        {"origin": "null"},
        {"origin": ""},
        {"origin": "http://127.0.0.1"},
        {"origin": "http://evil.example"},
        {"origin": "http://127.0.0.1:8420.evil.example"},
        {"origin": "ftp://127.0.0.1:8420"},
        {"origin": "http://["},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site", "origin": "http://127.0.0.1:8420"},
    )
    for headers in bad:
        assert not door.is_ours({**host, **headers}), headers


def test_only_our_own_names_are_served(store: Any) -> None:
    door = make(store)
    for host in ("127.0.0.1", "localhost:8420", "[::1]:8420", "LOCALHOST"):
        assert door.serves(host)
    assert not door.serves(None)
    for host in ("", "evil.example", "localhost.evil.example", "evil.example:8420", "é", "\u2028"):
        assert not door.serves(host)
    named = make(store, hosts=["inbox.example"])
    assert named.serves("inbox.example")
    assert not named.serves("localhost")
    assert make(store, bind="0.0.0.0").serves("anything")


def test_wrong_tokens_are_counted_by_address_and_the_count_ends(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door_module, "ATTEMPT_SECONDS", 0.5)

    async def work() -> None:
        door = make(store)
        for _ in range(10):
            assert await door.login("wrong", "1") is None
        with pytest.raises(TooManyAttempts) as told:
            await door.login(ANN, "1")
        assert told.value.after >= 1
        with pytest.raises(TooManyAttempts):
            door.caller("Bearer wrong", "1")
        with pytest.raises(TooManyAttempts):
            door.caller(f"Bearer {ANN}", "1")
        assert door.caller(None, "1") is None
        assert door.caller(f"Bearer {ANN}", "2") == Member("ann")
        assert await door.login(ANN, "2") is not None
        await asyncio.sleep(0.55)
        assert await door.login(ANN, "1") is not None

    run(work())


def test_the_api_does_not_tell_a_guess_that_came_too_late(store: Any) -> None:
    door = make(store)
    for number in range(10):
        assert door.caller(f"Bearer wrong {number}", "1") is None
    for token in (ANN, "wrong"):
        with pytest.raises(TooManyAttempts):
            door.caller(f"Bearer {token}", "1")
    assert door.caller(f"Bearer {ANN}", None) == Member("ann"), "where nobody can be told apart, a right one is let in"


def test_wrong_tokens_from_everywhere_are_counted_together_and_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(door_module, "MOST_ADDRESSES", 50)
    attempts = Attempts()
    for number in range(100):
        attempts.check(str(number))
        attempts.note(str(number))
    assert len(attempts._by_address) == 50
    with pytest.raises(TooManyAttempts):
        attempts.note("another")
    attempts.check("another")


def told(door: Door, peer: str | None = "203.0.113.9", *headers: tuple[str, str]) -> str | None:
    return door.address([(name.encode(), value.encode()) for name, value in headers], peer)


def test_no_header_says_who_calls_unless_it_is_named(store: Any) -> None:
    forwarded = (("x-forwarded-for", "198.51.100.1"), ("x-real-ip", "198.51.100.1"), ("forwarded", "for=198.51.100.1"))
    assert told(make(store), "203.0.113.9", *forwarded) == "203.0.113.9"
    for peer in (None, "127.0.0.1", "127.8.8.8", "::1"):
        assert told(make(store), peer, *forwarded) is None, "a proxy on this machine speaks for many"
    assert told(make(store, is_secure=True)) is None, "who is reached by https has a proxy before it"


def test_who_a_proxy_speaks_for_is_what_it_added_itself(store: Any) -> None:
    door = make(store, is_secure=True, caller_header="X-Forwarded-For")
    assert told(door, "127.0.0.1", ("x-forwarded-for", "198.51.100.1")) == "198.51.100.1"
    assert told(door, None, ("x-forwarded-for", "made up, 198.51.100.1")) == "198.51.100.1"
    assert told(door, None, ("x-forwarded-for", "made up"), ("x-forwarded-for", "198.51.100.1")) == "198.51.100.1"
    assert len(told(door, None, ("x-forwarded-for", "x" * 9999)) or "") == 100
    for nothing in ((), (("x-forwarded-for", ""),), (("x-forwarded-for", "made up, "),), (("x-real-ip", "1"),)):
        assert told(door, "203.0.113.9", *nothing) is None


def test_nobody_behind_a_proxy_shuts_out_the_others(store: Any) -> None:
    async def work() -> None:
        blind, seeing = make(store, is_secure=True), make(store, is_secure=True, caller_header="x-real-ip")
        nobody = told(blind, "10.0.0.1")
        for _ in range(100):
            assert await blind.login("wrong", nobody) is None
        with pytest.raises(TooManyAttempts):
            await blind.login("wrong", nobody)
        assert await blind.login(ANN, nobody) is not None, "a right token is let in all the same"
        one, other = (told(seeing, "10.0.0.1", ("x-real-ip", f"198.51.100.{number}")) for number in (1, 2))
        for _ in range(10):
            await seeing.login("wrong", one)
        with pytest.raises(TooManyAttempts):
            await seeing.login(ANN, one)
        assert await seeing.login(ANN, other) is not None

    run(work())


def test_the_command_is_told_which_header_to_believe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    doors: list[Door] = []

    def serve(desk: Any, door: Door, *rest: Any) -> int:
        doors.append(door)
        return 0

    monkeypatch.setattr("turnwise.cli.inbox._serve", serve)
    command = ["inbox", "--port", "0", "--store", str(tmp_path / "inbox.db")]
    for more in ([], ["--caller-header", "X-Real-IP"]):
        assert CliRunner().invoke(app, [*command, *more]).exit_code == 0
    plain, told_so = doors
    assert told(plain, "203.0.113.9", ("x-real-ip", "198.51.100.1")) == "203.0.113.9"
    assert told(told_so, "203.0.113.9", ("x-real-ip", "198.51.100.1")) == "198.51.100.1"


def test_a_wrong_token_takes_as_long_as_any_other(store: Any) -> None:
    """Not to the microsecond: a door that stopped at the first token that fits would differ by far more."""
    door = make(store, tokens={f"{number:030}": f"n{number}" for number in range(200)})

    def seconds(token: str) -> float:
        times = []
        for _ in range(50):
            began = time.perf_counter()
            door.member_of(token)
            times.append(time.perf_counter() - began)
        return min(times)

    found = [seconds(token) for token in (f"{0:030}", f"{199:030}", "x" * 30)]
    assert max(found) < 3 * min(found)


def test_pages_are_shut_to_frames_and_to_strange_scripts() -> None:
    policy = PAGE_HEADERS["content-security-policy"]
    for name in ("default-src", "frame-ancestors", "base-uri"):
        assert f"{name} 'none'" in policy
    for name in ("script-src", "style-src", "form-action"):
        assert f"{name} 'self'" in policy
    assert "unsafe" not in policy
    assert PAGE_HEADERS["x-content-type-options"] == "nosniff"
