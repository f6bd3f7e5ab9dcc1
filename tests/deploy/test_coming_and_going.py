"""Processes of `turnwise serve` that are killed, or told to end, and what becomes of requests and flows meanwhile."""

import os
import signal
import socket
import sys
import time
from pathlib import Path

import pytest

from tests.deploy.commanding import SHOP, answering, refused, reply_on, serving, until


def closed(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return True
    return False


# Processes that are killed


def test_a_worker_that_is_killed_is_replaced_and_flows_go_on(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers", "2") as served:
        door = served.ready(workers=2)
        files = served.files()
        killed: list[int] = []

        def kill() -> None:
            pid = next(pid for pid in served.workers() if pid not in killed)
            os.kill(pid, signal.SIGKILL)
            killed.append(pid)
            served.log.until(rf"worker \d \(process {pid}\) was ended by SIGKILL; another takes its place")

        assert door.order("a hat", between=kill) == "a hat, small, blue"
        until(lambda: len(set(served.workers()) - set(killed)) == 2)
        served.ready(workers=2)
        assert served.process.poll() is None
        assert served.files() == files, "nothing of those who are gone stays open"
        assert sum("is served at" in line for line in served.log.lines) == 1


STUCK = (
    SHOP
    + """
import time

@server.tool()
async def stand_still(seconds: float) -> str:
    time.sleep(seconds)
    return "awake"
"""
)


def test_a_worker_that_stands_still_is_replaced_and_it_is_told_where_it_stood(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers", "2", "--hung-after", "3", program=STUCK) as served:
        door = served.ready(workers=2)
        before = set(served.workers())
        with door.begin("stand_still", {"seconds": 3600}) as stuck:
            served.log.until(r"worker \d \(process \d+\) has stood still for 3 seconds, and is ended")
            served.log.until(r"worker \d \(process \d+\) was ended by SIGKILL; another takes its place")
            assert stuck.recv(1000) == b""
        served.ready(workers=2)
        after = set(served.workers())
        assert (len(after), len(after & before)) == (2, 1)
        assert door.order("a hat") == "a hat, small, blue"
    assert any("in stand_still" in line for line in served.log.lines)


def test_a_worker_that_has_much_to_wait_for_does_not_stand_still(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers", "2", "--hung-after", "2") as served:
        door = served.ready(workers=2)
        with door.begin("wait", {"name": "it"}) as waiting:
            served.began("it")
            time.sleep(3)
            (tmp_path / "it may end").touch()
            assert reply_on(waiting).text == "it"


def test_a_pause_of_the_whole_machine_is_none_of_a_worker(tmp_path: Path) -> None:
    """As `docker pause` does it: the parent, which counts, stands still too."""
    with serving(tmp_path, "--workers", "2", "--hung-after", "2") as served:
        door = served.ready(workers=2)
        before = set(served.workers())
        everybody = [served.process.pid, *before]
        for pid in everybody:
            os.kill(pid, signal.SIGSTOP)
        time.sleep(3)
        for pid in everybody:
            os.kill(pid, signal.SIGCONT)
        time.sleep(1)
        assert door.order("a hat") == "a hat, small, blue"
        assert set(served.workers()) == before


def test_a_worker_tells_where_it_stands(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers", "2") as served:
        served.ready(workers=2)
        before = set(served.workers())
        os.kill(min(before), signal.SIGQUIT)
        served.log.until("most recent call first")
        assert set(served.workers()) == before


def test_nothing_is_looked_for_where_nobody_wants_that(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers", "2", "--hung-after", "0", program=STUCK) as served:
        assert served.ready(workers=2).call("stand_still", {"seconds": 1.5}).text == "awake"


def test_workers_end_where_their_parent_is_killed(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers", "2") as served:
        door = served.ready(workers=2)
        served.process.kill()
        until(lambda: closed(door.port))


def test_a_worker_that_stands_still_ends_too_where_its_parent_is_killed(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers", "2", "--grace", "0", program=STUCK) as served:
        door = served.ready(workers=2)
        with door.begin("stand_still", {"seconds": 60}):
            time.sleep(0.5)
            served.process.kill()
            until(lambda: closed(door.port))


def test_workers_that_cannot_come_up_any_more_do_not_end_those_that_serve(tmp_path: Path) -> None:
    soon = "import turnwise.cli.supervising as s; s.SHORT_LIFE = 0.5"
    with serving(tmp_path, "--workers", "2", before=soon) as served:
        door = served.ready(workers=2)
        (tmp_path / "no database").touch()
        os.kill(served.workers()[0], signal.SIGKILL)
        served.log.until("ended with code 3; another takes its place")
        assert door.order("a hat") == "a hat, small, blue"
        (tmp_path / "no database").unlink()
        served.ready(workers=2)


@pytest.mark.skipif(sys.platform != "linux", reason="needs limits that another process can set")
@pytest.mark.parametrize("room", [0, 2])
def test_where_the_system_has_no_room_for_a_worker_the_others_go_on_and_it_is_tried_again(
    tmp_path: Path, room: int
) -> None:
    import resource

    soon = "import turnwise.cli.supervising as s; s.SHORT_LIFE = s.LONGEST_PAUSE = 0.5"
    with serving(tmp_path, "--workers", "2", before=soon) as served:
        door = served.ready(workers=2)
        time.sleep(0.6)
        files, limits = served.files(), resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE)
        first = served.workers()[0]
        os.kill(served.process.pid, signal.SIGSTOP)  # It has its pipes to the dead one still.
        os.kill(first, signal.SIGKILL)
        used = max(int(name) for name in os.listdir(f"/proc/{served.process.pid}/fd"))
        resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE, (used - 1 + room, limits[1]))
        os.kill(served.process.pid, signal.SIGCONT)
        served.log.until("worker 0 cannot be started, and is tried again in 0.5 seconds: .*Too many open files")
        assert door.order("a hat") == "a hat, small, blue"
        resource.prlimit(served.process.pid, resource.RLIMIT_NOFILE, limits)
        served.ready(workers=2)
        assert served.files() == files, "nothing of what was tried stays open"


# The third worker has ended before its parent writes to it.
SHORT_LIVED = """
import subprocess, sys, turnwise.cli.supervising as s
begun = []

class Worker(subprocess.Popen):
    def __init__(self, words, **options):
        begun.append(self)
        super().__init__(words if len(begun) != 3 else [sys.executable, "-c", ""], **options)
        if len(begun) == 3:
            self.wait()

s.subprocess.Popen = Worker
"""


def test_a_worker_that_ends_before_it_is_told_what_to_do_is_replaced(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers", "2", before=SHORT_LIVED) as served:
        served.ready(workers=2)
        first, second = served.workers()
        os.kill(first, signal.SIGKILL)
        served.log.until("worker 0 ended before it was told what to do")
        served.log.until(r"worker 0 \(process \d+\) ended with code 0; another takes its place")
        served.ready(workers=2)
        assert second in served.workers()


def test_where_no_worker_lives_for_long_no_more_are_started(tmp_path: Path) -> None:
    soon = "import turnwise.cli.supervising as s; s.HOPELESS = 0.6"
    code, said = refused(
        tmp_path, "shop", "--port", "0", "--workers", "2", program="import os; os._exit(7)", before=soon
    )
    assert code == 3
    assert "ended with code 7; another takes its place" in said
    assert "no worker lives for long, and no more are started" in said


# The end


def test_sigterm_lets_requests_under_way_finish_and_takes_no_new_ones(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers", "2") as served:
        door = served.ready(workers=2)
        with door.begin("wait", {"name": "long"}) as connection:
            served.began("long")
            served.send(signal.SIGTERM)
            until(lambda: closed(door.port))
            served.let_end("long")
            assert reply_on(connection).text == "long"
        assert served.ended() == 0
        assert not [line for line in served.log.lines if "Traceback" in line]


def test_requests_that_take_longer_than_the_grace_are_cut(tmp_path: Path) -> None:
    with serving(tmp_path, "--grace", "0") as served:
        with served.ready().begin("wait", {"name": "long"}):
            served.began("long")
            served.send(signal.SIGTERM)
            assert served.ended() in (0, -signal.SIGTERM)
        assert (tmp_path / "long was cancelled").exists()


@pytest.mark.parametrize("workers", [1, 2])
def test_who_drains_serves_on_and_says_at_readyz_that_it_leaves(tmp_path: Path, workers: int) -> None:
    with serving(tmp_path, "--drain", "600", "--workers", str(workers)) as served:
        door = served.ready(workers)
        asked = door.call("order", {"item": "a hat"}).result
        served.send(signal.SIGTERM)
        until(lambda: door.get("/readyz").status == 503)
        assert door.get("/readyz").body == b"shutting down\n"
        assert door.get("/healthz").status == 200
        asked = door.call("order", {"item": "a hat"}, **answering(asked, "small")).result
        assert door.call("order", {"item": "a hat"}, **answering(asked, "blue")).text == "a hat, small, blue"
        served.send(signal.SIGTERM)
        assert served.ended() in (0, -signal.SIGTERM)


def test_a_drain_ends_by_itself(tmp_path: Path) -> None:
    with serving(tmp_path, "--drain", "0.2", "--workers", "2") as served:
        served.ready(workers=2)
        served.send(signal.SIGTERM)
        assert served.ended() == 0


def test_a_second_interrupt_ends_a_drain_and_not_the_requests_under_way(tmp_path: Path) -> None:
    with serving(tmp_path, "--drain", "2", "--grace", "600") as served:
        door = served.ready()
        with door.begin("wait", {"name": "long"}) as connection:
            served.began("long")
            served.send(signal.SIGINT)
            until(lambda: door.get("/readyz").status == 503)
            served.send(signal.SIGINT)
            until(lambda: closed(door.port))
            time.sleep(2.5)
            served.let_end("long")
            assert reply_on(connection).text == "long"


def test_a_second_interrupt_does_not_wait_for_requests_under_way(tmp_path: Path) -> None:
    with serving(tmp_path, "--workers", "2", "--grace", "600") as served:
        door = served.ready(workers=2)
        with door.begin("wait", {"name": "long"}):
            served.began("long")
            served.send(signal.SIGINT)
            until(lambda: closed(door.port))
            served.send(signal.SIGINT)
            assert served.ended() == 0
