"""The seal: what a token is bound to, who can open it, and the one sentence that is said of any other."""

import asyncio
import base64
import itertools
import json
import logging
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import orjson
import pytest
from cryptography.exceptions import InvalidTag
from pydantic import BaseModel

from turnwise import AccessToken, Context, InvalidRequestState, MCPServer, RequestStateSecurity, _sealed
from turnwise._messages import Identity, Post
from turnwise._sealed import PREFIX, XAES, KeyRing
from turnwise.dialects.words import CAPABILITIES, PROTOCOL, VERSION

KEY = bytes(range(32))
OLD = bytes(range(32, 64))
NOW = 1_800_000_000.0
TTL = 60.0
FROZEN = {"code": -32602, "message": "Invalid or expired requestState"}
ALICE = AccessToken("tok-1", "app", ["shop"], subject="alice", issuer="https://login.example.com")

Reply = dict[str, Any]


class Size(BaseModel):
    size: str


def serve(security: RequestStateSecurity | None = None, name: str = "shop") -> MCPServer[Any]:
    """A shop in which everything asks two questions before it is done."""
    server = MCPServer(name, request_state_security=security or RequestStateSecurity(keys=[KEY], ttl=TTL))

    async def both(ctx: Context) -> str:
        first = await ctx.elicit("Which size?", Size, key="size")
        await ctx.elicit("Are you sure?", Size, key="sure")
        return f"got {first}"

    async def order(ctx: Context, item: Any = None, options: Any = None) -> str:
        return await both(ctx)

    async def page(item: str, ctx: Context) -> str:
        return await both(ctx)

    server.add_tool(order, "order")
    server.add_tool(order, "refund")
    server.prompt("order")(order)
    server.resource("shop://front")(both)
    server.resource("shop://items/{item}")(page)
    return server


async def post(
    server: MCPServer[Any],
    method: str,
    params: dict[str, Any],
    now: float = NOW,
    access: Identity | None = None,
) -> Reply:
    meta = {PROTOCOL: VERSION, CAPABILITIES: {"elicitation": {}}}
    message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {**params, "_meta": meta}}

    async def emit(notification: bytes) -> None:
        raise AssertionError(notification)

    reply = await server.wire.answer(Post(json.dumps(message).encode(), emit, now, access=access))
    decoded: Reply = orjson.loads(reply.body or b"null")
    return decoded


def send(
    server: MCPServer[Any],
    method: str = "tools/call",
    *,
    token: str | None = None,
    now: float = NOW,
    access: Identity | None = None,
    **params: Any,
) -> Reply:
    """One round; with a token, the answer to the first question comes along."""
    target = params or {"name": "order", "arguments": {"item": "hat"}}
    carried: dict[str, Any] = {}
    if token is not None:
        content = {"size": "swordfish"}
        carried = {"requestState": token, "inputResponses": {"size": {"action": "accept", "content": content}}}
    return asyncio.run(post(server, method, target | carried, now, access))


def token_of(reply: Reply) -> str:
    assert reply["result"]["resultType"] == "input_required"
    token: str = reply["result"]["requestState"]
    return token


def is_taken(reply: Reply) -> bool:
    """Whether the answer counted: the first question is settled, and only the second is still asked."""
    if "error" in reply:
        assert reply == {"jsonrpc": "2.0", "id": 1, "error": FROZEN}
        return False
    assert reply["result"]["resultType"] == "input_required"
    assert [*reply["result"]["inputRequests"]] == ["sure"]
    return True


def raw_of(token: str) -> bytes:
    text = token.removeprefix(PREFIX)
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))


def spelled(raw: bytes) -> str:
    return PREFIX + base64.urlsafe_b64encode(raw).decode().rstrip("=")


# The cipher


