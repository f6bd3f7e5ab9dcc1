"""A real nginx before the instances: round robin, nothing sticky, and nothing sent twice on anybody's behalf."""

import os
import shutil
import signal
import socket
import subprocess
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

NGINX = shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/opt/homebrew/bin")
PATIENCE = 20.0

# One worker, so that round robin is one circle. Connections are kept for less than the five seconds of uvicorn.
CONFIGURED = """
daemon off;
master_process off;
worker_processes 1;
worker_rlimit_nofile 16384;
pid {place}/nginx.pid;
error_log {place}/nginx-error.log error;
events {{ worker_connections 12000; }}
http {{
  log_format soak '$status|$upstream_addr|$upstream_status|$request_method|$request_time';
  access_log {place}/nginx-access.log soak;
  client_body_temp_path {place}/nginx-body;
  proxy_temp_path {place}/nginx-proxy;
  fastcgi_temp_path {place}/nginx-fastcgi;
  uwsgi_temp_path {place}/nginx-uwsgi;
  scgi_temp_path {place}/nginx-scgi;
  client_body_buffer_size 256k;
  keepalive_requests 1000000;
  upstream instances {{
{servers}
    keepalive 256;
    keepalive_requests 1000000;
    keepalive_timeout 3s;
  }}
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://instances;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_set_header Host $http_host;
      proxy_buffering off;
      proxy_read_timeout 1h;
      proxy_next_upstream off;
    }}
  }}
}}
"""


class Nginx:
    """Where it listens, and what it wrote down."""

    def __init__(self, port: int, place: Path) -> None:
        self.port = port
        self._place = place

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/mcp"

    def statuses(self) -> Counter[int]:
        """How often it gave each status to a client."""
        return Counter(int(line.partition("|")[0]) for line in self._lines())

    def shares(self) -> Counter[str]:
        """How many requests went to each instance."""
        return Counter(line.split("|")[1] for line in self._lines())

    def _lines(self) -> list[str]:
        file = self._place / "nginx-access.log"
        return file.read_text().splitlines() if file.exists() else []


@contextmanager
def balanced(ports: Sequence[int], port: int, place: Path) -> Iterator[Nginx]:
    """nginx on this port, for as long as it is needed."""
    assert NGINX is not None, "nginx is not installed"
    place.mkdir(exist_ok=True)
    servers = "\n".join(f"    server 127.0.0.1:{instance} max_fails=0;" for instance in ports)
    (place / "nginx.conf").write_text(CONFIGURED.format(place=place, port=port, servers=servers))
    command = [NGINX, "-p", str(place), "-c", str(place / "nginx.conf")]
    with (place / "nginx-stderr.log").open("wb") as stderr:
        process = subprocess.Popen(command, stderr=stderr, stdin=subprocess.DEVNULL)
        try:
            _await_listener(port, process)
            yield Nginx(port, place)
        finally:
            _end(process)


def _await_listener(port: int, process: "subprocess.Popen[bytes]") -> None:
    ends = time.monotonic() + PATIENCE
    while time.monotonic() < ends and process.poll() is None:
        with suppress(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), PATIENCE).close()
            return
        time.sleep(0.02)
    raise AssertionError("nginx did not start")


def _end(process: "subprocess.Popen[bytes]") -> None:
    with suppress(ProcessLookupError):
        os.kill(process.pid, signal.SIGTERM)
    try:
        process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
