from datetime import date
from enum import Enum
from typing import Literal

from pydantic import BaseModel, Field

from turnwise import Context, MCPServer

server = MCPServer("kitchen")


class Size(Enum):
    small = "small"
    large = "large"


class Order(BaseModel):
    dish: str = Field(min_length=2, description="What you would like to eat")
    persons: int = Field(default=2, ge=1, le=12)
    size: Size = Size.small
    spice: Literal["mild", "hot"] = "mild"
    sides: list[Literal["rice", "bread", "salad"]] = []
    day: date | None = None


@server.tool()
async def order(ctx: Context) -> str:
    """Order a dish."""
    answer = await ctx.elicit("What may it be?", Order)
    if answer.action != "accept":
        return "Another time, then."
    wish = answer.data
    return f"{wish.size.value} {wish.dish} for {wish.persons}, {wish.spice}, on {wish.day or 'any day'}."
