from turnwise import Client, Done, Pending


async def plan(url: str) -> str:
    async with Client(url) as client:
        pending = await client.begin("by_place")
        assert isinstance(pending, Pending)
        whence, where = pending.unanswered

        pending = await client.resume(pending, {whence: "York"})  # No request: one answer is missing.
        assert isinstance(pending, Pending)
        assert pending.unanswered == (where,)

        outcome = await client.resume(pending, {where: "Bath"})
        assert isinstance(outcome, Done)
        return str(outcome.result.structured_content)
