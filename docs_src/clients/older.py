from collections.abc import Sequence

from mcp_types import ListRootsResult, Root
from pydantic import FileUrl

from turnwise import Asking, Client, MCPServer


class Editor:
    """A client with folders that come and go, of a server of whatever version."""

    def __init__(self, target: str | Sequence[str] | MCPServer, folders: list[str]) -> None:
        self.folders = folders
        self.client = Client(target, list_roots_callback=self.roots)

    def roots(self, asking: Asking) -> ListRootsResult:
        return ListRootsResult(roots=[Root(uri=FileUrl(folder)) for folder in self.folders])

    async def add(self, folder: str) -> None:
        self.folders.append(folder)
        if self.client.protocol_version < "2026-07-28":
            await self.client.roots_changed()  # Newer servers ask when they want to know.
