"""Turnwise's client with the server of `servers/turnwise_inline.py` in the same process."""

from bench.clients.driving import drive
from bench.clients.turnwise_client import connect
from bench.servers.turnwise_inline import fill_catalogue, server

if __name__ == "__main__":
    fill_catalogue(2)
    drive(lambda _: connect(server))
