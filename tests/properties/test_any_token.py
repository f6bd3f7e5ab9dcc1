"""Any token but the right one is refused, with one error and no other; what is sealed rightly and is not a ledger of
this version, or of any, is refused or read, and never breaks a call.
"""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from tests.properties.test_any_bytes import (
    ALICE,
    ALPHABET,
    GOOD_ANSWERS,
    NOW,
    REFUSED,
    SERVER,
    TEXTS,
    VALUES,
    asked,
    over_the_wire,
    request,
)
from turnwise import InvalidRequestState, RequestStateSecurity
from turnwise._ledger import Ledger
from turnwise._messages import Call, Post
from turnwise._sealed import Bearer

KEYS = st.binary(min_size=32, max_size=40) | st.text(min_size=32, max_size=40)
SECURITY = RequestStateSecurity(keys=[b"k" * 32, b"o" * 32])
PRINCIPALS = st.none() | TEXTS
JSON = VALUES.filter(lambda value: "\\ud" not in json.dumps(value))
"""Without lone surrogates, which nothing decodes."""


async def _nothing(_: bytes) -> None: ...


def call(method: str = "tools/call", target: str = "t", arguments: Any = None) -> Call:
    return Call(1, method, {}, target, arguments or {}, {}, None, {}, {}, "2026-07-28", Post(b"", _nothing, NOW))


CALLS = st.builds(
    call,
    st.sampled_from(["tools/call", "prompts/get", "resources/read"]),
    st.sampled_from(["t", "u"]) | TEXTS.filter(lambda text: text.isprintable()),
    st.dictionaries(TEXTS, VALUES, max_size=3).filter(lambda value: "\\ud" not in json.dumps(value)),
)
BEARERS = st.builds(Bearer, st.none() | st.text(st.characters(codec="utf-8"), max_size=9), st.sampled_from(["a", "b"]))


@given(CALLS, BEARERS, JSON, st.binary(max_size=16))
def test_a_token_gives_back_what_was_sealed(one: Call, bearer: Bearer, ledger: Any, lineage: bytes) -> None:
    token = SECURITY.seal(one, bearer, ledger, lineage)
    assert SECURITY.unseal(one, bearer, token) == (lineage, ledger, False)
    late = replace(one, post=replace(one.post, now=NOW + 3602))
    assert SECURITY.unseal(late, bearer, token) == (lineage, ledger, True)


@settings(max_examples=settings().max_examples * 2)
@given(st.data(), JSON)
def test_a_token_that_was_changed_opens_nothing(data: st.DataObject, ledger: Any) -> None:
    bearer = Bearer("alice", "a")
    token = SECURITY.seal(call(), bearer, ledger, b"l" * 16)
    other = SECURITY.seal(call(), bearer, data.draw(JSON), b"l" * 16)
    place, end = (data.draw(st.integers(0, len(token))) for _ in range(2))
    letters = st.text(ALPHABET, max_size=8) | TEXTS
    changed = data.draw(
        st.sampled_from(
            [
                token[:place],
                token[place:],
                token[:place] + other[place:],
                token[:3] + other[3:place] + token[place:],
                token + other,
                token + other[3:],
                token[:place] + token[end:],
                token[:place] + data.draw(letters) + token[end:],
                token[:place] + data.draw(letters) + token[place:],
                token[::-1],
            ]
        )
    )
    assume(changed not in (token, other))
    with pytest.raises(InvalidRequestState):
        SECURITY.unseal(call(), bearer, changed)


@given(CALLS, CALLS, BEARERS, BEARERS, KEYS)
def test_a_token_is_for_one_call_of_one_caller_under_one_key(
    one: Call, other: Call, bearer: Bearer, thief: Bearer, key: bytes | str
) -> None:
    token = SECURITY.seal(one, bearer, [], b"l" * 16)
    facts = [(of.method, of.target, json.dumps(of.arguments, sort_keys=True)) for of in (one, other)]
    if facts[0] != facts[1]:
        with pytest.raises(InvalidRequestState):
            SECURITY.unseal(other, bearer, token)
    if bearer != thief:
        with pytest.raises(InvalidRequestState):
            SECURITY.unseal(one, thief, token)
    with pytest.raises(InvalidRequestState):
        RequestStateSecurity(keys=[key]).unseal(one, bearer, token)


