"""`python examples/work_item.py PORT`: rules ask for one more field after another, on any number of instances."""

import os
import secrets
import sys
from typing import Any, Literal

from turnwise import Context, MCPServer, RequestStateSecurity, SQLiteStore, ToolError

# All instances are given the same key, the same store and the same log.
security = RequestStateSecurity(keys=[os.environ.get("WORK_ITEM_KEY") or secrets.token_urlsafe(32)])
store = SQLiteStore(os.environ.get("WORK_ITEM_STORE", ":memory:"))
server = MCPServer("work items", request_state_security=security, store=store)

Resolution = Literal["Fixed", "Won't Fix", "Duplicate", "By Design"]
# Where a field has this value, another is required: its name, its type, and how it is asked for.
RULES: list[tuple[str, str, str, Any, str]] = [
    ("System.State", "Resolved", "resolution", Resolution, "Resolving {} requires a resolution. How was it resolved?"),
    ("resolution", "Duplicate", "duplicate_of", int, "Since {} is a duplicate, which work item is the original?"),
    ("resolution", "Won't Fix", "reason", str, "Why will {} not be fixed?"),
]


async def read(number: int) -> str:
    happens(f"read {number}")
    return f"Bug #{number}"


async def write(number: int, fields: dict[str, Any]) -> None:
    happens(f"write {number}")


async def comment(number: int, text: str) -> None:
    happens(f"comment {number}")


def happens(effect: str) -> None:
    with open(os.environ.get("WORK_ITEM_LOG", os.devnull), "a") as log:
        log.write(f"{os.getpid()} {effect}\n")


@server.tool(effects=True)
async def update_work_item(workItemId: int, fields: dict[str, Any], ctx: Context) -> str:
    """Set fields of a work item; what the rules require besides is asked for."""
    item = await ctx.step(read, workItemId)
    for field, value, required, kind, question in RULES:
        if fields.get(field) == value and required not in fields:
            answer = await ctx.elicit(question.format(item), kind, key=required)
            if answer.action != "accept":
                raise ToolError(f"{item} was not changed: {required} is required")
            fields[required] = answer.data
    await ctx.step(write, workItemId, fields, once=True)
    await ctx.step(comment, workItemId, "Updated by a tool", once=True)
    return f"{item} updated: " + ", ".join(f"{name} = {value}" for name, value in fields.items())


if __name__ == "__main__":
    server.run("http", port=int(sys.argv[1]) if len(sys.argv) > 1 else 8000)
