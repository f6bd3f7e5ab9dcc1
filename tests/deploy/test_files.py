"""The other files in deploy/: their commands are run as they stand there; linters look at what cannot be run here."""

import importlib.util
import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.commanding import COMMAND, KEYS, PYTHONPATH, SHOP, Door, Served, answering, children, keys_file, until
from tests.ports import free_port

DEPLOY = Path(__file__).parents[2] / "deploy"
UNIT, DOCKERFILE, MANIFEST = DEPLOY / "turnwise@.service", DEPLOY / "Dockerfile", DEPLOY / "kubernetes.yaml"
PUBLIC = "mcp.example.com"
HADOLINT = shutil.which("hadolint") or shutil.which("hadolint", path=sysconfig.get_path("scripts"))
ANALYZE = shutil.which("systemd-analyze")
KUBERNETES = ("1.28", "1.31", "1.34")


def joined(path: Path) -> list[str]:
    """The lines of a file, with those that end in a backslash made whole, and without comments."""
    lines = re.sub(r" *\\\n *", " ", path.read_text()).splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def value_of(path: Path, name: str, separator: str = "=") -> str:
    [found] = [line.removeprefix(name + separator) for line in joined(path) if line.startswith(name + separator)]
    return found


def served(place: Path, words: list[str]) -> Served:
    (place / "shop.py").write_text(SHOP)
    assert words[0] == "serve"
    return Served(place, words[1:], {})


def finishes_a_flow(door: Door) -> bool:
    return door.order("a hat") == "a hat, small, blue"


# systemd


def test_the_command_of_the_unit_serves_reloads_and_stops(tmp_path: Path) -> None:
    port, keys = free_port(), keys_file(tmp_path, KEYS[0])
    command = value_of(UNIT, "ExecStart").replace("%i", str(port)).replace("/etc/turnwise/keys", str(keys))
    program, *words = shlex.split(command)
    assert program.endswith("/bin/turnwise")
    instance = served(tmp_path, words)
    try:
        instance.ready()
        door = Door(port, named=PUBLIC)
        assert finishes_a_flow(door)
        asked = door.call("order", {"item": "a hat"}).result
        keys_file(tmp_path, KEYS[1], KEYS[0])
        reload = value_of(UNIT, "ExecReload").replace("$MAINPID", str(instance.process.pid))
        subprocess.run(shlex.split(reload), check=True)
        instance.log.until("2 keys from")
        assert door.call("order", {"item": "a hat"}, **answering(asked, "small")).status == 200
        instance.send(signal.SIGTERM)
        assert instance.ended() in (0, -signal.SIGTERM)
    finally:
        instance.close()


def test_the_unit_gives_the_command_the_time_that_it_takes_to_end() -> None:
    words = shlex.split(value_of(UNIT, "ExecStart"))
    drain = float(words[words.index("--drain") + 1]) if "--drain" in words else 0
    assert int(value_of(UNIT, "TimeoutStopSec")) > drain + float(words[words.index("--grace") + 1]) + 5


@pytest.mark.skipif(ANALYZE is None, reason="needs systemd-analyze, which is not installed here")
def test_systemd_reads_the_unit_without_a_word(tmp_path: Path) -> None:
    assert ANALYZE is not None
    text = UNIT.read_text().replace("/opt/shop/venv/bin/turnwise", sys.executable)
    (tmp_path / UNIT.name).write_text(text)
    instance = tmp_path / UNIT.name.replace("@", "@8001")
    said = subprocess.run([ANALYZE, "verify", "--man=no", instance], capture_output=True, text=True, check=False)
    assert (said.returncode, said.stderr.strip()) == (0, "")


# The image


@pytest.mark.skipif(HADOLINT is None, reason="needs hadolint: pip install --group deploy")
def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    assert HADOLINT is not None
    said = subprocess.run([HADOLINT, "--no-color", DOCKERFILE], capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout) == (0, "")


