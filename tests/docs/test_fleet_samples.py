"""The guide to fleets: its servers are served by the command, and its commands change keys under them."""

import inspect
import re
import shlex
import signal
import stat
import subprocess
import sys
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from tests.deploy.commanding import PATIENCE, Door, Served, answering, until
from tests.deploy.test_nginx import NGINX, can_connect
from tests.docs.loading import ENVIRONMENT, ROOT, SAMPLES
from tests.ports import free_port
from turnwise.cli.serve import serve
from turnwise.errors import InvalidRequestState
from turnwise.metrics import PrometheusMetrics

GUIDE = ROOT / "docs/guides/fleet.md"


def blocks() -> list[str]:
    """What the guide has its reader type into a shell: make a key, then the three phases."""
    return re.findall(r"```sh\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)


def shell(text: str, place: Path) -> str:
    """What a shell says, on both streams, in which `turnwise` is this one."""
    named = f'turnwise() {{ {shlex.quote(sys.executable)} -m turnwise.cli "$@"; }}\n'
    command = ["sh", "-ec", named + text]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    done = subprocess.run(command, cwd=place, env=ENVIRONMENT, check=False, **pipes)
    assert done.returncode == 0, done.stdout
    return str(done.stdout)


def ring(place: Path) -> list[str]:
    """The keys in the file, which nobody else can read."""
    assert stat.S_IMODE((place / "keys").stat().st_mode) == 0o600
    return [line for line in (place / "keys").read_text().splitlines() if not line.startswith("#")]


def taken_up(served: Served) -> int:
    """How often keys were taken up, by all workers together."""
    return len([line for line in served.log.lines if " mints" in line])


def test_a_rotation_as_the_guide_has_it_loses_no_flow(tmp_path: Path) -> None:
    make, *phases = blocks()
    assert len(phases) == 3
    shell(make, tmp_path)
    (tmp_path / "shop.py").write_text((SAMPLES / "fleet/shop.py").read_text())
    served = Served(tmp_path, ["shop:server", "--port", "0", "--workers", "2", "--keys-file", "keys"], {})
    try:
        door = served.door
        until(door.is_ready)
        (tmp_path / "turnwise.pid").write_text(str(served.process.pid))
        seen = []
        for number, phase in enumerate(phases, 1):
            seen.append(ring(tmp_path))
            asked = door.call("order", {"item": "a hat"}).result
            shell(phase, tmp_path)
            until(partial(lambda times: taken_up(served) >= times, 2 * number))
            if number < 3:
                asked = door.call("order", {"item": "a hat"}, **answering(asked, "small")).result
                ordered = door.call("order", {"item": "a hat"}, **answering(asked, "blue")).text
                assert ordered.startswith("a hat, small, blue: ordered at process ")
        seen.append(ring(tmp_path))
        [old], new = seen[0], seen[3][0]
        assert seen == [[old], [old, new], [new, old], [new]]
        assert not [line for line in served.log.lines if "WARNING" in line or "ERROR" in line]
        served.send(signal.SIGTERM)
        assert served.ended() == 0
    finally:
        served.close()


@pytest.mark.skipif(NGINX is None, reason="needs nginx, which is not installed here")
def test_a_trial_on_one_machine_as_the_guide_has_it_plays_each_round_elsewhere(tmp_path: Path) -> None:
    page, configured = GUIDE.read_text(encoding="utf-8"), (SAMPLES / "fleet/nginx.conf").read_text()
    assert f"<!-- docs_src/fleet/nginx.conf -->\n```nginx\n{configured}```" in page
    starting, calling = re.findall(r"```bash\n(.*?)```", page, re.DOTALL)
    ports = {str(8000 + number): str(free_port()) for number in range(4)}
    configured, starting, calling = (
        re.sub(r"\b800\d\b", lambda usual: ports[usual[0]], text) for text in (configured, starting, calling)
    )
    shell(blocks()[0], tmp_path)
    (tmp_path / "shop.py").write_text((SAMPLES / "fleet/shop.py").read_text())
    (tmp_path / "nginx.conf").write_text(configured)
    *serving, proxying = starting.splitlines()
    with ExitStack() as stack:
        for line in serving:
            assert line.startswith("turnwise serve ")
            served = Served(tmp_path, shlex.split(line.removesuffix("&"))[2:], {})
            stack.callback(served.close)
            served.ready()
        words = [str(tmp_path) if word == "$PWD" else word for word in shlex.split(proxying)]
        nginx = subprocess.Popen([str(NGINX), *words[1:]], cwd=tmp_path)
        stack.callback(lambda: nginx.wait(PATIENCE))
        stack.callback(nginx.terminate)
        until(lambda: nginx.poll() is not None or can_connect(Door(int(ports["8000"]))))
        said = shell(calling, tmp_path)
    rounds = re.findall(r"^<- (?:input_required  asks|complete) .*:(\d+)$", said, re.MULTILINE)[-3:]
    assert len(set(rounds)) == 3, said
    assert said.endswith(f"hat, small, blue: ordered at process {rounds[-1]}.\n")


def test_a_server_with_a_ttl_of_its_own_has_the_keys_of_the_command(tmp_path: Path) -> None:
    shell(f"{blocks()[0]}\nturnwise keys rotate keys --phase add", tmp_path)
    sample = SAMPLES / "fleet/patient.py"
    (tmp_path / "patient.py").write_text(sample.read_text())
    options = ["patient:server", "--port", "0", "--keys-file", "keys"]
    served = Served(tmp_path, options, {"SHOP_KEYS": "keys"})
    try:
        door = served.door
        until(door.is_ready)
        asked = door.call("order", {"item": "a hat"}).result
        assert door.call("order", {"item": "a hat"}, **answering(asked, "small")).text == "a hat, small"
    finally:
        served.close()


def test_every_option_of_the_command_and_every_figure_is_in_the_guide() -> None:
    text = GUIDE.read_text(encoding="utf-8")
    for name in inspect.signature(serve).parameters:
        assert name == "server" or f"`--{name.replace('_', '-')}`" in text, name
    registry = CollectorRegistry()
    PrometheusMetrics(registry)
    for family in registry.collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        assert f"| `{name}` |" in text, name
    for kind in ("format", "key", "changed", "claims", "expired", "deadline", "store", "codec"):
        assert kind in (InvalidRequestState.__doc__ or "")
        assert f"`{kind}`" in text, kind
