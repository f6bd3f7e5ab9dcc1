"""The open questions of an item as a page shows them, and what was typed and pressed there as answers.

Addresses are taken apart so that a person sees where they lead. Nothing here is trusted: whatever cannot be shown as
what it claims to be can only be refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Literal
from urllib.parse import urlsplit

from .._json import encode
from ..dialects.answering import page_facts
from ..dialects.words import ELICIT, ROOTS, SAMPLE
from ..errors import MalformedQuestion
from .forms import Fault, Form, Typed, Unfit, form_of, pretty, said
from .model import Earlier, Item

Kind = Literal["form", "page", "sample", "roots", "raw"]
SYSTEM = "systemPrompt"
ROLES = ("assistant", "user")
MODEL = "person"
"""The name of the model where a person answers for one."""
_HERE = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class Address:
    """Where a page is. `before`, `host` and `after` are its text; `plain` is the host in ASCII, where it is not so."""

    url: str
    before: str
    host: str
    after: str
    plain: str
    warnings: tuple[str, ...]
    refused: str
    """Why it is no link; empty where it is one."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One question of this round. `mark` tells it from any other that may come in its place."""

    number: int
    key: str
    mark: str
    kind: Kind
    message: str
    params: Mapping[str, Any]
    form: Form | None = None
    address: Address | None = None
    raw: str = ""
    why: str = ""
    """Why it can only be refused."""

    @property
    def can_accept(self) -> bool:
        """Whether an answer can be given."""
        return not self.why

    @property
    def can_decline(self) -> bool:
        """Whether the server hears of a refusal; of a model or of folders it can only be told by ending the call."""
        return self.kind in ("form", "page", "raw")

    @property
    def rest(self) -> dict[str, Any]:
        """What a request to a model says besides its messages."""
        return {name: value for name, value in self.params.items() if name not in ("messages", SYSTEM)}

    def control(self, name: object) -> str:
        """The name of one of its controls."""
        return f"q{self.number}-{name}"

    def answer(self, action: str, typed: Typed) -> tuple[dict[str, Any], list[Fault]]:
        """The answer, and what is wrong with it."""
        if action in ("decline", "cancel") and self.can_decline:
            return {"action": action}, []
        if action != "accept" or not self.can_accept:
            return {}, [Fault(self.control("actions"), "This question", "cannot be answered in this way")]
        if self.form is not None:
            content, faults = self.form.read(typed)
            return {"action": "accept", "content": content}, faults
        if self.kind == "sample":
            return self._message(typed)
        return self._folders(typed) if self.kind == "roots" else ({"action": "accept"}, [])

    def _message(self, typed: Typed) -> tuple[dict[str, Any], list[Fault]]:
        text, role, model = (_first(typed, self.control(name)) for name in ("text", "role", "model"))
        faults = [
            Fault(self.control(name), title, "is needed")
            for name, title, value in (("text", "Reply", text), ("model", "Model", model))
            if not value.strip()
        ]
        if role not in ROLES:
            faults.append(Fault(self.control("role"), "Role", "is none of the choices"))
        return {"role": role, "content": {"type": "text", "text": text}, "model": model.strip()}, faults

    def _folders(self, typed: Typed) -> tuple[dict[str, Any], list[Fault]]:
        control, roots = self.control("roots"), []
        for line in _first(typed, control).splitlines():
            uri, _, name = line.strip().partition(" ")
            if uri and not uri.startswith("file://"):
                return {}, [Fault(control, "Folders", "must be addresses that begin with file://, one on each line")]
            if uri:
                roots.append({"uri": uri, **({"name": name.strip()} if name.strip() else {})})
        return {"roots": roots}, []


def asked(item: Item) -> list[Asked]:
    """The questions that are still open, in their order."""
    requests = item.pending.requests
    return [_asked(at, key, requests[key]) for at, key in enumerate(requests) if key not in item.pending.answers]


