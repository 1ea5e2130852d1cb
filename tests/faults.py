"""Faults of a training: errors and pauses at named places, interruptions at chosen awaits and turns.

A test decides by :class:`Faults` which calls of hooks, listeners and sessions fail.
:class:`AtAwait` and :class:`CountingLoop` interrupt a coroutine at each moment in turn.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Generator, Iterable
from pathlib import Path
from typing import Any

from asyncmon.checkpoint import Saver, load_checkpoint, verify
from asyncmon.errors import AbortedError, UnavailableError
from asyncmon.hooks import CheckpointSaverHook, CheckpointSaverListener
from asyncmon.hooks.hook_support import created_session
from asyncmon.runtime import (
    ChiefSessionCreator,
    LooperTask,
    MonitoredSession,
    Scaffold,
    SessionRunArgs,
    SessionRunHook,
)
from asyncmon.testing import VirtualTimeLoop


class Faults:
    """Counts the calls of each place, and raises the errors of a test.

    Args:
        error_at: returns the error of a place in its n-th call, or None.
    """

    def __init__(
        self, error_at: Callable[[str, int], BaseException | None] = lambda _place, _call: None
    ) -> None:
        self.error_at = error_at
        self.calls: dict[str, int] = {}

    def reach(self, place: str) -> None:
        """Raise the error of this call, if it has one."""
        self.calls[place] = self.calls.get(place, 0) + 1
        error = self.error_at(place, self.calls[place])
        if error is not None:
            raise error


class RandomFaults(Faults):
    """Preemption errors at random in places of which a session recovers, each with its own rate."""

    def __init__(self, dice: random.Random) -> None:
        chances: dict[str, float] = dict.fromkeys(("begin", "end", "cleanup"), 0)

        def error_at(place: str, _call: int) -> BaseException | None:
            chance = chances.setdefault(place, dice.choice([0, 0.03, 0.1, 0.2]))
            kind = dice.choice([AbortedError, UnavailableError])
            return kind(f"injected in {place}") if dice.random() < chance else None

        super().__init__(error_at)


class FaultyHook(SessionRunHook):
    """A hook with all moments, a timer, a looper and a state. Each moment is a place of its faults.

    Args:
        faults: decides which calls fail.
        pause: returns the seconds that a moment takes.
        period: of the timer in seconds.
        count: a fetch that equals the step, which is checked.
        looper: whether it has one.
    """

    def __init__(
        self,
        faults: Faults,
        pause: Callable[[], float] = lambda: 0.01,
        period: float = 0.25,
        count: Any = None,
        looper: bool = False,
    ) -> None:
        self.faults, self.pause, self.period, self.looper = faults, pause, period, looper
        self.fetches = [] if count is None else [count]
        self.ticks = 0

    async def _reach(self, moment: str) -> None:
        await asyncio.sleep(self.pause())
        self.faults.reach(moment)

    async def begin(self) -> None:
        self.faults.reach("begin")
        await asyncio.sleep(0)

    async def after_create_session(self, session: Any, coord: Any) -> None:
        await self._reach("after_create_session")
        if self.looper:
            LooperTask.loop(coord, 0.3, self.faults.reach, ["looper"])

    async def before_run(self, run_context: Any) -> SessionRunArgs:
        await self._reach("before_run")
        return SessionRunArgs(self.fetches)

    async def after_run(self, run_context: Any, run_values: Any) -> None:
        check_counts(run_values.results, run_values.step)
        await self._reach("after_run")

    async def background(self, session: Any, coord: Any) -> None:
        self.faults.reach("background")
        async for _ in coord.every(self.period):
            self.faults.reach("tick")
            check_counts(*await created_session(coord).samples.request(self.fetches))
            self.ticks += 1
            self.faults.reach("sampled")

    async def end(self, session: Any) -> None:
        await self._reach("end")

    async def cleanup(self, error: BaseException | None) -> None:
        self.faults.reach("cleanup")
        await asyncio.sleep(self.pause())

    def state_dict(self) -> dict[str, Any]:
        return {"ticks": self.ticks}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.ticks = state["ticks"]


def check_counts(counts: Iterable[Any], step: int) -> None:
    """Check that the state is that before a step or after it."""
    assert all(float(count) in (step, step - 1) for count in counts), "a torn state"


class FaultyListener(CheckpointSaverListener):
    def __init__(self, faults: Faults) -> None:
        self.faults = faults

    async def before_save(self, session: Any, global_step: int) -> None:
        self.faults.reach("before_save")


class FaultyCreator:
    """Makes sessions, unless it fails; their runs, snapshots and closes may fail, too."""

    def __init__(
        self, creator: ChiefSessionCreator, faults: Faults, pause: Callable[[], float]
    ) -> None:
        self.creator, self.faults, self.pause = creator, faults, pause
        self.program, self.prepare = creator.program, creator.prepare

    async def create_session(self) -> Any:
        faults = self.faults
        faults.reach("creation")
        raw = await self.creator.create_session()
        run, snapshot, close = raw.run, raw.snapshot, raw.close

        async def faulty_run(*args: Any, **kwargs: Any) -> Any:
            faults.reach("run")
            result = await run(*args, **kwargs)
            await asyncio.sleep(self.pause())
            faults.reach("run, after its commit")
            return result

        def faulty_snapshot() -> Any:
            faults.reach("snapshot")
            return snapshot()

        async def faulty_close() -> None:
            await close()
            faults.reach("close")

        raw.run, raw.close = faulty_run, faulty_close  # type: ignore[method-assign]  # the fault
        raw.snapshot = raw.snapshot_to_write = faulty_snapshot  # type: ignore[method-assign]  # the fault
        faults.reach("restored")
        return raw


def training(
    world: Any,
    directory: Path,
    hooks: list[Any],
    *,
    saver: Saver | None = None,
    wrapped: Callable[[ChiefSessionCreator], Any] = lambda creator: creator,
    **saves: Any,
) -> MonitoredSession:
    """Return a session that is restored from a directory and saved there; ``saves`` are of its hook."""
    scaffold = Scaffold(saver=saver or Saver(max_to_keep=2), program=world.program)
    creator = ChiefSessionCreator(scaffold, checkpoint_dir=directory, program=world.program)
    saving = CheckpointSaverHook(directory, scaffold=scaffold, save_graph_def=False, **saves)
    return MonitoredSession(wrapped(creator), [*hooks, saving], 3)


async def check_checkpoints(directory: Path) -> int:
    """Check that all checkpoints are whole, each with a weight equal to its step; return the newest."""
    found = await verify(directory)
    assert found
    assert [one for one in found if one.problem is not None] == []
    steps = []
    for one in found:
        async with await load_checkpoint(one.path) as reader:
            steps.append(int(await reader.get_tensor("global_step")))
            assert reader.facts.step == steps[-1] == float(await reader.get_tensor("weight"))
    return steps[0]


class AtAwait:
    """Awaits a coroutine, and calls something while it is suspended for the n-th time.

    Attributes:
        reached: whether it was suspended so often.
    """

    def __init__(
        self, coro: Coroutine[Any, Any, Any], at: int, act: Callable[[], BaseException | None]
    ) -> None:
        self.coro, self.at, self.act = coro, at, act
        self.reached = False

    def __await__(self) -> Generator[Any, Any, Any]:
        """Throw the error that the call returns, if any, in the place of the result."""
        value: Any = None
        error: BaseException | None = None
        points = 0
        while True:
            try:
                waits_for = self.coro.send(value) if error is None else self.coro.throw(error)
            except StopIteration as stop:
                return stop.value
            finally:
                error = None  # its traceback has this frame
            points += 1
            if points == self.at:
                self.reached = True
                error = self.act()
                if error is not None:
                    continue
            try:
                value = yield waits_for
            except BaseException as thrown:
                error = thrown


class CountingLoop(VirtualTimeLoop):
    """Virtual time that calls something before its n-th turn."""

    turns = 0
    at = -1
    act: Callable[[], object]

    def _run_once(self) -> None:
        self.turns += 1
        if self.turns == self.at:
            self.act()
        super()._run_once()  # type: ignore[misc]  # private, so not in typeshed


class FailAfterCommit(SessionRunHook):
    """Fails once, after the commit of a step."""

    def __init__(self, step: int) -> None:
        self.step = step

    async def after_run(self, run_context: Any, run_values: Any) -> None:
        if run_context.session.global_step == self.step:
            self.step = -1
            raise AbortedError("preempted")
