"""Client processes: started on one core, given orders, always ended.

Knows how to start a module and talk to it over its standard streams, not which clients are compared.
"""

import json
import select
import subprocess
import sys
from dataclasses import asdict, dataclass
from typing import IO

from bench.clients.driving import Order
from bench.fleet import PATIENCE, ROOT, Spec, stop
from bench.machine import on_core


class ClientFailed(Exception):
    """A client process ended, or stayed silent, instead of doing its flows."""


@dataclass(frozen=True, slots=True)
class Client:
    """A running client that waits for orders."""

    spec: Spec
    process: subprocess.Popen[str]
    orders: IO[str]
    replies: IO[str]

    def carry_out(self, order: Order) -> dict[str, float]:
        """Give an order and wait for what it gave."""
        self.orders.write(json.dumps(asdict(order)) + "\n")
        self.orders.flush()
        done: dict[str, float] = json.loads(self.next_line(order.seconds + PATIENCE))
        return done

    def next_line(self, patience: float) -> str:
        ready, _, _ = select.select([self.replies], [], [], patience)
        line = self.replies.readline() if ready else ""
        if not line:
            state = f"exited with {self.process.wait()}" if ready else "no reply in time"
            raise ClientFailed(f"{self.spec.name}: {state}")
        return line

    def stop(self) -> None:
        stop(self.process)
        self.orders.close()
        self.replies.close()


def start(spec: Spec, core: int, url: str) -> Client:
    """Start a client on a core and wait until it takes orders."""
    command = [sys.executable, "-m", f"bench.clients.{spec.module}", "--url", url, *spec.arguments]
    with on_core(core):
        process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    if process.stdin is None or process.stdout is None:
        raise ClientFailed(f"{spec.name}: no pipes")
    client = Client(spec, process, process.stdin, process.stdout)
    try:
        client.next_line(PATIENCE)
    except BaseException:
        client.stop()
        raise
    return client
