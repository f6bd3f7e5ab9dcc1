import asyncio
import webbrowser

from mcp_types import ElicitRequestURLParams, ElicitResult

from turnwise import Asking, Client


async def visit(asking: Asking, params: ElicitRequestURLParams) -> ElicitResult:
    """Send the user to a page, if the user wants that."""
    print(f"{asking.server} asks, for {asking.target}: {params.message}")
    print(f"It leads to {asking.host}. The whole address: {asking.url}")
    for warning in asking.warnings:
        print(f"Careful: {warning}")
    if await asyncio.to_thread(input, "Open it? yes or no: ") != "yes":
        return ElicitResult(action="decline")
    webbrowser.open(params.url)
    return ElicitResult(action="accept")


def client_of(url: str) -> Client:
    return Client(url, elicitation_callback=visit, capabilities={"elicitation": {"url": {}}})
