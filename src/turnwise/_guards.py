"""Effects that happen at most once, whatever a client resends, replays or forks.

A `FlowStore` remembers, for a key, that something was begun and what came of it. `Guard` is a store under a seal: what
lies in it is encrypted, and bound to its key. The room knows no database.
"""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from ._budgets import Budget
from ._json import decode, encode
from .errors import EffectUnknown, InvalidRequestState, StoreFull

T = TypeVar("T")

FIRST_PAUSE, LONGEST_PAUSE = 0.02, 0.5
PURGE_EVERY = 1000
BLOB_MARGIN = 60.0
"""Seconds for which a large entry outlives the token that names it, because clocks differ."""
BLOB_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Begun:
    """Nobody began this before: it is yours to do."""


@dataclass(frozen=True, slots=True)
class Running:
    """Somebody began this and has not said what came of it: still at it, or dead."""


@dataclass(frozen=True, slots=True)
class Known:
    """What came of it."""

    record: bytes


class FlowStore(Protocol):
    """What instances of one server share: guards of effects, and entries too large for a token.

    Every method is atomic between processes. What is older than its `ttl`, in seconds, may be forgotten.
    """

    async def begin(self, key: str, ttl: float) -> Begun | Running | Known:
        """Begin something, unless somebody has."""
        ...

    async def finish(self, key: str, record: bytes, ttl: float) -> None:
        """Say what came of it."""
        ...

    async def find(self, key: str) -> Running | Known | None:
        """What is known of it."""
        ...

    async def put(self, key: str, blob: bytes, ttl: float) -> None:
        """Keep a blob; the same key always has the same blob. StoreFull where there is no room for it."""
        ...

    async def get(self, key: str) -> bytes | None:
        """A blob."""
        ...

    async def purge(self) -> int:
        """Forget what is over its time; how much that was."""
        ...

    async def aclose(self) -> None:
        """Let go of connections and files."""
        ...


class Codec(Protocol):
    """What seals a payload."""

    def seal(self, payload: bytes) -> str:
        """Protect it."""
        ...

    def unseal(self, token: str) -> bytes:
        """Give it back."""
        ...


class Guard:
    """A store whose records only servers with our keys can read."""

    def __init__(self, store: FlowStore, codec: Codec, state_ttl: float, budget: Budget) -> None:
        self._store = store
        self._codec = codec
        self._state_ttl = state_ttl
        self._ttl = budget.deadline + state_ttl  # No token of the flow is taken after that.
        self._blob_ttl = max(state_ttl, budget.shed_ttl) + BLOB_MARGIN  # Each token puts anew what it names.
        self._patience = budget.patience

    def within(self, budget: Budget) -> "Guard":
        """The same for flows that have another budget."""
        return Guard(self._store, self._codec, self._state_ttl, budget)

    async def begin(self, key: str, what: str, *, again: bool = False) -> Any:
        """None where it is yours to do, else the record in a tuple of one. One who is at it is waited for; where that
        is in vain it is yours `again`, or EffectUnknown.
        """
        pause, waited = FIRST_PAUSE, 0.0
        while True:
            match await self._store.begin(key, self._ttl):
                case Begun():
                    return None
                case Known(record):
                    return (self._open(key, record),)
                case Running():
                    if waited >= self._patience and again:
                        return None
                    if waited >= self._patience:
                        raise EffectUnknown(what)
            await asyncio.sleep(pause)
            waited += pause
            pause = min(pause * 2, LONGEST_PAUSE)

    async def finish(self, key: str, record: Any) -> None:
        """Keep what came of it."""
        await self._store.finish(key, self._seal(key, record), self._ttl)

    async def is_known(self, key: str) -> bool:
        """Whether it was ever begun."""
        return await self._store.find(key) is not None

    async def put(self, key: str, value: Any) -> None:
        """Keep a large value."""
        await self._store.put(key, self._seal(key, value), self._blob_ttl)

    async def get(self, key: str) -> Any:
        """A large value; InvalidRequestState where it is gone."""
        blob = await self._store.get(key)
        if blob is None:
            raise InvalidRequestState("a spilled entry is no longer in the store", "store")
        return self._open(key, blob)

    def _seal(self, key: str, value: Any) -> bytes:
        return self._codec.seal(encode(["record", key, value])).encode()

    def _open(self, key: str, blob: bytes) -> Any:
        try:
            kind, name, value = decode(self._codec.unseal(blob.decode()))
        except (ValueError, TypeError):
            raise InvalidRequestState("a record of the store has another format", "store") from None
        if (kind, name) != ("record", key):
            raise InvalidRequestState("a record of the store lies under another key", "store")
        return value


