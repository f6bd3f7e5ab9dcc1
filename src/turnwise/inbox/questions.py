"""The open questions of an item as a page shows them, and what was typed and pressed there as answers.

Addresses are taken apart so that a person sees where they lead. Nothing here is trusted: whatever cannot be shown as
what it claims to be can only be refused.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Any, Literal
from urllib.parse import quote, urlsplit

from .._json import encode
from ..dialects.answering import page_facts
from ..dialects.words import ELICIT, ROOTS, SAMPLE
from ..errors import MalformedQuestion
from .drafts import reply_text
from .forms import Fault, Field, Form, Typed, Unfit, form_of, pretty, said
from .model import Earlier, Item, flaw

Kind = Literal["form", "page", "sample", "roots", "raw"]
SYSTEM, STOP = "systemPrompt", "stopReason"
ROLES = ("assistant", "user")
MODEL = "person"
"""The name of the model where a person answers for one."""
LONGEST_ADDRESS = 4000
"""Characters that are shown of an address that is no link."""
HEADING = 200
"""Characters of a question's first line that may be the heading of its card."""
_HERE = ("localhost", "127.0.0.1", "::1")
_DRIVE = re.compile(r"[A-Za-z]:[\\/]")
_ADDRESS = "/:%?#[]@!$&'()*+,;=~"
"""What an address keeps as it is."""
_PORT = re.compile(r":[0-9]{1,5}(?![^/?#])")


@dataclass(frozen=True, slots=True)
class Address:
    """Where a page is. `before`, `host` and `after` are its text; `plain` is the host in ASCII, where it is not so, and
    `poses` what stands before the host as if it were one.
    """

    url: str
    before: str
    host: str
    after: str
    plain: str
    warnings: tuple[str, ...]
    refused: str
    """Why it is no link; empty where it is one."""
    poses: str = ""

    @property
    def place(self) -> str:
        """The host in ASCII, with the port where the address has one."""
        port = _PORT.match(self.after)
        return (self.plain or self.host) + (port[0] if port else "")


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
    draft: Mapping[str, Any] | None = None
    """What a model would say, where somebody asked one."""

    @property
    def heading(self) -> str:
        """Its first line, where that is short enough to be a heading."""
        first = self.message.strip().partition("\n")[0]
        return first if len(first) <= HEADING else ""

    @property
    def text(self) -> str:
        """What it says below its heading."""
        return self.message.strip()[len(self.heading) :].strip("\n")

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

    @property
    def drafted(self) -> str | None:
        """The text of the draft; None where there is none, or where it is something else than one text."""
        return None if self.draft is None else reply_text(self.draft)

    @property
    def truth(self) -> Field | None:
        """The one field of a question that wants yes or no, and nothing else."""
        fields = () if self.form is None else self.form.fields
        return fields[0] if len(fields) == 1 and fields[0].kind == "truth" and not fields[0].may_be_left else None

    @property
    def is_filled_in(self) -> bool:
        """Whether its answer is filled in, and can be sent with others. A visit is agreed to by itself."""
        return self.can_accept and self.kind in ("form", "sample", "roots")

    def misfit(self, why: str) -> list[Fault]:
        """What is said where its answer was not taken."""
        return [Fault(self.control("actions"), "The answer", f"does not fit: {why}")]

    def control(self, name: object) -> str:
        """The name of one of its controls."""
        return f"q{self.number}-{name}"

    def answer(self, action: str, typed: Typed) -> tuple[dict[str, Any], list[Fault]]:
        """The answer, and what is wrong with it."""
        if action in ("decline", "cancel") and self.can_decline:
            return {"action": action}, []
        if action in ("yes", "no") and self.truth is not None:
            return {"action": "accept", "content": {self.truth.name: action == "yes"}}, []
        if action != "accept" or not self.can_accept:
            return {}, [Fault(self.control("actions"), "This question", "cannot be answered in this way")]
        if self.form is not None:
            content, faults = self.form.read(typed)
            return {"action": "accept", "content": content}, faults
        if self.kind == "sample":
            return self._message(typed)
        return self._folders(typed) if self.kind == "roots" else ({"action": "accept"}, [])

    def _message(self, typed: Typed) -> tuple[dict[str, Any], list[Fault]]:
        if self.draft is not None and self.drafted is None:
            return dict(self.draft), []
        names = ("text", "role", "model", "stop")
        text, role, model, stop = (_first(typed, self.control(name)) for name in names)
        faults = [
            Fault(self.control(name), title, "is needed")
            for name, title, value in (("text", "Reply", text), ("model", "Model", model))
            if not value.strip()
        ]
        if role not in ROLES:
            faults.append(Fault(self.control("role"), "Role", "is none of the choices"))
        reply = {"role": role, "content": {"type": "text", "text": text}, "model": model.strip()}
        draft = {name: value for name, value in (self.draft or {}).items() if name != STOP}
        return {**draft, **reply, **({STOP: stop.strip()} if stop.strip() else {})}, faults

    def _folders(self, typed: Typed) -> tuple[dict[str, Any], list[Fault]]:
        control, roots = self.control("roots"), []
        for line in filter(None, map(str.strip, _first(typed, control).splitlines())):
            place, _, name = (part.strip() for part in line.partition("|"))
            if (uri := folder_address(place)) is None:
                return {}, [Fault(control, "Folders", "must be whole paths or file:// addresses, one on each line")]
            roots.append({"uri": uri, **({"name": name} if name else {})})
        return {"roots": roots}, []


