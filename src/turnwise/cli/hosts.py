"""Configurations for the hosts that people use, ready to be pasted."""

import json
from typing import Any, NamedTuple


class Host(NamedTuple):
    """A host: where its configuration is, and what to put there."""

    name: str
    file: str
    configuration: dict[str, Any]

    def written(self) -> str:
        """The configuration as JSON."""
        return json.dumps(self.configuration, indent=2)


def hosts(name: str, url: str) -> list[Host]:
    """What each host is told of a server at this URL."""
    return [
        Host("VS Code", ".vscode/mcp.json", {"servers": {name: {"type": "http", "url": url}}}),
        Host("Cursor", ".cursor/mcp.json", {"mcpServers": {name: {"url": url}}}),
        Host("Claude Code", ".mcp.json", {"mcpServers": {name: {"type": "http", "url": url}}}),
        Host("Windsurf", "~/.codeium/windsurf/mcp_config.json", {"mcpServers": {name: {"serverUrl": url}}}),
    ]


def started(name: str, server: str, python: str, folder: str) -> Host:
    """What Claude Desktop is told, which starts servers itself, elsewhere: modules are found in this folder."""
    arguments = ["-m", "turnwise.cli", "stdio", server]
    command = {"command": python, "args": arguments, "env": {"PYTHONPATH": folder}}
    return Host("Claude Desktop", "claude_desktop_config.json", {"mcpServers": {name: command}})
