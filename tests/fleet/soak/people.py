"""People with orders, many at a time, each with a bearer token of their own.

They hold their calls in hand: every round is one request, and one whose reply does not come is sent again with the same
`requestState`, as anybody would do it. Some lose replies that were on their way, some press the button twice, and some
try what was handed to somebody else.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from tests.fleet.soak.names import bearer, marker
from tests.fleet.soak.orders import Order
from turnwise import Client, ConnectionLost, Done, MCPError, Pending, TurnwiseError, UnexpectedStatus

T = TypeVar("T")
AGAIN = (502, 503, 504)
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 0.5
CAPABILITIES: dict[str, Any] = {"elicitation": {}, "sampling": {}, "roots": {}}
INVALID_PARAMS = -32602


@dataclass(frozen=True)
class Load:
    """How many people, and what they are like. Shares are of orders; times are seconds."""

    users: int
    orders_each: int
    ramp: float = 0.0
    think: tuple[float, float] = (0.0, 0.0)
    losing: float = 0.0
    """Of requests: so many are sent twice, one after the other or at once."""
    thieves: float = 0.0
    late: float = 0.0
    """Of orders: so many begin just before the old key goes."""
    deadline: float = 180.0
    tool: str = "order"
    first: int = 0
    """The number of each user's first order."""

    def orders(self) -> list[Order]:
        """All that are to be made."""
        names, numbers = (
            (f"u{number}" for number in range(self.users)),
            range(self.first, self.first + self.orders_each),
        )
        return [Order(user, marker(user, number)) for user in names for number in numbers]


class Crowd:
    """Everybody, with one client each."""

    def __init__(self, url: str, load: Load, late: asyncio.Event) -> None:
        self.load = load
        self.orders: list[Order] = []
        self._url = url
        self._late = late
        self._clients: dict[str, Client] = {}

    async def run(self) -> list[Order]:
        """Have all orders made. What became of them is in the orders."""
        async with AsyncExitStack() as stack:
            await asyncio.gather(*(self._open(stack, f"u{number}") for number in range(self.load.users)))
            self.orders = self.load.orders()
            await asyncio.gather(*(self._one(order) for order in self.orders))
        return self.orders

    async def _open(self, stack: AsyncExitStack, name: str) -> None:
        """A client asks the server who it is when it is opened, and that may take more than one attempt, too."""
        pace = Pace(random.Random(name), Order(name, ""))

        async def open_client() -> Client:
            return await stack.enter_async_context(
                Client(
                    self._url,
                    headers={"Authorization": f"Bearer {bearer(name)}"},
                    capabilities=CAPABILITIES,
                    restart_expired=False,
                    tasks=False,
                )
            )

        self._clients[name] = await pace.until_served(open_client)

    async def _one(self, order: Order) -> None:
        dice = random.Random(order.marker)
        if dice.random() < self.load.late:
            await self._late.wait()
        else:
            await asyncio.sleep(dice.uniform(0, self.load.ramp))
        order.began = time.monotonic()
        shopping = Shopping(order, self._clients[order.user], self._stranger(order), dice, self.load)
        try:
            async with asyncio.timeout(self.load.deadline):
                await shopping.go(is_watched=dice.random() < self.load.thieves)
        except TimeoutError:
            order.failure = "not finished in time"
        except TurnwiseError as error:
            order.failure = f"{type(error).__name__}: {error}"[:160]
        order.ended = time.monotonic()

    def _stranger(self, order: Order) -> Client:
        """The client of somebody else."""
        names = list(self._clients)
        return self._clients[names[(names.index(order.user) + 1) % len(names)]]


class Pace:
    """How a request is sent until somebody serves it."""

    def __init__(self, dice: random.Random, order: Order) -> None:
        self._dice = dice
        self._order = order

    async def until_served(self, send: Callable[[], Awaitable[T]]) -> T:
        pause = FIRST_PAUSE
        while True:
            self._order.requests += 1
            try:
                return await send()
            except ConnectionLost:
                self._order.retries["connection"] += 1
            except UnexpectedStatus as error:
                if error.status not in AGAIN:
                    raise
                self._order.retries[str(error.status)] += 1
            await asyncio.sleep(pause * self._dice.uniform(0.5, 1.5))
            pause = min(pause * 2, LONGEST_PAUSE)


class Shopping:
    """One order on its way."""

    def __init__(self, order: Order, client: Client, stranger: Client, dice: random.Random, load: Load) -> None:
        self._order = order
        self._client = client
        self._stranger = stranger
        self._dice = dice
        self._load = load
        self._pace = Pace(dice, order)

    async def go(self, *, is_watched: bool) -> None:
        order, arguments = self._order, {"marker": self._order.marker}
        outcome = await self._sent(lambda: self._client.begin(self._load.tool, arguments))
        while isinstance(outcome, Pending):
            order.look_at_questions(outcome.requests, outcome.state)
            answers = order.answers(outcome.requests)
            if is_watched:
                await self._try_what_is_not_theirs(outcome, answers)
            await self._think()
            outcome = await self._resumed(outcome, answers)
        assert isinstance(outcome, Done)
        order.look_at_result(outcome.result.content[0].text, bool(outcome.result.is_error))

    async def _resumed(self, pending: Pending, answers: Mapping[str, Any]) -> Any:
        return await self._sent(lambda: self._client.resume(pending, answers))

    async def _sent(self, send: Callable[[], Awaitable[T]]) -> T:
        """The reply; some lose the first one and send the same again, some send it twice at once."""
        chance = self._dice.random() / self._load.losing if self._load.losing else 1.0
        if chance < 0.5:
            self._order.resent += 1
            await self._pace.until_served(send)
        elif chance < 1.0:
            self._order.resent += 1
            replies = await asyncio.gather(*(self._pace.until_served(send) for _ in range(2)))
            return replies[0]
        return await self._pace.until_served(send)

    async def _think(self) -> None:
        seconds = self._dice.uniform(*self._load.think)
        self._order.thought += seconds
        await asyncio.sleep(seconds)

    async def _try_what_is_not_theirs(self, pending: Pending, answers: Mapping[str, Any]) -> None:
        """A stranger sends this order's state under a bearer token of their own, and its owner with another order."""
        arguments = {"marker": self._order.marker}
        other = {"marker": f"{self._order.marker}0"}
        for name, client, given in (
            ("the state of another user", self._stranger, arguments),
            ("the state of another order", self._client, other),
        ):
            params = {"name": self._load.tool, "arguments": given, "requestState": pending.state}
            send = partial(client.request, "tools/call", {**params, "inputResponses": answers})
            try:
                await self._pace.until_served(send)
            except MCPError as error:
                if error.code != INVALID_PARAMS:
                    raise
                self._order.refused[name] += 1
            else:
                self._order.leaks.append(f"{name} was taken")


async def unknown_bearers(url: str, tokens: Sequence[str]) -> int:
    """How many of these bearer tokens are turned away at the door."""
    refused = 0
    for token in tokens:
        client = Client(url, headers={"Authorization": f"Bearer {token}"}, mode="2026-07-28")
        pace = Pace(random.Random(token), Order("", ""))
        async with client:
            try:
                await pace.until_served(partial(client.request, "tools/list"))
            except UnexpectedStatus as error:
                refused += error.status == 401
    return refused
