"""URLs of object stores in the place of directories."""

from __future__ import annotations

import logging
import os
from urllib.parse import urlsplit

logger = logging.getLogger(__name__)


def is_url(path: str | os.PathLike[str]) -> bool:
    """Return whether a path is a URL of an object store, ``scheme://...``."""
    return "://" in os.fspath(path)


def require_local(path: str | os.PathLike[str], what: str) -> None:
    """Raise ValueError for a URL: a store keeps checkpoints, and no files that grow."""
    if is_url(path):
        raise ValueError(
            f"{what} are files of this machine, got the URL {os.fspath(path)!r}. Only checkpoints can"
            " be in an object store; copy the event files, or give their local directory."
        )


def local_events(checkpoint_dir: str | os.PathLike[str]) -> str | os.PathLike[str]:
    """Return where the event files of a directory of checkpoints are: of a URL, a local directory."""
    if not is_url(checkpoint_dir):
        return checkpoint_dir
    place = urlsplit(os.fspath(checkpoint_dir))
    parts = [part for part in (place.netloc, *place.path.split("/")) if part not in ("", ".", "..")]
    local = os.path.join("runs", *parts)
    logger.info(
        "The event files of %s are written to %r: an object store cannot append. Another place: "
        "summary_dir=...", checkpoint_dir, local,
    )  # fmt: skip
    return local
