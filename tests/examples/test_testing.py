"""`turnwise.testing`, as those who write servers and clients use it."""

import asyncio
import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest

import turnwise
from turnwise import Client, Context, MCPServer, ToolError
from turnwise.testing import FrozenClock, InTurn, Playback, Recorder, Script, Transcript, connect


def make_server(more: str = "") -> MCPServer:
    server = MCPServer("shop")

    @server.tool()
    async def buy(article: str, ctx: Context) -> str:
        sure, color = await asyncio.gather(
            ctx.elicit(f"Buy {article}?", bool, key="sure"), ctx.elicit("Which color?", str, key="color")
        )
        if sure.action != "accept" or color.action != "accept":
            raise ToolError("not bought")
        mail = await ctx.elicit("Your mail?", str, key="mail")
        return f"{color.data} {article} for {mail.action}{more}"

    @server.tool()
    async def when(ctx: Context) -> float:
        return ctx.now()

    @server.tool()
    async def roots(ctx: Context) -> list[str]:
        return [str(root.uri) for root in await ctx.roots(key="roots")]

    return server


ANSWERS = {"sure": True, "color": "red", "mail": {"action": "decline"}}


async def bought(**options: Any) -> Any:
    async with connect(make_server(), ANSWERS, **options) as client:
        await client.call_tool("buy", {"article": "hat"})
        return client


# Rounds and answers


def test_a_flow_tells_what_was_asked_in_which_round() -> None:
    flow = asyncio.run(bought()).flow
    assert flow.asked == [["sure", "color"], ["mail"], []]
    assert flow.messages == [["Buy hat?", "Which color?"], ["Your mail?"], []]
    assert [one.answered for one in flow] == [[], ["sure", "color"], ["mail"]]
    assert [size > 0 for size in flow.state_sizes] == [True, True, False]
    flow.check(rounds=3, asked=[["color", "sure"], ["mail"]], largest_state=4096)


@pytest.mark.parametrize(
    ("expected", "words"),
    [
        ({"rounds": 2}, "3 rounds, not 2"),
        ({"asked": [["mail"]]}, r"asked \[\['color', 'sure'\], \['mail'\]\], not \[\['mail'\]\]"),
        ({"largest_state": 10}, r"a state of \d+ bytes, and at most 10 are expected"),
    ],
)
def test_a_flow_that_is_another_is_told_round_by_round(expected: Any, words: str) -> None:
    flow = asyncio.run(bought()).flow
    with pytest.raises(AssertionError, match=words) as failed:
        flow.check(**expected)
    assert "round 1: asks sure (Buy hat?), color (Which color?); " in str(failed.value)
    assert "round 3: answers mail; complete" in str(failed.value)


def test_a_flow_is_that_of_the_latest_call() -> None:
    async def check() -> None:
        async with connect(make_server(), ANSWERS) as client:
            await client.call_tool("buy", {"article": "hat"})
            await client.call_tool("when")
            assert (len(client.flow), len(client.rounds)) == (1, 4)

    asyncio.run(check())


def test_an_answer_that_is_missing_or_left_is_known() -> None:
    async def check(answers: Any, **options: Any) -> Script:
        script = Script(answers)
        async with connect(make_server(), script, **options) as client:
            await client.call_tool("buy", {"article": "hat"})
        return script

    with pytest.raises(LookupError, match=r"nothing for the question 'mail' \('Your mail\?'\)"):
        asyncio.run(check({"sure": True, "color": "red"}))
    script = asyncio.run(check({**ANSWERS, "name": "Ada", "color": InTurn("red", "blue")}))
    assert script.unused == ["color", "name"]
    assert script.asked == ["sure", "color", "mail"]

    async def cancels(connection: Any, params: Any) -> dict[str, Any]:
        return {"action": "cancel"}

    assert asyncio.run(check({"sure": True, "color": "red"}, elicitation_callback=cancels)).unused == []


def test_folders_and_clients_are_scripted_too() -> None:
    async def check() -> Any:
        script = Script({"roots": {"roots": [{"uri": "file:///home/ada"}]}})
        async with Client(make_server(), **script.callbacks()) as client:
            return (await client.call_tool("roots", {})).structured_content

    assert asyncio.run(check()) == {"result": ["file:///home/ada"]}


def test_a_call_that_becomes_a_task_is_followed_to_its_end() -> None:
    server = MCPServer("builds")

    @server.tool(task="optional")
    async def build(branch: str, ctx: Context) -> str:
        sure = await ctx.elicit("Sure?", bool, key="sure")
        if sure.action != "accept":
            raise ToolError(f"{branch} is not built")
        return f"{branch} is built: {ctx.is_task}"

    async def called(answer: Any, **options: Any) -> tuple[str, bool | None]:
        async with connect(server, {"sure": answer}, **options) as client:
            result = await client.call_tool("build", {"branch": "main"})
            client.flow.check(asked=[["sure"]])
            return result.content[0].text, result.is_error  # type: ignore[union-attr]

    assert asyncio.run(called(True)) == ("main is built: True", False)
    assert asyncio.run(called({"action": "decline"})) == ("main is not built", True)
    assert asyncio.run(called(True, tasks=False)) == ("main is built: False", False)


