"""A raw session that follows a script, for tests of hooks and of session creators."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from asyncmon.errors import InvalidArgumentError, OutOfRangeError
from asyncmon.programs.named_fetches import GLOBAL_STEP, map_leaves
from asyncmon.programs.named_program import NamedProgram
from asyncmon.programs.state_tree import misfits
from asyncmon.runtime import SessionCreator
from asyncmon.system.snapshot import Snapshot

_INIT = "scripted initialisation"


class ScriptedSession:
    """A session without an engine: each run takes the next outcome of a script.

    An outcome is one of

    * an exception, which the run raises: the global step stays,
    * a mapping from fetches to values,
    * a callable without arguments (or a coroutine function), which is called (awaited) and returns one
      of the others: for a run that takes time, blocks, or has side effects,
    * ``None``: an ordinary step,
    * anything else: the value of each fetch that is not found below.

    A fetch that is not in the outcome is looked up in ``values`` and then in ``state``; if it is in
    neither, the result is None, as for an operation. A run that returns adds one global step, or sets
    it if the outcome has ``"global_step"``. After the last outcome, runs raise
    :class:`~asyncmon.errors.OutOfRangeError`, the end of the data.

    Args:
        script: the outcomes in order; None for an endless sequence of steps.
        values: results of other fetches, by name; a callable is called each time.
        state: the saveable state, names to arrays. ``"global_step"`` is added to it (0).
        steps_per_run: the number of global steps that a run adds.

    Example::

        session = ScriptedSession([0.5, AbortedError("gone"), {"loss": float("nan")}])
        assert await session.run("loss") == 0.5
        assert session.global_step == 1
    """

    def __init__(
        self,
        script: Iterable[Any] | None = None,
        *,
        values: Mapping[Any, Any] | None = None,
        state: Mapping[str, ArrayLike] | None = None,
        steps_per_run: int = 1,
    ) -> None:
        self._script: Iterator[Any] = iter(itertools.repeat(None) if script is None else script)
        self.values = dict(values or {})
        self.state: dict[str, NDArray[Any]] = {GLOBAL_STEP: np.asarray(0, np.int64)}
        self.state |= {name: np.asarray(value) for name, value in (state or {}).items()}
        self.steps_per_run = steps_per_run
        self.runs: list[Any] = []
        """The fetches of each run, in order, including runs that raised."""
        self.feeds: list[dict[Any, Any]] = []
        """The feeds of each run, in order."""
        self.closed = False

    @property
    def graph(self) -> ScriptedProgram:
        """The program of this session. Its sessions have these values and a copy of this state."""
        return ScriptedProgram(self)

    @property
    def global_step(self) -> int:
        """The number of completed steps."""
        return int(self.state[GLOBAL_STEP])

    async def run(
        self,
        fetches: Any,
        feed_dict: Mapping[Any, Any] | None = None,
        options: Any = None,
        run_metadata: Any = None,
    ) -> Any:
        """Take the next outcome of the script.

        Raises:
            OutOfRangeError: the script is at its end.
            RuntimeError: the session is closed.
        """
        self._check_open()
        if fetches == _INIT:
            return None
        self.runs.append(fetches)
        self.feeds.append(dict(feed_dict or {}))
        try:
            outcome = next(self._script)
        except StopIteration:
            raise OutOfRangeError("The script of this ScriptedSession is at its end.") from None
        outcome = await _settled(outcome)
        named = outcome if isinstance(outcome, Mapping) else {}
        step = named.get(GLOBAL_STEP, self.global_step + self.steps_per_run)
        self.state[GLOBAL_STEP] = np.asarray(step, np.int64)
        other = None if isinstance(outcome, Mapping) else outcome
        return map_leaves(fetches, lambda fetch: self._value(fetch, named, other))

    async def peek(self, fetches: Any, feed_dict: Mapping[Any, Any] | None = None) -> Any:
        """Look fetches up in ``values`` and ``state``. The script does not advance."""
        self._check_open()
        return map_leaves(fetches, lambda fetch: self._value(fetch, {}, None))

    def snapshot(self) -> Awaitable[Snapshot]:
        """Take a snapshot of the current state. The returned awaitable completes with it."""
        self._check_open()
        taken = Snapshot({name: value.copy() for name, value in self.state.items()}, self.global_step)

        async def give() -> Snapshot:
            return taken

        return give()

    async def load(self, values: Mapping[str, ArrayLike]) -> None:
        """Set entries of the state, all of them or none.

        Raises:
            InvalidArgumentError: names, shapes or dtypes do not match; the error lists all of them.
        """
        self._check_open()
        if problems := misfits(values, self.state):
            raise InvalidArgumentError(f"Nothing was loaded: {'; '.join(problems)}.")
        self.state |= {n: np.array(value, self.state[n].dtype) for n, value in values.items()}

    async def close(self) -> None:
        """Close the session. A second call does nothing."""
        self.closed = True

    def _check_open(self) -> None:
        if self.closed:
            raise RuntimeError("Attempted to use a closed Session.")

    def _value(self, fetch: Any, named: Mapping[Any, Any], other: Any) -> Any:
        for known in (named, self.values, self.state):
            if fetch in known:
                value = known[fetch]
                return value() if callable(value) else value
        return other


class ScriptedProgram(NamedProgram):
    """The program of scripted sessions. It has a global step and nothing to initialise.

    Args:
        template: created sessions have its values and a copy of its current state.

    Example::

        creator = ChiefSessionCreator(program=ScriptedProgram(), checkpoint_dir="runs")
    """

    def __init__(self, template: ScriptedSession | None = None) -> None:
        super().__init__()
        self._template = template

    def create_session(self, target: str = "", config: Any = None) -> ScriptedSession:
        """Return a session with an endless sequence of steps."""
        template = self._template
        if template is None:
            return ScriptedSession()
        return ScriptedSession(
            values=template.values, state=template.state, steps_per_run=template.steps_per_run
        )

    def init_op(self) -> str:
        """Return a fetch that does nothing and takes no outcome of the script."""
        return _INIT

    def canonical_feed(self, key: Any) -> Any:
        """Return the key itself: there are no aliases."""
        return key


class ScriptedCreator(SessionCreator):
    """A session creator that returns given sessions in order, and raises given exceptions.

    No state passes from one session to the next: to imitate a restore, set ``state`` of the session.

    Example::

        creator = ScriptedCreator(
            ScriptedSession([1.0, AbortedError("preempted")]),
            UnavailableError("not yet"),
            ScriptedSession([1.0, 1.0]),
        )
    """

    def __init__(self, *sessions: ScriptedSession | Exception) -> None:
        for one in sessions:
            if not isinstance(cast("object", one), ScriptedSession | Exception):
                raise TypeError(f"A ScriptedCreator takes sessions and exceptions, got {one!r}.")
        self._sessions = iter(sessions)
        self.program = ScriptedProgram()
        """The current program in ``begin`` of hooks."""
        self.created = 0
        """The number of sessions that were returned."""

    async def create_session(self) -> ScriptedSession:
        """Return the next session. RuntimeError if there is no further session."""
        session = next(self._sessions, None)
        if session is None:
            raise RuntimeError(f"This ScriptedCreator has no session left after {self.created}.")
        if isinstance(session, Exception):
            raise session
        self.created += 1
        return session


async def _settled(outcome: Any) -> Any:
    while callable(outcome) and not isinstance(outcome, type):
        outcome = outcome()
        if inspect.isawaitable(outcome):
            outcome = await outcome
    if isinstance(outcome, BaseException) or (
        isinstance(outcome, type) and issubclass(outcome, BaseException)
    ):
        raise outcome
    return outcome