def test_the_command_and_the_health_check_of_the_image_work(tmp_path: Path) -> None:
    port, keys = str(free_port()), str(keys_file(tmp_path, KEYS[0]))
    words = [*json.loads(value_of(DOCKERFILE, "ENTRYPOINT", " ")), *json.loads(value_of(DOCKERFILE, "CMD", " "))]
    here = {"8000": port, "0.0.0.0": "127.0.0.1", "/run/secrets/turnwise-keys": keys}
    check = json.loads(value_of(DOCKERFILE, "HEALTHCHECK", " ").partition("CMD ")[2])
    assert (words[0], check[0]) == ("turnwise", "python")
    instance = served(tmp_path, [here.get(word, word) for word in words[1:]])
    try:
        assert finishes_a_flow(instance.ready())
        probe = [sys.executable, *(word.replace(":8000/", f":{port}/") for word in check[1:])]
        subprocess.run(probe, check=True)
        instance.send(signal.SIGTERM)
        instance.ended()
        assert subprocess.run(probe, stderr=subprocess.DEVNULL, check=False).returncode == 1
    finally:
        instance.close()


@pytest.mark.skipif(os.name != "posix" or not shutil.which("unshare"), reason="needs unshare")
@pytest.mark.parametrize("workers", ["1", "2"])
def test_as_the_first_process_of_a_container_it_ends_when_it_is_told_to(tmp_path: Path, workers: str) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    port = free_port()
    own = ["unshare", "--pid", "--fork", "--kill-child"]
    if subprocess.run([*own, "true"], capture_output=True, check=False).returncode:
        pytest.skip("may not make a namespace for processes here")
    command = [sys.executable, "-c", COMMAND, "serve", "shop", "--port", str(port), "--workers", workers]
    environment = {**os.environ, "PYTHONPATH": PYTHONPATH, "PLACE": str(tmp_path)}
    outer = subprocess.Popen(
        [*own, *command], cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        until(Door(port).is_ready)
        [inner] = children(outer.pid)
        os.kill(inner, signal.SIGTERM)
        assert outer.wait(30) == 0
    finally:
        outer.kill()
        outer.wait()


# Kubernetes


def manifest() -> list[dict[str, Any]]:
    yaml = pytest.importorskip("yaml", reason="needs PyYAML: pip install --group deploy")
    return list(yaml.safe_load_all(MANIFEST.read_text()))


@pytest.mark.skipif(
    importlib.util.find_spec("kubernetes_validate") is None,
    reason="needs kubernetes-validate: pip install --group deploy",
)
@pytest.mark.parametrize("version", KUBERNETES)
def test_the_manifest_is_what_kubernetes_takes(version: str) -> None:
    kubernetes_validate: Any = importlib.import_module("kubernetes_validate")
    for resource in manifest():
        kubernetes_validate.validate(resource, version, strict=True)


def test_the_parts_of_the_manifest_fit_together() -> None:
    deployment, service, budget = manifest()
    pod = deployment["spec"]["template"]
    [container] = pod["spec"]["containers"]
    labels = pod["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == labels
    assert service["spec"]["selector"] == labels
    assert budget["spec"]["selector"]["matchLabels"] == labels
    assert budget["spec"]["minAvailable"] < deployment["spec"]["replicas"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert {container[probe]["httpGet"]["port"] for probe in ("readinessProbe", "livenessProbe")} <= set(ports)
    assert pod["metadata"]["annotations"]["prometheus.io/port"] == str(ports["metrics"])
    assert f"EXPOSE {ports['http']}" in DOCKERFILE.read_text()
    options = dict(argument.removeprefix("--").split("=") for argument in container["args"])
    mounts = {mount["mountPath"] for mount in container["volumeMounts"]}
    assert str(Path(options["keys-file"]).parent) in mounts
    assert pod["spec"]["terminationGracePeriodSeconds"] > float(options["drain"]) + float(options["grace"]) + 5


def test_the_arguments_of_the_manifest_serve_and_its_probes_are_answered(tmp_path: Path) -> None:
    [container] = manifest()[0]["spec"]["template"]["spec"]["containers"]
    port, figures, keys = free_port(), free_port(), keys_file(tmp_path, KEYS[0])
    here = {"/run/keys/keys": str(keys), "9000": str(figures), "0.0.0.0": "127.0.0.1", "--drain=10": "--drain=0.1"}
    arguments = container["args"]
    for there, instead in here.items():
        arguments = [argument.replace(there, instead) for argument in arguments]
    instance = served(tmp_path, ["serve", "shop:server", "--port", str(port), *arguments])
    try:
        instance.ready()
        assert finishes_a_flow(Door(port, named=PUBLIC))
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            assert Door(port, named="10.1.2.3:8000").get(container[probe]["httpGet"]["path"]).status == 200
        assert b"turnwise_calls_total" in Door(figures).get("/metrics").body
        instance.send(signal.SIGTERM)
        assert instance.ended() in (0, -signal.SIGTERM)
    finally:
        instance.close()
