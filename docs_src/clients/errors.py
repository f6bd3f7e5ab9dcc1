from mcp_types import TextContent

from turnwise import Client, ConnectionLost, DeadlineExceeded, MCPError, TurnwiseError


async def order(url: str, article: str) -> str:
    try:
        async with Client(url) as client:
            result = await client.call_tool("order", {"article": article}, deadline=60)
    except ConnectionLost as error:
        return "Whether it was ordered is not known." if error.sent else "It was not ordered. Try again later."
    except DeadlineExceeded:
        return "Whether it was ordered is not known."
    except MCPError as error:
        return f"The server says no: {error.message} ({error.code})"
    except TurnwiseError as error:
        return f"It did not work: {error}"
    if result.is_error:
        return " ".join(part.text for part in result.content if isinstance(part, TextContent))
    return str(result.structured_content)
