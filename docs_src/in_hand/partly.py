from typing import Any

from turnwise import Client, Done, Pending


def yes(value: str) -> dict[str, Any]:
    return {"action": "accept", "content": {"value": value}}


async def plan(url: str) -> str:
    async with Client(url) as client:
        pending = await client.begin("by_place")
        assert isinstance(pending, Pending)
        whence, where = pending.unanswered

        pending = await client.resume(pending, {whence: yes("York")})  # No request: one answer is missing.
        assert isinstance(pending, Pending)
        assert pending.unanswered == (where,)

        outcome = await client.resume(pending, {where: yes("Bath")})
        assert isinstance(outcome, Done)
        return str(outcome.result.structured_content)
