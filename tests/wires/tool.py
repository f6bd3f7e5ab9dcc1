"""`python tool.py stdio`, or `python tool.py PORT`: one trip, asked for in three forms, on every wire there is.

The three tools ask the same things and end in the same result; none of them knows how a question travels.
"""

import os
import sys
from pathlib import Path
from typing import Annotated, Any

from mcp_types import (
    CreateMessageRequest,
    CreateMessageRequestParams,
    CreateMessageResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitResult,
    InputRequests,
    ListRootsRequest,
    ListRootsResult,
    Root,
    SamplingMessage,
    TextContent,
)
from pydantic import BaseModel

from turnwise import (
    Context,
    Elicit,
    InputRequiredResult,
    ListRoots,
    MCPServer,
    RequestStateSecurity,
    Resolve,
    Sample,
    SQLiteStore,
    ToolError,
)

DRAFTS = ["DRAFT-SEP-1858", "DRAFT-2026-v1", "DRAFT-2026-02-03"]


class Guest(BaseModel):
    name: str
    age: int


class Trip(BaseModel):
    booking: str
    guest: Guest
    motto: str
    folders: list[str]
    meal: str
    row: int


# What happens, and not twice


def happens(effect: str, city: str) -> None:
    with Path(os.environ.get("EFFECTS", os.devnull)).open("a") as log:
        log.write(f"{os.getpid()} {effect} {city}\n")


async def reserve(city: str) -> str:
    happens("reserve", city)
    return f"a room in {city}"


async def fetch(kilobytes: int) -> str:
    return "x" * kilobytes * 1024


def written(sampled: CreateMessageResult) -> str:
    assert isinstance(sampled.content, TextContent)
    return sampled.content.text


def uris(roots: list[Root]) -> list[str]:
    return [str(root.uri) for root in roots]


# The inline form


async def inline(city: str, ctx: Context) -> Trip:
    """Five questions in four rounds, as they come up."""
    booking = await ctx.step(reserve, city)
    guest = await ctx.elicit(f"Who goes to {city}?", Guest, key="guest")
    if guest.action != "accept":
        raise ToolError(f"Nobody goes to {city}: {guest.action}")
    motto = await ctx.sample(f"A motto for {city}", max_tokens=20, key="motto")
    folders = await ctx.roots(key="folders")
    rest = await ctx.ask_all(meal=Elicit(f"Which meal to {city}?", str), row=Elicit(f"Which row to {city}?", int))
    return Trip(
        booking=booking,
        guest=guest.data,
        motto=written(motto),
        folders=uris(folders),
        meal=rest["meal"].data,
        row=rest["row"].data,
    )


# The declared form


def ask_guest(city: str) -> Elicit[Guest]:
    return Elicit(f"Who goes to {city}?", Guest)


def ask_motto(city: str) -> Sample:
    return Sample(f"A motto for {city}", max_tokens=20)


def ask_meal(city: str) -> Elicit[str]:
    return Elicit(f"Which meal to {city}?", str)


def ask_row(city: str) -> Elicit[int]:
    return Elicit(f"Which row to {city}?", int)


async def declared(
    city: str,
    guest: Annotated[Guest, Resolve(ask_guest)],
    motto: Annotated[CreateMessageResult, Resolve(ask_motto)],
    folders: Annotated[list[Root], Resolve(ListRoots)],
    meal: Annotated[str, Resolve(ask_meal)],
    row: Annotated[int, Resolve(ask_row)],
    ctx: Context,
) -> Trip:
    """Five questions in one round, before the function begins."""
    booking = await ctx.step(reserve, city)
    return Trip(booking=booking, guest=guest, motto=written(motto), folders=uris(folders), meal=meal, row=row)


# The returned form


def form(message: str, schema: dict[str, Any]) -> ElicitRequest:
    requested = {"type": "object", "properties": schema, "required": list(schema)}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=requested))


