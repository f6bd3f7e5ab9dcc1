"""Several processes that serve one port, and the one that looks after them.

The parent holds the socket and the keys, and imports nothing of the author's. A worker that dies is replaced; one that
will not come up at all, before any has served, ends everything. Workers end when the parent does, however that ends.
"""

import json
import logging
import math
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from types import FrameType
from typing import NamedTuple

from .keys import NoKeys
from .serving import REFUSED, ServeOptions, listen, serve_figures, set_up_logging

log = logging.getLogger("turnwise.serve")

ENDING = frozenset({signal.SIGTERM, signal.SIGINT})
LOOK_SECONDS = 0.1
SHORT_LIFE = 5.0
LONGEST_PAUSE = 10.0
HOPELESS = 2.0
"""A pause that is longer than this was doubled three times."""
STRAGGLERS = 5.0
"""Seconds beyond drain and grace after which a worker that does not end is killed."""


class Worker(NamedTuple):
    """One serving process."""

    number: int
    process: "subprocess.Popen[bytes]"
    began: float


class Supervisor:
    """Keeps so many workers serving. With `is_patient`, one that will not come up is left alone until all are started
    anew.
    """

    def __init__(self, options: ServeOptions, metrics: tuple[str, int] | None, *, is_patient: bool = False) -> None:
        self._options = options
        count = self._count = options.workers
        self._metrics = metrics
        self._places: dict[int, Worker] = {}
        self._pauses = dict.fromkeys(range(count), 0.0)
        self._due = dict.fromkeys(range(count), 0.0)
        self._is_patient = is_patient
        self._is_stale = False
        self._heard: list[int] = []
        self._has_served = False
        self._figures: str | None = None

    def run(self) -> int:
        """Serve until stopped; the exit code."""
        set_up_logging(self._options)
        try:
            held = self._options.keys.read() if self._options.keys else [secrets.token_urlsafe(32)]
            with listen(self._options.host, self._options.port) as listening:
                self._options = replace(self._options, held=held, port=listening.getsockname()[1])
                self._serve_figures()
                return self._look_after(listening)
        except (NoKeys, OSError) as error:
            log.error("%s", error)
            return REFUSED
        finally:
            if self._figures is not None:
                shutil.rmtree(self._figures, ignore_errors=True)

    def _serve_figures(self) -> None:
        if self._metrics is None:
            return
        from prometheus_client import CollectorRegistry
        from prometheus_client.multiprocess import MultiProcessCollector

        host, port = self._metrics
        self._figures = tempfile.mkdtemp(prefix="turnwise-metrics-")
        registry = CollectorRegistry()
        MultiProcessCollector(registry, self._figures)  # type: ignore[no-untyped-call]
        serve_figures(host, port, registry)

    def _look_after(self, listening: socket.socket) -> int:
        for heard in ENDING | {signal.SIGHUP}:
            signal.signal(heard, self._hear)
        while not self._is_told_to_end():
            for number in range(self._count):
                if number not in self._places and time.monotonic() >= self._due[number]:
                    self._places[number] = self._started(number, listening)
            if self._bury():
                self._end()
                return REFUSED
            if self._is_stale:
                self._is_stale = False
                self._end()
                self._places.clear()
                self._due = dict.fromkeys(self._due, 0.0)
            time.sleep(LOOK_SECONDS)
        listening.close()  # Else it takes connections that nobody will serve.
        self._end()
        return 0

    def _hear(self, number: int, frame: FrameType | None) -> None:
        """A signal may come while a lock is held, so nothing is done about it here."""
        self._heard.append(number)

    def _is_told_to_end(self) -> bool:
        heard, self._heard = self._heard, []
        if signal.SIGHUP in heard:
            self._reload()
        return not ENDING.isdisjoint(heard)

    def start_anew(self) -> None:
        """Have all workers replaced; this may be called from another thread."""
        self._is_stale = True

    def _started(self, number: int, listening: socket.socket) -> Worker:
        options = replace(self._options, says_where=number == 0 and self._pauses[number] == 0)
        order = json.dumps({"options": options.written(), "socket": listening.fileno()}).encode() + b"\n"
        environment = dict(os.environ)
        if self._figures is not None:
            environment["PROMETHEUS_MULTIPROC_DIR"] = self._figures
        # Until it can take up keys, a worker is deaf to SIGHUP; it would die of it.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
        process = subprocess.Popen(
            [sys.executable, "-m", "turnwise.cli.worker"],
            stdin=subprocess.PIPE,
            pass_fds=[listening.fileno()],
            env=environment,
            start_new_session=True,  # Ctrl-C is the parent's to pass on.
        )
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        assert process.stdin is not None
        try:
            process.stdin.write(order)
            process.stdin.flush()
        except BrokenPipeError:
            log.error("worker %d ended before it was told what to do", number)
        return Worker(number, process, time.monotonic())

    def _bury(self) -> bool:
        """Note which workers have ended; whether it is of no use to start others."""
        for worker in list(self._places.values()):
            lived = time.monotonic() - worker.began
            self._has_served = self._has_served or lived > SHORT_LIFE
            code = worker.process.poll()
            if code is None:
                continue
            del self._places[worker.number]
            self._forget(worker)
            if code == REFUSED and self._is_patient:
                self._due[worker.number] = math.inf
                continue
            if code == REFUSED and not self._has_served:
                return True
            pause = 0.0 if lived > SHORT_LIFE else min(LONGEST_PAUSE, self._pauses[worker.number] * 2 or 0.5)
            self._pauses[worker.number], self._due[worker.number] = pause or 0.01, time.monotonic() + pause
            how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
            log.error("worker %d (process %d) %s; another takes its place", worker.number, worker.process.pid, how)
            if not self._has_served and pause > HOPELESS:
                log.error("no worker lives for long, and no more are started")
                return True
        return False

    def _forget(self, worker: Worker) -> None:
        if worker.process.stdin is not None:
            worker.process.stdin.close()
        if self._figures is not None:
            from prometheus_client.multiprocess import mark_process_dead

            mark_process_dead(worker.process.pid, self._figures)  # type: ignore[no-untyped-call]

    def _reload(self) -> None:
        try:
            if self._options.keys_file is not None:
                self._options = replace(self._options, held=self._options.keys.read())
        except NoKeys as error:
            log.error("the keys stay as they are: %s", error.reason)
            return
        self._tell(signal.SIGHUP)

    def _end(self) -> None:
        """Have the workers end in good order, or sooner where that is asked for once more."""
        self._tell(signal.SIGTERM)
        ends = time.monotonic() + self._options.drain + self._options.grace + STRAGGLERS
        while time.monotonic() < ends and any(worker.process.poll() is None for worker in self._places.values()):
            heard, self._heard = self._heard, []
            for number in ENDING.intersection(heard):
                self._tell(number)
            time.sleep(LOOK_SECONDS)
        for worker in self._places.values():
            if worker.process.poll() is None:
                log.error("worker %d does not end, and is killed", worker.number)
                worker.process.kill()
                worker.process.wait()
            self._forget(worker)

    def _tell(self, number: int) -> None:
        for worker in self._places.values():
            worker.process.send_signal(number)
