from mcp_types import LoggingMessageNotificationParams

from turnwise import Client


async def show(progress: float, total: float | None, message: str | None) -> None:
    print(f"{progress:.0f} of {total or '?'}: {message}")


async def log(line: LoggingMessageNotificationParams) -> None:
    print(f"[{line.level}] {line.data}")


async def build(url: str) -> None:
    async with Client(url, logging_callback=log, log_level="info") as client:
        await client.call_tool("build", {}, progress_callback=show)
