"""Ranks of ``torchrun`` that train together: one state at the start, one step at which all stop."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import torch
from torch import distributed

from asyncmon.errors import FailedPreconditionError, OutOfRangeError
from asyncmon.files import in_thread
from asyncmon.programs.torch.state import RANDOM
from asyncmon.runtime import SAVER, SessionRunHook

if TYPE_CHECKING:
    from asyncmon.runtime import Coordinator, Session, SessionRunContext


def is_first_rank() -> bool:
    """Return whether this process is rank 0, as it is without ``torchrun``."""
    if distributed.is_available() and distributed.is_initialized():
        return bool(distributed.get_rank() == 0)
    return int(os.environ.get("RANK", "0")) == 0


def rank_hooks() -> list[SessionRunHook]:
    """Return the hook that ranks need; none where there is one process."""
    together = distributed.is_available() and distributed.is_initialized()
    return [RanksHook()] if together and distributed.get_world_size() > 1 else []


class RanksHook(SessionRunHook):
    """Begin with the state of rank 0, and stop all ranks before the same step.

    Before each run all ranks say whether they go on; where one does not, none does: the run raises
    :class:`~asyncmon.errors.OutOfRangeError`, which ends a monitored session as the end of data does.
    That takes a message of gloo between the ranks. A rank that is lost makes it fail, and the agent of
    ``torchrun`` starts all ranks anew; sessions do not recover by themselves.

    A :class:`TorchProgram` has :func:`~asyncmon.training.MonitoredTrainingSession` add one.
    """

    priority = SAVER - 1
    """After all other hooks but savers: they save the step at which all have stopped."""

    def __init__(self) -> None:
        self._group: Any = None
        self._created = False
        self._agreed = False
        self._coord: Coordinator

    async def begin(self) -> None:
        self._group = await in_thread(_new_group)

    async def after_create_session(self, session: Session, coord: Coordinator) -> None:
        """Load the state of rank 0, which is restored or initialised by now, into the others.

        Raises:
            FailedPreconditionError: this is a recovery.
        """
        if self._created:
            raise FailedPreconditionError(
                "A rank cannot recover by itself: the others are at another step. Let the process end, "
                "and torchrun --max-restarts=N start all ranks from the last checkpoint."
            )
        self._created, self._coord = True, coord
        rank = distributed.get_rank()
        with await session.snapshot() as snapshot:
            state = await in_thread(_broadcast, dict(snapshot) if rank == 0 else None, self._group)
        if rank:
            own = {name: value for name, value in state.items() if not name.startswith(RANDOM)}
            await session.load(own)
            torch.manual_seed(torch.initial_seed() + rank + int(session.global_step or 0))

    async def before_run(self, run_context: SessionRunContext) -> None:
        """Go on if all do.

        Raises:
            OutOfRangeError: a rank stops.
        """
        if await in_thread(_any, self._coord.should_stop(), self._group):
            self._agreed = True
            reason = self._coord.stop_reason or "another rank stops"
            run_context.request_stop(reason)
            raise OutOfRangeError(f"All ranks stop before this step: {reason}.")

    async def end(self, session: Session) -> None:
        """Tell the other ranks, which wait before their next run, that this one stops."""
        if not self._agreed:
            self._agreed = True
            await in_thread(_any, True, self._group)


def _new_group() -> Any:
    return distributed.new_group(backend="gloo")


def _any(value: bool, group: Any) -> bool:
    """Return whether the value is true on any rank. Blocks until all have called it."""
    flag = torch.tensor(int(value))
    distributed.all_reduce(flag, distributed.ReduceOp.MAX, group)
    return bool(flag)


def _broadcast(state: Any, group: Any) -> Any:
    """Return what rank 0 gives. The ranks of one job trust each other."""
    content = [state]
    distributed.broadcast_object_list(content, src=0, group=group)
    return content[0]
