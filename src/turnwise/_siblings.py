"""Tasks that were begun together: what a gather would leave running when one of them ends the round."""

import asyncio
from typing import Any


def siblings(task: "asyncio.Task[Any] | None", main: "asyncio.Task[Any] | None") -> "set[asyncio.Future[Any]]":
    """The tasks beside this one in a gather, and in the gathers around that up to the round's own task.

    There is no public way to know them.
    """
    nearest: Any = getattr(main, "_fut_waiter", None)
    if task in getattr(nearest, "_children", ()):
        return set(nearest._children)
    waiting = {waiter: other for other in asyncio.all_tasks() if (waiter := getattr(other, "_fut_waiter", None))}
    found: set[asyncio.Future[Any]] = set()
    above: list[Any] = [task]
    while above:
        future = above.pop()
        if future is main:
            continue
        if future in waiting:
            above.append(waiting[future])
        for waiter in waiting:
            children = getattr(waiter, "_children", ())
            if future in children and waiter not in found:
                found |= {waiter, *children}
                above.append(waiter)
    return found


def cancels_of(task: "asyncio.Task[Any] | None") -> int:
    """How often a task was told to stop, and has not heeded it."""
    return 0 if task is None else task.cancelling()


def failure_of(task: "asyncio.Task[Any]") -> BaseException | None:
    """With what a task that is done has failed."""
    return None if task.cancelled() else task.exception()
