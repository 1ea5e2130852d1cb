"""The state that the sessions of a server share: variables, and queues with a shared name."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace

from asyncmon.errors import AbortedError, InvalidArgumentError
from asyncmon.graph.core.graph import DEFAULT_CONTAINER, Graph
from asyncmon.graph.core.node import Operation
from asyncmon.graph.execution.executor import Executor
from asyncmon.graph.execution.state import StateStore
from asyncmon.graph.session.backend import DirectBackend
from asyncmon.session_config import SessionConfig
from asyncmon.system.clock import random_seed


class SharedState:
    """Makes the backends of the sessions of a server.

    Args:
        config: how the server uses the machine.

    Attributes:
        executor: of the sessions that share their state.
    """

    def __init__(self, config: SessionConfig) -> None:
        self._config = config
        self.executor = Executor(StateStore(random_seed()), config)
        self._isolated: set[DirectBackend] = set()
        self._resetting = asyncio.Lock()

    def backend(
        self, graph: Graph, config: SessionConfig, check: Callable[[Operation], object] | None = None
    ) -> DirectBackend:
        """Return the backend of a session, which has a state of its own if its config says so.

        ``check`` is called with the operations of each new plan.
        """
        timeout = config.operation_timeout_in_ms
        if not config.isolate_session_state:
            return DirectBackend(graph, self.executor, shares=True, timeout_in_ms=timeout, check=check)
        own_config = replace(self._config, operation_timeout_in_ms=timeout)
        own = Executor(StateStore(random_seed()), own_config)
        backend = DirectBackend(graph, own, check=check)
        self._isolated = {one for one in self._isolated if not one.closed} | {backend}
        return backend

    async def reset(self, containers: Sequence[str]) -> None:
        """End all sessions, and clear some containers, or all if none is given.

        Raises:
            InvalidArgumentError: ``containers`` is no list of names.
        """
        if not (isinstance(containers, list) and all(isinstance(name, str) for name in containers)):
            raise InvalidArgumentError(f"The containers to reset are names, got {containers!r}.")
        async with self._resetting:
            ended = self.executor
            cleared = {"" if name == DEFAULT_CONTAINER else name for name in containers}
            kept = {key: x for key, x in ended.resources.items() if key[1] not in cleared}
            if not containers:
                kept.clear()
            for key in kept:
                del ended.resources[key]
            try:
                await self.close("The state of this session was reset.")
            finally:
                seed = random_seed()
                store = ended.store.without(cleared, seed) if containers else StateStore(seed)
                self.executor = Executor(store, self._config)
                self.executor.resources.update(kept)

    async def close(self, reason: str) -> None:
        """End all sessions: their runs raise AbortedError with the reason."""
        executors = [self.executor, *[one.executor for one in self._isolated]]
        for executor in executors:
            executor.ended, executor.closed = reason, True
        for executor in executors:
            await executor.close(AbortedError(reason))
        self._isolated.clear()
