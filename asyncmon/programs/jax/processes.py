"""Processes of ``jax.distributed`` that train together."""

from __future__ import annotations

import pickle
from typing import Any

import jax
import numpy as np

from asyncmon.programs.process_group import ProcessGroupHook
from asyncmon.system.files import in_thread


class ProcessesHook(ProcessGroupHook):
    """Join the processes of ``jax.distributed``, by collectives of their devices.

    A :class:`JaxProgram` has :func:`~asyncmon.training.MonitoredTrainingSession` add one.
    """

    async def share_state(self, session: Any) -> None:
        with await session.snapshot() as snapshot:
            state = await in_thread(_broadcast, dict(snapshot))
        if jax.process_index():
            await session.load(state)

    async def any_stops(self, stops: bool) -> bool:
        return await in_thread(_any, stops)


def _broadcast(state: dict[str, Any]) -> dict[str, Any]:
    """Return what the first process gives. The processes of one job trust each other."""
    from jax.experimental.multihost_utils import broadcast_one_to_all

    data = np.frombuffer(pickle.dumps(state), np.uint8)
    high, low = broadcast_one_to_all(np.array(divmod(len(data), 1 << 30), np.int32)).tolist()
    sent = data if jax.process_index() == 0 else np.zeros((high << 30) + low, np.uint8)
    found: dict[str, Any] = pickle.loads(np.asarray(broadcast_one_to_all(sent), np.uint8).tobytes())
    return found


def _any(own: bool) -> bool:
    """Return whether it is true in a process. Blocks until all have called it."""
    from jax.experimental.multihost_utils import process_allgather

    return bool(np.any(process_allgather(np.int32(own))))