@pytest.mark.parametrize(
    ("key", "associated", "expected"),
    [
        (b"\x01" * 32, b"", "ce546ef63c9cc60765923609b33a9a1974e96e52daf2fcf7075e2271"),
        (b"\x03" * 32, b"c2sp.org/XAES-256-GCM", "986ec1832593df5443a179437fd083bf3fdb41abd740a21f71eb769d"),
    ],
)
def test_xaes_gives_the_known_answers_of_its_specification(key: bytes, associated: bytes, expected: str) -> None:
    nonce = b"ABCDEFGHIJKLMNOPQRSTUVWX"
    cipher = XAES(key).derive(nonce[:12])
    sealed = cipher.encrypt(nonce[12:], b"XAES-256-GCM", associated)
    assert sealed.hex() == expected
    assert cipher.decrypt(nonce[12:], sealed, associated) == b"XAES-256-GCM"


def test_xaes_derives_another_key_for_another_prefix() -> None:
    sealed = XAES(KEY).derive(b"a" * 12).encrypt(b"n" * 12, b"text", None)
    with pytest.raises(InvalidTag):
        XAES(KEY).derive(b"b" * 12).decrypt(b"n" * 12, sealed, None)


# The key ring


def test_a_payload_of_any_length_comes_back_as_it_was() -> None:
    ring = KeyRing([KEY])
    for size in range(70):
        payload = bytes(range(size))
        assert ring.unseal(ring.seal(payload)) == payload


def test_the_same_payload_gives_a_new_token_every_time() -> None:
    ring = KeyRing([KEY])
    assert len({ring.seal(b"same") for _ in range(200)}) == 200


def test_a_token_is_url_safe_text_behind_a_version_prefix() -> None:
    ring = KeyRing([KEY])
    alphabet = set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
    for size in range(50):
        token = ring.seal(bytes(size))
        assert token.startswith("s1.")
        assert set(token[3:]) <= alphabet


def test_the_first_key_mints_and_every_key_verifies() -> None:
    before, after = KeyRing([OLD]), KeyRing([KEY, OLD])
    assert after.unseal(before.seal(b"minted before the rotation")) == b"minted before the rotation"
    minted = after.seal(b"minted after")
    assert KeyRing([KEY]).unseal(minted) == b"minted after"
    with pytest.raises(InvalidRequestState):
        before.unseal(minted)


def test_a_token_under_a_retired_key_is_refused() -> None:
    with pytest.raises(InvalidRequestState, match="a key this process does not have"):
        KeyRing([KEY]).unseal(KeyRing([OLD]).seal(b""))


def test_the_key_id_alone_picks_the_key() -> None:
    mine, other = KeyRing([KEY]), KeyRing([OLD])
    token = raw_of(mine.seal(b"text"))
    renamed = raw_of(other.seal(b""))[:4] + token[4:]
    with pytest.raises(InvalidRequestState, match="changed"):
        KeyRing([KEY, OLD]).unseal(spelled(renamed))


def test_the_key_id_is_not_a_part_of_the_key() -> None:
    assert raw_of(KeyRing([KEY]).seal(b""))[:4] not in KEY


@pytest.mark.parametrize("size", [1, 16, 31])
def test_a_short_key_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match="32"):
        RequestStateSecurity(keys=[KEY, bytes(size)])


def test_a_ring_without_keys_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one key"):
        RequestStateSecurity(keys=[])
    with pytest.raises(ValueError, match="32"):
        RequestStateSecurity(keys=[b""])


def test_one_key_that_is_not_in_a_list_is_refused() -> None:
    """Iterating bytes gives numbers, and `bytes(number)` is that many zeros: a key that anybody can guess."""
    secret: Any = b"0123456789abcdef0123456789abcdef"
    with pytest.raises((TypeError, ValueError)):
        RequestStateSecurity(keys=secret)
    with pytest.raises((TypeError, ValueError)):
        RequestStateSecurity(keys=bytearray(secret))  # type: ignore[arg-type]
    with pytest.raises((TypeError, ValueError)):
        RequestStateSecurity(keys=secret.decode())


def test_a_number_is_not_a_key() -> None:
    number: Any = 64
    with pytest.raises((TypeError, ValueError)):
        RequestStateSecurity(keys=[number])


def test_a_key_may_be_text_or_bytes() -> None:
    text = "correct horse battery staple, said the fox"
    assert KeyRing([text.encode()]).unseal(KeyRing([text]).seal(b"x")) == b"x"
    assert KeyRing([bytearray(text.encode())]).unseal(KeyRing([text]).seal(b"x")) == b"x"


