# mypy: disable-error-code="import-not-found"
# region test
import asyncio
from typing import Any

from booking import server

from turnwise.testing import connect


async def first_row(connection: Any, params: Any) -> dict[str, Any]:
    return {"action": "accept", "content": {"row": 1}}


async def book() -> None:
    async with connect(server, elicitation_callback=first_row) as client:
        result = await client.call_tool("book", {"flight": "TW 2322"})
        assert result.structured_content == {"result": "Booked row 1 on TW 2322."}
        assert len(client.rounds) == 2


def test_a_seat_is_booked() -> None:
    asyncio.run(book())


# endregion
