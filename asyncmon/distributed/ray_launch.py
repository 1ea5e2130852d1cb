"""A cluster of chief, workers and parameter servers as actors of Ray, each in a process of its own.

Ray places and starts the actors, which communicate over gRPC: each has a :class:`.Server` at a free
port of its machine, and the addresses form the ClusterSpec. The launching process watches the actors
and restarts dead ones in place. Their sessions restore the lost state.
"""

from __future__ import annotations

import asyncio
import copy
import logging
import os
from asyncio import wrap_future
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from asyncmon.distributed.cluster_spec import ClusterSpec
from asyncmon.distributed.ray_backend import (
    NAMESPACE,
    START_SECS,
    connected,
    in_thread,
    require_ray,
    watch,
)
from asyncmon.distributed.ray_task import ClusterTask, TaskActor
from asyncmon.errors import AbortedError, ResourceExhaustedError, UnknownError
from asyncmon.session_config import SessionConfig
from asyncmon.system.cancellation import shielded
from asyncmon.system.functions import is_coroutine_function

T = TypeVar("T")

logger = logging.getLogger(__name__)

_SHARES = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}  # options that have a name in Ray
_SCALE_SECS = 1.0  # between two checks of the wanted number of workers
_ADDED = "worker", -1  # stands for the workers beyond the least number
_LATE_SECS = 5.0  # grace period of workers that are cancelled because they did not end in time


async def launch(
    fn: Callable[[ClusterTask], Awaitable[T]],
    workers: int | tuple[int, int] = 1,
    ps: int = 0,
    *,
    wanted: Callable[[], int] | None = None,
    address: str = "auto",
    resources: Mapping[str, Any] | None = None,
    strategy: str = "PACK",
    max_restarts: int = 3,
    config: SessionConfig | None = None,
    log_dir: str | Path | None = None,
    max_wait_secs: float = 7200.0,
    stop_grace_period_secs: float = 120.0,
) -> T:
    """Run ``await fn(task)`` in each worker of a new cluster on Ray, and return the chief's result.

    Worker 0 is the chief. When its function has returned, the others have the grace period to return;
    then all processes end. At the first error, which is raised, and when the caller is cancelled, the
    functions are cancelled and have the grace period to end. All processes end with this one.

    A process that dies is restarted, and a worker calls the function again: with a monitored session
    and a checkpoint directory visible to all machines, training resumes. If a task comes back at
    another address, all tasks are restarted.

    With ``workers=(1, 4)``, workers are added and removed while the function runs: the run is elastic,
    see :class:`~asyncmon.distributed.ClusterSpec`. Workers beyond the least number are added one by
    one, and removed from the largest index on: the function is cancelled, and has the grace period to
    end. One of them that dies is not restarted but added again, when there is room. None is added after
    a function has returned.

    Log records of level INFO go to the standard error of each process, which Ray prints here.

    Args:
        fn: an ``async def`` function, which Ray pickles.
        workers: the number of workers, 1 or more; or the least and the most.
        ps: the number of parameter servers.
        wanted: with a least and a most number, returns how many workers are wanted now. Called every
            second in this process. By default the most, as far as the cluster has room.
        address: ``host:port`` of the control process of a cluster, or "auto": the one that this process
            is connected to, or else the one that runs on this machine.
        resources: the resources of each task in Ray's names, ``{"CPU": 2, "GPU": 1}``; or these by
            job: ``{"worker": {"CPU": 4}, "ps": {"CPU": 1}}``. By default one CPU.
        strategy: of Ray's placement group: "PACK" (few machines), "SPREAD", "STRICT_PACK" or
            "STRICT_SPREAD".
        max_restarts: maximum restarts of each task; -1 for no limit.
        config: the config of servers and sessions. Without a token or certificate in its
            ``rpc_options`` the cluster generates a token.
        log_dir: each process writes its log records to ``JOB-INDEX.log`` there, too.
        max_wait_secs: for the cluster to have room.
        stop_grace_period_secs: see above.

    Raises:
        ImportError: Ray is not installed.
        TypeError: fn is no ``async def`` function, or cannot be pickled.
        ValueError: an invalid number or resource.
        ResourceExhaustedError: the cluster had no room in time.
        AbortedError: a task exceeded its restarts.
        UnavailableError: there is no cluster at the address.

    Example::

        async def train(task: am.distributed.ClusterTask) -> float:
            own = f"/job:worker/task:{task.task_index}"
            with g.device(am.replica_device_setter(worker_device=own, cluster=task.cluster)):
                loss, train_op = build_model()
            async with am.MonitoredTrainingSession(
                task.target, task.is_chief, "/shared/run", config=task.config
            ) as sess:
                while not sess.should_stop():
                    value = await sess.run([loss, train_op])
            return value[0]

        await am.distributed.launch(train, workers=3, ps=2)
    """
    require_ray()
    if not is_coroutine_function(fn):
        raise TypeError(f"launch(fn) takes an `async def` function of a ClusterTask, got {fn!r}.")
    least, most = workers if isinstance(workers, tuple) else (workers, workers)
    if not 1 <= least <= most or ps < 0 or max_restarts < -1:
        raise ValueError(
            "launch() takes 1 or more workers, 0 or more ps and -1 or more max_restarts, got "
            f"{workers!r}, {ps!r} and {max_restarts!r}."
        )
    if wanted is not None and not isinstance(workers, tuple):
        raise ValueError(
            f"wanted= needs the least and the most number of workers, workers=(1, 4); got {workers!r}."
        )
    config = copy.deepcopy(config) if config is not None else SessionConfig()
    if not (config.rpc_options.token or config.rpc_options.certificate):
        config.rpc_options.token = os.urandom(24).hex()
    needs = {job: _needs(job, resources) for job in ("ps", "worker")}
    tasks = [("ps", i) for i in range(ps)] + [("worker", i) for i in range(least)]
    ray = await wrap_future(in_thread(connected, address))
    cluster = _Cluster(ray, tasks, needs, config, log_dir, max_restarts, stop_grace_period_secs)
    if isinstance(workers, tuple):
        cluster.added = partial(cluster.add_workers, least, most, wanted or (lambda: most))
    guard = asyncio.create_task(watch(cluster.control), name="watch of Ray's control process")
    try:
        await cluster.place(strategy, max_wait_secs)
        result: T = await cluster.run(fn)
        return result
    finally:
        guard.cancel()
        await shielded(cluster.close, name="end of a cluster")


