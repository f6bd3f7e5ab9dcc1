"""A server whose tool performs a random program of the replay machine. What it does is noted in the file `EFFECTS`."""

import json
import os
from types import SimpleNamespace
from typing import Any

from tests.properties import test_replay_machine as machine
from turnwise import Budget, Context, MCPServer, RequestStateSecurity, SQLiteStore

server: MCPServer[Any] = MCPServer(
    "programs",
    request_state_security=RequestStateSecurity(keys=[machine.KEY]),
    store=SQLiteStore(os.environ["STORE"]),
    budget=Budget(patience=0, warn_bytes=500, spill_bytes=700),
)


def note(*facts: Any) -> None:
    with open(os.environ["EFFECTS"], "a") as file:
        file.write(json.dumps(facts) + "\n")


class Faults:
    """Where the world of a program says what is wrong."""

    def append(self, fault: str) -> None:
        note("fault", fault)


class Noting(machine.Playing):
    """A world that notes for all processes what it does and sees."""

    def happen(self, identity: str, node: machine.Step) -> None:
        super().happen(identity, node)
        note("guarded" if node.is_once else "done", identity)
        note("seen", f"the key of {identity}", self.turn.flow.keys[identity])

    def look(self, kind: str) -> None:
        super().look(kind)
        for use, seen in {**self.turn.clocks, **self.turn.flow.dice}.items():
            note("seen", use, str(seen))


@server.tool(structured_output=False)
async def it(program: str, ctx: Context) -> str:
    """Perform a program, which is the text of an expression."""
    turn = machine.Turn(machine.Flow(0), None, {}, 0)
    here: Any = SimpleNamespace(faults=Faults(), doom="")
    told, _ = await machine.perform(eval(program, vars(machine)), Noting(ctx, here, turn))
    return json.dumps(told)
