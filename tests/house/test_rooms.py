"""The house: one direction between rooms, modules of a readable size, one place where exceptions become replies."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "turnwise"

# From the top of the house to the bottom: a room imports only rooms above it. Rooms on one line are siblings.
ROOMS = [
    {"errors", "_json", "_patterns", "_siblings", "_version", "_budgets", "_moving", "_upkeep"},
    {"_messages", "_routes", "_claims"},
    {"_sealed", "_guards", "_shedding", "_sqlite", "_postgres"},
    {"_ledger"},
    {"_bus", "_pacing", "_templates", "_schemas", "_sessions", "_terms"},
    {"_rounds", "_fields"},
    {"_driver", "_calling", "_eager"},
    {"_binding"},
    {"_steps", "_resolving"},
    {"dialects"},
    {"_official", "_carrying"},
    {"stores"},
    {"transports", "_pending", "_following"},
    {"tasks"},
    {"context", "auth", "_caching", "_conversation", "_pending_store"},
    {"_jwt", "telemetry", "metrics", "_standing", "_noting", "_access"},
    {"_catalogue", "_live"},
    {
        "_watching",
        "_registering",
        "_tasking",
        "_wires",
        "_life",
        "_hosting",
        "_connecting",
        "_listening",
        "_negotiating",
    },
    {"_inboxing"},
    {"server", "client", "_replaying"},
    {"testing", "sync", "inbox"},
    {"cli"},
    {"__init__"},
]
LEVEL = {room: level for level, rooms in enumerate(ROOMS) for room in rooms}
MODULES = sorted(SOURCE.rglob("*.py"))


def room_of(path: Path) -> str:
    first = path.relative_to(SOURCE).parts[0]
    return first.removesuffix(".py")


def imported_rooms(path: Path) -> set[str]:
    """The rooms of this package that a module imports, wherever in the module it does so."""
    depth = len(path.relative_to(SOURCE).parts)
    rooms = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            if node.level == depth:
                rooms |= {node.module.partition(".")[0]} if node.module else {alias.name for alias in node.names}
            elif node.level == 0 and (node.module or "").startswith("turnwise."):
                rooms.add((node.module or "").split(".")[1])
    return rooms


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_room_imports_only_itself_and_rooms_above_it(path: Path) -> None:
    mine = room_of(path)
    assert mine in LEVEL, f"{mine} has no place in the house"
    for other in imported_rooms(path) - {mine}:
        assert LEVEL[other] < LEVEL[mine], f"{mine} imports {other}, which is not above it"


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_module_can_be_read_in_one_sitting(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 400


def functions(path: Path) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    tree = ast.parse(path.read_text())
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_a_function_fits_on_a_screen(path: Path) -> None:
    for node in functions(path):
        doc = ast.get_docstring(node)
        size = (node.end_lineno or 0) - node.body[0].lineno + 1 - (len(doc.splitlines()) if doc else 0)
        assert size <= 40, f"{node.name} has {size} lines"


def test_camel_case_lives_in_the_dialects_only() -> None:
    words = {"requestState", "inputResponses", "inputRequests", "resultType", "structuredContent", "ttlMs"}
    for path in MODULES:
        if room_of(path) in {"dialects", "_driver", "testing"}:
            continue
        literals = {node.value for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Constant)}
        assert not words & {value for value in literals if isinstance(value, str)}, path


def test_broad_handlers_stand_only_where_they_are_argued_for() -> None:
    """Where any exception becomes a reply, a journal entry, a refusal, a future's, or a failed start."""
    argued = {
        ("dialects/v2026_07_28.py", "answer"),
        ("dialects/handshake.py", "answer"),
        ("dialects/handshake.py", "attend"),
        ("dialects/handshake.py", "_replied"),
        ("dialects/handshake.py", "_several"),
        ("dialects/v2025_11_25.py", "_finished"),
        ("dialects/replying.py", "_words"),
        ("_calling.py", "_take"),
        ("_conversation.py", "answered"),
        ("_pending.py", "noted"),
        ("_eager.py", "__await__"),
        ("_conversation.py", "_notified"),
        ("_conversation.py", "notified"),
        ("client.py", "__aenter__"),
        ("client.py", "_carry_on_stored"),
        ("sync.py", "__enter__"),
        ("_rounds.py", "play"),
        ("_steps.py", "_run"),
        ("_steps.py", "done"),
        ("_steps.py", "_guarded"),
        ("_shedding.py", "checked"),
        ("_sqlite.py", "_done"),
        ("_sqlite.py", "_tried"),
        ("tasks/runtime.py", "_beat"),
        ("tasks/runtime.py", "keep"),
        ("tasks/following.py", "follow"),
        ("cli/serving.py", "serve_here"),
        ("cli/dev.py", "dev"),
        ("cli/loading.py", "load_or_say"),
        ("cli/tracing.py", "trace"),
        ("cli/tracing.py", "traced"),
        ("metrics.py", "follow_tasks"),
        ("metrics.py", "watch"),
        ("_access.py", "watch"),
        ("tasks/runtime.py", "_play"),
        ("tasks/dispatch.py", "_pause"),
        ("tasks/dispatch.py", "_purge"),
        ("tasks/pgqueuer.py", "work"),
        ("inbox/working.py", "_carry"),
        ("_shedding.py", "is_overloaded"),
        ("_catalogue.py", "play"),
        ("_replaying.py", "_leg"),
        ("_carrying.py", "_answered"),
        ("_sealed.py", "opened"),
        ("auth.py", "_verified"),
        ("telemetry.py", "_span"),
        ("_life.py", "_hold"),
        ("transports/authorizing.py", "_next"),
        ("transports/asgi.py", "_live"),
        ("transports/exchange.py", "_is_alive"),
    }
    found = set()
    for path in MODULES:
        for function in functions(path):
            for node in ast.walk(function):
                if isinstance(node, ast.ExceptHandler) and (
                    node.type is None
                    or (isinstance(node.type, ast.Name) and node.type.id in {"Exception", "BaseException"})
                ):
                    found.add((str(path.relative_to(SOURCE)), function.name))
    assert found <= argued, found - argued
