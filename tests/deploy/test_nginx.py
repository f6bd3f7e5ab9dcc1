"""deploy/nginx.conf before three instances: rounds go round, streams come through, instances come and go."""

import datetime
import ipaddress
import itertools
import json
import os
import re
import shutil
import signal
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.deploy.commanding import (
    KEYS,
    PATIENCE,
    SHOP,
    Answered,
    Door,
    Served,
    answering,
    keys_file,
    until,
)
from tests.ports import free_port

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/opt/homebrew/bin")
CONFIGURED = Path(__file__).parents[2] / "deploy/nginx.conf"
PUBLIC = "mcp.example.com"
items = (f"item {number}" for number in itertools.count(1))

pytestmark = pytest.mark.skipif(NGINX is None, reason="needs nginx, which is not installed here")

AROUND = """
daemon off; pid {place}/pid; error_log stderr warn; worker_processes 2; {user}
events {{ worker_connections 256; }}
http {{
  access_log off;
  client_body_temp_path {place}/body; proxy_temp_path {place}/proxy; fastcgi_temp_path {place}/fastcgi;
  uwsgi_temp_path {place}/uwsgi; scgi_temp_path {place}/scgi;
  include {place}/turnwise.conf;
}}
"""
TOLD = """
@server.tool()
async def told(name: str, ctx: Context) -> str:
    await ctx.report_progress(1)
    return await wait(name)
"""


