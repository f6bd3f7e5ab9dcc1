"""Calls in an inbox from a shell: nothing is lost where the inbox is away, and exit codes say what is the matter."""

import json
import re
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from scripts.command_reference import all_commands, flags
from tests.inbox.offices import ANN, PATIENCE, Line, at_url, begun, make_server, run
from tests.inbox.test_processes import COMMAND, answer, handed, started, tokens
from tests.ports import free_port
from tests.unit.joined import ENVIRONMENT
from turnwise import TaskInHand
from turnwise.cli.app import app

__all__ = ["tokens"]

ODD = "a wrong token, which is long enough"
NOWHERE = "http://127.0.0.1:9"


def turnwise(folder: Path, *words: str, given: str | None = None, **variables: str) -> subprocess.CompletedProcess[str]:
    """The command, with an environment of its own, in a folder of its own."""
    return subprocess.run(
        [*COMMAND, *words],
        cwd=folder,
        env={**ENVIRONMENT, **variables},
        capture_output=True,
        input=given,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def known(line: Line, token: str = ANN) -> dict[str, str]:
    return {"TURNWISE_INBOX": line.url, "TURNWISE_INBOX_TOKEN": token}


def test_a_call_is_kept_in_a_file_where_the_inbox_is_away_and_handed_over_later(tmp_path: Path, tokens: str) -> None:
    away = free_port()
    (folder := tmp_path / "here").mkdir()
    with at_url(make_server()) as url:
        lost = turnwise(folder, "call", url, "file", "kind=bug", "--inbox", f"http://127.0.0.1:{away}")
        assert lost.returncode == 3, lost.stderr
        [kept] = folder.iterdir()
        assert (kept.stat().st_mode & 0o777, str(kept) in lost.stderr) == (0o600, True)
        command = f"turnwise hand-over {kept} --inbox http://127.0.0.1:{away}"
        assert command in lost.stderr
        options = ["--store", str(tmp_path / "inbox.db"), "--tokens-file", tokens]
        with started(*options) as inbox:
            found = turnwise(
                folder,
                "hand-over",
                str(kept),
                "--json",
                "--caller",
                "night shift",
                "--seconds",
                "600",
                **known(inbox.line),
            )
            assert found.returncode == 0, found.stderr
            item = json.loads(found.stdout)["item"]
            again = turnwise(folder, "hand-over", "-", given=kept.read_text(), **known(inbox.line))
            assert again.stdout.split() == [item, f"{inbox.line.url}/items/{item}"], "twice is once"
            seen = inbox.line.call("GET", f"/items/{item}").body
            assert (seen["caller"], seen["until"] - seen["came"]) == ("night shift", 600)
            answer(inbox.line, seen, title={"action": "decline"})
            done = turnwise(folder, "wait", item, **known(inbox.line))
            assert (done.returncode, done.stdout.strip()) == (0, "nothing was filed: decline")


def test_a_call_that_the_inbox_does_not_take_is_kept_too(tmp_path: Path, tokens: str) -> None:
    (folder := tmp_path / "here").mkdir()
    options = ["--store", str(tmp_path / "inbox.db"), "--tokens-file", tokens, "--server", "https://tools.example.com"]
    with at_url(make_server()) as url, started(*options) as inbox:
        refused = turnwise(folder, "call", url, "file", "kind=bug", **known(inbox.line))
        assert (refused.returncode, "are not taken here" in refused.stderr) == (1, True)
        refused = turnwise(folder, "call", url, "file", "kind=bug", **known(inbox.line, ODD))
        assert (refused.returncode, "TURNWISE_INBOX_TOKEN" in refused.stderr) == (7, True)
        assert len(list(folder.iterdir())) == 2
        refused = turnwise(folder, "hand-over", str(next(folder.iterdir())), **known(inbox.line))
        assert (refused.returncode, "are not taken here" in refused.stderr) == (1, True)


def test_what_is_handed_over_has_the_terms_that_were_given(tmp_path: Path, tokens: str) -> None:
    options = ["--store", str(tmp_path / "inbox.db"), "--tokens-file", tokens]
    with at_url(make_server()) as url, started(*options) as inbox:
        terms = ["--leave", "--json", "--caller", "night shift", "--seconds", "60"]
        left = turnwise(tmp_path, "call", url, "file", "kind=bug", *terms, **known(inbox.line))
        seen = inbox.line.call("GET", f"/items/{json.loads(left.stdout)['item']}").body
        assert (seen["caller"], round(seen["until"] - seen["came"])) == ("night shift", 60)
        hook = ["--hook", "https://example.com/told"]
        left = turnwise(tmp_path, "call", url, "file", "kind=bug", *hook, **known(inbox.line))
        assert "this inbox tells no hooks" in left.stderr, "the hook has come to the inbox"


def test_the_inbox_of_the_environment_is_for_servers_at_a_url_and_not_beside_answers(tmp_path: Path) -> None:
    (tmp_path / "answers.json").write_text('{"title": {"action": "decline"}}')
    with at_url(make_server()) as url:
        words = ["call", url, "file", "kind=bug", "--answers", "answers.json"]
        done = turnwise(tmp_path, *words, TURNWISE_INBOX=NOWHERE)
        assert (done.returncode, done.stdout.strip()) == (0, "nothing was filed: decline")
        done = turnwise(tmp_path, "call", url, "file", "kind=bug", "--inbox", "", TURNWISE_INBOX=NOWHERE)
        assert done.returncode == 4, "nobody is at the terminal"


def test_how_waiting_ended_is_in_the_exit_code(tmp_path: Path, tokens: str) -> None:
    options = ["--store", str(tmp_path / "inbox.db"), "--tokens-file", tokens]
    with at_url(make_server()) as url, started(*options) as inbox:
        there = known(inbox.line)
        item = handed(inbox.line, run(begun(url)))["id"]
        waits = turnwise(tmp_path, "wait", item, "--timeout", "0.5", **there)
        assert (waits.returncode, f"turnwise wait {item} --inbox {inbox.line.url}" in waits.stderr) == (5, True)
        words = ["--timeout", "1.5", "--inbox", inbox.line.url, "--inbox-token-env", "THEIRS"]
        waits = turnwise(tmp_path, "call", url, "file", "kind=bug", *words, THEIRS=ANN)
        assert (waits.returncode, "stays in the inbox" in waits.stderr) == (5, True)
        assert waits.stderr.strip().endswith(f"--inbox {inbox.line.url} --inbox-token-env THEIRS")
        unknown = turnwise(tmp_path, "wait", "never-was", **there)
        assert (unknown.returncode, "knows no call never-was" in unknown.stderr) == (6, True)
        refused = turnwise(tmp_path, "wait", item, **{**there, "TURNWISE_INBOX_TOKEN": ODD})
        assert (refused.returncode, "does not know the token" in refused.stderr) == (7, True)
        inbox.line.call("DELETE", f"/items/{item}")
        withdrawn = turnwise(tmp_path, "wait", item, **there)
        assert (withdrawn.returncode, "withdrawn by ann" in withdrawn.stderr) == (8, True)
        nowhere = turnwise(tmp_path, "wait", item)
        assert (nowhere.returncode, "TURNWISE_INBOX" in nowhere.stderr) == (2, True)


def test_who_stops_waiting_is_told_that_the_call_stays(tmp_path: Path, tokens: str) -> None:
    options = ["--store", str(tmp_path / "inbox.db"), "--tokens-file", tokens]
    with at_url(make_server()) as url, started(*options) as inbox:
        words = [*COMMAND, "call", url, "file", "kind=bug"]
        environment = {**ENVIRONMENT, **known(inbox.line)}
        with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True) as waiting:
            assert waiting.stderr is not None
            try:
                assert "It waits for answers" in waiting.stderr.readline()
                waiting.send_signal(signal.SIGINT)
                told = waiting.communicate(timeout=PATIENCE)[1]
            finally:
                waiting.kill()
        [item] = inbox.line.call("GET", "/items").body["items"]
    again = f"turnwise wait {item['id']} --inbox {inbox.line.url}"
    assert (waiting.returncode, "stays in the inbox" in told, again in told) == (130, True, True), told


