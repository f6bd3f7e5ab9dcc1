"""The official Python client, 1.30.0 or 2.3.0 in its mode of the handshake, against the travel desk of ../server.py.

    python guest.py http URL
    python guest.py stdio COMMAND ARGUMENT...
    python guest.py broken URL

Each flow prints one line of JSON: what the client got in `said`, what its user was asked in `asked`, and in `amiss`
whatever went wrong. `broken` plays the flows in which a stream ends before its time. `guest.mjs` plays the same.
"""
# mypy: ignore-errors
# Only one of the two versions can be there when types are checked.

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from importlib.util import find_spec
from typing import Any

from mcp.client.stdio import StdioServerParameters
from mcp.shared.exceptions import UrlElicitationRequiredError
from pydantic import AnyUrl

OLD = find_spec("mcp_types") is None
if OLD:
    from mcp import ClientSession, types
    from mcp.client.stdio import stdio_client
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared.exceptions import McpError as Refused
else:
    import mcp_types as types
    from mcp import Client
    from mcp import MCPError as Refused

KIND, *ADDRESS = sys.argv[1:]
LIMIT = 10
ROUNDS = ({"city": "Rome"}, {"city": "Oslo"}, {"city": "Riga"})
CHRISTMAS = {"date": "2024-12-25", "time": "19:00", "party_size": 2}


def plain(value: Any) -> dict[str, Any]:
    return value.model_dump(mode="json", by_alias=True, exclude_none=True)


class Person:
    """Gives the next answer from a list: a form's content, the name of an action, or an error; or always the same."""

    def __init__(self, brackets: str = "<>", always: Any = None) -> None:
        self.brackets = brackets
        self.always = always
        self.stirred = asyncio.Event()
        self.begin()

    def begin(self) -> None:
        self.answers: list[Any] = []
        self.asked: list[str] = []
        self.logs: list[Any] = []
        self.events: list[str] = []
        self.tokens: list[Any] = []
        self.amiss: list[str] = []

    async def elicit(self, context: Any, params: Any) -> Any:
        self.asked.append(params.url if params.mode == "url" else params.message)
        answer = self.always or self.answers.pop(0)
        if isinstance(answer, str):
            return types.ElicitResult(action=answer)
        if isinstance(answer, types.ErrorData):
            return answer
        return types.ElicitResult(action="accept", content=answer)

    async def sample(self, context: Any, params: Any) -> Any:
        asked = plain(params)
        self.asked.append(f"{len(asked['messages'])} messages, {asked['maxTokens']} tokens")
        said = asked["messages"][-1]["content"]
        reply = {"role": "assistant", "model": "model-1"}
        if "tools" in asked and said["type"] == "text":
            use = {"type": "tool_use", "id": "use-1", "name": asked["tools"][0]["name"], "input": {"city": "Roma"}}
            return types.CreateMessageResultWithTools.model_validate(
                {**reply, "stopReason": "toolUse", "content": [use]}
            )
        text = (said["content"][0] if said["type"] == "tool_result" else said)["text"]
        content = {"type": "text", "text": f"{self.brackets[0]}{text}{self.brackets[1]}"}
        return types.CreateMessageResult.model_validate({**reply, "stopReason": "endTurn", "content": content})

    async def roots(self, context: Any) -> Any:
        self.asked.append("roots")
        return types.ListRootsResult.model_validate({"roots": [{"uri": "file:///home/ada/papers", "name": "papers"}]})

    async def log(self, params: Any) -> None:
        self.logs.append([params.level, params.logger, params.data])

    async def hear(self, message: Any) -> None:
        told = getattr(message, "root", message)
        match getattr(told, "method", None):
            case "notifications/progress":
                self.tokens.append(plain(told.params)["progressToken"])
            case "notifications/resources/updated":
                self.events.append(str(told.params.uri))
            case str() as method if method.endswith("/list_changed"):
                self.events.append(method.split("/")[1])
            case None if isinstance(message, Exception):
                self.amiss.append(repr(message))
        self.stirred.set()

    async def heard(self, wanted: set[str]) -> list[str]:
        """What was told of these, when all of them were."""
        while not wanted <= set(self.events):
            self.stirred.clear()
            await self.stirred.wait()
        return [event for event in self.events if event in wanted]


