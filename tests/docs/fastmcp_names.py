# mypy: ignore-errors
"""The names that FastMCP's server and context have: run in an environment that has it, prints JSON."""

import importlib
import inspect
import json

from fastmcp import Context, FastMCP

MODULES = ("fastmcp.exceptions", "fastmcp.server.dependencies", "fastmcp.utilities.types")
METHODS = ("tool", "prompt", "resource", "run", "run_http_async", "run_stdio_async", "http_app")


def public(kind):
    return [name for name in dir(kind) if not name.startswith("_")]


def taken(function):
    found = inspect.signature(function).parameters.values()
    return [one.name for one in found if one.name not in ("self", "cls") and one.kind is not one.VAR_KEYWORD]


print(
    json.dumps(
        {
            "server": public(FastMCP),
            "context": public(Context),
            "MCPServer": taken(FastMCP),
            "elicit": taken(Context.elicit),
            "modules": {name: public(importlib.import_module(name)) for name in MODULES},
            **{name: taken(getattr(FastMCP, name)) for name in METHODS},
        }
    )
)
