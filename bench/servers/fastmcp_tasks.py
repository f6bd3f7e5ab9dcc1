"""FastMCP with its tasks extension on Redis; it runs in an environment of its own (`peers.py`), without Turnwise.

As its documentation has it: the server's own process works off the queue. With `--tuned` it has the event loop and the
HTTP parser that Turnwise depends on, and as many tasks at a time as Turnwise plays.
"""

from fastmcp import FastMCP  # type: ignore[import-not-found, unused-ignore]
from fastmcp_tasks import TasksExtension  # type: ignore[import-not-found, unused-ignore]

from bench.servers.serving import arguments, serve

CONCURRENCY = 32


def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


async def look_up(city: str) -> str:
    """What a task does, once."""
    return f"Looked up {city}"


async def survey(city: str) -> str:
    """Look up a city."""
    return await look_up(city)


if __name__ == "__main__":
    parser = arguments()
    parser.add_argument("address", help="of Redis")
    parser.add_argument("--tuned", action="store_true")
    options = parser.parse_args()
    server = FastMCP("bench")
    server.add_extension(TasksExtension(url=options.address, concurrency=CONCURRENCY if options.tuned else None))
    server.tool(add)
    server.tool(survey, task=True)
    serve(server.http_app(stateless_http=True, json_response=True), options.port, fast=options.tuned)
