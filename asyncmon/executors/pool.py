"""A fixed number of workers that make the calls of a pipeline: what processes and actors share."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Protocol

from asyncmon.runtime.pipelines import Lease, Pipeline
from asyncmon.system.cancellation import outlast

logger = logging.getLogger(__name__)

MOST_DEATHS = 3
"""The deaths of workers at one element, or in a row at the start, that are an error."""


class WorkerDiedError(RuntimeError):
    """Workers died again and again: at the call of one element, or before their first call."""


@dataclass(frozen=True, slots=True)
class WorkerPolicy:
    """What a call outside of the process knows of the learner."""

    version: int
    """The committed steps of the learner, at which the weights are."""
    weights: Any = None
    """The fetches ``weights=`` of ``sess.produce``, as the newest commit has them; None without it."""


class Worker(Protocol):
    """A process or an actor, which makes one call at a time."""

    @property
    def has_ended(self) -> bool: ...

    async def call(self, element: Any, policy: WorkerPolicy | None) -> Any:
        """Return the result, or raise the error of the function. WorkerDiedError: it has ended."""

    async def close(self) -> None:
        """End it within seconds, at once if this is cancelled."""


class Pool:
    """The workers of one pipeline. Each is started with its first element.

    Args:
        pipeline: to serve.
        count: the number of workers.
        start: returns a worker that is ready. Raises WorkerDiedError if it ends before.
        takes_policy: whether the function does.
    """

    def __init__(
        self,
        pipeline: Pipeline,
        count: int,
        start: Callable[[], Awaitable[Worker]],
        takes_policy: bool,
    ) -> None:
        self._pipeline = pipeline
        self._count = count
        self._start = start
        self._takes_policy = takes_policy
        self._deaths: dict[tuple[int, int | None], int] = {}  # at the calls of elements
        self._deaths_at_start = 0

    async def serve(self) -> None:
        """Make calls until the session stops. Ends the workers, also if this is cancelled."""
        slots = [asyncio.create_task(self._work(), name=f"worker {n}") for n in range(self._count)]
        try:
            done, _ = await asyncio.wait(slots, return_when=asyncio.FIRST_EXCEPTION)
            for slot in done:
                slot.result()
        finally:
            for slot in slots:
                slot.cancel()
            # The session cancels this again at the end of its grace period.
            closing = asyncio.gather(*slots, return_exceptions=True)
            await outlast(closing, cancel_after=0)
            closing.cancelled() or closing.exception()  # retrieved

    async def _work(self) -> None:
        worker: Worker | None = None
        try:
            while (lease := await self._pipeline.lease()) is not None:
                try:
                    if worker is not None and worker.has_ended:
                        ended, worker = worker, None
                        await ended.close()
                    worker = worker or await self._started()
                    await self._call(worker, lease)
                except BaseException:
                    self._pipeline.release(lease)
                    raise
        finally:
            if worker is not None:
                await worker.close()

    async def _started(self) -> Worker:
        while True:
            try:
                worker = await self._start()
            except WorkerDiedError as died:
                self._deaths_at_start += 1
                if self._deaths_at_start >= MOST_DEATHS:
                    raise WorkerDiedError(
                        f"{self._deaths_at_start} workers of {self._pipeline.name!r} in a row ended "
                        f"before their first call: {died}"
                    ) from None
                logger.warning("%s Another one is started.", died)
            else:
                self._deaths_at_start = 0
                return worker

    async def _call(self, worker: Worker, lease: Lease) -> None:
        pipeline, call = self._pipeline, (lease.ordinal, lease.member)
        try:
            policy = await self._policy(lease) if self._takes_policy else None
            value = await worker.call(lease.element, policy)
        except WorkerDiedError as died:
            deaths = self._deaths[call] = self._deaths.get(call, 0) + 1
            if deaths < MOST_DEATHS:
                logger.warning("Element %d is made again: %s", lease.ordinal, died)
                pipeline.release(lease)
            else:
                del self._deaths[call]  # a retry has as many
                text = f"{deaths} workers ended in the call with element {lease.ordinal}: {died}"
                pipeline.fail(lease, WorkerDiedError(text))
        except Exception as error:
            pipeline.fail(lease, error)
        else:
            self._deaths.pop(call, None)
            pipeline.complete(lease, value)

    async def _policy(self, lease: Lease) -> WorkerPolicy:
        policy = lease.policy
        weights = await policy.weights() if policy.has_weights else None
        return WorkerPolicy(policy.version, weights)
