"""Texts about exceptions that never raise.

Exceptions are classes of other packages: ``str()`` of one may fail, and a frozen dataclass accepts no
notes. Neither may keep a session from closing, or hide which error it was.
"""

from __future__ import annotations

import logging

logger = logging.getLogger(__name__)


def add_note(error: BaseException, note: str) -> None:
    """Attach a note to an exception, or log it where that fails. Never raises."""
    try:
        error.add_note(note)
    except Exception:
        logger.warning("Cannot attach a note to %s: %s", phrase(error), note)


def text_of(error: BaseException) -> str:
    """Return ``str(error)``, or, where that fails, a text that says so."""
    try:
        return str(error)
    except Exception as failure:
        return f"<its __str__ raised {type(failure).__name__}>"


def phrase(error: BaseException) -> str:
    """Return the type and the text of an exception."""
    text = text_of(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
