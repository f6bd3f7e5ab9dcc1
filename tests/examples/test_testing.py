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
    assert flow.asked == [["sure", "color"], ["mail"]]
    assert flow.messages == [["Buy hat?", "Which color?"], ["Your mail?"]]
    assert [one.asked for one in flow] == [["sure", "color"], ["mail"], []]
    assert [one.answered for one in flow] == [[], ["sure", "color"], ["mail"]]
    assert [size > 0 for size in flow.state_sizes] == [True, True, False]
    flow.check(rounds=3, asked=[["color", "sure"], ["mail"]], largest_state=4096)
    flow.check(asked=flow.asked)


def test_a_round_that_asks_nothing_is_not_among_those_that_ask() -> None:
    busy = iter([True])
    server = MCPServer("sums", shed_when=lambda load: next(busy, False))

    @server.tool()
    async def add(ctx: Context) -> str:
        await ctx.checkpoint(1)
        return (await ctx.elicit("Add?", bool, key="sure")).action

    async def check() -> None:
        async with connect(server, {"sure": True}) as client:
            await client.call_tool("add")
            assert [one.asked for one in client.flow] == [[], ["sure"], []]
            assert client.flow.asked == [["sure"]]
            assert client.flow.messages == [["Add?"]]
            client.flow.check(rounds=3, asked=client.flow.asked)

    asyncio.run(check())


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


@pytest.mark.parametrize("mode", ["2026-07-28", "2025-11-25"])
def test_a_model_and_folders_are_scripted_by_method_where_there_are_no_keys(mode: Any) -> None:
    server = MCPServer("mottos")

    @server.tool()
    async def motto(ctx: Context) -> str:
        (root,) = await ctx.roots(key="folders")
        name = await ctx.elicit("Whose?", str, key="name")
        said = await ctx.sample("A motto", max_tokens=10, key="motto")
        return f"{root.uri} {name.action} {said.content.text}"  # type: ignore[union-attr]

    folders = {"roots": [{"uri": "file:///home/ada"}]}
    script = Script({"roots/list": folders, "Whose?": "Ada", "sampling/createMessage": "Slowly up."})

    async def check() -> Any:
        async with Client(server, mode=mode, **script.callbacks()) as client:
            return (await client.call_tool("motto", {})).structured_content

    assert asyncio.run(check()) == {"result": "file:///home/ada accept Slowly up."}
    assert script.unused == []

    async def joined() -> None:
        async with connect(server, {"Whose?": "Ada", "folders": folders}) as client:
            await client.call_tool("motto")

    with pytest.raises(LookupError, match=r"nothing for the question 'motto' \('sampling/createMessage'\)"):
        asyncio.run(joined())


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


def checked(folder: Path, *options: str) -> str:
    """What pytest says of the tests in a folder."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options]
    if not entry_points(group="pytest11", name="turnwise"):  # Where Turnwise is used without being installed.
        command += ["-p", "turnwise.testing.plugin"]
    env = {**os.environ, "PYTHONPATH": str(Path(turnwise.__file__).parents[1])}
    pipes: dict[str, Any] = {"env": env, "capture_output": True, "text": True}
    return str(subprocess.run(command, cwd=folder, check=False, **pipes).stdout)


def test_a_test_that_fails_shows_its_rounds_and_answers_have_to_be_asked_for(tmp_path: Path) -> None:
    (tmp_path / "test_shop.py").write_text(FIXTURES)
    said = checked(tmp_path)
    assert "1 failed, 1 passed, 1 error" in said
    assert "ERROR at teardown of test_with_an_answer_too_many" in said
    assert "\nnobody asked for these answers: never\n" in said.replace("Failed: ", "")
    assert said.count("turnwise rounds") == 1
    assert "round 1: asks sure (Buy it?); " in said
    assert "round 2: answers sure; complete" in said


CHECKS = """
import asyncio
from types import SimpleNamespace
from turnwise import MCPServer
from turnwise.testing import Finding, Flow, ReplayReport, Round, Transcript

FLOW = Flow([Round({"method": "tools/call"}, {"result": {}})])
NONE = Transcript((), {})

def test_flow():
    FLOW.check(rounds=2)

def test_number():
    NONE.check(Transcript.of(FLOW))

def test_transcript():
    Transcript.of(FLOW).check(Transcript.of([Round({"method": "ping"}, {"result": {}})]))

