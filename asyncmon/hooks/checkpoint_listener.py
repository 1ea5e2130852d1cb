"""Who is told of the checkpoints that a hook saves."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from asyncmon.runtime.hook_check import check_method

if TYPE_CHECKING:
    from asyncmon.runtime.protocols import Session

__all__ = ["CheckpointSaverListener", "check_listeners"]

_MOMENTS: dict[str, tuple[str, ...]] = {
    "begin": (),
    "before_save": ("session", "global_step_value"),
    "after_save": ("session", "global_step_value"),
    "end": ("session", "global_step_value"),
}


class CheckpointSaverListener:
    """Told of a :class:`CheckpointSaverHook`'s saves. TF1: ``tf.train.CheckpointSaverListener``.

    All methods are optional. ``before_save`` is awaited before the state is taken, ``after_save`` when
    the checkpoint is committed. Of several listeners all are called before a save, in order, then all
    after it.

    By steps and where saves are quick, the run that made one due ends when ``after_save`` has, so that
    a stop it asks for comes at that very step, as in TF1; but it waits for a second at most. Where
    saves are slow, or by seconds, steps go on meanwhile; by seconds also during ``before_save``, so
    that the step of the checkpoint may be later.

    Example::

        class Evaluate(CheckpointSaverListener):
            async def after_save(self, session, global_step_value):
                if await evaluate(global_step_value) > 0.99:
                    return True
    """

    async def begin(self) -> None:
        """The hook's ``begin``: operations may still be added to the program."""

    async def before_save(self, session: Session, global_step_value: int) -> None:
        """A checkpoint of this step is about to be taken. An error prevents it."""

    async def after_save(self, session: Session, global_step_value: int) -> bool | None:
        """A checkpoint of this step is committed. Return true to stop training."""

    async def end(self, session: Session, global_step_value: int) -> None:
        """The session ends successfully, at this step; its last checkpoint is committed."""


def check_listeners(listeners: Iterable[Any] | None) -> tuple[CheckpointSaverListener, ...]:
    """Refuse listeners that could not be told, before the first save.

    Raises:
        TypeError: they are no list; one is a class, lacks a method, or has a plain or wrong one.
    """
    if listeners is not None and not isinstance(listeners, Iterable):
        raise TypeError(f"listeners must be a list, got {listeners!r}. Write `listeners=[...]`.")
    checked = tuple(listeners or ())
    for one in checked:
        if isinstance(one, type):
            raise TypeError(
                f"listeners must be objects, got the class {one.__name__!r}. Write `{one.__name__}()`."
            )
        for moment, arguments in _MOMENTS.items():
            method = getattr(one, moment, None)
            if method is None:
                raise TypeError(
                    f"{one!r} is no listener, it has no method {moment!r}. Derive the class from "
                    "asyncmon.CheckpointSaverListener."
                )
            check_method(type(one).__name__, moment, arguments, method, what="listeners")
    return checked
