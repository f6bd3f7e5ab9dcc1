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
from contextlib import suppress
from dataclasses import replace
from types import FrameType
from typing import NamedTuple

from .keys import NoKeys
from .reloading import hold_back, let_through
from .serving import REFUSED, STRAGGLERS, ServeOptions, listen, serve_figures, set_up_logging, warn_of

log = logging.getLogger("turnwise.serve")

ENDING = frozenset({signal.SIGTERM, signal.SIGINT})
LOOK_SECONDS = 0.1
SHORT_LIFE = 5.0
LONGEST_PAUSE = 10.0
HOPELESS = 2.0
"""A pause that is longer than this was doubled three times."""
LAST_WORDS = 1.0
"""Seconds in which a worker that stands still may say where."""


class Pulse:
    """Signs of life of a worker. Silence is counted in looks, so that a pause of the whole machine is none; before the
    first sign there is none either.
    """

    def __init__(self) -> None:
        self._ear, self.mouth = os.pipe()
        os.set_blocking(self._ear, False)
        self._looks: int | None = None

    def silence(self) -> float:
        """For how many seconds nothing was heard."""
        try:
            if os.read(self._ear, 4096):
                self._looks = 0
        except BlockingIOError:
            self._looks = None if self._looks is None else self._looks + 1
        return (self._looks or 0) * LOOK_SECONDS

    def close(self) -> None:
        """Listen no more."""
        os.close(self._ear)


class Worker(NamedTuple):
    """One serving process."""

    number: int
    process: "subprocess.Popen[bytes]"
    began: float
    pulse: Pulse | None


class Supervisor:
    """Keeps so many workers serving. Where they are patient, one that will not come up is left alone until all are
    started anew.
    """

    def __init__(self, options: ServeOptions, metrics: tuple[str, int] | None) -> None:
        self._options = options
        count = self._count = options.workers
        self._metrics = metrics
        self._places: dict[int, Worker] = {}
        self._pauses = dict.fromkeys(range(count), 0.0)
        self._due = dict.fromkeys(range(count), 0.0)
        self._is_stale = False
        self._hung: dict[int, float] = {}
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
        let_through()
        while not self._is_told_to_end():
            for number in range(self._count):
                if number not in self._places and time.monotonic() >= self._due[number]:
                    self._fill(number, listening)
            self._end_hung()
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

    def _fill(self, number: int, listening: socket.socket) -> None:
        """Start a worker. Where the system has no room for one, the others go on serving meanwhile."""
        try:
            self._places[number] = self._started(number, listening)
        except OSError as error:
            if not self._has_served:
                raise
            log.error("worker %d cannot be started, and is tried again in %g seconds: %s", number, LONGEST_PAUSE, error)
            self._due[number] = time.monotonic() + LONGEST_PAUSE

    def _started(self, number: int, listening: socket.socket) -> Worker:
        options = replace(self._options, says_where=number == 0 and self._pauses[number] == 0)
        pulse = Pulse() if options.hung_after and options.workers > 1 else None
        mouth = None if pulse is None else pulse.mouth
        given = {"options": options.written(), "socket": listening.fileno(), "pulse": mouth}
        order = json.dumps(given).encode() + b"\n"
        environment = dict(os.environ)
        if self._figures is not None:
            environment["PROMETHEUS_MULTIPROC_DIR"] = self._figures
        hold_back()  # It is for the worker to let it through.
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "turnwise.cli.worker"],
                stdin=subprocess.PIPE,
                pass_fds=[listening.fileno()] if mouth is None else [listening.fileno(), mouth],
                env=environment,
                start_new_session=True,  # Ctrl-C is the parent's to pass on.
            )
        except OSError:
            if pulse is not None:
                pulse.close()
            raise
        finally:
            let_through()
            if mouth is not None:
                os.close(mouth)
        assert process.stdin is not None
        try:
            process.stdin.write(order)
            process.stdin.flush()
        except BrokenPipeError:
            log.error("worker %d ended before it was told what to do", number)
        return Worker(number, process, time.monotonic(), pulse)

    def _end_hung(self) -> None:
        """End workers that stand still, first asking where."""
        for worker in self._places.values():
            silence = 0.0 if worker.pulse is None else worker.pulse.silence()
            if silence <= self._options.hung_after:
                self._hung.pop(worker.number, None)
                continue
            if worker.number not in self._hung:
                self._hung[worker.number] = time.monotonic()
                told = "worker %d (process %d) has stood still for %g seconds, and is ended; this is where it stands:"
                log.error(told, worker.number, worker.process.pid, self._options.hung_after)
                worker.process.send_signal(signal.SIGQUIT)
            elif time.monotonic() - self._hung[worker.number] > LAST_WORDS:
                worker.process.kill()

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
            if code == REFUSED and self._options.is_patient:
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
        if worker.pulse is not None:
            worker.pulse.close()
        if worker.process.stdin is not None:
            with suppress(BrokenPipeError):  # It ended before it was told what to do.
                worker.process.stdin.close()
        if self._figures is not None:
            from prometheus_client.multiprocess import mark_process_dead

            mark_process_dead(worker.process.pid, self._figures)  # type: ignore[no-untyped-call]

    def _reload(self) -> None:
        try:
            if self._options.keys_file is not None:
                self._options = replace(self._options, held=self._options.keys.read())
                if self._count > 1:
                    warn_of(self._options.keys)
        except NoKeys as error:
            log.error("the keys stay as they are: %s", error.reason)
            return
        self._tell(signal.SIGHUP)

    def _end(self) -> None:
        """Have the workers end in good order, or sooner where that is asked for once more. What is heard meanwhile
        stays heard: where others were to take their place, it is for the parent too.
        """
        self._tell(signal.SIGTERM)
        ends, passed_on = time.monotonic() + self._options.drain + self._options.grace + STRAGGLERS, 0
        while time.monotonic() < ends and any(worker.process.poll() is None for worker in self._places.values()):
            heard = self._heard[passed_on:]
            passed_on += len(heard)
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
