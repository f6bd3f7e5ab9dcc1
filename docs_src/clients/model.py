from pathlib import Path

from mcp_types import CreateMessageRequestParams, CreateMessageResult, ListRootsResult, Root, TextContent
from pydantic import FileUrl

from turnwise import Asking, Client


async def complete(text: str, max_tokens: int) -> str:
    """Stands for the model that you use."""
    return f"In short: {text[:max_tokens]}"


async def sample(asking: Asking, params: CreateMessageRequestParams) -> CreateMessageResult:
    texts = [part.text for message in params.messages for part in message.content_as_list if part.type == "text"]
    answer = await complete("\n".join(texts), params.max_tokens)
    return CreateMessageResult(role="assistant", model="model-1", content=TextContent(type="text", text=answer))


async def folders(asking: Asking) -> ListRootsResult:
    return ListRootsResult(roots=[Root(uri=FileUrl(Path.home().as_uri()), name="home")])


def client_of(url: str) -> Client:
    return Client(url, sampling_callback=sample, list_roots_callback=folders)
