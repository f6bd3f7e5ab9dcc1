"""The official SDK's client with the server of `servers/mcp_declared.py` in the same process."""

from bench.clients.driving import drive
from bench.clients.mcp_client import connect
from bench.servers.mcp_declared import server

if __name__ == "__main__":
    drive(lambda _: connect(server))