@asynccontextmanager
async def connected(person: Person | None, told: dict[str, Any] | None = None) -> AsyncIterator[Any]:
    """A client, with everything that a person can answer or with nothing of it."""
    options: dict[str, Any] = {}
    if person is not None:
        tools = types.SamplingCapability.model_validate({"tools": {}})
        options = {"elicitation_callback": person.elicit, "sampling_callback": person.sample}
        options |= {"sampling_capabilities": tools, "list_roots_callback": person.roots}
        options |= {"logging_callback": person.log, "message_handler": person.hear}
    environment = {"PYTHONPATH": os.environ["PYTHONPATH"]}
    over_http = KIND != "stdio"
    target = ADDRESS[0] if over_http else StdioServerParameters(command=ADDRESS[0], args=ADDRESS[1:], env=environment)
    if not OLD:
        async with Client(target, mode="legacy", **options) as client:
            if told is not None:
                told |= {"version": client.protocol_version, "server": plain(client.server_info)}
                told |= {"instructions": client.instructions, "offers": sorted(plain(client.server_capabilities))}
            yield client
        return
    transport = streamable_http_client(target) if over_http else stdio_client(target)
    async with transport as streams, ClientSession(*streams[:2], **options) as session:
        opened = await session.initialize()
        if told is not None:
            told |= {"version": opened.protocolVersion, "server": plain(opened.serverInfo)}
            told |= {"instructions": opened.instructions, "offers": sorted(plain(opened.capabilities))}
        yield session


class Guest:
    """A client, the person at it, and the flows that they play."""

    def __init__(self, client: Any, person: Person, told: dict[str, Any]) -> None:
        self.client = client
        self.person = person
        self.told = told
        self.own = f"{KIND} {os.getpid()}"

    async def raw(self, name: str, arguments: Any = None, **options: Any) -> dict[str, Any]:
        limit = timedelta(seconds=LIMIT) if OLD else LIMIT
        return plain(await self.client.call_tool(name, arguments or {}, read_timeout_seconds=limit, **options))

    async def call(self, name: str, arguments: Any = None, *answers: Any) -> Any:
        self.person.answers += answers
        result = await self.raw(name, arguments)
        text = result["content"][0]["text"]
        return {"failed": text} if result.get("isError") else text

    async def pages(self, method: str, member: str, name: str) -> list[str]:
        found, cursor = [], None
        while cursor is not None or not found:
            options = {} if cursor is None else {"cursor": cursor}
            if OLD:
                options = {"params": types.PaginatedRequestParams(**options)}
            page = plain(await getattr(self.client, method)(**options))
            found += [entry[name] for entry in page[member]]
            cursor = page.get("nextCursor")
        return found

    async def complete(self, ref: Any, name: str, value: str, context: dict[str, str] | None = None) -> Any:
        return plain(await self.client.complete(ref, {"name": name, "value": value}, context))["completion"]

    async def prompt(self, name: str, arguments: Any, *answers: Any) -> Any:
        self.person.answers += answers
        messages = plain(await self.client.get_prompt(name, arguments))["messages"]
        return [[message["role"], message["content"]["text"]] for message in messages]

    async def read(self, uri: str, *answers: Any) -> Any:
        self.person.answers += answers
        contents = plain(await self.client.read_resource(AnyUrl(uri) if OLD else uri))["contents"]
        return [[part["mimeType"], part["text"]] for part in contents]

    async def watch(self, verb: str, uri: str) -> None:
        await getattr(self.client, f"{verb}_resource")(AnyUrl(uri) if OLD else uri)

    # Flows that are more than a call

    async def side_by_side(self) -> list[str]:
        calls = (self.call("slogan", {"city": f"city {number}"}) for number in range(20))
        return sorted(await asyncio.gather(*calls))

    async def two_clients(self) -> list[str]:
        other = Person("[]")
        async with connected(other) as client:
            guests = (self, Guest(client, other, {}))
            calls = (guests[number % 2].call("slogan", {"city": f"city {number}"}) for number in range(6))
            return sorted(await asyncio.gather(*calls))

    async def progress(self) -> Any:
        steps: list[Any] = []

        async def advance(progress: float, total: float | None, message: str | None) -> None:
            steps.append([progress, total, message])
            if len(steps) == 2:
                releasing.append(asyncio.create_task(self.call("release", {"line": self.own})))

        releasing: list[Any] = []
        result = await self.raw("hold", {"line": self.own}, progress_callback=advance)
        await asyncio.gather(*releasing)
        return {"released": result["content"][0]["text"] == f"{self.own} released", "steps": steps}

    async def logs(self, level: str | None = None) -> Any:
        if level is not None:
            await self.client.set_logging_level(level)
        await self.raw("long_running_task", {"task_name": "packing", "steps": 1})
        return self.person.logs

    async def lists_changed(self) -> Any:
        await self.call("announce")
        return sorted(set(await self.person.heard({"tools", "prompts", "resources"})))

    async def watching(self) -> Any:
        one, two = (f"desk://{os.getpid()}/{name}" for name in ("one", "two"))
        await self.watch("subscribe", one)
        await self.call("touch", {"uri": two})
        await self.call("touch", {"uri": one})
        await self.person.heard({one})
        await self.watch("unsubscribe", one)
        await self.watch("subscribe", two)
        await self.call("touch", {"uri": one})
        await self.call("touch", {"uri": two})
        await self.person.heard({one, two})
        return [event.rpartition("/")[2] for event in self.person.events if event in (one, two)]

    async def cancelling(self) -> Any:
        await self.watch("subscribe", "desk://lingered")
        lingering = asyncio.Event()

        async def begun(progress: float, total: float | None, message: str | None) -> None:
            lingering.set()

        call = asyncio.create_task(self.raw("linger", progress_callback=begun))
        await lingering.wait()
        if OLD:  # Which leaves it to whoever calls to say so.
            params = types.CancelledNotificationParams(requestId=self.person.tokens[-1])
            told = types.CancelledNotification(params=params)
            await self.client.send_notification(types.ClientNotification(told))
        call.cancel()
        await asyncio.wait([call])
        return {"refused": call.cancelled(), "changed": (await self.person.heard({"desk://lingered"}))[:1]}

    async def page_first(self) -> Any:
        try:
            return await self.call("enter", {"name": self.own})
        except Refused as error:
            pages = UrlElicitationRequiredError.from_error(error.error).elicitations
            again = await self.call("enter", {"name": self.own})
            pairs = [[plain(page)["elicitationId"], page.url] for page in pages]
            return {"pages": pairs, "again": again == f"Welcome, {self.own}"}

    async def refused(self, work: Awaitable[Any]) -> Any:
        try:
            return {"accepted": await work}
        except Refused as error:
            return {"code": error.error.code}

    async def roots_changed(self) -> Any:
        await self.client.send_roots_list_changed()
        return plain(await self.client.send_ping())

    async def silent(self) -> Any:
        wanting = {
            "weather": {"city": "Rome"},
            "sign_in": {},
            "generate_poem": {"topic": "rain"},
            "show_roots": {},
            "ticket": {"city": "Rome"},
        }
        async with connected(None) as client:
            guest = Guest(client, Person(), {})
            return [await guest.call(name, arguments) for name, arguments in wanting.items()]

    async def structured(self, name: str, arguments: Any, *answers: Any) -> Any:
        self.person.answers += answers
        return (await self.raw(name, arguments))["structuredContent"]

    async def content(self, name: str, number: int) -> Any:
        return (await self.raw(name))["content"][number]

    async def connecting(self) -> Any:
        return self.told


