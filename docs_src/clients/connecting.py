import ssl
from collections.abc import Sequence
from pathlib import Path

from turnwise import HTTP, Client, Command, MCPServer


def of_a_url(url: str, token: str) -> Client:
    return Client(url, headers={"Authorization": f"Bearer {token}"})


def of_a_url_in_the_company(url: str, authority: Path, proxy: str) -> Client:
    """Behind the company's proxy, with a certificate of the company's own authority."""
    return Client(HTTP(url, ssl=ssl.create_default_context(cafile=authority), proxy=proxy))


def of_a_command(args: Sequence[str], folder: Path, key: str) -> Client:
    """The server is a process that the client starts, and ends."""
    return Client(Command(args, env={"WEATHER_KEY": key}, cwd=folder))


def of_a_server(server: MCPServer) -> Client:
    """Client and server in one process, without a network."""
    return Client(server)