def test_keys_and_codec_are_exclusive_and_one_is_needed() -> None:
    with pytest.raises(ValueError, match="exactly one"):
        RequestStateSecurity(keys=[KEY], codec=Hex())
    with pytest.raises(ValueError, match="exactly one"):
        RequestStateSecurity()


@pytest.mark.parametrize("ttl", [0, -1, -0.5, math.nan, math.inf, -math.inf])
def test_a_ttl_is_a_positive_number_of_seconds(ttl: float) -> None:
    with pytest.raises(ValueError, match="ttl"):
        RequestStateSecurity(keys=[KEY], ttl=ttl)
    with pytest.raises(ValueError, match="ttl"):
        RequestStateSecurity.ephemeral(ttl=ttl)


def prefixes(ring: KeyRing, count: int) -> list[bytes]:
    return [raw_of(ring.seal(b""))[4:16] for _ in range(count)]


def test_the_nonce_prefix_is_renewed_after_a_bounded_number_of_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_sealed, "TOKENS_PER_PREFIX", 3)
    drawn = prefixes(KeyRing([KEY]), 9)
    assert [len(set(drawn[at : at + 3])) for at in (0, 3, 6)] == [1, 1, 1]
    assert len(set(drawn)) == 3


def test_two_rings_never_share_a_nonce_prefix() -> None:
    assert prefixes(KeyRing([KEY]), 1) != prefixes(KeyRing([KEY]), 1)


def test_one_prefix_serves_no_more_tokens_than_a_gcm_key_bears() -> None:
    assert _sealed.TOKENS_PER_PREFIX <= 2**32


def test_tokens_with_more_prefixes_than_are_remembered_still_verify(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_sealed, "TOKENS_PER_PREFIX", 1)
    monkeypatch.setattr(_sealed, "OPENERS_KEPT", 2)
    ring = KeyRing([KEY])
    tokens = [ring.seal(bytes([number])) for number in range(8)]
    for _ in range(2):
        assert [ring.unseal(token) for token in tokens] == [bytes([number]) for number in range(8)]


@pytest.mark.parametrize(("letter", "other", "absent"), [("_", "/", "-"), ("-", "+", "_")])
def test_a_token_in_the_other_alphabet_of_base64_is_refused(letter: str, other: str, absent: str) -> None:
    rings = (KeyRing([b"%032d" % number]) for number in itertools.count())
    made = ((ring, ring.seal(b"xxx")) for ring in rings)
    ring, token = next((ring, token) for ring, token in made if letter in token and absent not in token)
    assert ring.unseal(token) == b"xxx"
    with pytest.raises(InvalidRequestState, match="respelled"):
        ring.unseal(token.replace(letter, other))


@pytest.mark.parametrize("keys", ["k" * 40, b"k" * 40, bytearray(40)])
def test_one_key_is_no_list_of_keys(keys: Any) -> None:
    with pytest.raises(TypeError, match="a list of keys, not one key"):
        KeyRing(keys)


def test_a_key_is_bytes_or_text() -> None:
    with pytest.raises(TypeError, match="a key is bytes or text, not int"):
        KeyRing([7])  # type: ignore[list-item]


def test_a_prefix_is_worked_out_once_while_it_is_remembered_and_a_forged_one_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_sealed, "TOKENS_PER_PREFIX", 1)
    monkeypatch.setattr(_sealed, "OPENERS_KEPT", 2)
    ring = KeyRing([KEY])
    tokens = [ring.seal(b"%d" % number) for number in range(3)]
    forged = [token[:-4] + ("AAAA" if token[-4:] != "AAAA" else "BBBB") for token in map(ring.seal, [b"x"] * 5)]
    derive, derived = _sealed.XAES.derive, list[bytes]()

    def counted(self: _sealed.XAES, prefix: bytes) -> Any:
        derived.append(prefix)
        return derive(self, prefix)

    monkeypatch.setattr(_sealed.XAES, "derive", counted)

    def cost(*numbers: int) -> int:
        derived.clear()
        assert [ring.unseal(tokens[number]) for number in numbers] == [b"%d" % number for number in numbers]
        return len(derived)

    assert cost(0, 1, 0, 1) == 2
    for token in forged:
        with pytest.raises(InvalidRequestState):
            ring.unseal(token)
    assert cost(0, 1) == 0
    assert cost(2) == 1, "in the place of the oldest"
    assert (cost(1, 2), cost(0)) == (0, 1)


