"""Restore the best checkpoint when training ends."""

from __future__ import annotations

import logging

from asyncmon.hooks.checkpoint_saver import CheckpointSaverHook
from asyncmon.hooks.hook_support import created_session
from asyncmon.runtime import SAVER, Coordinator, Session, SessionRunHook

logger = logging.getLogger(__name__)


class RestoreBestHook(SessionRunHook):
    """Restore the best checkpoint at a successful end, after the last save.

    So the objects of a program, such as the module of a ``TorchProgram``, have the best weights after
    the session, and the global step is that of the checkpoint. The last checkpoint stays the newest.
    After a signal nothing is restored: the training is to be continued.

    The session needs a ``CheckpointSaverHook`` with ``metrics`` and a saver with ``keep_best``.

    Example::

        evaluation = EvalHook({"accuracy": accuracy}, lambda: feeds, every_steps=500)
        saver = Saver(keep_best=KeepBest("accuracy", mode="max"))
        saves = CheckpointSaverHook("runs/1", save_secs=600, saver=saver, metrics=evaluation)
        hooks = [evaluation, saves, RestoreBestHook()]
    """

    priority = SAVER + 1

    async def after_create_session(self, session: Session, coord: Coordinator) -> None:
        """Find the saver.

        Raises:
            RuntimeError: no hook of the session saves the best checkpoints.
        """
        self._stops = created_session(coord).stops
        savers = [
            one._saver for one in created_session(coord).hooks() if isinstance(one, CheckpointSaverHook)
        ]
        found = [(saver, saver.keep_best) for saver in savers if saver.keep_best is not None]
        if not found:
            raise RuntimeError(
                "RestoreBestHook needs a CheckpointSaverHook(..., metrics=evaluation, "
                "saver=Saver(keep_best=KeepBest(...))) among the session's hooks."
            )
        self._saver, self._keep_best = found[0]

    async def end(self, session: Session) -> None:
        """Restore the best checkpoint, if there is one."""
        best = self._keep_best.best(self._saver._list.kept)
        if not best:
            logger.warning("RestoreBestHook: no checkpoint has the metric; the last state stays.")
        elif not self._stops.is_preempted():
            await self._saver.restore(session, best[0].path)
            logger.info("Restored the best checkpoint, %s.", best[0].path)
