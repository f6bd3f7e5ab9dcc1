"""`turnwise token show`: what a state says, for those who have its key."""

import asyncio
import json
import re
from collections.abc import Iterator

import pytest

from tests.unit.test_cli_call import Commands, commands
from turnwise import Context, MCPServer, RequestStateSecurity
from turnwise.testing import connect

KEY = "k" * 32
HOSTILE = "\x1b[2J\x9b31m"


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    with commands({"ring": KEY, "other": "o" * 32}, tmp_path_factory.mktemp("token")) as begun:
        yield begun._replace(env={**begun.env, "KEYS": f"{'n' * 32},{KEY}"})


async def states() -> list[str]:
    """Those of a call that has been asked for a name, and then for a color."""
    server = MCPServer("shop", request_state_security=RequestStateSecurity(keys=[KEY]))

    async def weigh(article: str) -> str:
        return f"{article}: 3 kg"

    @server.tool()
    async def send(article: str, ctx: Context) -> str:
        await ctx.step(weigh, article)
        name = await ctx.elicit("Who gets it?", str, key="name")
        color = await ctx.elicit("In which color?", str, key="color")
        return f"{name} {color}"

    call = {"name": "send", "arguments": {"article": "a hat"}}
    async with connect(server) as client:
        client.capabilities = {"elicitation": {}}
        first = await client.request("tools/call", call)
        answer = {"name": {"action": "accept", "content": {"value": f"Ada{HOSTILE}"}}}
        state = {"requestState": first["requestState"], "inputResponses": answer}
        second = await client.request("tools/call", {**call, **state})
    return [first["requestState"], second["requestState"]]


def test_a_state_is_shown_to_those_who_have_its_key(here: Commands) -> None:
    first, second = asyncio.run(states())
    early, late, facts = here.run(
        ["token", "show", first, "--keys-file", "ring"],
        ["token", "show", second, "--keys-env", "KEYS"],
        ["token", "show", second, "--keys-file", "ring", "--json"],
    )
    assert [told.code for told in (early, late, facts)] == [0] * 3
    assert re.search(r" settled  \S+ \(step\): \"a hat: 3 kg\"\n", early.out)
    assert re.search(r" asks  name\n", early.out)
    assert re.search(r" asks  color\n", late.out)
    assert re.search(r" expires  20\S+Z \(in \d+ s\)\n", late.out)
    assert re.search(r" settled  name \(answer\): ", late.out)
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", late.out + facts.out)
    told = json.loads(facts.out)
    assert (told["bytes"], told["asks"], told["sheds"]) == (len(second), "color", 0)
    assert [entry["kind"] for entry in told["settled"]] == ["step", "answer"]
    assert told["settled"][1]["value"] == {"action": "accept", "content": {"value": f"Ada{HOSTILE}"}}


def test_nobody_else_is_shown_anything(here: Commands) -> None:
    state = asyncio.run(states())[0]
    middle = len(state) // 2
    changed = state[:middle] + ("A" if state[middle] != "A" else "B") + state[middle + 1 :]
    told = here.run(
        ["token", "show", state, "--keys-file", "other"],
        ["token", "show", changed, "--keys-file", "ring"],
        ["token", "show", "nothing", "--keys-file", "ring"],
        ["token", "show", "-", "--keys-file", "ring"],
        ["token", "show", state, "--keys-file", "nowhere"],
    )
    assert [(one.code, one.out) for one in told] == [(1, "")] * 5
    assert all(one.err and "Traceback" not in one.err for one in told)
    (unsaid,) = here.run(["token", "show", state])
    assert unsaid.code == 2
    assert "give --keys-file or --keys-env" in unsaid.err
