"""Coroutines that are begun at once: what never waits needs no timer."""

from collections.abc import Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Started(Generic[T]):
    """A coroutine that has taken its first step; what it waits for is awaited with `await`, what never waits is done.

    So an exchange with a server in this process, which rarely waits, needs no timer.
    """

    __slots__ = ("_coroutine", "_first", "result", "waits")

    result: T

    def __init__(self, coroutine: Coroutine[Any, Any, T]) -> None:
        self._coroutine = coroutine
        try:
            self._first = coroutine.send(None)
            self.waits = True
        except StopIteration as done:
            self.result = done.value
            self.waits = False

    def __await__(self) -> Generator[Any, Any, None]:
        waited_for = self._first
        while True:
            try:
                try:
                    value = yield waited_for
                except BaseException as error:
                    waited_for = self._coroutine.throw(error)
                else:
                    waited_for = self._coroutine.send(value)
            except StopIteration as done:
                self.result = done.value
                return
