"""Whether a session is ready, and what it lacks."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np

from asyncmon.error_text import text_of
from asyncmon.errors import FailedPreconditionError

if TYPE_CHECKING:
    from asyncmon.runtime.protocol import Session

__all__ = ["what_lacks"]

logger = logging.getLogger(__name__)


async def what_lacks(ready_op: Any, session: Session, what: str) -> str | None:
    """Return why a session is not ready, or None when it is.

    Args:
        ready_op: fetched; gives the names of what is not initialised. None: it is ready.
        session: the raw session.
        what: what it is to be ready for, for the log.

    Raises:
        TypeError: it gives something that is no list of names.
        Exception: what the run raised, unless that says that something is not initialised.
    """
    if ready_op is None:
        return None
    try:
        value = await session.run(ready_op)
    except FailedPreconditionError as error:
        if "uninitialized" in str(error):
            return str(error)
        logger.warning("%s: error while it was asked for: %s", what, text_of(error))
        raise
    except Exception as error:
        logger.warning("%s: error while it was asked for: %s", what, text_of(error))
        raise
    if value is None:
        return None
    names = np.asarray(value)
    if names.size == 0 or names.dtype == np.int32:
        return None
    if names.ndim != 1 or names.dtype.kind not in "OSU":
        raise TypeError(
            f"A ready_op must give the names of what is not initialised, as a list of strings; "
            f"{ready_op!r} gave {value!r}."
        )
    texts = [name.decode() if isinstance(name, bytes) else str(name) for name in names.tolist()]
    return f"Variables not initialized: {', '.join(texts)}"
