"""Listeners of saves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from asyncmon.runtime.hook import AnySession
from asyncmon.runtime.hook_check import check_methods

_METHODS: dict[str, tuple[str, ...]] = {
    "begin": (),
    "before_save": ("session", "global_step_value"),
    "after_save": ("session", "global_step_value"),
    "end": ("session", "global_step_value"),
}


class CheckpointSaverListener:
    """Called around a :class:`CheckpointSaverHook`'s saves. TF1: ``tf.train.CheckpointSaverListener``.

    All methods are optional. ``before_save`` is awaited before the snapshot, ``after_save`` after the
    commit. Several listeners are called in order, before the save and after it.

    With an interval in steps, the run that makes a save due waits for ``after_save``, so that a stop
    takes effect at that step, as in TF1. It waits for ``timeout_secs`` of the hook at most. With an
    interval in seconds, steps continue during both calls, so that the checkpoint may have a later step
    than the argument of ``before_save``.

    Example::

        class Evaluate(CheckpointSaverListener):
            async def after_save(self, session, global_step_value):
                if await evaluate(global_step_value) > 0.99:
                    return True
    """

    async def begin(self) -> None:
        """Add operations to the program, in ``begin`` of the hook."""

    async def before_save(self, session: AnySession, global_step_value: int) -> None:
        """Called before a save at this step. An error prevents the save."""

    async def after_save(self, session: AnySession, global_step_value: int) -> bool | None:
        """Called after the commit of the checkpoint of this step. Return True to stop training."""

    async def end(self, session: AnySession, global_step_value: int) -> None:
        """Called at a successful end at this step, after the commit of the last checkpoint."""


def check_listeners(listeners: Iterable[Any] | None) -> tuple[CheckpointSaverListener, ...]:
    """Return the listeners as a tuple after a check of their methods. Raises TypeError."""
    if listeners is not None and not isinstance(listeners, Iterable):
        raise TypeError(f"listeners must be a list, got {listeners!r}. Write `listeners=[...]`.")
    checked = tuple(listeners or ())
    for one in checked:
        check_methods(one, "listener", CheckpointSaverListener, _METHODS)
    return checked
