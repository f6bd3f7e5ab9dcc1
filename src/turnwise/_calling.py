"""Calling what authors wrote: functions of either colour, methods, partials and objects that can be called."""

import asyncio
import contextvars
import functools
import inspect
import queue
import threading
import typing
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

THREADS = 40


def is_async(fn: Callable[..., Any]) -> bool:
    """Whether calling it gives a coroutine without doing anything yet."""
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(getattr(type(fn), "__call__", None))  # noqa: B004


def inner(fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function that a partial is of, or the `__call__` of an object: what has a name, a docstring and hints."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return fn


def name_of(fn: Callable[..., Any]) -> str:
    """What it is called."""
    fn = inner(fn)
    return str(getattr(fn, "__name__", type(fn).__name__))


def place_of(fn: Callable[..., Any]) -> str | None:
    """The file and the line where it is written; None where nobody knows."""
    fn = inspect.unwrap(inner(fn))
    code = getattr(fn, "__code__", None) or getattr(getattr(type(fn), "__call__", None), "__code__", None)  # noqa: B004
    return None if code is None else f"{Path(code.co_filename).name}, line {code.co_firstlineno}"


def yields(fn: Callable[..., Any]) -> bool:
    """Whether calling it gives a generator, of either colour."""
    kinds = (inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    return any(is_one(fn) or is_one(getattr(type(fn), "__call__", None)) for is_one in kinds)  # noqa: B004


def owner_of(fn: Callable[..., Any]) -> str | None:
    """The class in whose body a method stands that is of no object: its first parameter is a bare `self` or `cls`."""
    owner = str(getattr(inner(fn), "__qualname__", "")).rpartition(".")[0].rpartition(".")[2]
    if owner in ("", "<locals>"):
        return None
    try:
        first = next(iter(inspect.signature(fn).parameters.values()), None)
    except ValueError:
        return None
    is_bare = first is not None and first.name in ("self", "cls") and first.annotation is inspect.Parameter.empty
    return owner if is_bare else None


def hints_of(fn: Callable[..., Any]) -> dict[str, Any]:
    """Its annotations, resolved; whatever is wrong with them comes as it is."""
    fn = inner(fn)
    target = fn if inspect.isroutine(fn) or inspect.isclass(fn) else type(fn).__call__
    return typing.get_type_hints(inspect.unwrap(target), include_extras=True)


async def in_thread(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a plain function in a thread, with the caller's context variables; a coroutine that it gives is awaited."""

    def work() -> Any:
        try:
            return fn(*args, **kwargs)
        except StopIteration as error:  # A future cannot carry it.
            raise RuntimeError(f"{name_of(fn)} raised StopIteration") from error

    value = await asyncio.wrap_future(_crew.put(functools.partial(contextvars.copy_context().run, work)))
    return await value if inspect.isawaitable(value) else value


class Crew:
    """Threads that take work as it comes. They are daemons: one that is stuck does not keep the process from ending."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._threads = 0
        self._idle = threading.Semaphore(0)
        self._work: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()

    def put(self, work: Callable[[], Any]) -> "Future[Any]":
        """What comes of some work, which is begun in its turn."""
        future: Future[Any] = Future()
        self._work.put((future, work))
        if not self._idle.acquire(blocking=False) and self._threads < self._size:
            self._threads += 1
            threading.Thread(target=self._take, name=f"turnwise-call-{self._threads}", daemon=True).start()
        return future

    def dismiss(self) -> None:
        """Let one of the threads go, once what was put before is done."""
        self._work.put(None)

    def _take(self) -> None:
        while (taken := self._work.get()) is not None:
            future, work = taken
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except BaseException as error:
                    future.set_exception(error)
            del taken, future, work
            self._idle.release()


_crew = Crew(THREADS)
