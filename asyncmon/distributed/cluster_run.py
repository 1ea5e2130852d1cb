"""The run of a cluster: its sessions, its stop and its last restore, recorded on one server.

The server with the global step has the record. A chief *begins* a run when it initialises or restores;
sessions join and leave it, and it ends once: by a stop, or with its chief. A session keeps the number
of its run over recoveries, so it learns at any later time that this run has stopped.

A chief that was killed does not end a run. The next chief with the same checkpoint directory then finds
the variables live, see :meth:`RunRecord.begin`.

Members are lost with the connection of their session, which a :class:`.SessionService` reports by
:meth:`RunRecord.disconnected`. The record has no timeouts of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from asyncmon.distributed.cluster_spec import ClusterSpec
from asyncmon.distributed.fingerprint import Fingerprint
from asyncmon.distributed.request_fields import RunRequest, converted
from asyncmon.errors import FailedPreconditionError, InvalidArgumentError
from asyncmon.graph import DeviceSpec
from asyncmon.system import clock

Step = Callable[[], int | None]
_Stop = dict[str, Any]  # as Stop.to_wire() makes it

_STOPPED = 1000  # the number of stopped runs whose reasons are kept for sessions that return late


@dataclass(slots=True)
class _Member:
    """Attributes:
    owner: the session of its last request.
    lost: whether the connection of that session has ended.
    leaves: whether it has ended, and only its session is still open.
    """

    task: str
    is_chief: bool
    owner: object
    leaves: bool = False
    lost: bool = False


@dataclass(frozen=True, slots=True)
class _Chief:
    """A chief that has begun a run and whose session is open.

    Attributes:
        owner: its session.
        name: its machine and process.
        directory: its checkpoint directory; "" for none.
    """

    owner: object
    name: str
    directory: str

    def __str__(self) -> str:
        return f"chief {self.name} with {_quoted(self.directory)}"


@dataclass(slots=True)
class _Run:
    """Attributes:
    stop: the stop in the form of the wire, and the step at which it was requested.
    later: a stop at a step that is ahead of the restored one.
    restores: the number of times that the variables were set back.
    rollback: the steps before and after the last time.
    left: the tasks whose sessions have ended.
    saved: the step of the last checkpoint, and when it was committed.
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
    saved: tuple[int, float] | None = None
    has_chief: bool = False
    chief_left: bool = False

    def expects(self, task: str) -> bool:
        """Return whether a worker that joins for the first time is a late one of this run."""
        return task not in self.left if task else bool(self.living()) or not self.chief_left

    def living(self) -> list[str]:
        """Return the names of the members whose clients are connected."""
        return [name for name, one in self.members.items() if not one.lost]


