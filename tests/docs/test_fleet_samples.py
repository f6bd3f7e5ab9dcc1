"""The guide to fleets: its servers are served by the command, and its commands change keys under them."""

import inspect
import re
import signal
import subprocess
from functools import partial
from pathlib import Path

from prometheus_client import CollectorRegistry

from tests.deploy.commanding import Served, answering, until
from tests.docs.loading import ENVIRONMENT, ROOT, SAMPLES
from turnwise.cli.serve import serve
from turnwise.errors import InvalidRequestState
from turnwise.metrics import PrometheusMetrics

GUIDE = ROOT / "docs/guides/fleet.md"


def blocks() -> list[str]:
    """What the guide has its reader type into a shell: make a key, then the three phases."""
    return re.findall(r"```sh\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)


def shell(text: str, place: Path) -> None:
    subprocess.run(["sh", "-ec", text], cwd=place, env=ENVIRONMENT, check=True)


def taken_up(served: Served) -> int:
    """How often keys were taken up, by all workers together."""
    return len([line for line in served.log.lines if "the first one mints" in line])


def test_a_rotation_as_the_guide_has_it_loses_no_flow(tmp_path: Path) -> None:
    make, *phases = blocks()
    assert len(phases) == 3
    shell(make, tmp_path)
    assert (tmp_path / "keys").stat().st_mode & 0o077 == 0
    (tmp_path / "shop.py").write_text((SAMPLES / "fleet/shop.py").read_text())
    served = Served(tmp_path, ["shop:server", "--port", "0", "--workers", "2", "--keys-file", "keys"], {})
    try:
        door = served.door
        until(door.is_ready)
        (tmp_path / "turnwise.pid").write_text(str(served.process.pid))
        seen = []
        for number, phase in enumerate(phases, 1):
            seen.append((tmp_path / "keys").read_text().split())
            asked = door.call("order", {"item": "a hat"}).result
            shell(phase, tmp_path)
            until(partial(lambda times: taken_up(served) >= times, 2 * number))
            if number < 3:
                asked = door.call("order", {"item": "a hat"}, **answering(asked, "small")).result
                ordered = door.call("order", {"item": "a hat"}, **answering(asked, "blue")).text
                assert ordered.startswith("a hat, small, blue: ordered at process ")
        seen.append((tmp_path / "keys").read_text().split())
        [old], new = seen[0], seen[3][0]
        assert seen == [[old], [old, new], [new, old], [new]]
        assert not [line for line in served.log.lines if "WARNING" in line or "ERROR" in line]
        served.send(signal.SIGTERM)
        assert served.ended() == 0
    finally:
        served.close()


def test_a_server_with_a_ttl_of_its_own_has_the_keys_of_the_command(tmp_path: Path) -> None:
    shell(blocks()[0], tmp_path)
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
