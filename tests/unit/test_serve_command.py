"""`turnwise serve`: real processes that share a port and keys, and what becomes of flows when they come and go."""

import json
import os
import re
import signal
import socket
import stat
from pathlib import Path

import pytest

from tests.deploy.commanding import KEYS, SHOP, Door, Served, answering, keys_file, refused, serving, until
from turnwise.cli.keys import KeySource

FORGETFUL = SHOP.replace("import Context,", "import Context, RequestStateSecurity,").replace(
    '"shop", ', '"shop", request_state_security=RequestStateSecurity.ephemeral(), '
)
OWN_KEYS = FORGETFUL.replace(".ephemeral()", f"(keys=[{KEYS[0]!r}])")


def only(served: Served, pid: int) -> None:
    """Let this worker alone serve."""
    for other in served.workers():
        os.kill(other, signal.SIGCONT if other == pid else signal.SIGSTOP)


def until_serving(door: Door, pid: int) -> None:
    """Wait until a worker that was just started takes calls."""
    until(lambda: str(pid) in door.who())


# Several workers on one port


def test_workers_share_one_port_and_each_of_them_serves_it(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers", "2") as served:
        door = served.ready(workers=2)
        workers = served.workers()
        assert len(workers) == 2
        for pid in workers:
            only(served, pid)
            assert {door.call("who").text for _ in range(3)} == {str(pid)}


def test_where_no_key_is_given_workers_share_one_that_was_drawn_and_it_is_said_once(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers", "2") as served:
        door = served.ready(workers=2)
        first, second = served.workers()
        only(served, first)
        asked = door.call("order", {"item": "a hat"}).result
        only(served, second)
        asked = door.call("order", {"item": "a hat"}, **answering(asked, "small")).result
        only(served, first)
        assert door.call("order", {"item": "a hat"}, **answering(asked, "blue")).text == "a hat, small, blue"
    [said] = [line for line in served.log.lines if "drawn" in line]
    assert "no keys were given, and one was drawn" in said
    assert len([line for line in served.log.lines if "is served at" in line]) == 1


def test_one_worker_says_too_that_its_key_was_drawn_and_one_with_keys_says_nothing(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        served.ready()
        assert len([line for line in served.log.lines if "one was drawn" in line]) == 1
    for arguments, program in ((("--keys-file", str(keys_file(tmp_path, KEYS[0]))), SHOP), ((), OWN_KEYS)):
        with serving(tmp_path, *arguments, program=program) as served:
            served.ready()
            assert not [line for line in served.log.lines if "drawn" in line or "WARNING" in line]


@pytest.mark.parametrize("arguments", [["--workers", "2"], ["--keys-env", "K"]])
def test_a_server_that_draws_a_key_for_one_process_is_not_served_by_several(
    tmp_path: Path, arguments: list[str]
) -> None:
    code, said = refused(tmp_path, "shop", "--port", "0", *arguments, program=FORGETFUL, K=KEYS[0])
    assert code == 3
    assert "RequestStateSecurity.ephemeral()" in said
    assert "Traceback" not in said


# Keys


@pytest.mark.parametrize("how", ["file", "variable"])
def test_instances_with_the_same_keys_finish_each_others_flows(tmp_path: Path, how: str) -> None:
    given = ["--keys-env", "SHOP_KEYS"] if how == "variable" else ["--keys-file", str(keys_file(tmp_path, *KEYS))]
    env = {"SHOP_KEYS": ", ".join(KEYS)}
    with serving(tmp_path, *given, **env) as one, serving(tmp_path, *given, **env) as two:
        doors = [one.ready(), two.ready()]
        asked = doors[0].call("order", {"item": "a hat"}).result
        asked = doors[1].call("order", {"item": "a hat"}, **answering(asked, "small")).result
        assert doors[0].call("order", {"item": "a hat"}, **answering(asked, "blue")).text == "a hat, small, blue"


def test_an_instance_without_the_key_refuses_and_its_log_says_why(tmp_path: Path) -> None:
    with serving(tmp_path, "--keys-env", "K", K=KEYS[0]) as one, serving(tmp_path, "--keys-env", "K", K=KEYS[1]) as two:
        asked = one.ready().call("order", {"item": "a hat"}).result
        reply = two.ready().call("order", {"item": "a hat"}, **answering(asked, "small"))
        assert reply.error == "Invalid or expired requestState"
        two.log.until("sealed under a key this process does not have: share keys= or --keys-file between instances")
        two.out.until("result=rejected reason=key")


@pytest.mark.parametrize(("hours", "is_taken"), [("0.5", True), ("-0.5", True), ("2", False)])
def test_clocks_may_differ_by_less_than_the_life_of_a_token(tmp_path: Path, hours: str, is_taken: bool) -> None:
    wrong = "import os, time\nreal = time.time\ntime.time = lambda: real() + 3600 * float(os.environ['HOURS'])\n" + SHOP
    given = ["--keys-env", "K"]
    with (
        serving(tmp_path, *given, program=wrong, K=KEYS[0], HOURS="0") as one,
        serving(tmp_path, *given, program=wrong, K=KEYS[0], HOURS=hours) as two,
    ):
        asked = one.ready().call("order", {"item": "a hat"}).result
        reply = two.ready().call("order", {"item": "a hat"}, **answering(asked, "small"))
        assert ("result" in json.loads(reply.body)) == is_taken
        if not is_taken:
            two.out.until("result=rejected reason=expired")


def test_keys_that_are_given_take_the_place_of_those_in_the_code(tmp_path: Path) -> None:
    with (
        serving(tmp_path, "--keys-env", "K", program=OWN_KEYS, K=KEYS[1]) as one,
        serving(tmp_path, "--keys-env", "K", K=KEYS[1]) as two,
    ):
        asked = one.ready().call("order", {"item": "a hat"}).result
        assert two.ready().call("order", {"item": "a hat"}, **answering(asked, "small")).status == 200


def test_a_key_file_may_have_comments_and_empty_lines(tmp_path: Path) -> None:
    path = keys_file(tmp_path, "# The fleet's keys.", "", f"  {KEYS[0]}  ", "")
    with serving(tmp_path, "--keys-file", str(path)) as served:
        assert served.ready().order("a hat") == "a hat, small, blue"


def test_a_key_file_that_others_can_read_is_warned_of(tmp_path: Path) -> None:
    path = keys_file(tmp_path, *KEYS)
    path.chmod(path.stat().st_mode | stat.S_IROTH)
    with serving(tmp_path, "--keys-file", str(path), "--workers", "2") as served:
        served.ready(workers=2)
        assert len([line for line in served.log.lines if "can be read by others: chmod 600" in line]) == 1


@pytest.mark.parametrize("workers", [1, 2])
def test_a_key_file_that_others_can_read_by_now_is_warned_of_on_sighup(tmp_path: Path, workers: int) -> None:
    path = keys_file(tmp_path, *KEYS)
    with serving(tmp_path, "--keys-file", str(path), "--workers", str(workers)) as served:
        served.ready(workers)
        assert not [line for line in served.log.lines if "can be read by others" in line]
        path.chmod(0o644)
        reloaded(served, workers, 2)
        assert len([line for line in served.log.lines if "can be read by others: chmod 600" in line]) == 1


@pytest.mark.parametrize(("mode", "is_warned_of"), [(0o440, False), (0o640, False), (0o444, True), (0o460, True)])
def test_roots_key_file_may_be_lent_to_a_group_as_secrets_are_mounted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: int, is_warned_of: bool
) -> None:
    path = keys_file(tmp_path, *KEYS)
    path.chmod(mode)
    seen = os.stat_result([0 if place == 4 else fact for place, fact in enumerate(path.stat())])
    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", lambda _: seen)
        patched.setattr(os, "geteuid", lambda: 1000)
        warning = KeySource(str(path)).warning()
    assert (warning is not None) == is_warned_of


# SIGHUP


HASTY = f"import os\nimport signal\n\nos.kill(os.getpid(), signal.SIGHUP)\n{SHOP}"


@pytest.mark.parametrize("workers", [1, 2])
def test_one_that_comes_while_the_server_starts_is_heeded_once_it_serves(tmp_path: Path, workers: int) -> None:
    options = ["--keys-file", str(keys_file(tmp_path, *KEYS)), "--workers", str(workers)]
    with serving(tmp_path, *options, program=HASTY) as served:
        served.ready(workers)
        until(lambda: len([line for line in served.log.lines if "2 keys from" in line]) == workers)


def reloaded(served: Served, workers: int, keys: int) -> None:
    """Have the file read again, by all."""
    before = len([line for line in served.log.lines if " mints" in line])
    served.send(signal.SIGHUP)
    until(lambda: len([line for line in served.log.lines if f"{keys} keys from" in line]) >= before + workers)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_rotation_by_sighup_finishes_flows_that_were_begun_before_it(tmp_path: Path, workers: int) -> None:
    old, new = KEYS
    path = keys_file(tmp_path, old)
    with serving(tmp_path, "--keys-file", str(path), "--workers", str(workers)) as served:
        door = served.ready(workers)
        pids = served.workers()
        first = door.call("order", {"item": "a hat"}).result
        keys_file(tmp_path, old, new)
        reloaded(served, workers, 2)
        keys_file(tmp_path, new, old)
        reloaded(served, workers, 2)
        second = door.call("order", {"item": "a coat"}).result
        asked = door.call("order", {"item": "a hat"}, **answering(first, "small")).result
        assert door.call("order", {"item": "a hat"}, **answering(asked, "blue")).text == "a hat, small, blue"
        path.write_text(f"{new}\n")
        served.send(signal.SIGHUP)
        until(lambda: len([line for line in served.log.lines if "1 key from" in line]) >= workers)
        assert door.call("order", {"item": "a hat"}, **answering(first, "small")).error
        asked = door.call("order", {"item": "a coat"}, **answering(second, "small")).result
        assert door.call("order", {"item": "a coat"}, **answering(asked, "blue")).text == "a coat, small, blue"
        assert served.workers() == pids


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("broken", ["", "too short\n", None, "\xff"])
def test_with_a_broken_key_file_the_old_keys_stay_and_the_log_says_so(
    tmp_path: Path, workers: int, broken: str | None
) -> None:
    path = keys_file(tmp_path, KEYS[0])
    with serving(tmp_path, "--keys-file", str(path), "--workers", str(workers)) as served:
        door = served.ready(workers)

        def spoil() -> None:
            if broken is None:
                path.unlink(missing_ok=True)
            else:
                path.write_bytes(broken.encode("latin-1"))
            served.send(signal.SIGHUP)
            served.log.until(f"the keys stay as they are: {re.escape(str(path))}")

        assert door.order("a hat", between=spoil) == "a hat, small, blue"


def test_a_worker_that_is_replaced_while_the_key_file_is_broken_has_the_keys_of_the_others(tmp_path: Path) -> None:
    path = keys_file(tmp_path, KEYS[0])
    with serving(tmp_path, "--keys-file", str(path), "--workers", "2") as served:
        door = served.ready(workers=2)
        asked = door.call("order", {"item": "a hat"}).result
        path.write_text("broken")
        old = served.workers()
        os.kill(old[0], signal.SIGKILL)
        new = until(lambda: next(iter(set(served.workers()) - set(old)), None))
        assert new is not None
        until_serving(door, new)
        only(served, new)
        assert door.call("order", {"item": "a hat"}, **answering(asked, "small")).status == 200


def test_sighup_in_the_first_moments_of_a_worker_does_not_end_it(tmp_path: Path) -> None:
    path = keys_file(tmp_path, KEYS[0])
    slow = (
        SHOP + "\nimport time\n(PLACE / 'importing').touch()\nwhile not (PLACE / 'go on').exists(): time.sleep(0.02)\n"
    )
    with serving(tmp_path, "--keys-file", str(path), "--workers", "2", program=slow) as served:
        until((tmp_path / "importing").exists)
        pids = until(served.workers)
        served.send(signal.SIGHUP)
        keys_file(tmp_path, *KEYS)
        (tmp_path / "go on").touch()
        served.log.until("2 keys from")
        served.ready(workers=2)
        assert served.workers() == pids


def test_sighup_without_a_key_file_is_told_and_changes_nothing(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        door = served.ready()
        served.send(signal.SIGHUP)
        served.log.until("SIGHUP reads --keys-file again, and there is none")
        assert door.order("a hat") == "a hat, small, blue"


# Probes


def test_probes_say_that_a_server_lives_and_is_ready_and_leave_no_line(tmp_path: Path) -> None:
    with serving(tmp_path) as served:
        door = served.ready()
        for path in ("/healthz", "/readyz"):
            probed = door.get(path)
            assert (probed.status, probed.body) == (200, b"ok\n")
        assert door.get("/elsewhere").status == 404
        served.out.until("status=404")
        assert not [line for line in served.out.lines if "status=200" in line and "who" not in line]


def test_a_page_beside_the_endpoint_is_served_and_leaves_a_line(tmp_path: Path) -> None:
    page = """
from starlette.responses import PlainTextResponse

@server.custom_route("/health", methods=["GET"])
async def health(request):
    return PlainTextResponse("well")
"""
    with serving(tmp_path, program=SHOP + page) as served:
        door = served.ready()
        assert (door.get("/health").status, door.get("/health").body) == (200, b"well")
        served.out.until("status=200")


# What cannot be served


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["nowhere"], "no module 'nowhere'; a server is named module:attribute or file.py:attribute"),
        (["nowhere.py"], "no file 'nowhere.py'"),
        (["shop:other"], "shop has no server 'other': it has server"),
        (["not-a-module"], "'not-a-module' is no module"),
        (["shop", "--keys-env", "UNSET"], "the variable UNSET is not set"),
        (
            ["shop", "--keys-file", "missing"],
            "missing: No such file or directory. This makes one: turnwise keys new --file missing",
        ),
        (["shop", "--keys-file", "shop.py"], "shop.py: a key has at least 32 bytes"),
        (["shop", "--host", "no.such.host.invalid"], "ERROR turnwise.serve: "),
    ],
)
@pytest.mark.parametrize("workers", ["1", "2"])
def test_what_cannot_be_served_is_said_in_one_line(
    tmp_path: Path, arguments: list[str], says: str, workers: str
) -> None:
    code, said = refused(tmp_path, *arguments, "--port", "0", "--workers", workers)
    assert code == 3
    assert says in said
    assert len({line.partition("ERROR")[2] for line in said.splitlines()}) == 1, said


