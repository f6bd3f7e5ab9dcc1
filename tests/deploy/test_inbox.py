"""deploy/inbox-nginx.conf and deploy/turnwise-inbox.service: an inbox as they serve it, at a host and under a path."""

import http.client
import json
import re
import shlex
import shutil
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlencode

import pytest

from tests.deploy.commanding import KEYS, PATIENCE, until
from tests.deploy.test_nginx import NGINX, certified, written
from tests.inbox.offices import ANN, BOB, at_url, begun, make_server, run
from tests.inbox.test_processes import COMMAND, Process
from tests.ports import free_port
from tests.unit.joined import ENVIRONMENT

DEPLOY = Path(__file__).parents[2] / "deploy"
CONFIGURED, UNIT = DEPLOY / "inbox-nginx.conf", DEPLOY / "turnwise-inbox.service"
PUBLIC = "inbox.example.com"
ANALYZE = shutil.which("systemd-analyze")
needs_nginx = pytest.mark.skipif(NGINX is None, reason="needs nginx, which is not installed here")


class Inbox(Process):
    """The command with just these words."""

    def __init__(self, *words: str) -> None:
        self._process = subprocess.Popen(
            [*COMMAND, *words], env=ENVIRONMENT, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        self.said = []
        self.until("The inbox is at")

    @property
    def pid(self) -> int:
        return self._process.pid


class Seen(NamedTuple):
    status: int
    headers: Mapping[str, str]
    text: str


class Outside(NamedTuple):
    """Somebody on the other side of nginx."""

    port: int
    tls: ssl.SSLContext
    base: str

    @property
    def host(self) -> str:
        return f"{PUBLIC}:{self.port}"

    def connected(self) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection("127.0.0.1", self.port, timeout=PATIENCE, context=self.tls)

    def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Seen:
        line = self.connected()
        sent = {"Host": self.host} | {name.replace("_", "-"): value for name, value in headers.items()}
        if isinstance(body, dict) and "cookie" not in sent and "Authorization" in sent:
            body, sent["content-type"] = json.dumps(body), "application/json"
        elif body is not None:
            body, sent["content-type"] = urlencode(body), "application/x-www-form-urlencoded"
        try:
            line.request(method, self.base + path, body, sent)
            reply = line.getresponse()
            return Seen(reply.status, dict(reply.getheaders()), reply.read().decode())
        finally:
            line.close()


def secrets_in(place: Path) -> tuple[Path, Path]:
    keys, tokens = place / "keys", place / "tokens"
    keys.write_text(KEYS[0] + "\n")
    tokens.write_text(f"ann:{ANN}\nbob:{BOB}\n")
    for path in (keys, tokens):
        path.chmod(0o600)
    return keys, tokens


def commanded(place: Path, port: int, url: str) -> list[str]:
    """The command of the unit, with other places."""
    keys, tokens = secrets_in(place)
    line = re.sub(r" *\\\n *", " ", UNIT.read_text())
    found = re.search(r"^ExecStart=(.*)$", line, re.MULTILINE)
    assert found is not None
    program, *words = shlex.split(found[1])
    assert program.endswith("/bin/turnwise")
    here = {
        "8420": str(port),
        "9420": str(free_port()),
        f"https://{PUBLIC}": url,
        "https://tools.example.com": "http://127.0.0.1",
        "/var/lib/turnwise-inbox/inbox.db": str(place / "inbox.db"),
        "/etc/turnwise-inbox/keys": str(keys),
        "/etc/turnwise-inbox/tokens": str(tokens),
    }
    assert set(here) <= set(words)
    return [here.get(word, word) for word in words if word not in ("--server", "https://tools.example.com")]


def substituted(place: Path, listening: int, port: int, base: str, strips: bool) -> Path:
    changes = {
        "server 127.0.0.1:8420 ": f"server 127.0.0.1:{port} ",
        "location / {": f"location {base}/ {{",
        "proxy_pass http://turnwise_inbox;": f"proxy_pass http://turnwise_inbox{'/' if strips else ''};",
    }
    if says_http2_on_its_own():
        changes[" ssl http2;"] = " ssl; http2 on;"
    return written(place, CONFIGURED, PUBLIC, listening, changes)


def says_http2_on_its_own() -> bool:
    assert NGINX is not None
    told = subprocess.run([NGINX, "-v"], capture_output=True, text=True, check=True).stderr
    found = re.search(r"nginx/(\d+)\.(\d+)\.(\d+)", told)
    assert found is not None, told
    return tuple(map(int, found.groups())) >= (1, 25, 1)


@contextmanager
def behind_nginx(place: Path, base: str, *, strips: bool = False) -> Iterator[tuple[Outside, Inbox]]:
    assert NGINX is not None
    port = free_port()
    outside = Outside(free_port(), certified(place, PUBLIC), base)
    around = substituted(place, outside.port, port, base, strips)
    checked = subprocess.run([NGINX, "-t", "-p", place, "-c", around], capture_output=True, text=True, check=False)
    assert (checked.returncode, "warn" in checked.stderr) == (0, False), checked.stderr
    inbox = Inbox(*commanded(place, port, f"https://{outside.host}{base}"))
    nginx = subprocess.Popen([NGINX, "-p", place, "-c", around], stderr=subprocess.DEVNULL)
    try:
        until(lambda: nginx.poll() is not None or can_connect(outside))
        yield outside, inbox
    finally:
        nginx.terminate()
        nginx.wait(PATIENCE)
        inbox.end(signal.SIGKILL)


def can_connect(outside: Outside) -> bool:
    line = outside.connected()
    try:
        line.connect()
    except OSError:
        return False
    line.close()
    return True


@pytest.fixture
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("inbox")


@needs_nginx
@pytest.mark.parametrize(("base", "strips"), [("", False), ("/inbox", False), ("/inbox", True), ("/team/inbox", True)])
def test_people_and_programs_reach_an_inbox_through_nginx(place: Path, base: str, strips: bool) -> None:
    with at_url(make_server()) as url, behind_nginx(place, base, strips=strips) as (outside, inbox):
        # A program hands over.
        bearer = {"Authorization": f"Bearer {ANN}"}
        call = json.loads(run(begun(url)).to_json())
        handed = outside.ask("POST", "/api/v1/items", {"pending": call}, **bearer)
        item = json.loads(handed.text)
        assert (handed.status, handed.headers["location"]) == (201, f"{base}/api/v1/items/{item['id']}")
        assert item["page"] == f"https://{outside.host}{base}/items/{item['id']}"
        # A person signs in and answers, as a browser does.
        own = {"origin": f"https://{outside.host}", "sec_fetch_site": "same-origin"}
        led = outside.ask("GET", f"/items/{item['id']}")
        assert (led.status, led.headers["location"]) == (303, f"{base}/login?next=%2Fitems%2F{item['id']}")
        entered = outside.ask("POST", "/login", {"token": ANN, "next": f"/items/{item['id']}"}, **own)
        assert (entered.status, entered.headers["location"]) == (303, f"{base}/items/{item['id']}"), entered.text
        cookie, _, attributes = entered.headers["set-cookie"].partition("; ")
        assert cookie.startswith("__Secure-" if base else "__Host-")
        assert (f"Path={base or '/'};" in attributes, attributes.endswith("; Secure")) == (True, True)
        page = outside.ask("GET", f"/items/{item['id']}", cookie=cookie)
        for address in re.findall(r'(?:href|src|action)="(/[^"]*)"', page.text):
            assert address.startswith(f"{base}/")
        word = re.search(r'name="csrf" value="([^"]+)"', page.text)
        send = re.search(r'name="send" value="(decline [^"]+)"', page.text)
        assert word is not None
        assert send is not None, page.text
        typed = {"csrf": word[1], "send": send[1]}
        answered = outside.ask("POST", f"/items/{item['id']}/answers", typed, cookie=cookie, **own)
        assert (answered.status, answered.headers["location"]) == (303, f"{base}/items/{item['id']}"), answered.text
        waited = outside.ask("GET", f"/api/v1/items/{item['id']}?wait=10&revision=2", **bearer)
        assert json.loads(waited.text)["id"] == item["id"]
        # Who is refused is known by the address that nginx tells; probes are not for those outside.
        assert (
            outside.ask(
                "GET", "/api/v1/items", Authorization="Bearer a-wrong-one-that-is-long", X_Real_IP="9.9.9.9"
            ).status
            == 401
        )
        assert "from 127.0.0.1 with 401" in inbox.until(f"refused GET {base}/api/v1/items")
        assert {outside.ask("GET", probe).status for probe in ("/healthz", "/readyz")} == {404}


@needs_nginx
def test_browsers_are_offered_one_connection_for_all_requests(place: Path) -> None:
    with behind_nginx(place, "") as (outside, _):
        outside.tls.set_alpn_protocols(["h2", "http/1.1"])
        with (
            socket.create_connection(("127.0.0.1", outside.port), PATIENCE) as line,
            outside.tls.wrap_socket(line, server_hostname=PUBLIC) as secured,
        ):
            assert secured.selected_alpn_protocol() == "h2"


@needs_nginx
def test_events_come_through_nginx_as_they_are_sent(place: Path) -> None:
    with at_url(make_server()) as url, behind_nginx(place, "") as (outside, _):
        entered = outside.ask("POST", "/login", {"token": ANN})
        line = outside.connected()
        cookie = entered.headers["set-cookie"].partition(";")[0]
        line.request("GET", "/events", headers={"Host": outside.host, "cookie": cookie})
        stream = line.getresponse()
        assert stream.status == 200
        while stream.readline() not in (b"\n", b""):
            pass
        call = json.loads(run(begun(url)).to_json())
        item = outside.ask("POST", "/api/v1/items", {"pending": call}, Authorization=f"Bearer {ANN}")
        seen = b""
        while json.loads(item.text)["id"].encode() not in seen:  # Or the connection's timeout ends the test.
            seen += stream.readline()
        line.close()


def test_the_command_of_the_units_reload_reads_keys_and_tokens_again(place: Path) -> None:
    port = free_port()
    inbox = Inbox(*commanded(place, port, f"https://{PUBLIC}"))
    try:
        (place / "keys").write_text(f"{KEYS[1]}\n{KEYS[0]}\n")
        found = re.search(r"^ExecReload=(.*)$", UNIT.read_text(), re.MULTILINE)
        assert found is not None
        subprocess.run(shlex.split(found[1].replace("$MAINPID", str(inbox.pid))), check=True)
        inbox.until("2 keys from")
        inbox.until("2 tokens from")
        assert inbox.end(signal.SIGTERM) == -signal.SIGTERM
    finally:
        inbox.end(signal.SIGKILL)


@pytest.mark.skipif(ANALYZE is None, reason="needs systemd-analyze, which is not installed here")
def test_systemd_reads_the_units_file_without_a_word(tmp_path: Path) -> None:
    assert ANALYZE is not None
    (tmp_path / UNIT.name).write_text(UNIT.read_text().replace("/opt/turnwise-inbox/venv/bin/turnwise", sys.executable))
    path = tmp_path / UNIT.name
    said = subprocess.run([ANALYZE, "verify", "--man=no", path], capture_output=True, text=True, check=False)
    assert (said.returncode, said.stderr.strip()) == (0, "")


def test_an_inbox_is_restored_from_a_backup_that_was_made_while_it_served(place: Path) -> None:
    port = free_port()
    words = commanded(place, port, f"http://127.0.0.1:{port}")
    with at_url(make_server()) as url:
        call = run(begun(url))
        inbox = Inbox(*words)
        try:
            ask(port, "POST", "/api/v1/items", {"pending": json.loads(call.to_json())})
            with sqlite3.connect(place / "inbox.db") as serving, sqlite3.connect(place / "copy.db") as copy:
                serving.backup(copy)
            serving.close()
            copy.close()
        finally:
            inbox.end(signal.SIGKILL)
        for path in place.glob("inbox.db*"):
            path.unlink()
        (place / "copy.db").rename(place / "inbox.db")
        inbox = Inbox(*words)
        try:
            item = ask(port, "GET", f"/api/v1/items/{call.id}", None)
            assert list(item["questions"]) == ["title"], "what is sealed can be read"
        finally:
            inbox.end(signal.SIGKILL)


def ask(port: int, method: str, path: str, body: Any) -> Any:
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    headers = {"Authorization": f"Bearer {ANN}", "content-type": "application/json"}
    line.request(method, path, None if body is None else json.dumps(body), headers)
    reply = json.loads(line.getresponse().read())
    line.close()
    return reply
