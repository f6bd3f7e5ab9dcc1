"""Turnwise with tasks, as its users serve them: `server.run("http")`, with workers in the server's own process.

The store is named by an address: the path of a file, or the DSN of a PostgreSQL.
"""

import asyncio
import gc
import os
from pathlib import Path
from types import AsyncGeneratorType, CoroutineType

from pydantic import BaseModel

from bench.machine import resident_mb
from bench.servers.serving import KEY, arguments
from turnwise import (
    AcceptedElicitation,
    Context,
    MCPServer,
    PostgresTaskStore,
    RequestStateSecurity,
    SQLiteTaskStore,
    TaskOptions,
)


class Visitor(BaseModel):
    name: str


async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


async def look_up(city: str) -> str:
    """What a task does, once."""
    return f"Looked up {city}"


async def survey(city: str, ctx: Context) -> str:
    """Look up a city."""
    return await ctx.step(look_up, city)


async def greet(city: str, ctx: Context) -> str:
    """Greet a visitor by name, whenever that is known."""
    answer = await ctx.elicit(f"Who is visiting {city}?", Visitor, key="visitor")
    return f"Hello {answer.data.name} from {city}" if isinstance(answer, AcceptedElicitation) else answer.action


class Census(BaseModel):
    """What a process holds."""

    threads: int
    coroutines: int
    asyncio_tasks: int
    files: int
    connections: int
    rss_mb: float


async def census() -> Census:
    """Count what this process holds, this call included."""
    gc.collect()
    suspended = [thing for thing in gc.get_objects() if isinstance(thing, CoroutineType | AsyncGeneratorType)]
    files = [os.readlink(file) for file in _open_files()]
    return Census(
        threads=len(os.listdir("/proc/self/task")),
        coroutines=len(suspended),
        asyncio_tasks=len(asyncio.all_tasks()),
        files=len(files),
        connections=sum(file.startswith("socket:") for file in files),
        rss_mb=resident_mb(os.getpid()),
    )


def _open_files() -> list[Path]:
    return [file for file in Path("/proc/self/fd").iterdir() if file.is_symlink()]


def made(address: str, *, by_queue: bool) -> MCPServer[None]:
    """A server with its tasks in this store; a queue that wakes them is PgQueuer."""
    if "://" not in address:
        tasks = TaskOptions(store=SQLiteTaskStore(address))
    elif by_queue:
        from turnwise import PgQueuerDispatcher

        tasks = TaskOptions(store=PostgresTaskStore(address), dispatcher=PgQueuerDispatcher())
    else:
        tasks = TaskOptions(store=PostgresTaskStore(address))
    server: MCPServer[None] = MCPServer(
        "bench", version="1", request_state_security=RequestStateSecurity(keys=[KEY]), tasks=tasks
    )
    server.add_tool(add)
    server.add_tool(census)
    server.add_tool(survey, task="always", structured_output=False)
    server.add_tool(greet, task="always", structured_output=False)
    return server


if __name__ == "__main__":
    parser = arguments()
    parser.add_argument("address", help="a path, or a DSN")
    parser.add_argument("--queue", action="store_true", help="have PgQueuer bring the legs")
    options = parser.parse_args()
    made(options.address, by_queue=options.queue).run("http", port=options.port, log_level="warning")