def folder_address(place: str) -> str | None:
    """The address of a folder, which may be written as people write folders; None where it is none."""
    if place.startswith("file://"):
        has_path = place.removeprefix("file://").strip("/") or place == "file:///"
        return quote(place, safe=_ADDRESS) if has_path else None
    if _DRIVE.match(place):
        return "file:///" + quote(place.replace("\\", "/"), safe="/:")
    return "file://" + quote(place) if place.startswith("/") else None


def asked(item: Item) -> list[Asked]:
    """The questions that are still open, in their order."""
    requests = item.pending.requests
    found = [_asked(at, key, requests[key]) for at, key in enumerate(requests) if key not in item.pending.answers]
    return [replace(one, draft=item.drafts.get(one.key)) if one.kind == "sample" else one for one in found]


@dataclass(frozen=True, slots=True)
class Answered:
    """An earlier question with its answer. `values` are the titles of what was filled in, and of what was chosen."""

    question: Asked
    round: int
    answer: Mapping[str, Any]
    values: Sequence[tuple[str, str]]
    by: str
    at: float


def answered(one: Earlier) -> Answered:
    """What was answered, in the words of its question."""
    question = _asked(0, one.key, one.request)
    content = one.answer.get("content")
    values = _values(question.form, content) if isinstance(content, Mapping) and "action" in one.answer else []
    if question.kind in ("sample", "roots"):
        values = _replied(one.answer) if question.kind == "sample" else _named(one.answer)
    return Answered(question, one.round, one.answer, values, one.by, one.at)


def _replied(reply: Mapping[str, Any]) -> list[tuple[str, str]]:
    text, stop = reply_text(reply), reply.get(STOP)
    found = [("Reply", pretty(reply.get("content")) if text is None else text), ("Model", str(reply.get("model")))]
    return found if stop is None else [*found, ("Stop reason", str(stop))]


def _named(answer: Mapping[str, Any]) -> list[tuple[str, str]]:
    roots = [f"{root.get('uri')} {root.get('name') or ''}".strip() for root in answer.get("roots") or ()]
    return [("Folders", "\n".join(roots) or "None")]


def _values(form: Form | None, content: Mapping[str, Any]) -> list[tuple[str, str]]:
    """In the order of the form, whatever order they were sent in."""
    fields = {} if form is None else {field.name: field for field in form.fields if field.name in content}
    known = [(field.heading, field.worded(content[name])) for name, field in fields.items()]
    return known + [(name, said(value)) for name, value in content.items() if name not in fields]


def _asked(number: int, key: str, request: Mapping[str, Any]) -> Asked:
    params = request.get("params") or {}
    mark = _mark(key, request)
    message = str(params.get("message") or "").replace("\r\n", "\n")
    method = request.get("method")
    if method == SAMPLE:
        return Asked(number, key, mark, "sample", message, params)
    if method == ROOTS:
        return Asked(number, key, mark, "roots", message, params)
    if method != ELICIT:
        return Asked(number, key, mark, "raw", message, params, raw=pretty(request), why="its kind is not known here")
    why = flaw(key, request) or ""
    if params.get("mode") == "url":
        address = address_of(params.get("url"))
        return Asked(number, key, mark, "page", message, params, address=address, why=address.refused or why)
    schema = params.get("requestedSchema")
    shown = said(schema if params.get("mode", "form") == "form" and "requestedSchema" in params else params)
    if why:
        return Asked(number, key, mark, "raw", message, params, raw=shown, why=why)
    try:
        form = form_of(schema, f"q{number}-")
    except Unfit as unfit:
        return Asked(number, key, mark, "raw", message, params, raw=shown, why=f"of its schema: {unfit}")
    return Asked(number, key, mark, "form", message, params, form=form)


def address_of(url: Any) -> Address:
    """An address, taken apart. Only https, and http on this machine, becomes a link."""
    text = str(url)
    cut = text if len(text) <= LONGEST_ADDRESS else f"{text[:LONGEST_ADDRESS]}…"
    try:
        _, host, warnings = page_facts("", url)
        plain = host.encode("ascii" if host.isascii() else "idna").decode()
        parts = urlsplit(text)
    except MalformedQuestion as error:
        return Address(cut, cut, "", "", "", (), _reason(error))
    except UnicodeError:
        return Address(cut, cut, "", "", "", (), "its host is not a name that the web knows")
    is_here = host in _HERE or host.endswith(".localhost")
    refused = "" if parts.scheme == "https" or is_here else "it is not encrypted (http), and not on this machine"
    authority = parts.netloc.rpartition("@")[2]
    shown = authority.partition("]")[0] + "]" if authority.startswith("[") else authority.partition(":")[0]
    place = text.index(parts.netloc) + len(parts.netloc) - len(authority)
    before, after = text[:place], text[place + len(shown) :]
    others = tuple(warning for warning in warnings if not warning.startswith("not encrypted"))
    poses = parts.netloc.rpartition("@")[0]
    return Address(text, before, shown, after, "" if plain == host else plain, others, refused, poses)


def _reason(error: MalformedQuestion) -> str:
    return (
        "it is no web address that could be shown as a link"
        if "web address" in str(error)
        else "it hides where it leads"
    )


def read_all(questions: Sequence[Asked], typed: Typed) -> tuple[dict[str, Any], dict[str, list[Fault]]]:
    """The answers to those of these questions that are filled in, by key, and what is wrong with others, by mark."""
    answers, faults = {}, {}
    for question in questions:
        if question.is_filled_in:
            answer, wrong = question.answer("accept", typed)
            if wrong:
                faults[question.mark] = wrong
            else:
                answers[question.key] = answer
    return answers, faults


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
