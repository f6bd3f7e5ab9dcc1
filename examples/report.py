"""`python examples/report.py`: a long report as a task. It is begun, left alone, asked about, and picked up again.

`turnwise worker examples/report.py` plays its tasks elsewhere, and `turnwise tasks list examples/report.py` shows them,
where REPORT_TASKS names the file of the tasks and REPORT_KEY a key for all of them.
"""

import asyncio
import os
import secrets

from mcp_types import ElicitRequestParams

from turnwise import (
    Asking,
    Client,
    Context,
    MCPServer,
    RequestStateSecurity,
    SQLiteTaskStore,
    TaskInHand,
    TaskOptions,
    TaskStatus,
)

CHAPTERS = ("Sales", "People", "Outlook")
security = RequestStateSecurity(keys=[os.environ.get("REPORT_KEY") or secrets.token_urlsafe(32)])
tasks = TaskOptions(store=SQLiteTaskStore(os.environ.get("REPORT_TASKS", ":memory:")))
server = MCPServer("reports", request_state_security=security, tasks=tasks)


async def write(chapter: str, year: int) -> str:
    return f"{chapter} in {year}: a good year."


@server.tool(task="always")
async def annual_report(year: int, ctx: Context) -> str:
    """Write the annual report. It takes a while, and asks for a title in the middle."""
    chapters = []
    for number, chapter in enumerate(CHAPTERS, 1):
        await ctx.report(f"chapter {number} of {len(CHAPTERS)}")
        chapters.append(await ctx.step(write, chapter, year, name=chapter))
        await ctx.sleep(0.1)  # Nothing is held meanwhile: another process may write the next chapter.
    title = await ctx.elicit("What is its title?", str, key="title")
    return "\n".join([title.data if title.action == "accept" else "Untitled", *chapters])


def show(task: TaskStatus) -> None:
    print(f"{task.status}: {task.message}")


def title(asking: Asking, params: ElicitRequestParams) -> dict[str, object]:
    print(params.message)
    return {"action": "accept", "content": {"value": "Onwards"}}


async def main() -> None:
    async with Client(server, elicitation_callback=title) as client:
        begun = await client.begin("annual_report", {"year": 2026})
        assert isinstance(begun, TaskInHand)
        saved = begun.to_json()  # This is all that has to be kept.
        result = await client.follow_task(TaskInHand.from_json(saved), on_status=show)
        print((result.structured_content or {})["result"])


if __name__ == "__main__":
    asyncio.run(main())