@pytest.mark.parametrize("target", ["app:server", "app.py", "python app.py"])
def test_a_server_that_no_inbox_can_reach_is_refused_before_it_is_called(target: str) -> None:
    done: Any = CliRunner().invoke(app, ["call", target, "file", "--inbox", NOWHERE])
    assert (done.exit_code, "turnwise serve" in done.stderr) == (2, True), done.stderr


def test_items_are_listed_shown_and_withdrawn(tmp_path: Path, tokens: str) -> None:
    options = ["--store", str(tmp_path / "inbox.db"), "--tokens-file", tokens]
    with at_url(make_server()) as url, started(*options) as inbox:
        there = known(inbox.line)
        ids = [handed(inbox.line, run(begun(url, kind=f"bug {number}")))["id"] for number in range(3)]
        listed = turnwise(tmp_path, "items", "list", **there)
        assert listed.returncode == 0, listed.stderr
        for item in ids:
            assert re.search(rf"{item} +waiting +file +ann .*What is it about\?", listed.stdout)
        lines = turnwise(tmp_path, "items", "list", "--json", "--limit", "2", **there).stdout.splitlines()
        assert [json.loads(line)["id"] for line in lines] == ids[:2]
        assert turnwise(tmp_path, "items", "list", "--search", "nowhere", "--json", **there).stdout == ""
        shown = turnwise(tmp_path, "items", "show", ids[0], **there).stdout
        assert re.search(r"questions +\{.*What is it about", shown)
        assert re.search(r"asked +20[0-9-]+T[0-9:.]+Z\n", shown)
        assert json.loads(turnwise(tmp_path, "items", "show", ids[0], "--json", **there).stdout)["id"] == ids[0]
        ended = turnwise(tmp_path, "items", "withdraw", ids[0], **there)
        assert (ended.returncode, ended.stdout) == (0, f"{ids[0]} is withdrawn by ann\n")
        ended = turnwise(tmp_path, "items", "withdraw", ids[0], **there)
        assert (ended.returncode, "it is over" in ended.stderr) == (1, True)
        lines = turnwise(tmp_path, "items", "list", "--json", "--status", "failed", **there).stdout.splitlines()
        assert [json.loads(line)["id"] for line in lines] == ids[:1]
        odd = turnwise(tmp_path, "items", "list", "--status", "nonsense", **there)
        assert (odd.returncode, "query.status" in odd.stderr, "'waiting'" in odd.stderr) == (1, True, True)
        assert turnwise(tmp_path, "items", "show", "never-was", **there).returncode == 6
        assert turnwise(tmp_path, "items", "list", **known(inbox.line, ODD)).returncode == 7
    assert turnwise(tmp_path, "items", "list", "--inbox", NOWHERE).returncode == 3
    assert turnwise(tmp_path, "items", "list", "--inbox", "ftp://inbox").returncode == 2


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not a call"),
        ("[]", "no object"),
        ('{"turnwise": 99}', "another version"),
        ('{"id": 1}', "no task in hand"),
        ("{}", "it has id and tool"),
    ],
)
def test_a_file_with_something_else_in_it_is_not_handed_over(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "call.json").write_text(text)
    done: Any = CliRunner().invoke(app, ["hand-over", str(tmp_path / "call.json"), "--inbox", NOWHERE])
    assert (done.exit_code, "call.json: " in done.stderr, told in done.stderr) == (2, True, True), done.stderr


def test_a_task_is_read_from_a_file_as_a_call_is(tmp_path: Path) -> None:
    (tmp_path / "task.json").write_text(TaskInHand("t", "file", {}, "http://127.0.0.1:9/mcp").to_json())
    done: Any = CliRunner().invoke(app, ["hand-over", str(tmp_path / "task.json"), "--inbox", NOWHERE])
    assert (done.exit_code, "call t was not handed over" in done.stderr) == (3, True)


@pytest.mark.parametrize("name", all_commands())
def test_no_name_of_an_option_is_cut_in_eighty_columns(name: str) -> None:
    words = [*name.split()[1:], "--help"]
    shown = CliRunner().invoke(app, words, env={"COLUMNS": "80", "TERMINAL_WIDTH": "80"}).output
    for parameter in all_commands()[name].params:
        for flag in flags(parameter):
            assert re.search(rf"{flag}(?![\w…-])", shown), f"{flag} is cut"