def flows_of(guest: Guest) -> dict[str, Callable[[], Awaitable[Any]]]:
    call, prompt, read, rosa = guest.call, guest.prompt, guest.read, {"restaurant": "Da Rosa"}
    rome, region, letter = (
        {"city": "Rome"},
        {"region": "Lazio"},
        types.PromptReference(type="ref/prompt", name="letter"),
    )
    menu = types.ResourceTemplateReference(type="ref/resource", uri="desk://menu/{restaurant}")
    full = {"guests": 4, "seating": "garden", "dishes": ["fish", "cake"], "budget": 90.5, "day": "2026-08-01"}
    slot = {"at": "19:30", "reference": "00000000-0000-0000-0000-000000000007"}
    other = {"checkAlternative": True, "alternativeDate": "2024-12-27"}
    return {
        "connecting": guest.connecting,
        "listing tools": lambda: guest.pages("list_tools", "tools", "name"),
        "listing prompts": lambda: guest.pages("list_prompts", "prompts", "name"),
        "listing resources": lambda: guest.pages("list_resources", "resources", "uri"),
        "listing templates": lambda: guest.pages("list_resource_templates", "resourceTemplates", "uriTemplate"),
        "completing a prompt": lambda: guest.complete(letter, "city", "Ro"),
        "completing a template": lambda: guest.complete(menu, "restaurant", "Tri", {"city": "Rome"}),
        "a ping": guest.roots_changed,
        "structured output": lambda: guest.structured("add", {"a": 2, "b": 3}),
        "a picture": lambda: guest.content("badge", 1),
        "a tool error": lambda: call("closed"),
        "an unknown tool": lambda: guest.refused(call("nothing_of_the_kind")),
        "a form": lambda: call("book", rosa, full),
        "a form of other formats": lambda: call("appoint", None, slot),
        "a form of titled choices": lambda: call("upgrade", None, {"seat": "w", "meals": ["v"]}),
        "a form declined": lambda: call("book", rosa, "decline"),
        "a form cancelled": lambda: call("book", rosa, "cancel"),
        "a form answered badly": lambda: call("book", rosa, {"guests": 0}, "accept", {"guests": 1}),
        "a form refused": lambda: call("book", rosa, types.ErrorData(code=-32000, message="Not now")),
        "a page": lambda: call("sign_in", None, "accept"),
        "a page declined": lambda: call("sign_in", None, "decline"),
        "a page cancelled": lambda: call("sign_in", None, "cancel"),
        "a page first": guest.page_first,
        "sampling": lambda: call("slogan", rome),
        "sampling with tools": lambda: call("consult", rome),
        "roots": lambda: call("folders"),
        "three kinds": lambda: call("prepare", None, rome),
        "two tasks": lambda: call("compare", None, rome, {"city": "Oslo"}),
        "three rounds": lambda: guest.structured("interview", {"lot": guest.own}, *ROUNDS),
        "three rounds declined": lambda: call("interview", {"lot": "declined"}, rome, "decline"),
        "side by side": guest.side_by_side,
        "two clients": guest.two_clients,
        "a declared parameter": lambda: call("weather", rome, region),
        "a declared parameter declined": lambda: call("weather", rome, "decline"),
        "a declared parameter cancelled": lambda: call("weather", rome, "cancel"),
        "a declared outcome": lambda: call("forecast", rome, "decline"),
        "three parameters": lambda: call("brief", rome, region),
        "returned questions": lambda: call("ticket", rome, {"sure": True}),
        "returned questions declined": lambda: call("ticket", rome, "decline"),
        "a state without questions": lambda: call("come_back"),
        "all three forms": lambda: call("journey", rome, region, {"guests": 2}, {"sure": True}),
        "an SDK tool elicits": lambda: call("book_table", CHRISTMAS, other),
        "an SDK tool is declined": lambda: call("book_table", CHRISTMAS, "decline"),
        "an SDK tool samples": lambda: call("generate_poem", {"topic": "rain"}),
        "an SDK tool lists roots": lambda: call("show_roots"),
        "an SDK tool opens a page": lambda: call("connect_service", None, "accept", {"name": "post"}),
        "progress": guest.progress,
        "logs of any level": guest.logs,
        "logs of one level": lambda: guest.logs("info"),
        "logs of no level": lambda: guest.logs("error"),
        "lists that change": guest.lists_changed,
        "a resource that changes": guest.watching,
        "cancelling a call": guest.cancelling,
        "a plain prompt": lambda: prompt("greeting", {"name": "Ada"}),
        "a prompt asks": lambda: prompt("itinerary", rome, {"region": "Trastevere"}),
        "a prompt is declined": lambda: prompt("itinerary", {"city": "Oslo"}, "decline"),
        "a prompt declares": lambda: prompt("letter", rome, region),
        "a plain resource": lambda: read("desk://hours"),
        "a static resource asks": lambda: read("desk://diary", {"sure": True}),
        "a static resource is cancelled": lambda: read("desk://diary", "cancel"),
        "a template resource asks": lambda: read("desk://menu/Da%20Rosa", rome),
        "a template resource declares": lambda: read("desk://map/Zürich", {"region": "ZH"}),
        "an unknown resource": lambda: guest.refused(read("desk://nowhere")),
        "a client that cannot answer": guest.silent,
    }


