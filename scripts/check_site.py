"""Whether every link of a built site leads to a file of it, and to a place there. Other sites are not visited."""

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit


class Page(HTMLParser):
    """The places of a page, and where its links lead."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.places: set[str] = set()
        self.links: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note what is named here, and what is linked to."""
        for name, value in attrs:
            if value and (name == "id" or (tag == "a" and name == "name")):
                self.places.add(value)
            if value and name in ("href", "src"):
                self.links.add(value)


def broken(site: Path) -> list[str]:
    """The links that lead nowhere, each with its page."""
    pages = {path: Page(path) for path in site.rglob("*.html")}
    found = []
    for path, page in pages.items():
        for link in sorted(page.links):
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir():
                target /= "index.html"
            place = unquote(parts.fragment)
            is_there = target.is_file() and (not place or target not in pages or place in pages[target].places)
            if not is_there:
                found.append(f"{path.relative_to(site)}: {link}")
    return found


def main(site: Path) -> int:
    """Say what is broken; the exit code."""
    found = broken(site.resolve())
    for line in found:
        print(line, file=sys.stderr)
    pages = sum(1 for _ in site.rglob("*.html"))
    print(f"{pages} pages, {len(found)} broken links")
    return 1 if found or not pages else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
