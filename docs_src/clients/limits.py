from turnwise import Client, DeadlineExceeded


async def report(url: str) -> str:
    """A report, if there is one soon."""
    async with Client(url, read_timeout_seconds=30, deadline=600, input_required_max_rounds=5) as client:
        try:
            result = await client.call_tool("build", {}, deadline=0.2)
        except DeadlineExceeded as error:
            return f"No report: {error}"
        return str(result.structured_content)
