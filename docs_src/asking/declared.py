from typing import Annotated

from pydantic import BaseModel

from turnwise import Elicit, MCPServer, Resolve

server = MCPServer("parcels")


class Address(BaseModel):
    street: str
    city: str


def ask_address(parcel: str) -> Elicit[Address]:
    return Elicit(f"Where should {parcel} go?", Address)


def ask_express(address: Annotated[Address, Resolve(ask_address)]) -> Elicit[bool] | bool:
    if address.city == "Reykjavik":
        return False
    return Elicit(f"Express to {address.city}?", bool)


@server.tool()
async def send(
    parcel: str,
    address: Annotated[Address, Resolve(ask_address)],
    express: Annotated[bool, Resolve(ask_express)],
) -> str:
    """Send a parcel."""
    return f"{parcel} goes to {address.city}{' by express' if express else ''}."
