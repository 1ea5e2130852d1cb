"""Jobs as their submitters see them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from typing import Any, NamedTuple, Protocol, Self

from asyncmon.jobs.store import Changes, Row
from asyncmon.jobs.table import FINAL, State, StateError


class Outcome(NamedTuple):
    """The end of a job."""

    name: str
    state: State
    """One of ``completed``, ``stopped``, ``cancelled`` and ``failed``."""
    step: int | None
    """The newest saved step; without checkpoints the last one. None: no session has counted."""
    metrics: dict[str, Any]
    """The newest value of each name that was reported or logged."""
    rungs: dict[int, dict[str, Any]]
    """The metrics at the rungs of a sweep that it has reached."""
    cause: str | None
    error: str | None


class Event(NamedTuple):
    """An event of a job."""

    id: int
    """Rises. ``job.events(after=id)`` begins after it."""
    created_at: float
    """Seconds since 1970."""
    type: str
    """``"state"``, or ``"metrics"``, of which the newest 1,000 are kept."""
    level: str
    """``"info"``, ``"warn"`` or ``"error"``."""
    message: str
    data: dict[str, Any]

    def as_json(self) -> dict[str, Any]:
        """Return the object of the HTTP API."""
        return {"object": "job.event", **self._asdict()}


class _Queue(Protocol):
    """The part of a queue that jobs use."""

    async def _read_row(self, key: str) -> Row: ...
    async def _request(self, job: str, what: str) -> Row: ...
    async def _resume(self, job: str, passed: int | None = None) -> Row: ...
    async def _read_events(self, job: str, after: int, limit: int) -> list[Event]: ...
    @property
    def _changes(self) -> Changes: ...


class Job:
    """A job of a queue, with the values of the last call. :meth:`refresh` reads it again.

    Methods raise ``KeyError`` for a job that was deleted, and ``RuntimeError`` for a queue that is not
    open. A cancelled caller leaves a request that is on its way in force.
    """

    def __init__(self, queue: Any, row: Row) -> None:
        self._queue: _Queue = queue
        self._row = row
        self.id: str = row["id"]
        self.name: str = row["name"]
        self.kind: str = row["kind"]
        self.params: Mapping[str, Any] = row["params"]

    def __repr__(self) -> str:
        return f"<Job {self.name!r}: {self.state}>"

    @property
    def state(self) -> State:
        """See :class:`State`."""
        return State(self._row["state"])

    @property
    def step(self) -> int | None:
        """The newest saved step, or None."""
        step: int | None = self._row["step"]
        return step

    @property
    def attempt(self) -> int:
        """The number of attempts so far."""
        attempt: int = self._row["attempt"]
        return attempt

    @property
    def owner(self) -> str | None:
        """The process that runs the job, as ``host:pid:number``; None while none does."""
        owner: str | None = self._row["owner"]
        return owner

    @property
    def number(self) -> int:
        """The place in the order of submission, for ``JobQueue.list(after=...)``."""
        number: int = self._row["seq"]
        return number

    @property
    def outcome(self) -> Outcome | None:
        """The end of the job; None before."""
        row = self._row
        if row["state"] not in FINAL:
            return None
        rungs = {int(rung): metrics for rung, metrics in row["judged"].items()}
        return Outcome(
            row["name"], State(row["state"]), row["step"], row["metrics"], rungs, row["cause"],
            row["error"],
        )  # fmt: skip

    def as_json(self) -> dict[str, Any]:
        """Return the object of the HTTP API."""
        names = ("id", "name", "kind", "state", "request", "priority", "attempt", "step", "params",
                 "metrics", "cause", "error", "owner", "submitted", "started", "ended")  # fmt: skip
        return {"object": "job", **{name: self._row[name] for name in names}}

    async def refresh(self) -> Self:
        """Read the job again, and return it."""
        self._row = await self._queue._read_row(self.id)
        return self

    async def cancel(self) -> Self:
        """Request the cancellation. A waiting job is cancelled at once.

        A running one saves and ends within the grace period of its queue; the code of its kind after
        the session does not run. It may complete before that: the state says what has happened.

        Raises:
            StateError: the job has ended.
        """
        self._row = await self._queue._request(self.id, "cancel")
        return self

    async def pause(self) -> Self:
        """Request a pause: the job saves and ends as for :meth:`cancel`, and can be resumed.

        Raises:
            StateError: the job has ended.
        """
        self._row = await self._queue._request(self.id, "pause")
        return self

    async def resume(self) -> Self:
        """Queue a paused job again. It continues from its last checkpoint.

        Raises:
            StateError: the job is not paused, or not yet.
        """
        self._row = await self._queue._resume(self.id)
        return self

    async def wait(self, *states: str) -> Self:
        """Wait for the end of the job, or for one of some states, and return it.

        Raises:
            StateError: the job has ended in another state than those given.
            RuntimeError: the queue was closed during this call.
        """
        while True:
            changes = self._queue._changes
            count = changes.count
            await self.refresh()
            if self.state in (states or FINAL):
                return self
            if self.state in FINAL:
                raise StateError(f"The job {self.name!r} is {self.state} and waits for no other state.")
            if not await changes.wait(count):
                raise RuntimeError(f"The queue was closed, and the job {self.name!r} is {self.state}.")

    async def events(
        self, after: int = 0, *, ends: Callable[[], bool] = lambda: False
    ) -> AsyncGenerator[Event]:
        """Yield the events after one, then each new one, until the job ends or the queue is closed.

        Args:
            after: the ``id`` of an event; 0 for all that are kept.
            ends: checked between two events; True ends the iteration.
        """
        began = False
        while not ends():
            changes = self._queue._changes
            count = changes.count
            try:
                await self.refresh()  # first: the last event is in the transaction of the end
                found = await self._queue._read_events(self.id, after, 500)
            except RuntimeError:
                if began:
                    return  # the queue was closed
                raise
            began = True
            for event in found:
                yield event
                after = event.id
            if not found and (self.state in FINAL or not await changes.wait(count)):
                return
