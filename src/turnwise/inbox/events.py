"""Changes of items as server-sent events for a page: which item has changed, and nothing of what is in it."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress

LONGEST = 600.0
"""A stream ends after so many seconds. The page opens another, and has to be signed in still."""
BEAT = 15.0
"""A sign of life at least so often: proxies close what is silent, and a page opens it anew."""


async def told_of(
    changes: AsyncIterator[frozenset[str]], may_hear: Callable[[], Awaitable[bool]]
) -> AsyncIterator[str]:
    """Lines of an event stream about these changes, for as long as its reader may hear of them."""
    ends = asyncio.get_running_loop().time() + LONGEST
    yield "retry: 1000\nevent: change\ndata:\n\n"
    coming: asyncio.Future[frozenset[str]] | None = None
    try:
        while asyncio.get_running_loop().time() < ends:
            coming = coming or asyncio.ensure_future(anext(changes))
            done, _ = await asyncio.wait({coming}, timeout=BEAT)
            if not await may_hear():
                return
            if not done:
                yield "event: beat\ndata:\n\n"
                continue
            try:
                changed = coming.result()
            except StopAsyncIteration:
                return
            coming = None
            yield f"event: change\ndata: {' '.join(changed)}\n\n"
    finally:
        if coming is not None:
            coming.cancel()
            with suppress(asyncio.CancelledError, StopAsyncIteration):
                await coming
