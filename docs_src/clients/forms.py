import asyncio
import json

from mcp_types import ElicitRequestFormParams, ElicitResult

from turnwise import Asking, Client


async def fill_in(asking: Asking, params: ElicitRequestFormParams) -> ElicitResult:
    """A form at a terminal: a line for each field, and a look at the whole before it is sent."""
    print(f"{asking.server} asks, for {asking.target}: {params.message}")
    content = {}
    for name, field in params.requested_schema["properties"].items():
        line = await asyncio.to_thread(input, f"{field.get('title', name)}, or nothing: ")
        if line:
            content[name] = line if field["type"] == "string" else json.loads(line)
    match await asyncio.to_thread(input, f"Send {content}? yes, no, or anything else to close this: "):
        case "yes":
            return ElicitResult(action="accept", content=content)
        case "no":
            return ElicitResult(action="decline")
        case _:
            return ElicitResult(action="cancel")


def client_of(url: str) -> Client:
    return Client(
        url,
        elicitation_callback=fill_in,
        capabilities={"elicitation": {"form": {}}},
        answer_order="one-by-one",
    )