class RunRecord:
    """The record of the run on one server. Each method is a request of a :class:`.RemoteRun`."""

    def __init__(self) -> None:
        self.cluster: ClusterSpec | None = None
        """The cluster of the server: which tasks may take part. None: any."""
        self._run: _Run | None = None
        self._stopped: dict[str, _Stop] = {}
        self._chief: _Chief | None = None  # the living one
        self._lost_chief: _Chief | None = None  # the last one whose connection ended
        self._fingerprint: Fingerprint | None = None  # of the run, as its chief gives it
        self._unfinished: str | None = None  # the directory of a run whose chief has not ended
        self._is_set = True  # no restore or initialisation is in progress
        self._changed = asyncio.Event()

    def begin(self, number: str | None, chief: _Chief, fingerprint: Fingerprint) -> dict[str, Any]:
        """Begin a run as its chief, or take part in the present one.

        Args:
            number: the chief's run before a recovery.
            chief: the chief.
            fingerprint: its cluster and variables, which those of all members must equal.

        Returns:
            ``run``, its number, and ``is_live``: whether the variables belong to a run of this
            directory that has not ended, because its chief was lost. Or ``waits_for``: a chief of the
            same directory, or of a run that has stopped, whose session is still open.

        Raises:
            FailedPreconditionError: another chief has begun a run since, or trains, or the members of
                its run do; or their cluster or variables are others.
        """
        run, is_live = self._run, self._is_set and self._unfinished == chief.directory
        if number is not None and number in self._stopped:
            if run is not None and not run.has_chief:  # begun by a worker of the next job
                return {"run": number, "is_live": is_live}
            raise FailedPreconditionError(
                f"Run {number} of this chief has stopped ({self._stopped[number].get('text')}), and "
                "another chief has begun a run with the same servers. End one of the two programs."
            )
        if run is not None and run.number == number:
            run.has_chief, self._chief = True, chief
            return {"run": number, "is_live": is_live}
        if (waits_for := self._refuse(chief, fingerprint)) is not None:
            return {"waits_for": waits_for}
        if run is not None and not chief.directory:
            # without checkpoints a chief alone starts from the beginning
            is_live = is_live and any(not run.members[name].is_chief for name in run.living())
        if run is None or run.stop is not None or run.chief_left:
            run = self._new(number)
        run.has_chief, self._chief, self._fingerprint = True, chief, fingerprint
        return {"run": run.number, "is_live": is_live}

    def _refuse(self, chief: _Chief, fingerprint: Fingerprint) -> str | None:
        """Refuse a chief beside another one. Return the name of one that it must wait for."""
        other, run = self._chief, self._run
        if run is None:
            return None
        if other is not None and other.owner is not chief.owner:
            if run.stop is None and other.directory != chief.directory:
                raise FailedPreconditionError(
                    f"The {chief} cannot begin a run: the {other} trains with the same servers. End "
                    "one of the two programs, or give it servers of its own."
                )
            return str(other)
        if run.stop is None and (members := run.living()) and not run.chief_left:
            if self._unfinished not in (None, chief.directory):
                raise FailedPreconditionError(
                    f"The {chief} cannot begin a run: {', '.join(members)} train in the run of "
                    f"{_quoted(self._unfinished)}. Start its chief again, or end these workers."
                )
            self._check(f"chief {chief.name}", fingerprint)
        return None

    def _check(self, who: str, fingerprint: Fingerprint) -> None:
        """Refuse a member whose cluster or variables are not those of the run."""
        if self._fingerprint is None:
            return
        if differences := self._fingerprint.differences(fingerprint):
            raise FailedPreconditionError(
                f"The {who} cannot take part in the run, whose chief has another program or cluster: "
                f"{'; '.join(differences)}. Start all tasks with the same program and ClusterSpec."
            )

    def restore(self) -> dict[str, Any]:
        """Note that the chief begins to set the variables: until its end they do not fit together."""
        self._is_set = False
        return {}

    def ready(self, task: str, fingerprint: Fingerprint) -> dict[str, Any]:
        """Return ``ready``: whether the chief is not about to set the variables.

        Raises:
            InvalidArgumentError: as :meth:`join`, of the ``task``.
            FailedPreconditionError: likewise.
        """
        self._may_leave(task)
        if self._run is not None and self._run.stop is None and self._chief is not None:
            self._check("worker", fingerprint)
        return {"ready": self._is_set}

    def restored(self, number: str | None, before: int | None, after: int | None) -> dict[str, Any]:
        """Record that the variables were set, from one step to another, and notify all members."""
        run, self._is_set = self._run, True
        if run is None or run.number != number:
            return {}
        # from here on workers train, even if the chief is cut off before it joins
        if self._chief is not None:
            self._unfinished = self._chief.directory
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
        self,
        name: str,
        task: str,
        is_chief: bool,
        number: str | None,
        fingerprint: Fingerprint,
        owner: object,
    ) -> dict[str, Any]:
        """Add a member.

        Returns:
            ``run``; ``stop``, that of the run, or None; ``restores``; ``may_leave``:
            whether the member's job is elastic.

        Raises:
            InvalidArgumentError: the task is not in the cluster, and its job is not elastic.
            FailedPreconditionError: the cluster or the variables are not those of the run.
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
            if not is_chief:
                self._check(f"{name} ({task})" if task else name, fingerprint)
            run.members[name] = _Member(task, is_chief, owner)
            run.left.discard(task)
            if is_chief:
                run.has_chief, run.chief_left = True, False
                self._unfinished = self._chief.directory if self._chief is not None else ""
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
        owner: object,
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
            owner: the session.

        Returns:
            ``stop``: that of the run, or None; ``restores`` and ``rollback``, the steps before and
            after the last one; ``others``: the names of the other members; ``saved``: the step of the
            last checkpoint, and how many seconds ago it was committed, or None.
        """
        end = clock.monotonic() + wait
        while True:
            if number is not None and number in self._stopped:
                return {
                    "run": number, "stop": self._stopped[number], "restores": restores, "others": [],
                    "saved": None,
                }  # fmt: skip
            run = self._run or self._new(number)
            if run.later is not None and not _is_behind(current, run.later[0]):
                self._stop(run, run.later[1], run.later[0])
            member = run.members.setdefault(name, _Member(task, False, owner))
            member.owner, member.lost = owner, False
            rest = [x for x in run.living() if x != name and not run.members[x].leaves]
            is_due = (
                len(rest) != others
                if others is not None
                else run.stop is not None or run.restores != restores
            )
            now = clock.monotonic()
            if is_due or now >= end:
                return {
                    "run": run.number, "stop": run.stop, "others": rest,
                    "restores": run.restores, "rollback": run.rollback,
                    "saved": run.saved and (run.saved[0], now - run.saved[1]),
                }  # fmt: skip
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(end - now):
                    await self._changed.wait()

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

    def saved(self, number: str | None, step: int | None) -> dict[str, Any]:
        """Record that the chief has committed a checkpoint of a step."""
        if self._run is not None and self._run.number == number and step is not None:
            self._run.saved = step, clock.monotonic()
        return {}

    def leave(self, name: str) -> dict[str, Any]:
        """Note that a member ends: others do not wait for it. It is a member until it is closed."""
        if self._run is not None and name in self._run.members:
            self._run.members[name].leaves = True
            self._changed.set()
        return {}

    def disconnected(self, owner: object) -> None:
        """Note that the client of a session is gone. The next request of the session brings it back."""
        if self._chief is not None and self._chief.owner is owner:
            self._chief, self._lost_chief = None, self._chief
        for member in () if self._run is None else self._run.members.values():
            member.lost = member.lost or member.owner is owner
        self._changed.set()

    def _returned(self, owner: object) -> None:
        if self._chief is None and self._lost_chief is not None and self._lost_chief.owner is owner:
            self._chief = self._lost_chief

    def closed(self, owner: object) -> None:
        """Remove the members of a session that is closed. The end of the chief ends the run."""
        if self._chief is not None and self._chief.owner is owner:
            self._chief = None
        if self._lost_chief is not None and self._lost_chief.owner is owner:
            self._lost_chief = None
        run = self._run
        for name in [] if run is None else [x for x, one in run.members.items() if one.owner is owner]:
            assert run is not None, "it has the member"
            member = run.members.pop(name)
            if member.leaves:
                run.left.add(member.task)
                if member.is_chief:
                    run.chief_left, self._unfinished = True, None
        self._changed.set()

    async def answer(self, current: Step, request: Mapping[str, Any], owner: object) -> dict[str, Any]:
        """Execute a request of a :class:`.RemoteRun`.

        Args:
            current: returns the global step.
            request: the name of a method and its arguments.
            owner: the session that sends it.

        Raises:
            InvalidArgumentError: no such method, or other arguments.
        """
        self._returned(owner)
        asked = converted(request, RunRequest, "A request to the record of a run")
        number, name, fingerprint = asked.number, asked.name, asked.fingerprint
        match asked.method:
            case "begin":
                return self.begin(number, _Chief(owner, name, asked.directory), fingerprint)
            case "restore":
                return self.restore()
            case "restored":
                return self.restored(number, asked.before, asked.after)
            case "ready":
                return self.ready(asked.task, fingerprint)
            case "join":
                return self.join(name, asked.task, asked.is_chief, number, fingerprint, owner)
            case "watch":
                return await self.watch(
                    name, asked.task, number, asked.wait, asked.restores, asked.others, current, owner
                )
            case "stop":
                return self.stop(number, asked.stop, asked.step, current)
            case "saved":
                return self.saved(number, asked.step)
            case "leave":
                return self.leave(name)
        raise InvalidArgumentError(f"The record of a run has no method {asked.method!r}.")

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


def _is_behind(current: Step, step: int) -> bool:
    found = current()
    return found is not None and found < step


def _quoted(directory: str | None) -> str:
    return f"checkpoint directory {directory!r}" if directory else "no checkpoint directory"
