"""Which URLs are meant: servers whose calls are taken, hooks that may be told, servers and their credentials."""

from collections.abc import Mapping, Sequence
from urllib.parse import unquote

LONGEST_AUTHORIZATION = 8192


def allowed(url: str, places: Sequence[str] | None) -> bool:
    """Whether a URL is one of these places, or under one; anything is where nobody said. A URL whose path leads upwards
    on its way is under none: who sends a request takes the steps.
    """
    if places is None:
        return True
    if not {".", ".."}.isdisjoint(_path(url).split("/")):
        return False
    return any(url == place or url.startswith(place.rstrip("/") + "/") for place in places)


def _path(url: str) -> str:
    """The path as it is taken at its end, by whoever reads it most freely."""
    path = url.partition("://")[2].partition("#")[0].partition("?")[0]
    while (plain := unquote(path)) != path:
        path = plain
    return path.replace("\\", "/").replace(";", "/")


class Credentials:
    """What the inbox itself shows to servers, by the beginning of their URL: for calls that brought no credentials, or
    whose own are refused.
    """

    def __init__(self, by_place: Mapping[str, str] | None = None) -> None:
        self.replace(by_place or {})

    def __bool__(self) -> bool:
        return bool(self._by_place)

    def replace(self, by_place: Mapping[str, str]) -> None:
        """Go on with others; ValueError, and nothing changed, where one is none."""
        for place, value in by_place.items():
            if not place.startswith(("http://", "https://")) or not place.partition("://")[2]:
                raise ValueError("credentials belong to a server at a URL, http:// or https://")
            if not value or len(value) > LONGEST_AUTHORIZATION or not (value.isascii() and value.isprintable()):
                raise ValueError(f"the credentials for {place} are one line of plain text")
        self._by_place = dict(by_place)

    def of(self, server: str) -> str | None:
        """The credentials for a server: those of the longest place that it is under."""
        places = [place for place in self._by_place if allowed(server, [place])]
        return self._by_place[max(places, key=len)] if places else None


def read_credentials(text: str) -> dict[str, str]:
    """Credentials by place, from lines `URL value`; lines with # are remarks. What is wrong is told by the number of
    its line, for there are secrets in it.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not (words := line.strip()) or words.startswith("#"):
            continue
        place, *rest = words.split(None, 1)
        value = "".join(rest)
        try:
            Credentials({place: value})
        except ValueError:
            raise ValueError(f"line {number} is not a server's URL, a space, and what its Authorization is") from None
        if place in found:
            raise ValueError(f"line {number} has credentials for a server that has some already")
        found[place] = value
    return found