def _needs(job: str, resources: Mapping[str, Any] | None) -> dict[str, float]:
    given: Mapping[str, Any] = {"CPU": 1} if resources is None else resources
    is_by_job = bool(given) and given.keys() <= {"ps", "worker"}
    found = given.get(job, {"CPU": 1}) if is_by_job else given
    if not found or not all(isinstance(x, int | float) and x > 0 for x in found.values()):
        raise ValueError(
            "resources are amounts by name, {'CPU': 1}, or those of jobs, {'worker': {'CPU': 1}}; "
            f"got {resources!r}."
        )
    return dict(found)


class _Restart(Exception):
    """Raised to restart all tasks: a server could not bind its address."""


class _Cluster:
    """The actors of a cluster and their supervision."""

    def __init__(
        self,
        ray: Any,
        tasks: list[tuple[str, int]],
        needs: dict[str, dict[str, float]],
        config: SessionConfig,
        log_dir: str | Path | None,
        max_restarts: int,
        grace_secs: float,
    ) -> None:
        self.control: str = ray.get_runtime_context().gcs_address
        self._ray = ray
        self._tasks = tasks
        self._needs = needs
        self._config = config
        self._log_dir = None if log_dir is None else os.path.abspath(log_dir)
        self._max_restarts = max_restarts
        self._grace_secs = grace_secs
        self.added: Callable[[], Coroutine[Any, Any, None]] | None = None
        """Runs the workers beyond the least number, if the cluster is elastic."""
        self._over = asyncio.Event()  # a function has returned
        self._leaving: set[int] = set()  # the indices of workers that are removed
        self._group: Any = None
        self._fn: Any = None
        self._actors: dict[tuple[str, int], Any] = {}
        self._restarts = dict.fromkeys(tasks, 0)
        self._places: dict[tuple[str, int], tuple[str, int]] = {}
        self._spec = ClusterSpec({})
        self._stopping = False

    async def place(self, strategy: str, secs: float) -> None:
        """Reserve the resources of the tasks."""
        bundles = [self._needs[job] for job, _ in self._tasks]
        group = self._group = await _reserved(bundles, strategy)
        ready = wrap_future(group.ready().future())
        done, _ = await asyncio.wait((ready,), timeout=min(secs, 10.0))
        if not done and secs > 10.0:
            logger.warning("The Ray cluster has no room yet for %s; waiting.", bundles)
            done, _ = await asyncio.wait((ready,), timeout=secs - 10.0)
        if not done:
            ready.cancel()
            raise ResourceExhaustedError(
                f"The Ray cluster at {self.control!r} had no room within {secs:g} s for {bundles}: "
                "start more machines, or ask for less with resources=."
            )
        ready.result()

    async def run(self, fn: Any) -> Any:
        """Run a function in the workers, and return the chief's result."""
        self._fn = await wrap_future(in_thread(self._ray.put, fn))
        rounds = 0
        while True:
            try:
                return await self._run()
            except _Restart as restart:
                rounds += 1
                if 0 <= self._max_restarts < rounds:
                    raise AbortedError(f"The cluster was restarted too often: {restart}") from restart
                logger.warning("All tasks are restarted: %s", restart)

    async def close(self) -> None:
        """Release the placement group."""
        if self._group is not None:
            await _released(self._group)

    async def _run(self) -> Any:
        self._stopping = False
        self._over.clear()
        tasks: dict[asyncio.Task[Any], tuple[str, int]] = {}
        secs = self._grace_secs
        try:
            await self._start()
            tasks = {
                asyncio.create_task(self._supervise(task), name=_name(task)): task
                for task in self._tasks
            }
            if self.added is not None:
                tasks[asyncio.create_task(self.added(), name="added workers")] = _ADDED
            result = await self._chief_result(tasks)
            secs = _LATE_SECS
            return result
        finally:
            await shielded(self._stop, tasks, secs, name="end of tasks")

    async def _chief_result(self, tasks: dict[asyncio.Task[Any], tuple[str, int]]) -> Any:
        """Wait for the chief, and for the grace period for the other workers."""
        loop = asyncio.get_running_loop()
        (chief,) = [x for x, task in tasks.items() if task == ("worker", 0)]
        deadline: float | None = None
        pending = set(tasks)
        while any(tasks[x][0] == "worker" for x in pending):
            left = None if deadline is None else deadline - loop.time()
            done, pending = await asyncio.wait(
                pending, timeout=left, return_when=asyncio.FIRST_COMPLETED
            )
            for one in done:
                one.result()
            if not done:
                late = [_name(tasks[x]) for x in pending if tasks[x][0] == "worker"]
                logger.warning(
                    "%s did not end within %g s of the chief.", ", ".join(late), self._grace_secs
                )
                break
            if chief.done() and deadline is None:
                deadline = loop.time() + self._grace_secs
        return chief.result()

    async def _start(self) -> None:
        """Start all actors and, when their addresses are known, their servers."""
        try:
            for task in self._tasks:
                self._actors[task] = await self._new_actor(task, self._group, self._tasks.index(task))
            found = await asyncio.gather(*[self._call(task, "place", 0) for task in self._tasks])
            self._places = dict(zip(self._tasks, found, strict=True))
            hosts = {host for host, _ in found}
            is_one = len(hosts) == 1 and self.added is None  # one machine: loopback is enough
            jobs: dict[str, dict[int, str]] = {}
            for (job, index), (host, port) in self._places.items():
                jobs.setdefault(job, {})[index] = f"{'127.0.0.1' if is_one else host}:{port}"
            self._spec = ClusterSpec(jobs, elastic=["worker"] if self.added is not None else ())
            await asyncio.gather(*[self._serve(task, self._spec) for task in self._tasks])
        except AbortedError as error:
            raise _Restart(str(error)) from error

    async def _new_actor(self, task: tuple[str, int], group: Any, bundle: int) -> Any:
        from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

        needs = dict(self._needs[task[0]])
        options = {option: needs.pop(name) for name, option in _SHARES.items() if name in needs}
        options.setdefault("num_cpus", 0)
        place = PlacementGroupSchedulingStrategy(group, bundle)

        def start() -> Any:
            made = self._ray.remote(TaskActor).options(
                resources=needs, scheduling_strategy=place, namespace=NAMESPACE, max_restarts=0,
                max_task_retries=0, **options,
            )  # fmt: skip
            return made.remote(*task, self._log_dir)

        return await wrap_future(in_thread(start))

    async def _serve(self, task: tuple[str, int], spec: ClusterSpec) -> None:
        try:
            await self._call(task, "serve", spec.as_dict(), self._config, spec.elastic)
        except UnknownError as error:  # the port was taken since
            raise _Restart(f"{_name(task)}: {error}") from error

    async def _supervise(self, task: tuple[str, int]) -> Any:
        """Wait for the end of a task, and restart it if its process dies."""
        from ray import exceptions

        while True:
            actor = self._actors[task]
            job = actor.join.remote() if task[0] == "ps" else actor.run.remote(self._fn)
            try:
                result = await wrap_future(job.future())
                self._over.set()
                return result
            except exceptions.RayTaskError as error:
                raise _cause(error, task) from error
            except exceptions.RayError as error:
                if self._stopping:
                    return None
                await self._restart(task, error)

    async def _restart(self, task: tuple[str, int], error: BaseException) -> None:
        while True:
            self._restarts[task] += 1
            number, most = self._restarts[task], self._max_restarts
            if 0 <= most < number:
                raise AbortedError(
                    f"{_name(task)} died, and was restarted {most} times already: {error}"
                ) from error
            limit = most if most >= 0 else "any"
            logger.warning("%s died; restart %d of %s. %s", _name(task), number, limit, error)
            await self._kill(task)
            try:
                self._actors[task] = await self._new_actor(task, self._group, self._tasks.index(task))
                host, port = self._places[task]
                place = await self._call(task, "place", port)
                if place != (host, port):
                    raise _Restart(f"{_name(task)} was at {host}:{port} and is at {place[0]} now.")
                await self._serve(task, self._spec)
            except AbortedError as again:
                error = again
            else:
                return

    # Workers beyond the least number.

    async def add_workers(self, least: int, most: int, wanted: Callable[[], int]) -> None:
        """Add and remove workers until a function has returned; then wait for their ends."""
        added: dict[int, asyncio.Task[Any]] = {}
        over = asyncio.create_task(self._over.wait())
        try:
            while added or not self._over.is_set():
                number = least if self._over.is_set() else min(max(least, wanted()), most)
                if all(("worker", index) in self._actors for index in added):  # none waits for room
                    free = [index for index in range(least, number) if index not in added]
                    for index in free[:1]:
                        added[index] = asyncio.create_task(self._added_worker(index))
                for index, one in added.items():
                    if index >= number and index not in self._leaving:
                        self._leave(index, one)
                await asyncio.wait(
                    added.values() if over.done() else [over, *added.values()],
                    timeout=_SCALE_SECS, return_when=asyncio.FIRST_COMPLETED,
                )  # fmt: skip
                for index, one in [(index, one) for index, one in added.items() if one.done()]:
                    del added[index]
                    self._leaving.discard(index)
                    if not one.cancelled():
                        one.result()
        finally:
            ending: list[asyncio.Task[Any]] = [over, *added.values()]
            for one in ending:
                one.cancel()
            await asyncio.wait(ending)

    def _leave(self, index: int, worker: asyncio.Task[Any]) -> None:
        """Cancel the function of a worker that is not wanted any more, or its wait for room."""
        actor = self._actors.get(("worker", index))
        if actor is None:
            worker.cancel()
        elif not self._over.is_set():
            logger.info("%s is removed.", _name(("worker", index)))
            self._leaving.add(index)
            actor.stop.remote()
            asyncio.get_running_loop().call_later(self._grace_secs, worker.cancel)

    async def _added_worker(self, index: int) -> None:
        """Wait for room, and run the function in a worker. Its death is no error."""
        from ray import exceptions

        task = "worker", index
        group = await _reserved([self._needs["worker"]], "PACK")
        try:
            await wrap_future(group.ready().future())
            self._actors[task] = await self._new_actor(task, group, 0)
            host, port = await self._call(task, "place", 0)
            spec = self._spec
            others = {i: spec.task_address("worker", i) for i in spec.task_indices("worker")}
            jobs = {**spec.as_dict(), "worker": {**others, index: f"{host}:{port}"}}
            await self._serve(task, ClusterSpec(jobs, elastic=spec.elastic))
            logger.info("%s was added.", _name(task))
            await wrap_future(self._actors[task].run.remote(self._fn).future())
            if index not in self._leaving:
                self._over.set()
        except exceptions.RayTaskError as error:
            raise _cause(error, task) from error
        except (exceptions.RayError, AbortedError, _Restart) as error:
            if not self._stopping:
                logger.info("%s has left: %s", _name(task), error)
        finally:
            await shielded(self._removed, task, group, name=f"end of {_name(task)}")

    async def _call(self, task: tuple[str, int], method: str, *arguments: Any) -> Any:
        from ray import exceptions

        try:
            async with asyncio.timeout(START_SECS):
                called = getattr(self._actors[task], method).remote(*arguments)
                return await wrap_future(called.future())
        except exceptions.RayTaskError as error:
            raise _cause(error, task) from error
        except exceptions.RayError as error:
            raise AbortedError(f"{_name(task)} did not start: {error}") from error
        except TimeoutError:
            raise AbortedError(f"{_name(task)} did not start within {START_SECS:g} s.") from None

    async def _stop(self, tasks: dict[asyncio.Task[Any], tuple[str, int]], secs: float) -> None:
        """Cancel the functions of workers, and end all processes after a time."""
        self._stopping = True
        self._over.set()
        workers = [x for x, task in tasks.items() if task[0] == "worker" and not x.done()]
        for task in [task for task in self._actors if task[0] == "worker"]:
            self._actors[task].stop.remote()
        if workers:
            await asyncio.wait(workers, timeout=secs)
        for one in tasks:
            one.cancel()
        if tasks:
            await asyncio.wait(tasks)
        for one in tasks:
            if not one.cancelled() and (error := one.exception()) is not None:
                logger.debug("%s ended with %r.", _name(tasks[one]), error)
        for task in list(self._actors):
            await self._kill(task)

    async def _removed(self, task: tuple[str, int], group: Any) -> None:
        await self._kill(task)
        await _released(group)

    async def _kill(self, task: tuple[str, int]) -> None:
        actor = self._actors.pop(task, None)
        if actor is not None:
            await wrap_future(in_thread(self._ray.kill, actor))


def _name(task: tuple[str, int]) -> str:
    return "Added workers" if task == _ADDED else f"Task {task[0]}:{task[1]}"


async def _reserved(bundles: list[dict[str, float]], strategy: str) -> Any:
    """Ask Ray for the resources of tasks, and return their placement group."""
    from ray.util import placement_group

    return await wrap_future(in_thread(lambda: placement_group(bundles, strategy=strategy)))


async def _released(group: Any) -> None:
    from ray.util import remove_placement_group

    await wrap_future(in_thread(remove_placement_group, group))


def _cause(error: Any, task: tuple[str, int]) -> BaseException:
    """Return the error that a function raised in another process, with Ray's text as a note."""
    cause: BaseException = error.cause if isinstance(error.cause, Exception) else error
    cause.add_note(f"raised in {_name(task)}")
    return cause