_under_way: set[asyncio.Future[Any]] = set()


async def to_the_end(work: Coroutine[Any, Any, T]) -> T:
    """Do something that goes on when the client goes away: who asks again gets what came of it."""
    task = asyncio.ensure_future(work)
    _under_way.add(task)
    task.add_done_callback(_ended)
    return await asyncio.shield(task)


def _ended(task: "asyncio.Future[Any]") -> None:
    _under_way.discard(task)
    if not task.cancelled():
        task.exception()  # Looked at, because there may be nobody left to raise it to.


class MemoryStore:
    """A store of one process: for tests, for stdio, and for exactly one HTTP worker.

    Large entries may take `blob_bytes` together, 64 MiB unless told; clients decide how many there are. One that finds
    no room is not taken, and its token stays as large as it is. None is dropped before its time to make room for it:
    any client could end the calls of all others so. Guards are neither counted nor dropped.
    """

    def __init__(self, clock: Callable[[], float] | None = None, *, blob_bytes: int | None = None) -> None:
        self._clock = clock or _loop_time
        self._room = BLOB_BYTES if blob_bytes is None else blob_bytes
        self._records: dict[str, tuple[float, bytes | None]] = {}
        self._blobs: dict[str, tuple[float, bytes]] = {}
        self._written = 0

    async def begin(self, key: str, ttl: float) -> Begun | Running | Known:
        """Begin something, unless somebody has."""
        if (found := await self.find(key)) is not None:
            return found
        await self._tidy()
        self._records[key] = (self._clock() + ttl, None)
        return Begun()

    async def finish(self, key: str, record: bytes, ttl: float) -> None:
        """Say what came of it."""
        self._records[key] = (self._clock() + ttl, record)

    async def find(self, key: str) -> Running | Known | None:
        """What is known of it."""
        until, record = self._records.get(key, (0.0, None))
        if until <= self._clock():
            return None
        return Running() if record is None else Known(record)

    async def put(self, key: str, blob: bytes, ttl: float) -> None:
        """Keep a blob; StoreFull where there is no room for it."""
        await self._tidy()
        _, old = self._blobs.get(key, (0.0, b""))
        if len(blob) - len(old) > self._room:
            await self.purge()
            _, old = self._blobs.get(key, (0.0, b""))
        if len(blob) - len(old) > self._room:
            raise StoreFull("the large entries of this process's flows take all the room that there is for them")
        self._room -= len(blob) - len(old)
        self._blobs[key] = (self._clock() + ttl, blob)

    async def get(self, key: str) -> bytes | None:
        """A blob."""
        until, blob = self._blobs.get(key, (0.0, b""))
        return blob if until > self._clock() else None

    async def _tidy(self) -> None:
        self._written += 1
        if self._written % PURGE_EVERY == 0:
            await self.purge()

    async def purge(self) -> int:
        """Forget what is over its time."""
        now = self._clock()
        old_blobs = [key for key, (until, _) in self._blobs.items() if until <= now]
        for key in old_blobs:
            self._room += len(self._blobs.pop(key)[1])
        old_records = [key for key, (until, _) in self._records.items() if until <= now]
        for key in old_records:
            del self._records[key]
        return len(old_blobs) + len(old_records)

    async def aclose(self) -> None:
        """Nothing to let go of."""


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


def check_store(store: Any) -> None:
    """TypeError unless it is what a server takes."""
    if store is not None and not hasattr(store, "begin"):
        raise TypeError(f"store is a FlowStore, such as SQLiteStore(path), not {type(store).__name__}")