@dataclass(frozen=True, slots=True)
class Answered:
    """An earlier question with its answer. `values` are the titles of what was filled in, and of what was chosen."""

    key: str
    mark: str
    round: int
    method: str
    message: str
    answer: Mapping[str, Any]
    values: Sequence[tuple[str, str]]
    by: str
    at: float


def answered(one: Earlier) -> Answered:
    """What was answered, in the words of its question."""
    question = _asked(0, one.key, one.request)
    content = one.answer.get("content")
    values = _values(question.form, content) if isinstance(content, Mapping) and "action" in one.answer else []
    method = str(one.request.get("method"))
    mark, answer = question.mark, one.answer
    return Answered(one.key, mark, one.round, method, question.message, answer, values, one.by, one.at)


def _values(form: Form | None, content: Mapping[str, Any]) -> list[tuple[str, str]]:
    fields = {} if form is None else {field.name: field for field in form.fields}
    return [
        (fields[name].heading, fields[name].worded(value)) if name in fields else (name, said(value))
        for name, value in content.items()
    ]


def _asked(number: int, key: str, request: Mapping[str, Any]) -> Asked:
    params = request.get("params") or {}
    mark = _mark(key, request)
    message = str(params.get("message") or "")
    method = request.get("method")
    if method == SAMPLE:
        return Asked(number, key, mark, "sample", message, params)
    if method == ROOTS:
        return Asked(number, key, mark, "roots", message, params)
    if method != ELICIT:
        return Asked(number, key, mark, "raw", message, params, raw=pretty(request), why="its kind is not known here")
    if params.get("mode") == "url":
        address = address_of(params.get("url"))
        return Asked(number, key, mark, "page", message, params, address=address, why=address.refused)
    schema = params.get("requestedSchema")
    try:
        form = form_of(schema, f"q{number}-")
    except Unfit as unfit:
        return Asked(number, key, mark, "raw", message, params, raw=pretty(schema), why=f"of its schema: {unfit}")
    return Asked(number, key, mark, "form", message, params, form=form)


def address_of(url: Any) -> Address:
    """An address, taken apart. Only https, and http on this machine, becomes a link."""
    text = str(url)
    try:
        _, host, warnings = page_facts("", url)
        plain = host.encode("ascii" if host.isascii() else "idna").decode()
        parts = urlsplit(text)
    except MalformedQuestion as error:
        return Address(text, text, "", "", "", (), _reason(error))
    except UnicodeError:
        return Address(text, text, "", "", "", (), "its host is not a name that the web knows")
    is_here = host in _HERE or host.endswith(".localhost")
    refused = "" if parts.scheme == "https" or is_here else "it is not encrypted (http), and not on this machine"
    authority = parts.netloc.rpartition("@")[2]
    shown = authority.partition("]")[0] + "]" if authority.startswith("[") else authority.partition(":")[0]
    place = text.index(parts.netloc) + len(parts.netloc) - len(authority)
    before, after = text[:place], text[place + len(shown) :]
    others = tuple(warning for warning in warnings if not warning.startswith("not encrypted"))
    return Address(text, before, shown, after, "" if plain == host else plain, others, refused)


def _reason(error: MalformedQuestion) -> str:
    return (
        "it is no web address that could be shown as a link"
        if "web address" in str(error)
        else "it hides where it leads"
    )


def picked(open_questions: Sequence[Asked], mark: str) -> Asked | None:
    """The question with this mark, if it is still open."""
    return next((question for question in open_questions if question.mark == mark), None)


def first_answer(item: Item, mark: str) -> Earlier | None:
    """The answer that was given to the question with this mark, if any was."""
    answers = (earlier for earlier in reversed(item.given) if _mark(earlier.key, earlier.request) == mark)
    return next(answers, None)


def _mark(key: str, request: Mapping[str, Any]) -> str:
    return blake2b(encode([key, request]), digest_size=12).hexdigest()


def _first(typed: Typed, name: str) -> str:
    return next(iter(typed.get(name, ())), "").replace("\r\n", "\n")
