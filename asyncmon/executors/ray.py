"""Pipelines whose calls run in Ray actors."""

from __future__ import annotations

import importlib
import traceback
from collections.abc import Callable
from typing import Any

from asyncmon.executors.pool import Pool, WorkerDiedError, WorkerPolicy
from asyncmon.runtime.pipelines import Pipeline
from asyncmon.runtime.pipelines.newest import Newest
from asyncmon.runtime.pipelines.workers import takes_policy
from asyncmon.system.error_text import add_note, phrase
from asyncmon.system.functions import settled


class RayExecutor:
    """Makes the calls of a pipeline in Ray actors, in the place of its function.

    Each actor makes one call at a time, and is created with its first element. Weights are put into the
    object store once for each version that a call needs. An error of the function is raised as itself,
    with the traceback of the actor as a note. Deaths of actors are treated as those of processes, see
    :class:`ProcessExecutor`. Actors are killed at the end of the session.

    Args:
        fn: a plain or ``async def`` function: ``fn(element)``, or ``fn(element, policy)`` with a
            :class:`WorkerPolicy`. Ray serializes it.
        actors: the most actors. ``workers`` of the pipeline is the bound, too.
        **options: of the actors, as ``num_gpus=1``.

    Raises:
        TypeError: ``fn`` is not callable.
        ValueError: ``actors`` is less than 1.
        ImportError: Ray is not installed.

    Example::

        ray.init()
        games = sess.produce(seeds, am.executors.RayExecutor(play, actors=16, num_cpus=1), workers=16)
    """

    def __init__(self, fn: Callable[..., Any], actors: int = 1, **options: Any) -> None:
        if not callable(fn):
            raise TypeError(f"RayExecutor takes a function, got {fn!r}.")
        if actors < 1:
            raise ValueError(f"RayExecutor(actors=...) must be 1 or more, got {actors!r}.")
        try:
            self._ray: Any = importlib.import_module("ray")
        except ImportError as missing:
            raise ImportError("RayExecutor needs Ray: pip install 'asyncmon[ray]'") from missing
        self.name = getattr(fn, "__name__", "pipeline")
        """The name of its pipelines, unless they have another one."""
        self._fn = fn
        self._actors = actors
        self._options = options

    async def serve(self, pipeline: Pipeline) -> None:
        """Make the calls of a pipeline. See :class:`.Executor`."""
        actor = self._ray.remote(Caller)
        if self._options:
            actor = actor.options(**self._options)
        stored = Newest(self._ray.put)

        async def started() -> Actor:
            one = Actor(self._ray, actor.remote(self._fn), stored)
            await one.ready()
            return one

        await Pool(pipeline, self._actors, started, takes_policy(self._fn)).serve()


class Caller:
    """The class of the actors."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self._fn = fn

    async def ready(self) -> None:
        """Return when the actor is there."""

    async def call(self, element: Any, version: int | None, weights: Any) -> Any:
        """Call the function."""
        policy = () if version is None else (WorkerPolicy(version, weights),)
        return await settled(self._fn(element, *policy))


class Actor:
    """One actor. See :class:`.Worker`.

    Args:
        ray: the module.
        handle: of the actor.
        stored: puts weights into the object store.
    """

    def __init__(self, ray: Any, handle: Any, stored: Newest[Any]) -> None:
        self._ray = ray
        self._handle = handle
        self._stored = stored
        self.has_ended = False

    async def ready(self) -> None:
        """Wait for the actor. WorkerDiedError: it has ended."""
        try:
            await self._result(self._handle.ready)
        except BaseException:
            await self.close()
            raise

    async def call(self, element: Any, policy: WorkerPolicy | None) -> Any:
        """Make a call. See :class:`.Worker`."""
        if policy is None:
            return await self._result(self._handle.call, element, None, None)
        weights = None if policy.weights is None else await self._stored.of(policy.weights)
        return await self._result(self._handle.call, element, policy.version, weights)

    async def _result(self, method: Any, *args: Any) -> Any:
        errors = self._ray.exceptions
        try:
            return await method.remote(*args)
        except errors.RayActorError as died:
            self.has_ended = True
            raise WorkerDiedError(phrase(died)) from None
        except errors.RayTaskError as failed:
            cause = failed.cause
            error = cause if isinstance(cause, Exception) else RuntimeError(phrase(failed))
            trace = "".join(traceback.format_exception_only(failed))
            add_note(error, f"asyncmon: raised in an actor of Ray:\n{trace}")
            raise error from None

    async def close(self) -> None:
        """Kill the actor."""
        self._ray.kill(self._handle)