# What a token is bound to


def test_a_token_is_good_for_the_next_round_of_its_own_call() -> None:
    server = serve()
    assert is_taken(send(server, token=token_of(send(server))))


def test_any_instance_with_the_key_takes_the_token() -> None:
    assert is_taken(send(serve(), token=token_of(send(serve()))))


def test_a_client_that_lost_the_reply_may_send_the_same_token_again() -> None:
    server = serve()
    token = token_of(send(server))
    assert is_taken(send(server, token=token))
    assert is_taken(send(server, token=token))


def test_rotation_keeps_calls_alive_that_began_under_the_old_key() -> None:
    token = token_of(send(serve(RequestStateSecurity(keys=[OLD]))))
    rotated = send(serve(RequestStateSecurity(keys=[KEY, OLD])), token=token)
    assert is_taken(rotated)
    assert raw_of(token_of(rotated))[:4] == raw_of(KeyRing([KEY]).seal(b""))[:4]
    assert not is_taken(send(serve(RequestStateSecurity(keys=[KEY])), token=token))


def test_a_process_with_a_key_of_its_own_refuses_the_tokens_of_another() -> None:
    one, another = (serve(RequestStateSecurity.ephemeral()) for _ in range(2))
    token = token_of(send(one))
    assert is_taken(send(one, token=token))
    assert not is_taken(send(another, token=token))


TARGETS: dict[str, tuple[str, dict[str, Any]]] = {
    "a tool": ("tools/call", {"name": "order", "arguments": {"item": "hat"}}),
    "another tool": ("tools/call", {"name": "refund", "arguments": {"item": "hat"}}),
    "other arguments": ("tools/call", {"name": "order", "arguments": {"item": "coat"}}),
    "no arguments": ("tools/call", {"name": "order"}),
    "a prompt of that name": ("prompts/get", {"name": "order", "arguments": {"item": "hat"}}),
    "a resource": ("resources/read", {"uri": "shop://front"}),
    "a template's resource": ("resources/read", {"uri": "shop://items/hat"}),
    "another of the template": ("resources/read", {"uri": "shop://items/coat"}),
}


@pytest.mark.parametrize("minted", TARGETS)
@pytest.mark.parametrize("used", TARGETS)
def test_a_token_is_taken_by_the_call_it_was_minted_for_and_no_other(minted: str, used: str) -> None:
    server = serve()
    method, params = TARGETS[minted]
    token = token_of(send(server, method, **params))
    method, params = TARGETS[used]
    assert is_taken(send(server, method, token=token, **params)) == (minted == used)


SAME = [
    ({"a": 1, "b": {"c": 2, "d": [3, 4]}}, {"b": {"d": [3, 4], "c": 2}, "a": 1}),
    ({"item": "é"}, {"item": "\u00e9"}),
    ({}, None),
]
DIFFERENT = [
    (1, 1.0),
    (1, True),
    (0, False),
    (1, "1"),
    (None, "null"),
    (None, False),
    ([1, 2], [2, 1]),
    ([1, 2], [12]),
    ({"a": 1}, [["a", 1]]),
    ("e\u0301", "\u00e9"),
    (2**53, 2**53 + 1),
    (2**64, 2**64 + 1),
    (2**64, float(2**64)),
    ("x", "x "),
]


@pytest.mark.parametrize(("first", "second"), SAME)
def test_the_order_of_members_is_no_difference_in_arguments(first: Any, second: Any) -> None:
    server = serve()
    token = token_of(send(server, name="order", arguments=first))
    again = {"name": "order"} if second is None else {"name": "order", "arguments": second}
    assert is_taken(send(server, token=token, **again))


@pytest.mark.parametrize(("first", "second"), DIFFERENT)
def test_arguments_that_are_other_json_are_other_arguments(first: Any, second: Any) -> None:
    server = serve()
    for minted, used in ((first, second), (second, first)):
        token = token_of(send(server, name="order", arguments={"item": minted}))
        assert is_taken(send(server, token=token, name="order", arguments={"item": minted}))
        assert not is_taken(send(server, token=token, name="order", arguments={"item": used}))