def sealed(payload: Any) -> str:
    """Whatever it is, under the server's own key."""
    return SERVER._security.codec.seal(payload if isinstance(payload, bytes) else json.dumps(payload).encode())


CLAIMED = st.fixed_dictionaries({}, optional={"c": VALUES, "l": VALUES | st.just("00"), "g": VALUES})


@given(st.binary(max_size=100) | VALUES | CLAIMED)
@example(b"[" * 100_000)
@example(b"\n" + b"[" * 100_000)
@example(b'{"c":[1e999],"l":"","g":[]}')
@example({"c": [NOW], "l": "\u0660\u0660", "g": []})
def test_what_is_sealed_and_no_token_is_refused(payload: Any) -> None:
    with pytest.raises(InvalidRequestState):
        SERVER._security.unseal(call(), Bearer(None, "fuzz"), sealed(payload))


def spots(ledger: list[Any]) -> list[tuple[Any, Any]]:
    """The members of a ledger but for the values of its entries: what each is in, and its name or number there."""
    rows = ledger[4]
    found: list[tuple[Any, Any]] = [(ledger, number) for number in range(len(ledger))]
    found += [spot for number, row in enumerate(rows) for spot in ((rows, number), (row, 0), (row, 1), (row, 2))]
    return found + [(part, name) for part in ledger[5:7] for name in part]


TOOLS = ["inline", "together", "by_hand"]
"""Without steps: a call whose steps are not those of its ledger is stopped, as an error of its author's."""


@st.composite
def strange(draw: st.DrawFn, tool: str) -> tuple[dict[str, Any], str]:
    """What a tool asks in some round, with a token for it whose ledger was written by nobody."""
    result = asked(tool, ALICE)
    for _ in range(draw(st.integers(0, 2))):
        answers = {key: answer for key, answer in GOOD_ANSWERS.items() if key in result["inputRequests"]}
        reply = retried(tool, result["requestState"], answers)
        if reply.get("result", {}).get("resultType") != "input_required":
            break
        result = reply["result"]
    token = json.loads(SERVER._security.codec.unseal(result["requestState"]))
    owner, name = draw(st.sampled_from([(token, "g"), *spots(token["g"])]))
    match draw(st.sampled_from(["replace", "replace", "replace", "drop", "add"])):
        case "replace" if owner in token["g"][4] and name == 1:
            owner[name] = draw(st.sampled_from(["newer", "", None, []]))
        case "replace" if owner is token["g"] and name == 1:  # Many rounds are too many, and the author's mistake.
            owner[name] = draw(TEXTS | st.none())
        case "drop" if owner is not token:
            del owner[name]
        case "add" if isinstance(owner, list):
            owner.insert(draw(st.sampled_from([name, len(owner)])), draw(VALUES))
        case _:
            owner[name] = draw(VALUES)
    return result, sealed(token)


def retried(tool: str, token: str, answers: dict[str, Any]) -> Any:
    params = {"name": tool, "arguments": {}, "inputResponses": answers, "requestState": token}
    return over_the_wire(json.dumps(request("tools/call", **params)).encode(), ALICE)


@settings(max_examples=settings().max_examples * 2)
@given(st.data(), st.sampled_from(TOOLS))
def test_a_ledger_that_nobody_wrote_is_refused_or_read(data: st.DataObject, tool: str) -> None:
    result, token = data.draw(strange(tool))
    reply = retried(tool, token, dict.fromkeys(result["inputRequests"], GOOD_ANSWERS["form"]))
    assert "result" in reply or reply["error"] == REFUSED


@given(VALUES, st.binary(max_size=16))
def test_anything_is_a_ledger_or_is_refused(value: Any, lineage: bytes) -> None:
    try:
        ledger = Ledger.decode(lineage, value)
    except InvalidRequestState:
        return
    assert Ledger.decode(lineage, ledger.encode()) == ledger
