from pathlib import Path
from typing import Any

from mcp_types import ElicitRequest

from turnwise import AlreadyAnswered, Client, Done, InvalidAnswer, SQLitePendingStore, UnknownPending


class Desk:
    """Where people find what waits for them. Several processes may open the same file."""

    def __init__(self, url: str, file: Path) -> None:
        self.store = SQLitePendingStore(file)
        self.client = Client(url, pending_store=self.store)

    async def begin(self, tool: str, arguments: dict[str, Any]) -> str:
        outcome = await self.client.begin(tool, arguments)
        return str(outcome.result.structured_content) if isinstance(outcome, Done) else f"waits as {outcome.id}"

    async def waiting(self) -> list[tuple[str, str, str]]:
        """The id of each call, the key of each open question, and what it asks."""
        return [
            (pending.id, key, question.params.message)
            for pending in await self.store.list()
            for key, question in pending.questions.items()
            if key in pending.unanswered and isinstance(question, ElicitRequest)
        ]

    async def answer(self, pending_id: str, key: str, content: dict[str, Any]) -> str:
        try:
            outcome = await self.client.resume(pending_id, {key: {"action": "accept", "content": content}})
        except (AlreadyAnswered, UnknownPending):
            return "Somebody else was quicker."
        except InvalidAnswer as error:
            return f"Please look again: {error.reason}"
        return str(outcome.result.structured_content) if isinstance(outcome, Done) else "There is more to ask."