def test_a_client_of_a_server_without_tasks_says_nothing_of_them() -> None:
    async def declared() -> dict[str, Any]:
        async with connect(MCPServer("plain"), {}) as client:
            return client.capabilities

    assert "extensions" not in asyncio.run(declared())


def test_a_frozen_clock_stands_still() -> None:
    async def check() -> None:
        clock = FrozenClock(1000.0)
        async with connect(make_server(), now=clock) as client:
            assert (await client.call_tool("when")).structured_content == {"result": 1000.0}
            clock.advance(5)
            assert (await client.call_tool("when")).structured_content == {"result": 1005.0}

    asyncio.run(check())
    with pytest.raises(ValueError, match="does not go back"):
        FrozenClock().advance(-1)


# Transcripts


def test_a_transcript_is_written_read_and_replayed(tmp_path: Path) -> None:
    written = Transcript.of(asyncio.run(bought()).rounds, "A hat is bought")
    written.write(tmp_path / "kept" / "hat.txt")
    text = (tmp_path / "kept" / "hat.txt").read_text()
    assert text.startswith("# A hat is bought\n= {")
    assert text.count('"requestState": "$1"') == 2
    assert text.count('"requestState": "$2"') == 2
    read = Transcript.read(tmp_path / "kept" / "hat.txt")
    assert read == written
    asyncio.run(read.replay(make_server()))
    with pytest.raises(AssertionError, match=r"(?s)reply 3, to tools/call is another one.*\+.*declinex"):
        asyncio.run(read.replay(make_server("x")))


def test_a_star_in_a_transcript_stands_for_anything(tmp_path: Path) -> None:
    path = tmp_path / "hat.txt"
    Transcript.of(asyncio.run(bought()).flow).write(path)
    path.write_text("Somebody buys a hat.\n" + path.read_text().replace('"red hat for decline"', '"*"'))
    asyncio.run(Transcript.read(path).replay(make_server("x")))
    path.write_text("> tools/call {\n< {}\n")
    with pytest.raises(ValueError, match=r"hat\.txt, line 2"):
        Transcript.read(path)


def test_errors_are_recorded_and_replayed(tmp_path: Path) -> None:
    async def refused() -> Transcript:
        recorder = Recorder(make_server())
        async with Client(recorder, mode="2026-07-28") as client:
            with pytest.raises(Exception, match="sell"):
                await client.call_tool("sell", {})
        return recorder.transcript

    transcript = asyncio.run(refused())
    assert "\n! {" in str(transcript)
    transcript.write(tmp_path / "refused.txt")
    asyncio.run(Transcript.read(tmp_path / "refused.txt").replay(make_server()))


def test_a_client_is_told_what_is_in_the_transcript_and_nothing_else() -> None:
    transcript = Transcript.of(asyncio.run(bought()).rounds)

    async def calls(answers: Any, article: str = "hat", times: int = 1) -> Playback:
        playback = Playback(transcript)
        async with Client(playback, **Script(answers).callbacks()) as client:
            for _ in range(times):
                result = await client.call_tool("buy", {"article": article})
                assert result.structured_content == {"result": "red hat for decline"}
        return playback

    assert asyncio.run(calls(ANSWERS)).left == []
    with pytest.raises(AssertionError, match="the request is another one"):
        asyncio.run(calls({**ANSWERS, "color": "blue"}))
    with pytest.raises(AssertionError, match="coat"):
        asyncio.run(calls(ANSWERS, "coat"))
    with pytest.raises(AssertionError, match="nothing is left to reply to tools/call"):
        asyncio.run(calls(ANSWERS, times=2))


# The fixtures

FIXTURES = """
import asyncio
from turnwise import Context, MCPServer

server = MCPServer("shop")

@server.tool()
async def buy(ctx: Context) -> str:
    return (await ctx.elicit("Buy it?", bool, key="sure")).action

def call(client, answers):
    async def work():
        async with client(server, answers) as opened:
            return (await opened.call_tool("buy")).structured_content["result"]
    return asyncio.run(work())

def test_that_fails(turnwise_client):
    assert call(turnwise_client, {"sure": True, "never": 1}) == "decline"

def test_with_an_answer_too_many(turnwise_client):
    assert call(turnwise_client, {"sure": True, "never": 1}) == "accept"
"""


def test_a_test_that_fails_shows_its_rounds_and_answers_have_to_be_asked_for(tmp_path: Path) -> None:
    (tmp_path / "test_shop.py").write_text(FIXTURES)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    if not entry_points(group="pytest11", name="turnwise"):  # Where Turnwise is used without being installed.
        command += ["-p", "turnwise.testing.plugin"]
    env = {**os.environ, "PYTHONPATH": str(Path(turnwise.__file__).parents[1])}
    pipes: dict[str, Any] = {"env": env, "capture_output": True, "text": True}
    said = subprocess.run(command, cwd=tmp_path, check=False, **pipes).stdout
    assert "1 failed, 1 passed, 1 error" in said
    assert "ERROR at teardown of test_with_an_answer_too_many" in said
    assert "\nnobody asked for these answers: never\n" in said.replace("Failed: ", "")
    assert said.count("turnwise rounds") == 1
    assert "round 1: asks sure (Buy it?); " in said
    assert "round 2: answers sure; complete" in said
