"""The two kinds of monitored session: one that recovers, one that does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, final

from asyncmon.runtime.creators import ChiefSessionCreator
from asyncmon.runtime.monitored import MonitoredBase
from asyncmon.runtime.phase import AsyncOnly
from asyncmon.runtime.recovery import Recovery

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable

    from asyncmon.runtime.creators import SessionCreator
    from asyncmon.runtime.scaffold import Scaffold

__all__ = ["MonitoredSession", "SingularMonitoredSession"]


@final
class MonitoredSession(MonitoredBase, AsyncOnly):
    """A session that initialises or restores, calls hooks, recovers, and ends in order. TF1: same name.

    Construction only checks; ``async with`` (or ``await start()`` … ``await close()``, from whichever
    tasks) opens and closes. The body ends the session successfully by its end, by ``break`` and by
    any end of data (``OutOfRangeError``, ``StopAsyncIteration``, ``StopIteration``), which does not
    leave it.

    Args:
        session_creator: makes the raw session, again after each preemption. Default: a
            ``ChiefSessionCreator``.
        hooks: copied and checked.
        stop_grace_period_secs: how long, from a stop on, tasks and runs have to end by themselves.
            Tasks are then cancelled. A run that is still under way, in a hook that hangs or a step that
            waits for a server that is gone, is interrupted: it raises ``DeadlineExceededError``, which
            says what it waited for; its step is done or not, never in part. A run from inside of which
            the stop was asked for takes the time it needs. ``math.inf``: so do all.
        recovery: which errors to recover from, how often, after what pause.
        signals: ``"auto"`` lets SIGINT and SIGTERM request a stop while the session is open, where
            nobody else handles them. A second signal does what it does by default.
        interrupt: whether an error beside the steps ends the run that is being awaited at once. If not,
            that run has the grace period to finish, and the next one raises the error.

    Example::

        async with MonitoredSession(hooks=[StopAtStepHook(last_step=1000)]) as sess:
            while not sess.should_stop():
                await sess.run(train_op)
        print(sess.stop_reason)
    """

    def __init__(
        self,
        session_creator: SessionCreator | None = None,
        hooks: Iterable[Any] | None = None,
        stop_grace_period_secs: float = 120,
        *,
        recovery: Recovery | None = None,
        signals: Literal["auto"] | None = None,
        interrupt: bool = True,
    ) -> None:
        creator = session_creator if session_creator is not None else ChiefSessionCreator()
        recovery = recovery or Recovery()
        super().__init__(creator, hooks, stop_grace_period_secs, recovery, signals, interrupt)


@final
class SingularMonitoredSession(MonitoredBase, AsyncOnly):
    """A monitored session that never recovers: preemption leaves like any error. TF1: same name.

    Always the chief. Restores from the directory where it has a checkpoint; adds no hooks.

    Args:
        hooks: copied and checked.
        scaffold: the pieces; made from the program where they are not given.
        master: where the session runs; "" is here.
        config: for the session.
        checkpoint_dir: whose newest valid checkpoint is restored.
        stop_grace_period_secs: how long tasks and runs have to end by themselves after a stop, see
            :class:`MonitoredSession`.
        checkpoint_filename_with_path: the one checkpoint to restore instead.
        program: what to run. Default: the scaffold's program, or the default graph.

    Example::

        async with SingularMonitoredSession(checkpoint_dir="runs") as sess:
            print(await sess.run(accuracy))
    """

    def __init__(
        self,
        hooks: Iterable[Any] | None = None,
        scaffold: Scaffold | None = None,
        master: str = "",
        config: Any = None,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        stop_grace_period_secs: float = 120,
        checkpoint_filename_with_path: str | os.PathLike[str] | None = None,
        *,
        program: Any = None,
    ) -> None:
        creator = ChiefSessionCreator(
            scaffold, master, config, checkpoint_dir, checkpoint_filename_with_path, program=program
        )
        super().__init__(creator, hooks, stop_grace_period_secs, Recovery(errors=()), signals=None)
