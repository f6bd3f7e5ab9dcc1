"""What Turnwise's client can be told, with the museums of both official SDKs over HTTP."""

from contextlib import aclosing
from pathlib import Path

import anyio
import pytest
from mcp_types import ElicitRequestParams, ElicitResult, Implementation

from tests.interop.visiting import Museum, Visitor, answer_with, text_of
from turnwise import Asking, Change, Client, DeadlineExceeded, Done, Pending, SQLitePendingStore, TooManyRounds
from turnwise.client import Begun

pytestmark = pytest.mark.parametrize(
    "museum", ["python over http", "typescript over http"], indirect=True, scope="session"
)


async def listed(client: Client) -> int:
    """How often the server was asked for its prompts."""
    return int(text_of(await client.call_tool("times", {"method": "prompts/list"})))


def test_the_server_learns_who_the_client_is(museum: Museum) -> None:
    async def flow(client: Client, visitor: Visitor) -> None:
        async with museum.another(client_info=Implementation(name="Ada's", version="7")) as known:
            assert text_of(await known.call_tool("visitor")) == "Ada's 7"

    museum.converse(flow)


def test_a_client_that_asks_nothing_on_entering_still_gets_answers(museum: Museum) -> None:
    async def flow(client: Client, visitor: Visitor) -> None:
        async with museum.another(mode="2026-07-28") as blunt:
            assert text_of(await blunt.call_tool("donate")) == '{"euros":5}'
            await blunt.discover()
            assert blunt.instructions == "Mind the step."

    museum.converse(flow, {"euros": 5})


@pytest.mark.parametrize(("cache", "requests"), [(True, 1), (False, 3)])
def test_a_list_that_keeps_is_asked_for_once_unless_nothing_is_kept(museum: Museum, cache: bool, requests: int) -> None:
    async def flow(client: Client, visitor: Visitor) -> None:
        async with museum.another(cache=cache) as visiting:
            before = await listed(visiting)
            for _ in range(3):
                assert len((await visiting.list_prompts()).prompts) == 2
            assert await listed(visiting) - before == requests

    museum.converse(flow)


def test_a_list_that_is_kept_is_asked_for_again_after_it_changed(museum: Museum) -> None:
    async def flow(client: Client, visitor: Visitor) -> None:
        async with museum.another() as visiting, visiting.listen(prompts_list_changed=True) as changes:
            await visiting.list_prompts()
            before = await listed(visiting)
            await visiting.call_tool("rebuild")
            assert await anext(changes) == Change("prompts")
            await visiting.list_prompts()
            assert await listed(visiting) - before == 1

    museum.converse(flow)


@pytest.mark.parametrize("order", ["together", "one-by-one"])
def test_two_forms_of_one_round_are_asked_together_or_one_by_one(museum: Museum, order: str) -> None:
    shown: list[str] = []
    at_once: list[int] = []
    both = anyio.Event()

    async def elicit(asking: Asking, params: ElicitRequestParams) -> ElicitResult:
        shown.append(params.message)
        at_once.append(len(shown))
        if order == "one-by-one":
            await anyio.lowlevel.checkpoint()
            shown.clear()
        elif len(shown) == 2:
            both.set()
        else:
            await both.wait()
        return answer_with({"town": "Oslo" if "From" in params.message else "Rome"})

    async def flow(client: Client, visitor: Visitor) -> None:
        async with museum.another(elicitation_callback=elicit, answer_order=order) as ordered:
            assert text_of(await ordered.call_tool("courier")) == "Oslo to Rome"
        assert at_once == ([1, 2] if order == "together" else [1, 1])

    museum.converse(flow)


def test_a_server_that_never_stops_asking_is_left_after_so_many_answers(museum: Museum) -> None:
    async def flow(client: Client, visitor: Visitor) -> None:
        async with museum.another(input_required_max_rounds=3) as patient:
            with pytest.raises(TooManyRounds) as left:
                await patient.call_tool("maze")
            assert left.value.rounds == 3

    museum.converse(flow, *[{"way": "left"}] * 3)


def test_a_deadline_covers_the_time_in_which_somebody_thinks(museum: Museum) -> None:
    async def elicit(asking: Asking, params: ElicitRequestParams) -> ElicitResult:
        await anyio.sleep_forever()
        raise AssertionError("unreachable")

    async def flow(client: Client, visitor: Visitor) -> None:
        async with museum.another(elicitation_callback=elicit) as slow:
            with pytest.raises(DeadlineExceeded):
                await slow.call_tool("quiz", deadline=0.2)

    museum.converse(flow)


def test_a_call_that_is_kept_in_a_file_is_finished_by_its_id(museum: Museum, tmp_path: Path) -> None:
    async def flow(client: Client, visitor: Visitor) -> None:
        file = tmp_path / "calls.db"
        async with aclosing(SQLitePendingStore(file)) as store, museum.desk(pending_store=store) as desk:
            begun = await desk.begin("quiz")
        assert isinstance(begun, Pending)
        outcome: Begun = begun
        for number, said in enumerate(["Ada", "1632", "Oslo"]):
            async with aclosing(SQLitePendingStore(file)) as store, museum.desk(pending_store=store) as desk:
                outcome = await desk.resume(begun.id, {f"question-{number}": answer_with({"answer": said})})
        assert isinstance(outcome, Done)
        assert text_of(outcome.result) == "Ada, 1632, Oslo"

    museum.converse(flow)


def test_logs_are_sent_only_to_a_client_that_wants_them(museum: Museum) -> None:
    async def flow(client: Client, visitor: Visitor) -> None:
        async with museum.another(log_level=None) as indifferent:
            assert text_of(await indifferent.call_tool("narrate", {"level": "error"})) == "Told: decline"

    assert museum.converse(flow, "decline").logs == []
