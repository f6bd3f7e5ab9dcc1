"""What may take long is done aside, in threads: strangers decide how much there is to check and to show, and everybody
else is served meanwhile.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

THREADS = 4
"""Few: they and the event loop take turns."""
_threads = ThreadPoolExecutor(THREADS, thread_name_prefix="turnwise-inbox")


async def aside(work: Callable[P, T], *args: P.args, **options: P.kwargs) -> T:
    """What a function gives, while others go on."""
    return await asyncio.get_running_loop().run_in_executor(_threads, partial(work, *args, **options))


def fetch_libraries() -> None:
    """Import what is otherwise imported by the first call, for which everybody would wait."""
    import aiohttp  # noqa: F401
    import jsonschema  # noqa: F401
    import mcp_types  # noqa: F401
