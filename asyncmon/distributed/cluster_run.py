"""The run of a cluster: its sessions, its stop and its last restore, recorded on one server.

The server with the global step has the record. A chief *begins* a run when it initialises or restores;
sessions join and leave it, and it ends once: by a stop, or with its chief. A session keeps the number
of its run over recoveries, so it learns at any later time that this run has stopped.

A chief that was killed does not end a run. The next chief with the same checkpoint directory then finds
the variables live, see :meth:`RunRecord.begin`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Any

from asyncmon.distributed.cluster_spec import ClusterSpec
from asyncmon.errors import FailedPreconditionError, InvalidArgumentError
from asyncmon.graph import DeviceSpec
from asyncmon.runtime.stop.stop import Stop
from asyncmon.system import clock

Step = Callable[[], int | None]
_Stop = dict[str, Any]  # as Stop.to_wire() makes it

_LEASE_SECS = 5.0
"""Seconds after which a member that does not poll is not waited for. Its next request adds it again."""

_STOPPED = 1000
"""The number of stopped runs whose reasons are kept for sessions that return late."""


@dataclass(slots=True)
class _Member:
    """Attributes:
    seen: time of the end of its last request.
    waiting: the number of its pending requests.
    leaves: whether it has ended, and only its session is still open.
    """

    task: str
    is_chief: bool
    seen: float
    waiting: int = 0
    leaves: bool = False


@dataclass(slots=True)
class _Run:
    """Attributes:
    stop: the stop in the form of the wire, and the step at which it was requested.
    later: a stop at a step that is ahead of the restored one.
    restores: the number of times that the variables were set back.
    rollback: the steps before and after the last time.
    left: the tasks whose sessions have ended.
    has_chief: whether a chief has begun it.
    chief_left: whether the session of the chief has ended.
    """

    number: str
    members: dict[str, _Member] = field(default_factory=dict)
    stop: _Stop | None = None
    stop_step: int | None = None
    later: tuple[int, _Stop] | None = None
    restores: int = 0
    rollback: tuple[int, int] | None = None
    left: set[str] = field(default_factory=set)
    has_chief: bool = False
    chief_left: bool = False

    def expects(self, task: str) -> bool:
        """Return whether a worker that joins for the first time is a late one of this run."""
        return task not in self.left if task else bool(self.members) or not self.chief_left


class RunRecord:
    """The record of the run on one server. Each method is a request of a :class:`RemoteRun`."""

    def __init__(self) -> None:
        self.cluster: ClusterSpec | None = None
        """The cluster of the server: which tasks may take part. None: any."""
        self._run: _Run | None = None
        self._stopped: dict[str, _Stop] = {}
        self._directory = ""  # of the last chief that began or continued a run
        self._unfinished: str | None = None  # the directory of a run whose chief has not ended
        self._is_set = True  # no restore or initialisation is in progress
        self._changed = asyncio.Event()

    def begin(self, number: str | None, directory: str) -> dict[str, Any]:
        """Begin a run as its chief, or take part in the present one.

        Args:
            number: the chief's run before a recovery.
            directory: its checkpoint directory.

        Returns:
            ``run``, its number, and ``is_live``: whether the variables belong to a run of this
            directory that has not ended, because its chief was lost.

        Raises:
            FailedPreconditionError: another chief has begun a run since.
        """
        run, is_live = self._run, self._is_set and self._unfinished == directory
        self._directory = directory
        if number is not None and number in self._stopped:
            if run is not None and not run.has_chief:  # begun by a worker of the next job
                return {"run": number, "is_live": is_live}
            raise FailedPreconditionError(
                f"Run {number} of this chief has stopped ({self._stopped[number].get('text')}), and "
                "another chief has begun a run with the same servers. End one of the two programs."
            )
        if run is not None and run.number == number:
            run.has_chief = True
            return {"run": number, "is_live": is_live}
        if run is not None and not directory:
            # without checkpoints a chief alone starts from the beginning
            _others(run, "", clock.monotonic())
            is_live = is_live and any(not one.is_chief for one in run.members.values())
        if run is None or run.stop is not None or run.chief_left:
            run = self._new(number)
        run.has_chief = True
        return {"run": run.number, "is_live": is_live}

    def restore(self) -> dict[str, Any]:
        """Note that the chief begins to set the variables: until its end they do not fit together."""
        self._is_set = False
        return {}

    def ready(self) -> dict[str, Any]:
        """Return ``ready``: whether the chief is not about to set the variables."""
        return {"ready": self._is_set}

    def restored(self, number: str | None, before: int | None, after: int | None) -> dict[str, Any]:
        """Record that the variables were set, from one step to another, and notify all members."""
        run, self._is_set = self._run, True
        if run is None or run.number != number:
            return {}
        # from here on workers train, even if the chief is cut off before it joins
        self._unfinished = self._directory
        if after is None:
            return {}
        if before is not None and after < before:
            run.restores += 1
            run.rollback = before, after
        if run.stop is not None and run.stop_step is not None and after < run.stop_step:
            run.later, run.stop = (run.stop_step, run.stop), None
        self._changed.set()
        return {}

    def join(
        self, name: str, task: str, is_chief: bool, number: str | None, directory: str = ""
    ) -> dict[str, Any]:
        """Add a member.

        Returns:
            ``run``; ``stop``, that of the run, or None; ``restores``; ``may_leave``:
            whether the member's job is elastic.

        Raises:
            InvalidArgumentError: the task is not in the cluster, and its job is not elastic.
        """
        run, may_leave = self._run, {"may_leave": self._may_leave(task)}
        if number is not None and number in self._stopped:
            return {"run": number, "stop": self._stopped[number], "restores": 0, **may_leave}
        is_late = False
        if run is None:
            run = self._new(number)
        elif run.number != number and run.stop is not None:
            is_late = not is_chief and run.expects(task)
            run = run if is_late else self._new(None)
        if not is_late:
            run.members[name] = _Member(task, is_chief, clock.monotonic())
            run.left.discard(task)
            if is_chief:
                run.has_chief, run.chief_left, self._unfinished = True, False, directory
            self._changed.set()
        return {"run": run.number, "stop": run.stop, "restores": run.restores, **may_leave}

    def _may_leave(self, task: str) -> bool:
        try:
            spec, cluster = DeviceSpec.from_string(task), self.cluster
        except ValueError as error:
            raise InvalidArgumentError(f"{task!r} is no task: {error}") from None
        if cluster is None or spec.job not in cluster.jobs:
            return False
        if spec.job not in cluster.elastic and spec.task not in cluster.task_indices(spec.job):
            raise InvalidArgumentError(
                f"{task} joins a run, and the server has {cluster!r}. Add the task, or let tasks of "
                f"this job join at any time: ClusterSpec(..., elastic=[{spec.job!r}]) on the servers."
            )
        return spec.job in cluster.elastic

    async def watch(
        self,
        name: str,
        task: str,
        number: str | None,
        wait: float,
        restores: int,
        others: int | None,
        current: Step,
    ) -> dict[str, Any]:
        """Return the state of the run for a member, which is added if it is missing.

        Args:
            name: the member.
            task: its task.
            number: its run.
            wait: timeout in seconds.
            restores: the number of restores that it knows: another one ends the wait.
            others: wait while this number of others remains, instead of for a stop or a restore.
            current: returns the global step.

        Returns:
            ``stop``: that of the run, or None; ``restores`` and ``rollback``, the steps before and
            after the last one; ``others``: the names of the other members.
        """
        end = clock.monotonic() + wait
        while True:
            if number is not None and number in self._stopped:
                return {
                    "run": number, "stop": self._stopped[number], "restores": restores, "others": []
                }  # fmt: skip
            run = self._run or self._new(number)
            if run.later is not None and not _is_behind(current, run.later[0]):
                self._stop(run, run.later[1], run.later[0])
            now = clock.monotonic()
            member = run.members.setdefault(name, _Member(task, False, now))
            member.seen = now
            rest, until = _others(run, name, now)
            is_due = (
                len(rest) != others
                if others is not None
                else run.stop is not None or run.restores != restores
            )
            if is_due or now >= end:
                return {
                    "run": run.number, "stop": run.stop, "others": rest,
                    "restores": run.restores, "rollback": run.rollback,
                }  # fmt: skip
            self._changed.clear()
            member.waiting += 1
            try:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(min(end, until) - now):
                        await self._changed.wait()
            finally:
                member.waiting -= 1
                member.seen = clock.monotonic()

    def stop(self, number: str | None, stop: _Stop, step: int | None, current: Step) -> dict[str, Any]:
        """Stop a run.

        Args:
            number: the run.
            stop: which the members then get.
            step: the step that the member has reached. If the variables were set back to an earlier
                one since, the run stops when it is reached again.
            current: returns the global step.
        """
        run = self._run
        if run is not None and run.number == number and run.stop is None:
            if step is not None and _is_behind(current, step):
                run.later = step, stop
            else:
                self._stop(run, stop, step)
        return {}

    def leave(self, name: str) -> dict[str, Any]:
        """Note that a member ends: others do not wait for it. It is a member until it is closed."""
        if self._run is not None and name in self._run.members:
            self._run.members[name].leaves = True
            self._changed.set()
        return {}

    def closed(self, name: str) -> None:
        """Remove a member whose session is closed. The end of the chief ends the run."""
        run = self._run
        member = None if run is None else run.members.pop(name, None)
        if run is None or member is None:
            return
        if member.leaves:
            run.left.add(member.task)
            if member.is_chief:
                run.chief_left, self._unfinished = True, None
        self._changed.set()

    async def answer(self, current: Step, request: Mapping[str, Any]) -> dict[str, Any]:
        """Execute a request of a :class:`RemoteRun`.

        Args:
            current: returns the global step.
            request: the name of a method and its arguments.

        Raises:
            InvalidArgumentError: no such method, or other arguments.
        """
        number = request.get("number")
        if number is None or isinstance(number, str):
            match request:
                case {"method": "begin", "directory": str(directory)}:
                    return self.begin(number, directory)
                case {"method": "restore"}:
                    return self.restore()
                case {
                    "method": "restored",
                    "before": int() | None as before,
                    "after": int() | None as after,
                }:
                    return self.restored(number, before, after)
                case {
                    "method": "join", "name": str(name), "task": str(task), "is_chief": bool(is_chief),
                    "directory": str(directory),
                }:  # fmt: skip
                    return self.join(name, task, is_chief, number, directory)
                case {
                    "method": "watch", "name": str(name), "task": str(task), "restores": int(restores),
                    "wait": int() | float() as wait, "others": int() | None as others,
                }:  # fmt: skip
                    return await self.watch(name, task, number, wait, restores, others, current)
                case {"method": "stop", "stop": dict(stop), "step": int() | None as step}:
                    return self.stop(number, stop, step, current)
                case {"method": "ready"}:
                    return self.ready()
                case {"method": "leave", "name": str(name)}:
                    return self.leave(name)
        raise InvalidArgumentError(f"This is no request to the record of a run: {dict(request)!r}.")

    def _new(self, number: str | None) -> _Run:
        if self._run is not None and self._run.stop is not None:
            self._stopped[self._run.number] = self._run.stop
            while len(self._stopped) > _STOPPED:
                del self._stopped[next(iter(self._stopped))]
        self._run = _Run(number or clock.random_bytes(8).hex())
        self._changed.set()
        return self._run

    def _stop(self, run: _Run, stop: _Stop, step: int | None) -> None:
        run.stop, run.stop_step, run.later = stop, step, None
        self._changed.set()


def _others(run: _Run, name: str, now: float) -> tuple[list[str], float]:
    """Return the other members to wait for, and the time at which the next one of them is lost."""
    ends = {
        x: inf if one.waiting or one.leaves else one.seen + _LEASE_SECS
        for x, one in run.members.items()
    }
    for one, end in ends.items():
        if end <= now:
            del run.members[one]
    rest = [x for x, one in run.members.items() if x != name and not one.leaves]
    return rest, min([ends[one] for one in rest], default=inf)


def _is_behind(current: Step, step: int) -> bool:
    found = current()
    return found is not None and found < step


class RemoteRun:
    """The run of a cluster as one of its sessions sees it.

    See :class:`asyncmon.runtime.protocols.ClusterRun`.

    Args:
        ask: sends a request to the record, which may be in another process.
        wait_secs: the maximum wait of a request in seconds.
    """

    def __init__(self, ask: Callable[..., Awaitable[dict[str, Any]]], wait_secs: float) -> None:
        self._ask = ask
        self._wait_secs = wait_secs
        self.may_leave = False
        """Whether the job of this session is elastic, as the server says when it joins."""
        self._number: str | None = None
        self._directory = ""
        self._restores = 0

    def continue_from(self, before: RemoteRun) -> None:
        """Take part in the run of a session that this one replaces."""
        self._number, self._directory = before._number, before._directory

    async def begin(self, directory: str) -> bool:
        """Begin a run as its chief. Return whether the variables are live."""
        if self._number is None:
            self._directory = directory
        answer = await self._ask(method="begin", number=self._number, directory=self._directory)
        self._number = answer["run"]
        return bool(answer["is_live"])

    async def restore(self) -> None:
        """Note that the chief begins to set the variables."""
        await self._ask(method="restore")

    async def ready(self) -> bool:
        """Return whether the variables are not about to be set by the chief."""
        return bool((await self._ask(method="ready"))["ready"])

    async def restored(self, before: int | None, after: int | None) -> None:
        """Record that the variables were set, from one step to another."""
        await self._ask(method="restored", number=self._number, before=before, after=after)

    async def join(self, name: str, is_chief: bool) -> Stop | None:
        """Add a session. Return the stop of the run, or None."""
        answer = await self._ask(
            method="join", name=name, task="", is_chief=is_chief, number=self._number,
            directory=self._directory,
        )  # fmt: skip
        self._number, self._restores = answer["run"], answer["restores"]
        self.may_leave = answer["may_leave"]
        return _received(answer["stop"])

    async def watch(self, name: str, wait: float, others: int | None = None) -> dict[str, Any]:
        """Return ``stop``, ``others`` and ``rollback`` of a change, or after ``wait`` seconds."""
        answer = await self._ask(
            method="watch", name=name, task="", number=self._number, restores=self._restores,
            wait=min(wait, self._wait_secs), others=others,
        )  # fmt: skip
        if answer["restores"] == self._restores:
            answer["rollback"] = None
        answer["stop"] = _received(answer["stop"])
        self._number, self._restores = answer["run"], answer["restores"]
        return answer

    async def stop(self, stop: Stop, step: int | None = None) -> None:
        """Stop the run."""
        await self._ask(method="stop", number=self._number, stop=stop.to_wire(), step=step)

    async def leave(self, name: str) -> None:
        """Note that a session ends."""
        await self._ask(method="leave", name=name)


def _received(stop: Any) -> Stop | None:
    return None if stop is None else Stop.from_wire(stop)