def test_a_server_whose_import_fails_is_shown_with_its_traceback(tmp_path: Path) -> None:
    for program in ("import not_installed_anywhere", "raise RuntimeError('half written')"):
        code, said = refused(tmp_path, "shop", "--port", "0", program=program)
        assert code == 3
        assert "shop cannot be imported" in said
        assert program.partition(" ")[2].partition("(")[0] in said


def test_the_traceback_of_an_import_begins_with_the_authors_own_file(tmp_path: Path) -> None:
    (tmp_path / "stock.py").write_text("import json\njson.loads('{')\n")
    for name in ("shop", "shop.py"):
        _, said = refused(tmp_path, name, "--port", "0", program="import stock")
        files = re.findall(r'File "(\S+)", line', said)
        assert [Path(file).name for file in files[:2]] == ["shop.py", "stock.py"], said
        assert "json" in files[-1]
    _, said = refused(tmp_path, "shop", "--port", "0", program="import (")
    assert [Path(file).name for file in re.findall(r'File "(\S+)", line', said)] == ["shop.py"]
    assert "SyntaxError" in said


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize(
    ("program", "called"),
    [
        ("import sys\nsys.exit('DATABASE_URL is not set')", "sys.exit('DATABASE_URL is not set') (shop.py, line 2)"),
        ("raise SystemExit(3)", "sys.exit(3) (shop.py, line 1)"),
        ("exit()", "sys.exit() (shop.py, line 1)"),
        ("import argparse\n\nargparse.ArgumentParser().parse_args(['--x'])", "sys.exit(2) (shop.py, line 3)"),
    ],
)
def test_a_server_that_exits_while_it_is_imported_is_not_served_and_it_is_said(
    tmp_path: Path, program: str, called: str, workers: str
) -> None:
    code, said = refused(tmp_path, "shop", "--port", "0", "--workers", workers, program=program)
    assert code == 3
    assert f"ERROR turnwise.serve: shop cannot be imported: it called {called}\n" in said + "\n"
    assert "Traceback" not in said


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_server_whose_life_cannot_begin_is_not_served(tmp_path: Path, workers: str) -> None:
    (tmp_path / "no database").touch()
    code, said = refused(tmp_path, "shop", "--port", "0", "--workers", workers)
    assert code == 3
    assert "no database" in said
    assert "is served at" not in said