def accepted(answers: dict[str, Any], key: str) -> Any:
    answer = answers.get(key)
    if not isinstance(answer, ElicitResult) or answer.content is None:
        raise ToolError("Nobody goes")
    return answer.content


async def returned(city: str, ctx: Context) -> Trip | InputRequiredResult:
    """Three questions, then two, each round's answers kept in a state of the author's own."""
    booking = await ctx.step(reserve, city)
    answers = ctx.input_responses or {}
    if ctx.request_state is None:
        prompt = SamplingMessage(role="user", content=TextContent(type="text", text=f"A motto for {city}"))
        questions: InputRequests = {
            "guest": form(f"Who goes to {city}?", {"name": {"type": "string"}, "age": {"type": "integer"}}),
            "motto": CreateMessageRequest(params=CreateMessageRequestParams(messages=[prompt], max_tokens=20)),
            "folders": ListRootsRequest(),
        }
        return InputRequiredResult(input_requests=questions, request_state="{}")
    if ctx.request_state == "{}":
        motto, folders = answers["motto"], answers["folders"]
        assert isinstance(motto, CreateMessageResult)
        assert isinstance(folders, ListRootsResult)
        guest = Guest.model_validate(accepted(answers, "guest"))
        trip = Trip(booking=booking, guest=guest, motto=written(motto), folders=uris(folders.roots), meal="", row=0)
        questions = {
            "meal": form(f"Which meal to {city}?", {"value": {"type": "string"}}),
            "row": form(f"Which row to {city}?", {"value": {"type": "integer"}}),
        }
        return InputRequiredResult(input_requests=questions, request_state=trip.model_dump_json())
    trip = Trip.model_validate_json(ctx.request_state)
    rest = {name: accepted(answers, name)["value"] for name in ("meal", "row")}
    return trip.model_copy(update=rest)


# What the older wires have as well, and what the newer ones have besides


async def sketch(city: str, ctx: Context) -> list[str]:
    """A model and folders: no form."""
    booking = await ctx.step(reserve, city)
    motto = await ctx.sample(f"A motto for {city}", max_tokens=20)
    return [booking, written(motto), *uris(await ctx.roots())]


async def visit(city: str, ctx: Context) -> str:
    """A page."""
    page = await ctx.elicit_url(f"Pay for {city}", f"https://trips.example/pay?to={city}")
    return f"{city}: {page.action}"


async def load(city: str, kilobytes: int, ctx: Context) -> int:
    """A step that leaves much behind, and a question after it."""
    fetched = await ctx.step(fetch, kilobytes)
    row = await ctx.elicit(f"Which row to {city}?", int, key="row")
    return len(fetched) + (row.data if row.action == "accept" else 0)


async def letter(city: str, ctx: Context) -> str:
    """A prompt that asks."""
    meal = await ctx.elicit(f"Which meal to {city}?", str)
    return f"A letter about {meal.data if meal.action == 'accept' else 'nothing'} on the way to {city}"


async def ticket(city: str, ctx: Context) -> str:
    """A resource that asks."""
    row = await ctx.elicit(f"Which row to {city}?", int)
    return f"{city}, row {row.data if row.action == 'accept' else 'any'}"


def make_server(**options: Any) -> MCPServer:
    server = MCPServer("trips", version="1", dialects=DRAFTS, **options)
    for tool in (inline, declared, returned, sketch, visit, load):
        server.add_tool(tool)
    server.prompt()(letter)
    server.resource("ticket://{city}")(ticket)
    return server


def from_environment() -> MCPServer:
    """All instances are given the same key, and the same store if there is one."""
    key, store = os.environ.get("KEY"), os.environ.get("STORE")
    return make_server(
        request_state_security=RequestStateSecurity(keys=[key]) if key else None,
        store=SQLiteStore(store) if store else None,
    )


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        from_environment().run("stdio")
    else:
        from_environment().run("http", port=int(sys.argv[1]), log_level="warning")
