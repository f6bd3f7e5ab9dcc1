"""From a function and its options to an endpoint: everything that can be wrong is found here, before the first call."""

import inspect
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial, wraps
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from typing_extensions import TypedDict

from . import _moving
from ._binding import bind, placed
from ._budgets import Budget, check_budget
from ._calling import inner, name_of
from ._catalogue import Endpoint
from ._messages import CacheHint
from ._resolving import plan
from ._schemas import Check, check_for
from ._templates import compile_template, is_template
from ._terms import Terms
from .context import Context
from .dialects import content, listing
from .errors import InvalidParams, InvalidSignature

if TYPE_CHECKING:
    from mcp_types import Annotations, Icon, ToolAnnotations

log = logging.getLogger("turnwise.server")

Register = TypeVar("Register", bound=Callable[..., Any])

_NAME = re.compile(r"[A-Za-z0-9_.-]{1,128}")
_OURS = {"AcceptedElicitation", "DeclinedElicitation", "CancelledElicitation", "ToolError"}
"""What the official SDK has under the same names."""


class PromptOptions(TypedDict, total=False):
    """What `@server.prompt` takes besides a name."""

    title: str | None
    description: str | None
    icons: "list[Icon] | None"


class ToolOptions(PromptOptions, total=False):
    """What `@server.tool` takes besides a name.

    `input_schema` is published in place of the signature's, and arguments must fit both; `version` is recorded in the
    flow. `effects`: no step runs before the client holds a token. `single_use`: a token gets one reply, and only one.
    `task`: whether a call outlives its request: "always", where the client takes it ("optional"), or "never".
    `budget`: the limits of its flows, in place of the server's.
    """

    annotations: "ToolAnnotations | None"
    meta: dict[str, Any] | None
    structured_output: bool | None
    input_schema: dict[str, Any] | None
    version: str | None
    effects: bool
    single_use: bool
    task: 'Literal["always", "optional", "never"] | None'
    budget: Budget | None


class ResourceOptions(PromptOptions, total=False):
    """What `@server.resource` takes besides the URI."""

    name: str | None
    mime_type: str | None
    annotations: "Annotations | None"
    meta: dict[str, Any] | None
    cache: CacheHint | None


def refuse_bare(decorator: str, argument: Any) -> None:
    """Catch `@server.tool` without parentheses."""
    if callable(argument):
        raise TypeError(f"write @server.{decorator}(...), with parentheses")


def _refuse_unknown(what: str, fn: Callable[..., Any], options: Mapping[str, Any], known: type) -> None:
    if unknown := sorted(options.keys() - known.__annotations__.keys()):
        told = _moving.unknown(f"a {what}", unknown[0], _moving.FUNCTION, known.__annotations__)
        raise InvalidSignature(f"{name_of(fn)}: {told}")


def _warn_of_leftovers(name: str, fn: Callable[..., Any]) -> None:
    """Tell of imports that did not move with a function: classes of the same name that nothing here is one of."""
    fn = inspect.unwrap(inner(fn))
    names = getattr(getattr(fn, "__code__", None), "co_names", ())
    for found in [getattr(fn, "__globals__", {}).get(one) for one in names]:
        module = getattr(found, "__module__", None) or ""
        if isinstance(found, type) and found.__name__ in _OURS and module.startswith("mcp."):
            one = found.__name__
            log.warning("%s uses %s of %s, which is another class: from turnwise import %s", name, one, module, one)


def _told_where(register: Register) -> Register:
    """Have what is wrong with a function say where that is written."""

    @wraps(register)
    def registered(fn: Callable[..., Any], *rest: Any) -> Any:
        with placed(fn):
            return register(fn, *rest)

    return registered  # type: ignore[return-value]


