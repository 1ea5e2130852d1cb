"""The page: the files of the folder ``page``, read once, served by name and never by path."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from typing import NamedTuple

_TYPES = {
    "html": "text/html; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "svg": "image/svg+xml",
    "png": "image/png",
    "txt": "text/plain; charset=utf-8",
}


class PageFile(NamedTuple):
    """A file of the page: its bytes, its type, and the tag that changes with its bytes."""

    body: bytes
    type: str
    tag: str


@cache
def page_files() -> dict[str, PageFile]:
    """Return the files of the page by name, ``index.html`` also as the empty one. Blocking, once."""
    found = {}
    for name, entry in _files(resources.files("asyncmon.monitor").joinpath("page"), ""):
        ending = name.rpartition(".")[2]
        if ending in _TYPES:
            body = entry.read_bytes()
            tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
            found[name] = PageFile(body, _TYPES[ending], tag)
    if "index.html" in found:
        found[""] = found["index.html"]
    return found


def _files(folder: Traversable, prefix: str) -> Iterator[tuple[str, Traversable]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _files(entry, f"{prefix}{entry.name}/")
        else:
            yield prefix + entry.name, entry