def test_server():
    async def work():
        await Transcript.of(FLOW).replay(MCPServer("none"))
    asyncio.run(work())

def test_kept(turnwise_transcript):
    turnwise_transcript(SimpleNamespace(rounds=FLOW))

def test_replay():
    ReplayReport({}, 1, (Finding(1, "chance", "use ctx.random()"),)).raise_for_findings()
"""


def test_checks_that_fail_show_the_test_and_not_themselves(tmp_path: Path) -> None:
    (tmp_path / "test_checks.py").write_text(CHECKS)
    Transcript((), {}).write(tmp_path / "transcripts/test_checks.test_kept.txt")
    said = checked(tmp_path)
    assert "6 failed" in said
    assert "FLOW.check(rounds=2)\nE       AssertionError: 1 rounds, not 2\nE       round 1: complete\n" in said
    assert "turnwise/testing/" not in said
    assert "_replaying.py" not in said


SAYING = """
import asyncio
import pytest
from turnwise import Context, MCPServer

server = MCPServer("shop")

@server.tool()
async def say(word: str) -> str:
    return word

def said(client, each, *words):
    async def work():
        async with client(server) as opened:
            for word in words:
                await opened.call_tool("say", {"word": word})
                each(opened)
    asyncio.run(work())
"""
NAMES = ["a/b", "a_b", "../../x", "a", "A", "0.5", "x" * 400, "x" * 399 + "y"]
TESTS = f"""
def test_alike(turnwise_client, turnwise_transcript):
    said(turnwise_client, turnwise_transcript, __file__[-8:])

class TestOne:
    def test_alike(self, turnwise_client, turnwise_transcript):
        said(turnwise_client, turnwise_transcript, "one")

class TestTwo:
    def test_alike(self, turnwise_client, turnwise_transcript):
        said(turnwise_client, turnwise_transcript, "two")

def test_twice(turnwise_client, turnwise_transcript):
    said(turnwise_client, turnwise_transcript, "one", "two", "three")

@pytest.mark.parametrize("name", {NAMES})
def test_named(name, turnwise_client, turnwise_transcript):
    said(turnwise_client, turnwise_transcript, name)
"""


def test_every_test_has_transcripts_of_its_own(tmp_path: Path) -> None:
    check_names(tmp_path)


def check_names(tmp_path: Path, *options: str) -> None:
    """Tests of one name in two files, in classes and with parameters, recorded and played by pytest."""
    for name in ("test_a.py", "test_b.py"):
        (tmp_path / "deep" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "deep" / name).write_text(SAYING + TESTS)
    assert "24 passed" in checked(tmp_path, "--turnwise-record", *options)
    assert "24 passed" in checked(tmp_path, *options)
    files = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.txt"))
    assert len({name.lower() for name in files}) == len(files) == 28
    assert {Path(name).parent for name in files} == {Path("deep/transcripts")}
    assert max(len(Path(name).name) for name in files) < 255
    for name in ("test_alike", "TestTwo.test_alike", "test_twice", "test_twice#2", "test_named[a]", "test_named[0.5]"):
        assert f"deep/transcripts/test_b.{name}.txt" in files
    (odd,) = (name for name in files if name.startswith("deep/transcripts/test_a.test_named[a_b]-"))
    assert Transcript.read(tmp_path / odd).title == "test_a.test_named[a/b]"


OWN_NAMES = """
@pytest.mark.parametrize("name", ["../x", "x/y", "", "x#2", "x" * 200])
def test_odd(name, turnwise_client, turnwise_transcript):
    with pytest.raises(ValueError, match="without folders"):
        said(turnwise_client, lambda client: turnwise_transcript(client, name), "one")

@pytest.mark.parametrize("word", ["one", "one", "two"])
def test_shared(word, turnwise_client, turnwise_transcript):
    said(turnwise_client, lambda client: turnwise_transcript(client, "Shared"), word)
"""


def test_a_transcript_under_a_name_of_its_own_stays_in_the_folder_and_is_not_written_over(tmp_path: Path) -> None:
    (tmp_path / "test_shop.py").write_text(SAYING + OWN_NAMES)
    said = checked(tmp_path, "--turnwise-record")
    assert "1 failed, 7 passed" in said
    assert "Shared.txt is that of test_shop.py::test_shared[one1], which says something else" in said
    assert [str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.txt")] == ["transcripts/Shared.txt"]
