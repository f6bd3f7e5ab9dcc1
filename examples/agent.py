"""`turnwise call examples/agent.py research question='How high is Ben Nevis?'`: an agent that thinks with your model.

The server has tools and no model. It asks the client's model what to do, does that, and asks again; every turn is a
round, and any instance can take the next. At the terminal, you are the model.
"""

import sys

from mcp_types import SamplingMessage, TextContent, Tool, ToolResultContent, ToolUseContent

from turnwise import Context, MCPServer

server = MCPServer("researcher")
TURNS = 6  # Clients give up after some ten rounds.
HEIGHTS = {"Ben Nevis": 1345, "Snowdon": 1085}
LOOK_UP = Tool(
    name="look_up",
    description="The height of a mountain in metres.",
    input_schema={"type": "object", "properties": {"mountain": {"type": "string"}}, "required": ["mountain"]},
)


async def look_up(mountain: str) -> str:
    return f"{HEIGHTS[mountain]} m" if mountain in HEIGHTS else "unknown"


@server.tool()
async def research(question: str, ctx: Context) -> str:
    """Find something out about mountains."""
    said = [SamplingMessage(role="user", content=TextContent(type="text", text=question))]
    for turn in range(TURNS):
        reply = await ctx.sample(said, key=f"turn{turn}", max_tokens=500, tools=[LOOK_UP])
        parts = reply.content if isinstance(reply.content, list) else [reply.content]
        wishes = [part for part in parts if isinstance(part, ToolUseContent)]
        if not wishes:
            return " ".join(part.text for part in parts if isinstance(part, TextContent))
        said.append(SamplingMessage(role="assistant", content=parts))
        results = []
        for wish in wishes:
            found = await ctx.step(look_up, str(wish.input.get("mountain")), name=f"look_up {wish.id}")
            text = TextContent(type="text", text=found)
            results.append(ToolResultContent(type="tool_result", tool_use_id=wish.id, content=[text]))
        said.append(SamplingMessage(role="user", content=list(results)))
    return "The model did not come to an end."


if __name__ == "__main__":
    server.run("http", port=int(sys.argv[1]) if len(sys.argv) > 1 else 8000)
