"""A raw session that does what a script says, for tests of hooks and of whatever drives sessions."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from typing import Any, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from asyncmon.errors import InvalidArgumentError, OutOfRangeError
from asyncmon.programs.function_session import map_leaves
from asyncmon.programs.named_program import NamedProgram
from asyncmon.programs.state_tree import misfit
from asyncmon.system.snapshot import Snapshot

GLOBAL_STEP = "global_step"
_INIT = "scripted initialisation"


class ScriptedSession:
    """A session without an engine: each run takes the next outcome of a script.

    An outcome is one of

    * an exception, which the run raises: no step is done,
    * a mapping, which gives the values of the fetches it names,
    * a callable without arguments (or a coroutine function), which is called (awaited) and gives one
      of the others: for a run that takes time, blocks, or has side effects,
    * ``None``: a step like any other,
    * anything else: the value of each fetch that nothing below knows.

    A fetch that the outcome does not name is looked up in ``values`` and then in ``state``; what is
    not found there is None, like an operation's result. A run that returns counts one global step, or
    sets it where the outcome names ``"global_step"``. After the last outcome, runs raise
    :class:`~asyncmon.errors.OutOfRangeError`, the end of the data.

    Args:
        script: the outcomes in order; None for steps without end.
        values: what other fetches give, by name; a callable is asked each time.
        state: the saveable state, names to arrays. ``"global_step"`` is added to it (0).
        steps_per_run: how many global steps a run counts.

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
        """The fetches of each run, in order, also of those that raised."""
        self.feeds: list[dict[Any, Any]] = []
        """The feeds of each run, in order."""
        self.closed = False

    @property
    def graph(self) -> ScriptedProgram:
        """The program of this session. The sessions it creates have this one's values and state."""
        return ScriptedProgram(self)

    @property
    def global_step(self) -> int:
        """The number of steps done."""
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
        """Look fetches up in ``values`` and ``state``; the script stays where it is."""
        self._check_open()
        return map_leaves(fetches, lambda fetch: self._value(fetch, {}, None))

    def snapshot(self) -> Awaitable[Snapshot]:
        """Return the state at this moment; the await gives it."""
        self._check_open()
        taken = Snapshot({name: value.copy() for name, value in self.state.items()}, self.global_step)

        async def give() -> Snapshot:
            return taken

        return give()

    async def load(self, values: Mapping[str, ArrayLike]) -> None:
        """Set entries of the state; all problems are found before anything is changed.

        Raises:
            InvalidArgumentError: something does not fit; the error lists everything that does not.
        """
        self._check_open()
        problems = [
            f"{name!r} is not an entry of the state, which has {list(self.state)}"
            if name not in self.state
            else misfit(name, value, self.state[name])
            for name, value in values.items()
        ]
        if any(problems):
            raise InvalidArgumentError(f"Nothing was loaded: {'; '.join(filter(None, problems))}.")
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
    """The program of scripted sessions: counts global steps, has nothing to initialise.

    Args:
        template: sessions created here have its values, and a copy of its state at that moment.

    Example::

        creator = ChiefSessionCreator(program=ScriptedProgram(), checkpoint_dir="runs")
    """

    def __init__(self, template: ScriptedSession | None = None) -> None:
        super().__init__()
        self._template = template

    def create_session(self, target: str = "", config: Any = None) -> ScriptedSession:
        """Return a session whose steps never end."""
        template = self._template
        if template is None:
            return ScriptedSession()
        return ScriptedSession(
            values=template.values, state=template.state, steps_per_run=template.steps_per_run
        )

    def init_op(self) -> str:
        """Return a fetch that does nothing and is no part of the script."""
        return _INIT

    def canonical_feed(self, key: Any) -> Any:
        """Return the key: everything has one name."""
        return key


class ScriptedCreator:
    """A session creator that hands out sessions in order; an exception among them is raised.

    Each session handed out after the first takes over nothing from the one before: put the state it
    is to be "restored" with into its ``state``.

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
        """What hooks' ``begin`` sees as the current program."""
        self.created = 0
        """How many sessions were handed out."""

    async def create_session(self) -> ScriptedSession:
        """Return the next session.

        Raises:
            RuntimeError: there is no further session.
        """
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
