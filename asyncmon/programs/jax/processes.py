"""Processes of ``jax.distributed`` that train together."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import jax
import numpy as np

from asyncmon.files import in_thread
from asyncmon.runtime import SAVER, SessionRunHook

if TYPE_CHECKING:
    from asyncmon.runtime import Coordinator


class ProcessesHook(SessionRunHook):
    """Begin with the state of the first process, which it has restored or initialised, in all of them.

    A :class:`JaxProgram` has :func:`~asyncmon.training.MonitoredTrainingSession` add one.
    """

    priority = SAVER - 1

    async def after_create_session(self, session: Any, coord: Coordinator) -> None:
        with await session.snapshot() as snapshot:
            state = await in_thread(_broadcast, dict(snapshot))
        if jax.process_index():
            await session.load(state)


def _broadcast(state: dict[str, Any]) -> dict[str, Any]:
    """Return what the first process gives. The processes of one job trust each other."""
    from jax.experimental.multihost_utils import broadcast_one_to_all

    data = np.frombuffer(pickle.dumps(state), np.uint8)
    high, low = broadcast_one_to_all(np.array(divmod(len(data), 1 << 30), np.int32)).tolist()
    sent = data if jax.process_index() == 0 else np.zeros((high << 30) + low, np.uint8)
    found: dict[str, Any] = pickle.loads(np.asarray(broadcast_one_to_all(sent), np.uint8).tobytes())
    return found
