"""What is claimed in a store for a while, so that nobody else does it: whoever is cancelled meanwhile gives it back."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from .errors import CallerError

log = logging.getLogger("turnwise.claims")

T = TypeVar("T")


async def claimed(claim: Coroutine[Any, Any, T], give_back: Callable[[Any], Awaitable[None]]) -> T:
    """What was claimed, if anything was. Where this is cancelled before it has come it is given back, for nobody else
    could take it until the claim runs out.
    """
    claiming = asyncio.ensure_future(claim)
    try:
        return await asyncio.shield(claiming)
    except asyncio.CancelledError:
        try:
            if (found := await claiming) is not None:
                await give_back(found)
        except CallerError as error:
            log.warning("what was claimed too late is not given back, the claim has to run out: %s", error)
        raise