@_told_where
def tool(fn: Callable[..., Any], name: str | None, options: ToolOptions, terms: Terms) -> Endpoint:
    """A tool."""
    _refuse_unknown("tool", fn, options, ToolOptions)
    binding = bind(fn, Context)
    name = name or binding.name
    _warn_of_leftovers(name, fn)
    if not _NAME.fullmatch(name):
        raise InvalidSignature(f"{name!r}: a tool's name has 1 to 128 of the characters A-Z a-z 0-9 _ - .")
    if not isinstance(options.get("version"), str | None):
        raise InvalidSignature(f"{name}: version is a text, not {options['version']!r}")
    output = content.Output(name, binding.returns, options.get("structured_output"))
    own = options.get("input_schema")
    check = None if own is None else _own_check(name, own)
    schema = own or binding.schema
    definition = listing.definition(
        name=name,
        title=options.get("title"),
        description=_description(fn, options),
        input_schema=schema,
        output_schema=output.schema,
        annotations=options.get("annotations"),
        icons=options.get("icons"),
        meta=options.get("meta"),
    )
    return Endpoint(
        definition,
        binding,
        plan(binding, Context),
        lambda call, value: output.result(value),
        listing.mirrored_parameters(name, schema),
        terms=_own_terms(name, options, terms),
        check=check,
    )


def _own_check(name: str, schema: Any) -> Check:
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        raise InvalidSignature(f'{name}: arguments are an object, so input_schema is a mapping with "type": "object"')
    return check_for(schema)


def _own_terms(name: str, options: ToolOptions, terms: Terms) -> Terms:
    single_use = options.get("single_use", False)
    if single_use and terms.guard is None:
        raise InvalidSignature(f"{name}: single_use=True needs a store that all instances share: MCPServer(store=...)")
    effects = options.get("effects", False) or single_use
    if (task := options.get("task")) not in (None, "always", "optional", "never"):
        raise InvalidSignature(f"{name}: task is 'always', 'optional' or 'never', not {task!r}")
    check_budget(options.get("budget"))
    budget = options.get("budget") or terms.budget
    guard = terms.guard and terms.guard.within(budget)
    version = options.get("version")
    own: Any = {"version": version, "effects": effects, "single_use": single_use, "task": task}
    return replace(terms, budget=budget, guard=guard, **own)


@_told_where
def prompt(fn: Callable[..., Any], name: str | None, options: PromptOptions, terms: Terms) -> Endpoint:
    """A prompt."""
    _refuse_unknown("prompt", fn, options, PromptOptions)
    binding = bind(fn, Context)
    description = _description(fn, options)
    definition = listing.definition(
        name=name or binding.name,
        title=options.get("title"),
        description=description,
        arguments=listing.prompt_arguments(binding),
        icons=options.get("icons"),
    )
    render = partial(content.prompt_result, description)
    return Endpoint(definition, binding, plan(binding, Context), lambda call, value: render(value), terms=terms)


@_told_where
def resource(fn: Callable[..., Any], uri: str, options: ResourceOptions, terms: Terms) -> Endpoint:
    """A resource, or a template of resources."""
    _refuse_unknown("resource", fn, options, ResourceOptions)
    binding = bind(fn, Context)
    mime_type = options.get("mime_type")
    place = {"uri_template": uri} if is_template(uri) else {"uri": uri}
    definition = listing.definition(
        **place,
        name=options.get("name") or binding.name,
        title=options.get("title"),
        description=_description(fn, options),
        mime_type=mime_type,
        icons=options.get("icons"),
        annotations=options.get("annotations"),
        meta=options.get("meta"),
    )
    template = compile_template(uri) if is_template(uri) else None
    taken = set(binding.required)
    offered = set(template.names) if template is not None else set()
    if taken != offered:
        raise InvalidSignature(
            f"{binding.name}: the URI {uri!r} gives {sorted(offered)}, the function takes {sorted(taken)}"
        )
    return Endpoint(
        definition,
        binding,
        plan(binding, Context),
        lambda call, value: content.resource_result(call.target, mime_type, value),
        cache=options.get("cache"),
        terms=terms,
        template=template,
    )


def _description(fn: Callable[..., Any], options: PromptOptions) -> str | None:
    return options.get("description") or inspect.getdoc(inner(fn)) or None


def completion_arguments(params: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """What a completion function is called with."""
    from mcp_types import CompleteRequestParams

    try:
        request = CompleteRequestParams.model_validate(dict(params))
    except ValueError:
        raise InvalidParams("completion/complete needs a ref and an argument with name and value") from None
    return request.ref, request.argument, request.context
