"""The same tools and the same answers, with our own client in place of those written by hand."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from mcp_types import CreateMessageResult, ElicitResult, ListRootsResult, TextContent

import turnwise
from tests.wires import tool
from tests.wires.clients import APPROVED, FINAL, FIRST_DRAFT, MULTI_TURN, in_time
from tests.wires.people import Person
from tests.wires.serving import serving
from turnwise import Client, Command

SOURCE = str(Path(turnwise.__file__).parents[1])
WIRES = (FINAL, "2025-11-25", "2025-06-18", MULTI_TURN, APPROVED, FIRST_DRAFT)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with serving(tool.make_server().asgi()) as port:
        yield f"http://127.0.0.1:{port}/mcp"


def client(target: Any, mode: Any, person: Person) -> Client:
    def answer(method: str, params: Any) -> dict[str, Any]:
        request = {} if params is None else params.model_dump(mode="json", by_alias=True, exclude_none=True)
        return person.answer({"method": method, "params": request})

    async def elicit(context: Any, params: Any) -> ElicitResult:
        return ElicitResult.model_validate(answer("elicitation/create", params))

    async def sample(context: Any, params: Any) -> CreateMessageResult:
        return CreateMessageResult.model_validate(answer("sampling/createMessage", params))

    async def roots(context: Any) -> ListRootsResult:
        return ListRootsResult.model_validate(answer("roots/list", None))

    return Client(target, mode=mode, elicitation_callback=elicit, sampling_callback=sample, list_roots_callback=roots)


async def have_it_all(target: Any, version: str) -> None:
    city, person = f"city of {version}", Person()
    async with client(target, version, person) as connected:
        assert connected.protocol_version == version
        for form in ("inline", "declared", "returned"):
            person.asked.clear()
            result = await connected.call_tool(form, {"city": city})
            assert result.structured_content == {
                "booking": f"a room in {city}",
                "guest": {"name": "Ada", "age": 36},
                "motto": f"Ada: A motto for {city}",
                "folders": ["file:///Ada/36"],
                "meal": "soup for Ada",
                "row": 36,
            }
            assert len(person.asked) == 5
        prompt = await connected.get_prompt("letter", {"city": city})
        said = prompt.messages[0].content
        assert isinstance(said, TextContent)
        assert said.text == f"A letter about soup for Ada on the way to {city}"


@pytest.mark.parametrize("version", WIRES)
def test_over_http_our_client_has_the_same_result_on_every_wire(version: str, url: str) -> None:
    in_time(have_it_all(url, version))


@pytest.mark.parametrize("version", [version for version in WIRES if version != MULTI_TURN])
def test_over_standard_streams_our_client_has_the_same_result_on_every_wire(version: str) -> None:
    command = Command([sys.executable, tool.__file__, "stdio"], env={"PYTHONPATH": SOURCE})
    in_time(have_it_all(command, version))