async def played(flow: str, play: Callable[[], Awaitable[Any]], person: Person) -> None:
    """A flow that hangs is a flow that failed; the others still have their turn."""
    said = None
    try:
        async with asyncio.timeout(LIMIT):
            said = await play()
    except Exception as error:
        person.amiss.append(repr(error))
    asked = [] if person.always else person.asked
    print(json.dumps({"flow": flow, "said": said, "asked": asked, "amiss": person.amiss + person.answers}), flush=True)


async def run(guest: Guest) -> None:
    for flow, play in flows_of(guest).items():
        guest.person.begin()
        await played(flow, play, guest.person)


async def broken(guest: Guest) -> None:
    """Those that end a stream in the middle, one by one; then, all at once, those that come back for the rest."""
    person = guest.person
    await played("cancelling a call", guest.cancelling, person)
    person.always = "decline"
    await played("an error after a question", lambda: guest.refused(guest.prompt("letter", {"city": "Rome"})), person)
    person.always = {"city": "Rome"}
    await asyncio.gather(
        played("cut off before a question", lambda: guest.call("tell_then_ask"), person),
        played("cut off before the result", guest.progress, person),
        played("sent away", lambda: guest.call("nap"), person),
    )


async def main() -> None:
    person, told = Person(always={"city": "Rome"} if KIND == "broken" else None), {}
    async with connected(person, told) as client:
        guest = Guest(client, person, told)
        await (broken(guest) if KIND == "broken" else run(guest))


if __name__ == "__main__":
    asyncio.run(main())