@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("option", ["--port", "--metrics-port"])
def test_a_port_in_use_is_named(tmp_path: Path, workers: str, option: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ports = {"--port": "0"} | {option: port}
        code, said = refused(tmp_path, "shop", "--workers", workers, *[word for pair in ports.items() for word in pair])
    assert code == 3
    assert re.search(rf"{port}.*: Address already in use", said)
    assert (f"127.0.0.1:{port} cannot be listened on: Address already in use; --port takes another one" in said) == (
        option == "--port"
    )
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--no-such-option"], "No such option"),
        (["--workers", "0"], "--workers"),
        (["--log-level", "loud"], "a level is one of"),
        (["--keys-file", "a", "--keys-env", "b"], "give --keys-file or --keys-env"),
        (["--rate", "0"], "--rate"),
        (["--rate", "inf"], "rate is a number of requests a second above 0"),
        (["--path", "mcp"], "a path begins with /"),
        (["--port", "99999"], "--port"),
    ],
)
def test_wrong_usage_has_an_exit_code_of_its_own(tmp_path: Path, arguments: list[str], says: str) -> None:
    code, said = refused(tmp_path, "shop", *arguments, COLUMNS="200", NO_COLOR="1")
    assert code == 2
    assert says in re.sub(r"\x1b\[[0-9;]*m", "", said)
