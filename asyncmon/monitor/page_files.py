"""The page: the files of the folder ``page``, read once, served by name and never by path."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

from asyncmon.system.files import in_thread, list_names, read_bytes

FOLDER = Path(__file__).parent / "page"

_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "txt": "text/plain; charset=utf-8",
}


class PageFile(NamedTuple):
    """A file of the page: its bytes, its type, and the tag that changes with its bytes."""

    body: bytes
    type: str
    tag: str


_read: dict[str, PageFile] = {}


async def page_file(name: str) -> PageFile | None:
    """Return a file of the page, read at its first request; ``index.html`` for the empty name."""
    name = name or "index.html"
    known = _read.get(name)
    if known is None and name in await list_names(FOLDER):
        body = await read_bytes(FOLDER / name)
        digest = (await in_thread(hashlib.sha256, body)).hexdigest()
        known = _read[name] = PageFile(body, _TYPES[Path(name).suffix[1:]], f'"{digest[:32]}"')
    return known
