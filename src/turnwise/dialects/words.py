"""Names that both halves of a wire use: versions, members of `_meta`, methods."""

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

VERSION = "2026-07-28"
HANDSHAKES = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
"""The versions that open with `initialize` and ask by requests of their own, oldest first."""
SEP_1858: Final = "DRAFT-SEP-1858"
"""Multi-turn SSE. The proposal leaves its version open; this name is ours."""
SEP_2322: Final = "DRAFT-2026-v1"
"""Multi round-trip requests as approved."""
DRAFT_2026_02: Final = "DRAFT-2026-02-03"
"""Multi round-trip requests as first drafted, on that day. The draft names no version; this name is ours."""
DRAFTS = (SEP_1858, SEP_2322, DRAFT_2026_02)
Mode = Literal[
    "auto",
    "2026-07-28",
    "2025-11-25",
    "2025-06-18",
    "2025-03-26",
    "2024-11-05",
    "DRAFT-SEP-1858",
    "DRAFT-2026-v1",
    "DRAFT-2026-02-03",
]
"""What a client may be told to speak; "auto" finds out."""
SESSION = "Mcp-Session-Id"
"""The header that names a session, on wires that have those."""
PROTOCOL = "io.modelcontextprotocol/protocolVersion"
CAPABILITIES = "io.modelcontextprotocol/clientCapabilities"
CLIENT_INFO = "io.modelcontextprotocol/clientInfo"
LOG_LEVEL = "io.modelcontextprotocol/logLevel"
SERVER_INFO = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION = "io.modelcontextprotocol/subscriptionId"

ELICIT = "elicitation/create"
SAMPLE = "sampling/createMessage"
ROOTS = "roots/list"

LEVELS = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")
TASKS = "io.modelcontextprotocol/tasks"
RELATED_TASK = "io.modelcontextprotocol/related-task"

TARGETS = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
"""The methods that may ask, and the member that says what they are aimed at."""
NAMED = {**TARGETS, "tasks/get": "taskId", "tasks/update": "taskId", "tasks/cancel": "taskId"}
LISTS = {
    "tools/list": "tools",
    "prompts/list": "prompts",
    "resources/list": "resources",
    "resources/templates/list": "resourceTemplates",
}
FILTER = {"toolsListChanged": "tools", "promptsListChanged": "prompts", "resourcesListChanged": "resources"}
CHANGES = {
    "tools": "notifications/tools/list_changed",
    "prompts": "notifications/prompts/list_changed",
    "resources": "notifications/resources/list_changed",
    "resource": "notifications/resources/updated",
}
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""A token of RFC 9110."""
FORM: Mapping[str, Any] = {"elicitation": {"form": {}}}
URL: Mapping[str, Any] = {"elicitation": {"url": {}}}

INSTANCE = "X-Instance"
INSTANCE_KEYS = "X-Instance-Keys"
"""The header by which `turnwise serve --instance-header` says who answered."""

MOST_QUESTIONS = 1000
"""So many questions a client takes at once."""
