"""Turnwise, inline form: a loop of questions in one function; their keys are the author's, or left to the library."""

import asyncio
import json

from pydantic import BaseModel

from bench.replay.legs import LENGTHS, conclusion, figures_of, parse_seconds, question
from bench.servers.serving import KEY
from turnwise import AcceptedElicitation, Context, MCPServer, RequestStateSecurity, ToolError


class Answer(BaseModel):
    value: str


server = MCPServer("bench", version="1", request_state_security=RequestStateSecurity(keys=[KEY]))


def add_interview(questions: int, *, named: bool) -> None:
    async def interview(topic: str, ctx: Context) -> str:
        """Ask questions, one after the other."""
        last = ""
        for number in range(1, questions + 1):
            key = f"answer-{number}" if named else None
            answer = await ctx.elicit(question(topic, number), Answer, key=key)
            if not isinstance(answer, AcceptedElicitation):
                raise ToolError("No answer")
            last = answer.data.value
        return conclusion(topic, questions, last)

    name = "turnwise" if named else "turnwise_unnamed"
    server.add_tool(interview, f"{name}_{questions}", structured_output=False)


for length in LENGTHS:
    add_interview(length, named=True)
    add_interview(length, named=False)

if __name__ == "__main__":
    rows = ("turnwise", "turnwise_unnamed")
    print(json.dumps(asyncio.run(figures_of(server.asgi(), rows, parse_seconds()))))