def test_an_argument_left_out_is_not_one_that_is_null() -> None:
    server = serve()
    token = token_of(send(server, name="order", arguments={"item": "hat"}))
    assert not is_taken(send(server, token=token, name="order", arguments={"item": "hat", "options": None}))


def test_the_same_person_may_come_back_with_a_refreshed_token() -> None:
    server = serve()
    token = token_of(send(server, access=ALICE))
    refreshed = replace(ALICE, token="tok-2", scopes=("shop", "more"), expires_at=int(NOW) + 5)
    assert is_taken(send(server, token=token, access=refreshed))


@pytest.mark.parametrize(
    "somebody",
    [
        replace(ALICE, subject="bob"),
        replace(ALICE, subject=None),
        replace(ALICE, issuer="https://login.example.org"),
        replace(ALICE, client_id="another app"),
        None,
    ],
    ids=["another subject", "no subject", "another issuer", "another client", "no token"],
)
def test_a_token_cannot_be_lent(somebody: AccessToken | None) -> None:
    server = serve()
    token = token_of(send(server, access=ALICE))
    assert not is_taken(send(server, token=token, access=somebody))
    assert is_taken(send(server, token=token, access=ALICE))


def test_what_nobody_in_particular_began_cannot_be_taken_over_by_somebody() -> None:
    server = serve()
    token = token_of(send(server))
    assert not is_taken(send(server, token=token, access=ALICE))


def test_the_principal_is_the_authors_to_choose() -> None:
    def tenant(context: Context) -> str | None:
        return context.access_token.principal[:8] if context.access_token is not None else None

    server = serve(RequestStateSecurity(keys=[KEY], bind_principal=tenant))
    token = token_of(send(server, access=ALICE))
    assert is_taken(send(server, token=token, access=replace(ALICE, subject="bob")))
    assert not is_taken(send(server, token=token, access=replace(ALICE, client_id="another app")))


def test_a_server_that_binds_no_principal_takes_a_token_from_anybody() -> None:
    server = serve(RequestStateSecurity(keys=[KEY], bind_principal=None))
    token = token_of(send(server, access=ALICE))
    assert is_taken(send(server, token=token))


def test_an_empty_principal_is_not_the_same_as_none() -> None:
    nobody = serve(RequestStateSecurity(keys=[KEY], bind_principal=lambda call: ""))
    none = serve(RequestStateSecurity(keys=[KEY], bind_principal=lambda call: None))
    assert not is_taken(send(none, token=token_of(send(nobody))))
    assert not is_taken(send(nobody, token=token_of(send(none))))


def test_a_token_is_for_one_service_even_where_two_share_a_key() -> None:
    token = token_of(send(serve(name="shop")))
    assert not is_taken(send(serve(name="bank"), token=token))


def test_services_with_one_audience_take_each_others_tokens() -> None:
    def security() -> RequestStateSecurity:
        return RequestStateSecurity(keys=[KEY], audience="the mall")

    assert is_taken(send(serve(security(), "bank"), token=token_of(send(serve(security(), "shop")))))
    assert not is_taken(send(serve(name="shop"), token=token_of(send(serve(security(), "shop")))))


@pytest.mark.parametrize(
    ("age", "taken"),
    [(0, True), (TTL - 0.001, True), (TTL, False), (TTL + 0.001, False), (10 * TTL, False), (-TTL, True)],
)
def test_a_token_expires_when_its_time_is_up_and_not_before(age: float, taken: bool) -> None:
    server = serve()
    assert is_taken(send(server, token=token_of(send(server)), now=NOW + age)) == taken


def test_expiry_is_no_earlier_than_promised_and_at_most_a_second_later() -> None:
    server = serve()
    token = token_of(send(server, now=NOW + 0.75))
    assert is_taken(send(server, token=token, now=NOW + 0.75 + TTL - 0.001))
    assert not is_taken(send(server, token=token, now=NOW + 1.75 + TTL))


