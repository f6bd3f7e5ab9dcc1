"""Effects that a function has outside of its steps, as far as they can be seen from here.

Clocks and randomness are seen by the interpreter's profile hook, which hears of every call whatever name it was
imported under; files, sockets and processes by its audit hook. What a library does deep inside is blamed on the line of
the author's code that led there. It is a help for tests, not a fence.
"""

import os
import random
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from ._terms import in_step

_HERE = str(Path(__file__).parent)
_LIBRARY = tuple({sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), "<frozen"})
_CLOCKS = "the time differs from round to round: use ctx.now()"
_CHANCE = "chance differs from round to round: use ctx.random() or ctx.uuid()"
_EFFECT = "it happens again in every round: put it into a step, ctx.step(...)"
_BUILTINS: dict[tuple[str, str], str] = {
    ("time", "time"): _CLOCKS,
    ("time", "time_ns"): _CLOCKS,
    ("time", "localtime"): _CLOCKS,
    ("time", "gmtime"): _CLOCKS,
    ("datetime", "now"): _CLOCKS,
    ("datetime", "utcnow"): _CLOCKS,
    ("datetime", "today"): _CLOCKS,
    ("date", "today"): _CLOCKS,
    ("Random", "random"): _CHANCE,
    ("Random", "getrandbits"): _CHANCE,
    ("posix", "urandom"): _CHANCE,
    ("nt", "urandom"): _CHANCE,
}
_WRITTEN = {"posix": "os", "nt": "os", "Random": "random"}
"""What authors call the places of some of them."""
_PYTHON = {
    "uuid": ("uuid1", "uuid4", "getnode"),
    "secrets": ("choice", "randbelow", "token_bytes", "token_hex", "token_urlsafe"),
}
_SHARED: Any = getattr(random, "_inst", None)
"""The generator behind the functions of `random`; one that was seeded by the author is no matter of chance."""
_EVENTS = (
    "socket.connect",
    "socket.sendto",
    "subprocess.Popen",
    "os.system",
    "os.remove",
    "os.rename",
    "os.mkdir",
    "os.rmdir",
    "sqlite3.connect",
    "smtplib.send",
)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC


class Effect(NamedTuple):
    """Something outside of a step: what, on which line, and what to do about it."""

    what: str
    where: str
    advice: str


Seen = Callable[[Effect], None]

_watcher: "ContextVar[Seen | None]" = ContextVar("turnwise_watcher", default=None)
_hooked = threading.Event()


@contextmanager
def watching(seen: Seen) -> Iterator[None]:
    """Tell of effects of what runs in this context, in this thread, until the block is left."""
    if not _hooked.is_set():
        _hooked.set()
        sys.addaudithook(_audited)
    token, before = _watcher.set(seen), sys.getprofile()
    sys.setprofile(_profiled)
    try:
        yield
    finally:
        sys.setprofile(before)
        _watcher.reset(token)


def watched(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A plain function that is watched in whatever thread it runs."""

    def call(*args: Any, **kwargs: Any) -> Any:
        seen = _watcher.get()
        if seen is None:
            return fn(*args, **kwargs)
        with watching(seen):
            return fn(*args, **kwargs)

    return call


def _profiled(frame: FrameType, event: str, argument: Any) -> None:
    if event == "c_call":
        owner = getattr(argument, "__self__", None)
        place = getattr(owner, "__name__", None) or type(owner).__name__
        name = getattr(argument, "__name__", "")
        advice = _BUILTINS.get((place.rpartition(".")[2], name))
        if advice is not None and (place != "Random" or owner is _SHARED):
            _tell(f"{_WRITTEN.get(place, place)}.{name}()", frame, advice, is_direct=True)
    elif event == "call" and frame.f_back is not None:
        module, name = frame.f_globals.get("__name__", ""), frame.f_code.co_name
        if name in _PYTHON.get(module, ()) or (module == "random" and frame.f_locals.get("self") is _SHARED):
            _tell(f"{module}.{name}()", frame.f_back, _CHANCE, is_direct=True)


def _audited(event: str, arguments: tuple[Any, ...]) -> None:
    if _watcher.get() is None:
        return
    if event == "open":
        path, mode, flags = arguments
        writes = any(letter in mode for letter in "wax+") if isinstance(mode, str) else bool(flags & _WRITING)
        if writes and isinstance(path, str | bytes | os.PathLike):
            _tell(f"open({os.fspath(path)!r}) for writing", sys._getframe(1), _EFFECT, is_direct=False)
    elif event in _EVENTS:
        _tell(event, sys._getframe(1), _EFFECT, is_direct=False)


def _tell(what: str, frame: FrameType | None, advice: str, *, is_direct: bool) -> None:
    seen = _watcher.get()
    if seen is None or in_step.get() is not None:
        return
    author = _author(frame, is_direct=is_direct)
    if author is not None:
        seen(Effect(what, f"{author.f_code.co_filename}:{author.f_lineno}", advice))


def _author(frame: FrameType | None, *, is_direct: bool) -> FrameType | None:
    """The frame of the author's code that did it; None where it was ours, or the import or logging of a library."""
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(_HERE) or frame.f_globals.get("__name__", "").partition(".")[0] in ("logging", "importlib"):
            return None
        if not name.startswith(_LIBRARY) and "site-packages" not in name:
            return frame
        if is_direct:
            return None
        frame = frame.f_back
    return None
