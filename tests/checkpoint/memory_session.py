"""A session that is nothing but state: the smallest real thing that can be saved and restored."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any

import numpy as np

from asyncmon.system.snapshot import Snapshot


class MemorySession:
    """Named arrays. Steps write in place, unless a snapshot shares the array: then to a fresh one."""

    def __init__(self, **state: Any) -> None:
        self.state = {name: np.asarray(value) for name, value in state.items()}
        self.shared: set[str] = set()
        self.snapshots = 0
        self.released = 0

    def snapshot(self) -> Awaitable[Snapshot]:
        self.shared = set(self.state)
        self.snapshots += 1
        step = self.state.get("global_step")
        taken = Snapshot(self.state, None if step is None else int(step), self._release)
        future: asyncio.Future[Snapshot] = asyncio.get_running_loop().create_future()
        future.set_result(taken)
        return future

    async def load(self, values: Mapping[str, Any]) -> None:
        unknown = sorted(values.keys() - self.state.keys())
        assert not unknown, unknown
        for name, value in values.items():
            self.state[name] = np.array(value)

    def step(self) -> None:
        """Add one to every number."""
        for name, array in self.state.items():
            if array.dtype.kind in "iuf":
                if name in self.shared:
                    self.state[name] = np.asarray(array + np.ones((), array.dtype))
                    self.shared.discard(name)
                else:
                    array += np.ones((), array.dtype)

    def _release(self) -> None:
        self.released += 1