def certified(place: Path, public: str = PUBLIC) -> ssl.SSLContext:
    """A certificate for the public name, and who trusts it."""
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    now = datetime.datetime.now(datetime.UTC)
    names = x509.SubjectAlternativeName([x509.DNSName(public), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(now + datetime.timedelta(1))
    certificate = builder.add_extension(names, critical=True).sign(key, hashes.SHA256())
    pem = serialization.Encoding.PEM
    (place / "crt").write_bytes(certificate.public_bytes(pem))
    plain = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (place / "key").write_bytes(plain)
    return ssl.create_default_context(cafile=str(place / "crt"))


def substituted(place: Path, listening: int, instances: list[int]) -> Path:
    """The file as it is, but for ports and places."""
    return written(
        place,
        CONFIGURED,
        PUBLIC,
        listening,
        {f":{8001 + number} ": f":{port} " for number, port in enumerate(instances)},
    )


def written(place: Path, configured: Path, public: str, listening: int, changes: dict[str, str]) -> Path:
    """A file of ours with these changes, each of which it has to know; and a configuration around it, as a distribution
    has one.
    """
    text = configured.read_text()
    usual_ones = {
        "listen 443 ssl": f"listen 127.0.0.1:{listening} ssl",
        f"/etc/nginx/tls/{public}.crt": str(place / "crt"),
        f"/etc/nginx/tls/{public}.key": str(place / "key"),
    }
    for usual, here in (usual_ones | changes).items():
        assert usual in text, usual
        text = text.replace(usual, here)
    (place / "turnwise.conf").write_text(text)
    around = place / "nginx.conf"
    around.write_text(AROUND.format(place=place, user="user root;" if os.geteuid() == 0 else ""))
    return around


class Fleet:
    """Three instances on their ports, and the door that nginx is."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.ports = [free_port() for _ in range(3)]
        self.keys = keys_file(place, KEYS[0])
        (place / "shop.py").write_text(SHOP + TOLD)
        self.instances = [self._started(port) for port in self.ports]
        self.door = Door(free_port(), certified(place), PUBLIC)

    def _started(self, port: int) -> Served:
        options = ["--keys-file", str(self.keys), "--allowed-host", PUBLIC, "--caller-header", "X-Real-IP"]
        return Served(self.place, ["shop:server", "--port", str(port), *options], {})

    def stop(self, number: int, by: int) -> None:
        self.instances[number].send(by)
        self.instances[number].ended()

    def start(self, number: int) -> None:
        self.instances[number] = self._started(self.ports[number])
        self.instances[number].ready()

    def close(self) -> None:
        for instance in self.instances:
            instance.close()

    def rounds_of(self, item_flow: str) -> list[int]:
        """Which instances had rounds of a flow."""
        logs = [[*instance.out.lines] for instance in self.instances]
        return [number for number, lines in enumerate(logs) for line in lines if f"flow={item_flow}" in line]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    place = tmp_path_factory.mktemp("behind nginx").rename(tmp_path_factory.getbasetemp() / "nginx")
    with ExitStack() as stack:
        fleet = Fleet(place)
        stack.callback(fleet.close)
        assert NGINX is not None
        around = substituted(place, fleet.door.port, fleet.ports)
        checked = subprocess.run([NGINX, "-t", "-p", place, "-c", around], capture_output=True, text=True, check=False)
        assert checked.returncode == 0, checked.stderr
        assert "warn" not in checked.stderr
        nginx = subprocess.Popen([NGINX, "-p", place, "-c", around], stderr=subprocess.PIPE)
        assert nginx.stderr is not None
        stack.callback(nginx.stderr.close)
        stack.callback(lambda: nginx.wait(PATIENCE))
        stack.callback(nginx.terminate)
        for instance in fleet.instances:
            instance.ready()
        until(lambda: nginx.poll() is not None or can_connect(fleet.door))
        yield fleet


def can_connect(door: Door) -> bool:
    try:
        door.connect().close()
    except OSError:
        return False
    return True


def test_the_rounds_of_a_flow_go_to_one_instance_after_another(fleet: Fleet) -> None:
    for _ in range(4):
        assert fleet.door.order(next(items)).endswith("small, blue")
    flows = {found[1] for line in fleet.instances[0].out.lines if (found := re.search(r"flow=(\S+)", line))}
    assert flows
    until(lambda: all(len(fleet.rounds_of(flow)) == 3 for flow in flows))
    for flow in flows:
        assert sorted(fleet.rounds_of(flow)) == [0, 1, 2]


def test_an_instance_that_is_killed_between_rounds_is_passed_over(fleet: Fleet) -> None:
    for number in range(3):
        item = next(items)
        asked = fleet.door.call("order", {"item": item}).result
        fleet.stop(number, signal.SIGKILL)
        asked = fleet.door.call("order", {"item": item}, **answering(asked, "small")).result
        assert fleet.door.call("order", {"item": item}, **answering(asked, "blue")).text == f"{item}, small, blue"
        fleet.start(number)


def test_instances_are_restarted_one_after_another_and_no_flow_is_lost(fleet: Fleet) -> None:
    begun = [(item := next(items), fleet.door.call("order", {"item": item}).result) for _ in range(6)]
    for number in range(3):
        fleet.stop(number, signal.SIGTERM)
        assert fleet.door.order(next(items)).endswith("small, blue")
        fleet.start(number)
    for item, asked in begun:
        again = fleet.door.call("order", {"item": item}, **answering(asked, "small")).result
        assert fleet.door.call("order", {"item": item}, **answering(again, "blue")).text == f"{item}, small, blue"


def test_a_request_that_was_sent_is_not_sent_to_another_instance(fleet: Fleet) -> None:
    with fleet.door.begin("wait", {"name": "killed within"}) as connection:
        pid = fleet.instances[0].began("killed within")
        (fleet.place / "killed within began").unlink()
        number = [instance.process.pid for instance in fleet.instances].index(pid)
        fleet.stop(number, signal.SIGKILL)
        assert b"502" in connection.recv(65536).splitlines()[0]
    assert not (fleet.place / "killed within began").exists()
    fleet.start(number)


def test_events_come_through_as_they_are_sent(fleet: Fleet) -> None:
    body = json.dumps(
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {
                "name": "told",
                "arguments": {"name": "stream"},
                "_meta": {
                    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                    "io.modelcontextprotocol/clientCapabilities": {},
                    "progressToken": 1,
                },
            },
        }
    )
    with fleet.door.connect() as connection:
        lines = [
            "POST /mcp HTTP/1.1",
            f"Host: {PUBLIC}",
            "Content-Type: application/json",
            "Accept: application/json, text/event-stream",
            "MCP-Protocol-Version: 2026-07-28",
            "Mcp-Method: tools/call",
            "Mcp-Name: told",
            f"Content-Length: {len(body)}",
        ]
        connection.sendall("\r\n".join([*lines, "", body]).encode())
        reader, seen = connection.makefile("rb"), b""
        while b"notifications/progress" not in seen:
            seen += reader.readline()
        (fleet.place / "stream may end").touch()  # Only now, so nothing waited for the end.
        while b'"result"' not in seen:
            seen += reader.readline()
        reader.close()


@pytest.mark.parametrize(("mebibytes", "status"), [(3, 200), (5, 413)])
def test_bodies_may_be_as_large_as_the_server_takes_them(fleet: Fleet, mebibytes: int, status: int) -> None:
    assert fleet.door.call("order", {"item": "x" * (mebibytes * 2**20)}).status == status


def test_a_client_of_2025_11_25_keeps_its_session(fleet: Fleet) -> None:
    opened = older(fleet.door, "initialize", {"capabilities": {}, "protocolVersion": "2025-11-25", "clientInfo": INFO})
    session = {"Mcp-Session-Id": opened.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
    assert older(fleet.door, "notifications/initialized", None, **session).status == 202
    for _ in range(12):
        assert older(fleet.door, "tools/call", {"name": "who", "arguments": {}}, **session).status == 200


INFO = {"name": "older", "version": "1"}


def older(door: Door, method: str, params: dict[str, Any] | None, **headers: str) -> Answered:
    message = {"jsonrpc": "2.0", "method": method} | ({"id": 1, "params": params} if params is not None else {})
    usual = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    return door.exchange("POST", "/mcp", json.dumps(message).encode(), usual | headers)


def test_probes_and_all_else_are_not_for_those_outside(fleet: Fleet) -> None:
    for path in ("/healthz", "/readyz", "/", "/mcp/more"):
        assert fleet.door.get(path).status == 404
    assert fleet.door.exchange("POST", "/mcp", b"{}", {"Host": "evil.example"}).status == 421
