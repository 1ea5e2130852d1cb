"""Stop when the loss is NaN."""

from __future__ import annotations

import logging
import math
from typing import Any

import numpy as np

from asyncmon.hooks.hook_support import named_tensor, veto_saving
from asyncmon.runtime import (
    GUARD,
    Coordinator,
    Session,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)

logger = logging.getLogger(__name__)


class NanLossDuringTrainingError(RuntimeError):
    """The loss became NaN. TF1: ``tf.train.NanLossDuringTrainingError``."""

    def __init__(self, message: str = "NaN loss during training.") -> None:
        super().__init__(message)


class NanTensorHook(SessionRunHook):
    """Watch the loss, and stop when it is NaN. TF1: ``tf.train.NanTensorHook``.

    Comes before other hooks in every phase. After a NaN no checkpoint of this session is written any
    more, not even at its end: the last good one stays the latest.

    Args:
        loss_tensor: a tensor of any shape; one NaN among its elements is enough.
        fail_on_nan_loss: raise :class:`NanLossDuringTrainingError` out of the run; otherwise log a
            warning and request a stop.
        inf: also stop at infinity.

    Example::

        hooks = [NanTensorHook(loss)]
    """

    priority = GUARD

    def __init__(self, loss_tensor: Any, fail_on_nan_loss: bool = True, *, inf: bool = False) -> None:
        self._loss_tensor = loss_tensor
        self._args: SessionRunArgs
        self._fail_on_nan_loss = fail_on_nan_loss
        self._inf = inf
        self._coord: Coordinator

    async def begin(self) -> None:
        self._args = SessionRunArgs(named_tensor(self._loss_tensor))

    async def after_create_session(self, session: Session, coord: Coordinator) -> None:
        self._coord = coord

    async def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        return self._args

    async def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Check the loss.

        Raises:
            NanLossDuringTrainingError: it is NaN, and ``fail_on_nan_loss``.
        """
        loss = run_values.results
        if not self._diverged(loss):
            return
        message = f"Model diverged with loss = {'NaN' if np.isnan(loss).any() else loss}."
        veto_saving(self._coord, message)
        if self._fail_on_nan_loss:
            logger.error(message)
            raise NanLossDuringTrainingError
        logger.warning(message)
        run_context.request_stop(message)

    def _diverged(self, loss: Any) -> bool:
        if isinstance(loss, np.ndarray) and loss.ndim:
            return bool((~np.isfinite(loss) if self._inf else np.isnan(loss)).any())
        # NaN differs from itself, and is not less than any number
        return bool(not abs(loss) < math.inf if self._inf else loss != loss)