def test_every_question_gets_the_whole_time() -> None:
    server = serve()
    second = token_of(send(server, token=token_of(send(server)), now=NOW + TTL - 1))
    assert is_taken(send(server, token=second, now=NOW + 2 * TTL - 2))


# Forgeries


def test_a_change_of_any_character_is_refused() -> None:
    server = serve()
    token = token_of(send(server))
    for place, was in enumerate(token):
        changed = token[:place] + ("A" if was != "A" else "B") + token[place + 1 :]
        assert not is_taken(send(server, token=changed)), place


def test_a_change_of_any_byte_is_refused() -> None:
    server = serve()
    raw = raw_of(token_of(send(server)))
    for place in range(len(raw)):
        changed = bytearray(raw)
        changed[place] ^= 1 << (place % 8)
        assert not is_taken(send(server, token=spelled(bytes(changed)))), place


def test_a_token_cut_anywhere_is_refused() -> None:
    server = serve()
    token = token_of(send(server))
    for length in range(len(token)):
        assert not is_taken(send(server, token=token[:length])), length
        assert not is_taken(send(server, token=token[-length:] if length else "")), length


SUFFIXES = ["A", "AA", "AAAA", "=", "==", "===", "====", "=A", " ", "\n", "\t", ".", "\0", "é", "😀", "%3D", "!", "s1."]


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("padding", range(3))
def test_a_token_with_anything_around_it_is_refused(suffix: str, padding: int) -> None:
    server = serve()
    ring = KeyRing([KEY])
    token = ring.seal(ring.unseal(token_of(send(server))) + b" " * padding)
    assert is_taken(send(server, token=token))
    assert not is_taken(send(server, token=token + suffix))
    assert not is_taken(send(server, token=suffix + token))
    assert not is_taken(send(server, token=token[:20] + suffix + token[20:]))


@pytest.mark.parametrize("size", range(3))
def test_a_token_has_one_spelling(size: int) -> None:
    ring = KeyRing([KEY])
    token = ring.seal(bytes(size))
    for last in "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_":
        if last != token[-1]:
            with pytest.raises(InvalidRequestState):
                ring.unseal(token[:-1] + last)


@pytest.mark.parametrize(("safe", "plain"), [("-", "+"), ("_", "/")])
def test_the_plain_base64_alphabet_is_no_second_spelling(safe: str, plain: str) -> None:
    ring = KeyRing([KEY])
    token = next(token for token in iter(lambda: ring.seal(bytes(40)), None) if safe in token)
    with pytest.raises(InvalidRequestState):
        ring.unseal(token.replace(safe, plain))


STRANGE = ["", "s1.", "s1", "s2.", "S1.", "null", "{}", "0", "s1." + "A" * 58, "s1." + "A" * 59, "s1." + "A" * 400, "é"]


@pytest.mark.parametrize("token", STRANGE)
def test_what_was_never_a_token_is_refused(token: str) -> None:
    assert not is_taken(send(serve(), token=token))


def test_a_token_of_another_version_is_refused() -> None:
    server = serve()
    token = token_of(send(server))
    assert not is_taken(send(server, token="s2." + token.removeprefix("s1.")))


def test_two_tokens_cannot_be_put_together() -> None:
    server = serve()
    one, two = (raw_of(token_of(send(server))) for _ in range(2))
    for place in (20, 28, len(one) - 16):
        assert not is_taken(send(server, token=spelled(one[:place] + two[place:]))), place


# What is said


def secrets_of(server: MCPServer[Any]) -> tuple[str, str]:
    """A token whose ledger holds an answer, and the reply that came with it."""
    reply = send(server, token=token_of(send(server)))
    return token_of(reply), orjson.dumps(reply).decode()


def test_nobody_reads_in_a_token() -> None:
    token, _ = secrets_of(serve())
    raw = raw_of(token)
    for word in (b"swordfish", b"action", b"tools/call", b"order"):
        assert word not in raw
    assert "swordfish" not in token


def test_the_reply_does_not_repeat_what_was_answered() -> None:
    assert "swordfish" not in secrets_of(serve())[1]


