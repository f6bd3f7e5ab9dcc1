from typing import Any

from mcp_types import ElicitRequestParams

from turnwise import Asking, SyncClient


def choose(asking: Asking, params: ElicitRequestParams) -> dict[str, Any]:
    return {"action": "accept", "content": {"row": 12}}


def book(url: str) -> None:
    with SyncClient(url, elicitation_callback=choose) as client:
        for tool in client.iter_tools():
            print(tool.name)
        print(client.call_tool("book", {"flight": "TW 2322"}).structured_content)
