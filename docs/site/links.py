"""Find dead links of the built site: ``python docs/site/links.py SITE``."""

from __future__ import annotations

import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).parents[2]
REPOSITORY = "https://github.com/asyncmon/asyncmon/blob/main/"


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value and name in ("href", "src"):
                self.links.append(value)
            elif value and name in ("id", "name"):
                self.anchors.add(value)


def dead_links(site: Path) -> list[str]:
    """Return the links of all pages that lead nowhere on the site or in the repository."""
    pages = {path: _Page() for path in site.rglob("*.html")}
    for path, page in pages.items():
        page.feed(path.read_text())
    dead = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if link.startswith(REPOSITORY):
                target = ROOT / unquote(parts.path).removeprefix(urlsplit(REPOSITORY).path)
            elif parts.scheme or parts.netloc:
                continue
            elif parts.path.startswith("/"):
                target = site / parts.path.lstrip("/")
            else:
                target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if target.is_dir() and target.is_relative_to(site):
                target /= "index.html"
            anchors = pages[target].anchors if target in pages else None
            is_there = anchors is None or not parts.fragment or unquote(parts.fragment) in anchors
            if not target.exists() or not is_there:
                dead.append(f"{path.relative_to(site)}: {link}")
    return dead


if __name__ == "__main__":
    found = dead_links(Path(sys.argv[1]).resolve())
    sys.exit("\n".join([f"{len(found)} dead links", *found]) if found else 0)