REFUSALS: dict[str, tuple[Callable[[str], dict[str, Any]], str]] = {
    "changed": (lambda token: {"token": token[:-30] + "AAAA" + token[-26:]}, "changed"),
    "foreign key": (lambda token: {"token": KeyRing([OLD]).seal(b"{}")}, "key"),
    "not base64": (lambda token: {"token": token + "!"}, "base64url"),
    "short": (lambda token: {"token": token[:43]}, "cut short"),
    "no token": (lambda token: {"token": "swordfish-was-here"}, "format"),
    "expired": (lambda token: {"token": token, "now": NOW + 2 * TTL}, "expired"),
    "principal": (lambda token: {"token": token, "access": ALICE}, "principal"),
    "target": (lambda token: {"token": token, **TARGETS["another tool"][1]}, "target"),
    "arguments": (lambda token: {"token": token, **TARGETS["other arguments"][1]}, "arguments"),
    "payload": (lambda token: {"token": KeyRing([KEY]).seal(b'{"swordfish": 1}')}, "format"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_the_log_says_why_a_token_was_refused_and_nothing_of_what_is_in_it(
    case: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "turnwise")
    server = serve()
    token, _ = secrets_of(server)
    forge, reason = REFUSALS[case]
    changes = forge(token)
    assert not is_taken(send(server, **changes))
    assert [record.name for record in caplog.records].count("turnwise.server") == 1
    assert reason in caplog.text
    for secret in (token, changes["token"], "swordfish", ALICE.principal):
        assert secret not in caplog.text


def test_the_log_says_which_audience_or_method_was_wrong(caplog: pytest.LogCaptureFixture) -> None:
    assert not is_taken(send(serve(name="bank"), token=token_of(send(serve()))))
    assert "audience" in caplog.text
    caplog.clear()
    method, params = TARGETS["a prompt of that name"]
    assert not is_taken(send(serve(), method, token=token_of(send(serve())), **params))
    assert "method" in caplog.text


@pytest.mark.parametrize(("method", "params"), TARGETS.values(), ids=TARGETS)
def test_a_refusal_is_the_same_json_rpc_error_on_every_method(method: str, params: dict[str, Any]) -> None:
    reply = send(serve(), method, token="nonsense", **params)
    assert reply == {"jsonrpc": "2.0", "id": 1, "error": FROZEN}


def test_a_refused_token_runs_nothing() -> None:
    server = serve()
    ran: list[str] = []

    @server.tool()
    async def effect() -> str:
        ran.append("effect")
        return "done"

    assert not is_taken(send(server, token="nonsense", name="effect"))
    assert ran == []


def test_a_token_on_a_call_that_asks_nothing_is_checked_all_the_same() -> None:
    server = serve()

    @server.tool()
    async def quiet() -> str:
        return "done"

    assert not is_taken(send(server, token=token_of(send(server)), name="quiet"))


# A codec of one's own


class Hex:
    """No cryptography at all: what the claims hold back, they hold back by themselves."""

    def seal(self, payload: bytes) -> str:
        return payload.hex()

    def unseal(self, token: str) -> bytes:
        return bytes.fromhex(token)


def own_codec(name: str = "shop") -> MCPServer[Any]:
    return serve(RequestStateSecurity(codec=Hex(), ttl=TTL), name)


def test_a_codec_of_ones_own_carries_a_call() -> None:
    server = own_codec()
    assert is_taken(send(server, token=token_of(send(server))))


@pytest.mark.parametrize("used", TARGETS)
def test_the_claims_of_a_codecs_tokens_are_checked_against_the_call(used: str) -> None:
    server = own_codec()
    method, params = TARGETS[used]
    assert is_taken(send(server, method, token=token_of(send(server)), **params)) == (used == "a tool")


def test_the_claims_of_a_codecs_tokens_are_checked_against_time_person_and_audience() -> None:
    server = own_codec()
    token = token_of(send(server, access=ALICE))
    assert is_taken(send(server, token=token, access=ALICE))
    assert not is_taken(send(server, token=token, access=ALICE, now=NOW + TTL))
    assert not is_taken(send(server, token=token))
    assert not is_taken(send(own_codec("bank"), token=token, access=ALICE))


class Raising:
    """A codec that opens nothing, and says so in its own way."""

    def __init__(self, make: Callable[[str], Exception]) -> None:
        self.make = make

    def seal(self, payload: bytes) -> str:
        return payload.hex()

    def unseal(self, token: str) -> bytes:
        raise self.make(token)


WAYS: list[Callable[[str], Exception]] = [
    InvalidRequestState,
    ValueError,
    KeyError,
    TypeError,
    IndexError,
    AttributeError,
    lambda token: UnicodeDecodeError("utf-8", token.encode(), 0, 1, "bad"),
    lambda token: InvalidTag(),
    RuntimeError,
]


@pytest.mark.parametrize("make", WAYS)
def test_whatever_a_codec_raises_the_wire_says_the_one_sentence(make: Callable[[str], Exception]) -> None:
    server = serve(RequestStateSecurity(codec=Raising(make)))
    assert not is_taken(send(server, token="whatever"))


@pytest.mark.parametrize("make", WAYS[1:])
def test_whatever_a_codec_raises_the_log_does_not_repeat_the_token(
    make: Callable[[str], Exception], caplog: pytest.LogCaptureFixture
) -> None:
    server = serve(RequestStateSecurity(codec=Raising(make)))
    send(server, token="swordfish-token")
    assert "swordfish-token" not in caplog.text


def test_a_codec_that_gives_a_reason_has_it_logged(caplog: pytest.LogCaptureFixture) -> None:
    server = serve(RequestStateSecurity(codec=Raising(lambda token: InvalidRequestState("the vault is shut"))))
    assert not is_taken(send(server, token="whatever"))
    assert "the vault is shut" in caplog.text


def with_claim(place: int, value: Any) -> Callable[[Any], Any]:
    return lambda body: body | {"c": [*body["c"][:place], value, *body["c"][place + 1 :]]}


def with_ledger(place: int, value: Any) -> Callable[[Any], Any]:
    return lambda body: body | {"g": [*body["g"][:place], value, *body["g"][place + 1 :]]}


PAYLOADS: dict[str, Callable[[Any], Any]] = {
    "null": lambda body: None,
    "a list": lambda body: [body],
    "a number": lambda body: 5,
    "a text": lambda body: "c",
    "empty": lambda body: {},
    "no claims": lambda body: body | {"c": []},
    "claims in an object": lambda body: body | {"c": {"expires": 1}},
    "one claim too many": lambda body: body | {"c": [*body["c"], "x"]},
    "expiry as text": with_claim(0, "9999999999"),
    "expiry as null": with_claim(0, None),
    "expiry as a list": with_claim(0, []),
    "audience as null": with_claim(1, None),
    "no lineage": lambda body: {name: part for name, part in body.items() if name != "l"},
    "lineage as a number": lambda body: body | {"l": 5},
    "lineage as null": lambda body: body | {"l": None},
    "lineage of nonsense": lambda body: body | {"l": "é"},
    "no ledger": lambda body: {name: part for name, part in body.items() if name != "g"},
    "ledger as null": lambda body: body | {"g": None},
    "ledger as an object": lambda body: body | {"g": {}},
    "ledger cut": lambda body: body | {"g": body["g"][:3]},
    "ledger grown": lambda body: body | {"g": [*body["g"], None]},
    "entries as a number": with_ledger(4, 5),
    "entries of numbers": with_ledger(4, [5]),
    "entries of objects": with_ledger(4, [{}]),
    "entries without parts": with_ledger(4, [[]]),
    "entries of one part": with_ledger(4, [["size"]]),
    "questions as a number": with_ledger(5, 5),
    "questions as null": with_ledger(5, None),
}


@pytest.mark.parametrize("case", PAYLOADS)
def test_a_payload_of_another_format_is_refused_like_any_other_token(case: str) -> None:
    server = own_codec()
    body = orjson.loads(bytes.fromhex(token_of(send(server))))
    assert is_taken(send(server, token=orjson.dumps(body).hex()))
    assert not is_taken(send(server, token=orjson.dumps(PAYLOADS[case](body)).hex()))


def test_a_payload_that_is_no_json_is_refused() -> None:
    for payload in (b"", b"\xff\xfe", b"{", b"nan"):
        assert not is_taken(send(own_codec(), token=payload.hex()))
