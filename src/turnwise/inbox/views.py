"""What the inbox's API takes and gives. States, and the credentials of a call's server, are in none of it."""

from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.json_schema import SkipJsonSchema

from .desk import LONGEST
from .hooks import LONGEST_URL
from .model import WHO, Earlier, Item, Line, Page, Status
from .paging import MOST
from .places import LONGEST_AUTHORIZATION

MOST_ANSWERS = 1000
LONGEST_WAIT = 60.0
Json = dict[str, Any]


def _whole(value: Any) -> Any:
    """A number that JSON calls whole, however it is written."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


class _Taken(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class _Terms(_Taken):
    """What goes with a call that is handed over."""

    caller: Annotated[
        str | None, Field(min_length=1, max_length=WHO, description="Who calls; the token's name unless given.")
    ] = None
    authorization: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=LONGEST_AUTHORIZATION,
            description="The Authorization header that the call's server wants. It is sent nowhere else.",
        ),
    ] = None
    hook: Annotated[
        str | None,
        Field(max_length=LONGEST_URL, description="Told of questions and of the end: https, or http on localhost."),
    ] = None
    seconds: Annotated[
        float | None, Field(gt=0, le=LONGEST, description="After so many seconds it has expired, unless it has ended.")
    ] = None
    restart_expired: Annotated[
        bool | None,
        Field(
            description="Begin it anew by itself where its server no longer takes its state. What it did before may be "
            "done again. Otherwise it has expired, and somebody may begin it anew."
        ),
    ] = None


class HandOverCall(_Terms):
    """A call with its questions."""

    pending: Annotated[
        Json | str, Field(description="The call, as `Pending.to_json` writes it: that text, or its object.")
    ]
    drafts: Annotated[
        dict[str, Json] | None,
        Field(
            max_length=MOST_ANSWERS,
            description="What a model would say to requests to it, by key: people see it, and may change it.",
        ),
    ] = None


class HandOverTask(_Terms):
    """A task that is to be followed."""

    task: Annotated[
        Json | str, Field(description="The task, as `TaskInHand.to_json` writes it: that text, or its object.")
    ]


class Answers(_Taken):
    """Answers to some or all questions of a round."""

    round: Annotated[
        int,
        Field(ge=0, le=1 << 53, description="The round that they answer, as the item says it."),
        BeforeValidator(_whole),
    ]
    answers: Annotated[
        dict[str, Json],
        Field(
            min_length=1,
            max_length=MOST_ANSWERS,
            description="By key. To a form: an action (accept, decline or cancel) and its content.",
        ),
    ]


class Authorization(_Taken):
    """Other credentials for the server of an item."""

    authorization: Annotated[
        str,
        Field(
            min_length=1,
            max_length=LONGEST_AUTHORIZATION,
            description="The Authorization header that the call's server wants. It is sent nowhere else.",
        ),
    ]
    revision: Annotated[
        int | None,
        Field(ge=0, le=1 << 53, description="Where given, they are taken only if the item still has this revision."),
        BeforeValidator(_whole),
    ] = None


class ListQuery(BaseModel):
    """Which items, and from where on."""

    model_config = ConfigDict(extra="forbid")

    status: Annotated[list[Status], Field(description="Which; all that are open unless given.")] = []
    q: Annotated[
        str,
        Field(max_length=500, description="Words in server, target, caller, arguments, questions, answers or result."),
    ] = ""
    caller: Annotated[str, Field(max_length=WHO)] | SkipJsonSchema[None] = None
    after: Annotated[str, Field(max_length=500, description="From the page before.")] | SkipJsonSchema[None] = None
    limit: Annotated[int, Field(ge=1, le=MOST)] = 50


class WaitQuery(BaseModel):
    """For how long to wait, and for what."""

    model_config = ConfigDict(extra="forbid")

    wait: Annotated[float, Field(ge=0, le=LONGEST_WAIT, description="Seconds to wait for a change.")] = 0.0
    revision: Annotated[int, Field(ge=0, le=1 << 53, description="What is known already; nothing is with 0.")] = 0


class EarlierView(BaseModel):
    """A question that is answered."""

    key: str
    round: int
    request: dict[str, Any]
    answer: dict[str, Any]
    by: str
    at: float

    @classmethod
    def of(cls, one: Earlier) -> Self:
        """An answer, as it is shown."""
        request, answer = dict(one.request), dict(one.answer)
        return cls(key=one.key, round=one.round, request=request, answer=answer, by=one.by, at=one.at)


class ItemView(BaseModel):
    """One call or task. Times are seconds since 1970."""

    id: str
    status: Status
    revision: Annotated[int, Field(description="Counts every change: give it to wait for the next.")]
    round: Annotated[int, Field(description="Counts what was asked, from 0: give it with answers.")]
    server: str
    method: str
    target: str
    arguments: dict[str, Any]
    caller: str
    is_task: bool
    task: Annotated[str | None, Field(description="By what its server knows the task.")]
    withdrawn_by: Annotated[
        str | None, Field(description="Who ended it without a result, where somebody did: its status is failed then.")
    ]
    cancelled: Annotated[
        bool | None, Field(description="Of a task that was withdrawn: whether its server took the wish to stop it.")
    ]
    questions: Annotated[dict[str, dict[str, Any]], Field(description="What is asked and not answered, by key.")]
    unfit: Annotated[
        dict[str, str],
        Field(description="Questions that can only be declined or cancelled, and why; what is large in them is cut."),
    ]
    drafts: Annotated[
        dict[str, dict[str, Any]], Field(description="What a model would answer to those of them that ask one, by key.")
    ]
    given: Annotated[list[EarlierView], Field(description="What was answered here, in order.")]
    note: str | None
    result: Annotated[
        dict[str, Any] | None, Field(description="What the call gave, when it is done, or failed with isError.")
    ]
    error: str | None
    code: Annotated[int | None, Field(description="The code of the error, where it is one of the protocol.")]
    came: float
    asked: float
    until: float | None
    changed: float
    may_restart: Annotated[
        bool, Field(description="Whether it may be begun anew: it expired because its server no longer took its state.")
    ]
    restarted: Annotated[float | None, Field(description="When it was begun anew, the last time.")]
    restarted_by: Annotated[str | None, Field(description="By whom; null where it was by itself.")]
    page: Annotated[str | None, Field(description="Where people answer it, where the inbox knows its own URL.")]

    @classmethod
    def of(cls, item: Item, page: str | None) -> Self:
        """An item, as it is shown."""
        pending = item.pending
        return cls(
            id=item.id,
            status=item.status,
            revision=item.revision,
            round=max(item.round, 0),
            server=item.server,
            method=pending.method,
            target=item.target,
            arguments=dict(pending.arguments),
            caller=item.caller,
            is_task=item.task is not None,
            task=item.task,
            withdrawn_by=item.withdrawn_by,
            cancelled=item.cancelled,
            questions={key: pending.requests[key] for key in pending.unanswered},
            unfit=item.unfit,
            drafts={key: dict(draft) for key, draft in item.drafts.items() if key in pending.unanswered},
            given=[EarlierView.of(one) for one in item.given],
            note=item.note,
            result=None if item.result is None else dict(item.result),
            error=item.error,
            code=item.code,
            came=item.came,
            asked=pending.asked,
            until=item.until,
            changed=item.changed,
            may_restart=item.may_restart,
            restarted=item.restarted,
            restarted_by=item.restarted_by,
            page=page,
        )


class LineView(BaseModel):
    """An item in a list."""

    id: str
    status: Status
    server: str
    target: str
    caller: str
    headline: Annotated[str, Field(description="The first open question in a line, or the last that was answered.")]
    questions: Annotated[int, Field(description="How many are open.")]
    asked: float
    until: float | None
    changed: float
    is_task: bool
    round: Annotated[int, Field(ge=0, description="As in the item itself.")]

    @classmethod
    def of(cls, line: Line) -> Self:
        """A line, as it is shown."""
        facts = {name: getattr(line, name) for name in cls.model_fields}
        return cls(**{**facts, "round": max(line.round, 0)})


class PageView(BaseModel):
    """Some items, and where to go on."""

    items: list[LineView]
    after: Annotated[str | None, Field(description="Give it to get the next page; null at the end.")]
    total: Annotated[
        int | None,
        Field(description="How many are wanted, on all pages; null where a search has too many to look at for that."),
    ]

    @classmethod
    def of(cls, page: Page) -> Self:
        """A page, as it is shown."""
        return cls(items=[LineView.of(line) for line in page.lines], after=page.after, total=page.total)


class Problem(BaseModel):
    """Why a request was refused (RFC 9457)."""

    type: Literal["about:blank"] = "about:blank"
    title: str
    status: int
    detail: str
    by: Annotated[str | None, Field(description="Who was first, where somebody was.")] = None
    at: Annotated[float | None, Field(description="When that was.")] = None
    errors: Annotated[dict[str, str] | None, Field(description="What is wrong, by key or by place.")] = None
