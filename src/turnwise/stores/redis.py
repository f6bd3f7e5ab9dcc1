"""A store for instances on any number of machines: Redis, or what speaks its protocol, by way of redis-py.

The room knows one script and four commands. It is the only one that needs redis-py (the extra `turnwise[redis]`), so
nothing else imports it.
"""

import asyncio
import logging
import math
import os
from typing import Any, Final

from .._guards import Begun, Known, Running
from ..errors import CallerError

try:
    from redis.asyncio import BlockingConnectionPool, Redis
    from redis.asyncio.connection import parse_url
    from redis.asyncio.retry import Retry
    from redis.backoff import ExponentialBackoff
    from redis.exceptions import RedisError
except ImportError as missing:
    raise ImportError("RedisStore needs redis-py, which comes with the extra turnwise[redis]") from missing

log = logging.getLogger("turnwise.stores")

LONGEST: Final = 100 * 365 * 24 * 3600.0
"""Seconds: a `ttl` may be infinite, a time in Redis may not."""
CONNECT_SECONDS, COMMAND_SECONDS, QUEUE_SECONDS = 5.0, 5.0, 30.0
RETRIES, FIRST_PAUSE, LONGEST_PAUSE = 3, 0.1, 1.0
RUNNING, KNOWN = b"?", b"="
"""What a guard begins with; the one who runs, or the record, follows."""

# Who finds himself there asks again because the reply was lost: it is still his to do.
_BEGIN = """
local found = redis.call('GET', KEYS[1])
if found and found ~= ARGV[1] then return found end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return false
"""
_EVICTS = (
    "Redis has the policy %r: under pressure it forgets guards, and what they guard may happen twice. Set "
    "maxmemory-policy to noeviction"
)


class RedisStore:
    """Guards and large entries under keys of their own, which Redis drops when their time is over.

    Give it a URL, or a client of `redis.asyncio` that stays yours to close; its replies have to be bytes.

    How much a guard is worth here depends on how Redis is run. It needs `maxmemory-policy noeviction`: any other policy
    throws guards away when memory is short, silently. A restart forgets what was not yet on disk (all of it without an
    append-only file), and replication is asynchronous, so a failover may forget a claim that was already granted. Then
    an effect can happen twice. Where that is not to be borne, where it is money, take PostgreSQL.
    """

    def __init__(self, url_or_client: "str | Redis", *, prefix: str = "turnwise:", pool_size: int = 8) -> None:
        self._url = ""
        self._given: Redis | None = None
        if isinstance(url_or_client, str):
            parse_url(url_or_client)
            self._url = url_or_client
        elif _decodes(url_or_client):
            raise ValueError("a client with decode_responses=True cannot read records, which are bytes")
        else:
            self._given = url_or_client
        self._prefix = prefix
        self._pool_size = pool_size
        self._client: Redis | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._is_checked = False

    async def begin(self, key: str, ttl: float) -> Begun | Running | Known:
        """Begin something, unless somebody has."""
        claim = RUNNING + os.urandom(16)
        found = await self._do("EVAL", _BEGIN, 1, self._guard(key), claim, _milliseconds(ttl))
        return Begun() if found is None else _told(found)

    async def finish(self, key: str, record: bytes, ttl: float) -> None:
        """Say what came of it."""
        await self._do("SET", self._guard(key), KNOWN + record, "PX", _milliseconds(ttl))

    async def find(self, key: str) -> Running | Known | None:
        """What is known of it."""
        found = await self._do("GET", self._guard(key))
        return None if found is None else _told(found)

    async def put(self, key: str, blob: bytes, ttl: float) -> None:
        """Keep a blob."""
        await self._do("SET", self._blob(key), blob, "PX", _milliseconds(ttl))

    async def get(self, key: str) -> bytes | None:
        """A blob."""
        found = await self._do("GET", self._blob(key))
        return None if found is None else bytes(found)

    async def purge(self) -> int:
        """Nothing to do: Redis forgets by itself."""
        return 0

    async def aclose(self) -> None:
        """Close the connections, unless the client is yours. The next use opens new ones."""
        client, self._client = self._client, None
        if client is not None and self._loop is asyncio.get_running_loop():
            await client.aclose()

    def _guard(self, key: str) -> bytes:
        return f"{self._prefix}guard:{key}".encode()

    def _blob(self, key: str) -> bytes:
        return f"{self._prefix}blob:{key}".encode()

    async def _do(self, *command: Any) -> Any:
        """What one command gives. CallerError where Redis cannot be used."""
        try:
            client: Any = self._given or self._opened()
            if not self._is_checked:
                self._is_checked = True
                await _check_policy(client)
            return await client.execute_command(*command)
        except (RedisError, OSError) as error:
            reason = str(error) or type(error).__name__
            raise CallerError(f"the store in Redis cannot be used: {reason}") from error

    def _opened(self) -> Redis:
        loop = asyncio.get_running_loop()
        if self._client is None or self._loop is not loop:  # Connections belong to the loop that opened them.
            pool = BlockingConnectionPool.from_url(
                self._url,
                max_connections=self._pool_size,
                timeout=QUEUE_SECONDS,
                socket_timeout=COMMAND_SECONDS,
                socket_connect_timeout=CONNECT_SECONDS,
                retry=Retry(ExponentialBackoff(cap=LONGEST_PAUSE, base=FIRST_PAUSE), RETRIES),
            )
            self._loop, self._client = loop, Redis.from_pool(pool)
        return self._client


async def _check_policy(client: Any) -> None:
    """Say it where Redis may throw guards away; who may not ask has to know by himself."""
    try:
        memory = await client.execute_command("INFO", "memory")
    except RedisError:
        return
    policy = memory.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        log.warning(_EVICTS, policy)


def _decodes(client: Any) -> bool:
    return bool(client.get_encoder().decode_responses)


def _milliseconds(ttl: float) -> int:
    return max(1, math.ceil(min(ttl, LONGEST) * 1000))


def _told(value: bytes) -> Running | Known:
    return Running() if value.startswith(RUNNING) else Known(bytes(value[1:]))
