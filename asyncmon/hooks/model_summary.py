"""List the variables of a program."""

from __future__ import annotations

import logging
import math
from typing import Any

import numpy as np

from asyncmon.checkpoint.saveable_session import RESERVED, state_spec
from asyncmon.runtime import Coordinator, Session, SessionRunHook

logger = logging.getLogger(__name__)


class ModelSummaryHook(SessionRunHook):
    """List the variables with shape, dtype and bytes in the log and for the loggers, once.

    Args:
        most: the largest number of listed variables; the totals are those of all.

    Example::

        hooks = [ModelSummaryHook()]
    """

    def __init__(self, most: int = 200) -> None:
        self._most = most

    async def begin(self) -> None:
        self._is_listed = False

    async def after_create_session(self, session: Session, coord: Coordinator) -> None:
        """List the state of the first session."""
        if self._is_listed:
            return
        self._is_listed = True
        found = (await state_spec(session)).known.items()
        variables = [_Variable(name, spec) for name, spec in found if not name.startswith(RESERVED)]
        head = ["| variable | shape | dtype | bytes |", "|---|---|---|---|"]
        rows = [f"| {one.name} | {one.shape} | {one.dtype} | {one.size:,} |" for one in variables]
        if more := rows[self._most :]:
            rows[self._most :] = [f"| and {len(more)} more | | | |"]
        title = f"{len(variables)} variables, {sum(one.size for one in variables):,} bytes"
        text = "\n".join((f"{title}\n", *head, *rows))
        logger.info("%s", text)
        coord.log("model", text)


class _Variable:
    """A row of the table. A variable of unknown shape counts as 0 bytes."""

    def __init__(self, name: str, spec: Any) -> None:
        self.name = name
        self.shape = "unknown" if spec.shape is None else list(spec.shape)
        self.dtype = np.dtype(getattr(spec.dtype, "numpy", spec.dtype))
        self.size = 0 if spec.shape is None else self.dtype.itemsize * math.prod(spec.shape)
