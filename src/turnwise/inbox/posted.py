"""What a browser's request says: the controls of a form, the page that it is for, where the inbox is."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qs

from starlette.requests import Request

from .forms import Typed

PART = "x-part"
LARGEST_POST = 2 * 1024 * 1024
MOST_CONTROLS = 20_000


class Problem(Exception):
    """A request that gets a page which says what is wrong."""

    def __init__(self, status: int, heading: str, text: str) -> None:
        self.status, self.heading, self.text = status, heading, text
        super().__init__(text)


async def posted(request: Request) -> Typed:
    """The controls of a posted form, by name."""
    if request.headers.get("content-type", "").partition(";")[0].strip() != "application/x-www-form-urlencoded":
        raise Problem(415, "Not taken", "A form of this inbox is sent in another way.")
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > LARGEST_POST:
            raise Problem(413, "Too much", "This is more than the inbox takes at once.")
    try:
        return parse_qs(body.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=MOST_CONTROLS)
    except ValueError:
        raise Problem(400, "Not readable", "What was sent is not the content of a form.") from None


def first(typed: Mapping[str, Any], name: str) -> str:
    """What a control holds; empty where there is none."""
    return str(next(iter(typed.get(name, ())), ""))


def is_part(request: Request) -> bool:
    """Whether a script asks for the part of a page that changes."""
    return request.headers.get(PART) == "live"


def base(request: Request) -> str:
    """The path under which the inbox is."""
    return str(request.scope.get("root_path", "")).rstrip("/")


def path(request: Request) -> str:
    """The address of a page within the inbox."""
    path = request.url.path.removeprefix(base(request))
    return f"{path}?{request.url.query}" if request.url.query else path


def local(following: str) -> str:
    """A place of ours to go to after signing in; the first page for anything else."""
    is_ours = following.startswith(("/items/", "/history", "/?")) and following.isascii() and following.isprintable()
    return following if is_ours and "\\" not in following else "/"
