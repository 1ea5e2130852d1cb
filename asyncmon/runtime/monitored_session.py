"""Monitored sessions: one that recovers, and one that does not."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, Literal, final

from asyncmon.runtime.base_session import _MonitoredSession
from asyncmon.runtime.parts import session_parts
from asyncmon.runtime.recovery import Recovery
from asyncmon.runtime.scaffold import Scaffold
from asyncmon.runtime.session_creators import ChiefSessionCreator, SessionCreator


@final
class MonitoredSession(_MonitoredSession):
    """A session that initialises or restores, calls hooks, recovers, and ends in order. TF1: same name.

    Construction only checks; ``async with`` (or ``await start()`` … ``await close()``, in any tasks)
    opens and closes. The session ends successfully when the body ends, also by ``break`` and by an end
    of data (``OutOfRangeError``, ``StopAsyncIteration``, ``StopIteration``), which is not raised.

    Args:
        session_creator: makes the raw session, again after each preemption. Default: a
            ``ChiefSessionCreator``.
        hooks: copied and checked.
        stop_grace_period_secs: the grace period of tasks and runs after a stop. Tasks are then
            cancelled. A run in a hook that hangs, or in a step that waits for a lost server, is
            interrupted: it raises ``DeadlineExceededError``, which says where it waits; its step is
            done or not. A run that requested the stop itself has no limit. ``math.inf``: no run has.
        recovery: the errors to recover from, the number of attempts and the pauses.
        signals: ``"auto"`` lets SIGINT and SIGTERM request a stop while the session is open, where they
            have their default handlers. One grace period from the signal on then covers everything: the
            run, interrupted in time for the rest, after which the session ends in order; hooks' ``end``
            and the last save; tasks and ``cleanup``. Waits for data, evaluations and an opening end at
            once. A second signal has its default action; nothing more is saved. A session
            of a job (``am.jobs``) acts on no signal: its queue does.
        interrupt: whether an error of a background task interrupts the current run at once. If not, the
            run has the grace period, and the next one raises the error.
        step_timeout_secs: a run that takes longer is interrupted, and raises
            :class:`~asyncmon.errors.StepTimeoutError`, from which the session recovers. None: a run
            that hangs is only named in the log.
        name: see :attr:`name`. Default: the last part of the directory of its checkpoints or event
            files, or ``session N``. If another open session has it, ``-2`` is appended, and so on.

    Example::

        async with MonitoredSession(hooks=[StopAtStepHook(last_step=1000)]) as sess:
            while not sess.should_stop():
                await sess.run(train_op)
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
        step_timeout_secs: float | None = None,
        name: str | None = None,
    ) -> None:
        creator = session_creator if session_creator is not None else ChiefSessionCreator()
        grace, secs = stop_grace_period_secs, step_timeout_secs
        super().__init__(session_parts(creator, hooks, grace, recovery, signals, interrupt, secs, name))


@final
class SingularMonitoredSession(_MonitoredSession):
    """A monitored session that never recovers: a preemption is raised like any error. TF1: same name.

    It is always the chief, and adds no hooks.

    Args:
        hooks, stop_grace_period_secs: see :class:`MonitoredSession`.
        others: see :class:`ChiefSessionCreator`.

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
        super().__init__(
            session_parts(creator, hooks, stop_grace_period_secs, Recovery(errors=()), None, True)
        )
