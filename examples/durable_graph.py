"""A graph of steps that outlives its process: a call that asks is put down, kept in a file, and picked up elsewhere.

    turnwise serve examples/booking.py:server
    python examples/durable_graph.py trip.json start http://127.0.0.1:8000/mcp 'TW 2322'
    python examples/durable_graph.py trip.json answer row:=12 window:=true

Each run of the second and third command is a process of its own. Between them there is the file, and nothing else.
"""

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from turnwise import Client, Done, Pending

State = dict[str, Any]
Node = Callable[[State], Awaitable[str | None]]
"""A node changes the state, and names the node that follows; None where the graph ends."""


class Interrupted(Exception):
    """A node waits for a person. The state says for which answers."""


async def plan(state: State) -> str:
    state["log"] = [f"a seat on {state['flight']} is wanted"]
    return "book"


async def book(state: State) -> str:
    async with Client(state["url"]) as client:
        if "call" in state:
            answers = {key: {"action": "accept", "content": state["answer"]} for key in state["questions"]}
            outcome = await client.resume(Pending.from_json(state["call"]), answers)
        else:
            outcome = await client.begin("book", {"flight": state["flight"]})
    if not isinstance(outcome, Done):
        assert isinstance(outcome, Pending)
        questions = {key: question["params"]["message"] for key, question in outcome.requests.items()}
        state.update(call=outcome.to_json(), questions=questions)
        raise Interrupted
    state["log"].append(outcome.result.structured_content["result"])
    return "report"


async def report(state: State) -> None:
    state["result"] = "; then: ".join(state["log"])


NODES: dict[str, Node] = {"plan": plan, "book": book, "report": report}


async def run(state: State, keep: Callable[[State], object]) -> None:
    """Go on from where the state is. It is kept after each node, so that a crash costs one node at most."""
    while state["next"] is not None:
        try:
            state["next"] = await NODES[state["next"]](state)
        except Interrupted:
            break
        finally:
            keep(state)
    print(state.get("result") or "\n".join(f"{key}? {text}" for key, text in state["questions"].items()))


if __name__ == "__main__":
    place, verb, *words = Path(sys.argv[1]), *sys.argv[2:]
    if verb == "start":
        begun: State = {"next": "plan", "url": words[0], "flight": words[1]}
    else:
        pairs = (word.partition("=") for word in words)
        typed = {name.rstrip(":"): json.loads(value) if name.endswith(":") else value for name, _, value in pairs}
        begun = {**json.loads(place.read_text()), "answer": typed}
    asyncio.run(run(begun, lambda state: place.write_text(json.dumps(state, indent=2))))
