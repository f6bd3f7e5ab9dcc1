"""The client's half of the versions 2024-11-05 to 2025-11-25, in which a server asks while the call waits.

One error of theirs is a question too: -32042 names pages that the user has to visit before the same call is made
again. It is read as a question, so that callbacks, the limit of rounds and calls in hand are the same for it.
"""

from collections.abc import Mapping
from typing import Any

from .._messages import Incoming, Outgoing
from ..errors import InvalidReply, MCPError, UnknownResultType, VisitDeclined
from .handshake_client import HandshakeCaller
from .words import ELICIT, TARGETS

URL_ELICITATION_REQUIRED = -32042


class Caller(HandshakeCaller):
    """One client, speaking one of these versions."""

    def _members(self, params: dict[str, Any]) -> dict[str, Any]:
        answers = params.pop("inputResponses", {})
        refused = [key for key, answer in answers.items() if answer.get("action") != "accept"]
        if refused:
            raise VisitDeclined(URL_ELICITATION_REQUIRED, "the user did not agree to visit the page", {"ids": refused})
        return {"params": params}

    def read(self, request: Outgoing, incoming: Incoming) -> dict[str, Any]:
        """The result, or the pages that have to be visited first."""
        try:
            result = super().read(request, incoming)
        except MCPError as error:
            if error.code != URL_ELICITATION_REQUIRED or request.method not in TARGETS:
                raise
            return {"resultType": "input_required", "inputRequests": _pages(error)}
        if result.get("resultType", "complete") != "complete":
            raise UnknownResultType(result["resultType"])
        return result


def _pages(error: MCPError) -> dict[str, Mapping[str, Any]]:
    """ "Any elicitations returned in the error MUST be URL mode elicitations and have an `elicitationId` property." """
    listed = error.data.get("elicitations") if isinstance(error.data, dict) else None
    pages: dict[str, Mapping[str, Any]] = {}
    for page in listed if isinstance(listed, list) else ():
        name = page.get("elicitationId") if isinstance(page, dict) else None
        if not isinstance(name, str) or page.get("mode") != "url" or name in pages:
            raise InvalidReply("the server wants a page visited, and does not say which") from error
        pages[name] = {"method": ELICIT, "params": page}
    if not pages:
        raise InvalidReply("the server wants pages visited, and names none") from error
    return pages
