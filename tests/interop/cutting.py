"""A wire that breaks: a proxy that cuts a connection behind the first event with certain words in it.

It also keeps what clients asked for, head by head, with the status that they were given.
"""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field

END = b"\r\n\r\n"


@dataclass
class Exchange:
    """One request's head, and the first line of the response."""

    head: str
    status: int | None = None

    @property
    def verb(self) -> str:
        return self.head.partition(" ")[0]

    def header(self, name: str) -> str | None:
        for line in self.head.split("\r\n")[1:]:
            own, _, value = line.partition(":")
            if own.lower() == name:
                return value.strip()
        return None


@dataclass
class Wire:
    """Where to call, and what was said so far."""

    port: int
    exchanges: list[Exchange] = field(default_factory=list)
    cuts: int = 0

    def of(self, verb: str) -> list[Exchange]:
        return [exchange for exchange in self.exchanges if exchange.verb == verb]


@contextmanager
def breaking(server: int, words: tuple[bytes, ...]) -> Iterator[Wire]:
    """A wire to the server at this port."""
    with socket.create_server(("127.0.0.1", 0)) as door:
        wire = Wire(door.getsockname()[1])

        def welcome() -> None:
            with suppress(OSError):
                while True:
                    client, _ = door.accept()
                    threading.Thread(target=_carry, args=(wire, client, server, words), daemon=True).start()

        threading.Thread(target=welcome, daemon=True).start()
        yield wire
        with suppress(OSError):
            door.shutdown(socket.SHUT_RDWR)


def _carry(wire: Wire, client: socket.socket, port: int, words: tuple[bytes, ...]) -> None:
    """One connection, on which requests come one after the other."""
    exchanges: list[Exchange] = []
    with client, socket.create_connection(("127.0.0.1", port)) as server:
        upwards = threading.Thread(target=_up, args=(wire, exchanges, client, server), daemon=True)
        upwards.start()
        with suppress(OSError):
            _down(wire, exchanges, server, client, words)
        for end in (client, server):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        upwards.join()


def _up(wire: Wire, exchanges: list[Exchange], client: socket.socket, server: socket.socket) -> None:
    with suppress(OSError):
        while data := client.recv(65536):
            if data.startswith((b"POST ", b"GET ", b"DELETE ")):
                exchanges.append(Exchange(data.partition(END)[0].decode("latin-1")))
                wire.exchanges.append(exchanges[-1])
            server.sendall(data)
        server.shutdown(socket.SHUT_WR)


def _down(
    wire: Wire, exchanges: list[Exchange], server: socket.socket, client: socket.socket, words: tuple[bytes, ...]
) -> None:
    while data := server.recv(65536):
        if data.startswith(b"HTTP/1.1 "):
            exchanges[-1].status = int(data[9:12])
        found = [place for word in words if (place := data.find(word)) >= 0]
        if found:
            while END not in data[min(found) :] and (more := server.recv(65536)):
                data += more
            client.sendall(data[: data.find(END, min(found)) + len(END)])
            wire.cuts += 1
            return
        client.sendall(data)
