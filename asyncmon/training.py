"""The usual monitored session: scaffold, session creator and the default hooks."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable
from enum import Enum
from numbers import Real
from typing import Any, Final, Literal, cast

from asyncmon.checkpoint import Saver
from asyncmon.hooks import (
    CheckpointSaverHook,
    ClusterHook,
    LoggersHook,
    StepCounterHook,
    SummarySaverHook,
    TensorBoardLogger,
)
from asyncmon.hooks.hook_support import whole_number
from asyncmon.hooks.loggers import check_loggers
from asyncmon.runtime import (
    ChiefSessionCreator,
    MonitoredSession,
    Recovery,
    Scaffold,
    SessionRunHook,
    WorkerSessionCreator,
)
from asyncmon.runtime.hook_check import check_hooks
from asyncmon.runtime.protocols import ProgramMembers
from asyncmon.summary import Logger
from asyncmon.system.members import members_of
from asyncmon.system.urls import local_events

logger = logging.getLogger(__name__)


class _Default(Enum):
    USE_DEFAULT = "the default"

    def __repr__(self) -> str:
        return "USE_DEFAULT"


USE_DEFAULT: Final = _Default.USE_DEFAULT
"""Marks a missing argument, so that None can mean "not by this"."""


def MonitoredTrainingSession(
    master: str = "",
    is_chief: bool = True,
    checkpoint_dir: str | os.PathLike[str] | None = None,
    scaffold: Scaffold | None = None,
    hooks: Iterable[SessionRunHook] | None = None,
    chief_only_hooks: Iterable[SessionRunHook] | None = None,
    save_checkpoint_secs: float | _Default | None = USE_DEFAULT,
    save_summaries_steps: int | _Default | None = USE_DEFAULT,
    save_summaries_secs: float | _Default | None = USE_DEFAULT,
    config: Any = None,
    stop_grace_period_secs: float = 120,
    log_step_count_steps: int | None = 100,
    max_wait_secs: float = 7200,
    save_checkpoint_steps: int | _Default | None = USE_DEFAULT,
    summary_dir: str | os.PathLike[str] | None = None,
    save_graph_def: bool = True,
    *,
    program: Any = None,
    signals: Literal["auto"] | None = "auto",
    step_timeout_secs: float | None = None,
    recovery: Recovery | None = None,
    interrupt: bool = True,
    saver: Saver | None = None,
    save_on_cancel: bool = False,
    on_save_error: Literal["raise", "log"] = "raise",
    resume: str | os.PathLike[str] = "auto",
    keep_live_variables: bool = True,
    loggers: Iterable[Logger] = (),
    name: str | None = None,
) -> MonitoredSession:
    """Return a session that restores, saves, counts and summarises. TF1: ``MonitoredTrainingSession``.

    The chief with a ``checkpoint_dir`` restores its newest checkpoint, saves one every 600 seconds, at
    the start and at the end, and writes summaries and the rate of steps every 100 steps. A worker waits
    for the chief, writes nothing, and ignores ``chief_only_hooks`` and ``loggers``.

    For intervals in steps and in seconds: a positive number disables the other one; None keeps the
    default of the other one; 0 or less disables both, as in TF1.

    Args:
        master: the target of the session; "" is this process.
        is_chief: whether this process initialises, restores and writes. Of the ranks of a
            ``TorchProgram`` only the first one does.
        checkpoint_dir: for checkpoints, and for summaries without a ``summary_dir``; created if
            missing. Event files of one in an object store, ``s3://bucket/run``, are in the local
            directory ``runs/bucket/run``. None: no checkpoints are written or restored.
        scaffold: its saver and summaries are used. Default: one of the program.
        hooks: called after guards and before savers, by their ``priority``.
        chief_only_hooks: more hooks, for the chief only.
        save_checkpoint_secs: the interval of checkpoints in seconds. Default: 600.
        save_summaries_steps: the interval of summaries in steps. Default: 100.
        save_summaries_secs: the interval of summaries in seconds.
        config: for the raw session.
        stop_grace_period_secs: the grace period of tasks and runs after a stop, before they are
            cancelled and interrupted; see :class:`MonitoredSession`.
        log_step_count_steps: the interval of measurements of the rate of steps, each a line in the log
            and a point of ``global_step/sec``; None, 0 or less for none. About ten seconds are a good
            interval: 50_000 for 5,000 steps a second. To measure by time, disable this and add
            ``StepCounterHook(every_n_secs=10)``.
        max_wait_secs: the longest time that a worker waits for the chief.
        save_checkpoint_steps: the interval of checkpoints in steps.
        summary_dir: for event files. Default: the ``checkpoint_dir``.
        save_graph_def: whether to write the graph into the event file and the checkpoints' directory.
        program: a ``Graph`` or another program. Default: the scaffold's, or the default graph.
        signals: ``"auto"`` lets SIGINT and SIGTERM request a stop, after which
            ``stop_grace_period_secs`` covers everything; see :class:`MonitoredSession`. None: not.
        step_timeout_secs: the longest time of a run, see :class:`MonitoredSession`.
        recovery: the errors to recover from, the number of attempts and the pauses. With a ``master``
            the default pauses are at most 2 s, so that a restarted server is soon used.
        interrupt: whether an error of a background task interrupts a run at once, see
            :class:`MonitoredSession`.
        saver: restores and saves, such as ``Saver(max_to_keep=20)``. Short for a scaffold with it.
        save_on_cancel: whether a cancellation saves a last checkpoint, see
            :class:`CheckpointSaverHook`.
        on_save_error: ``"log"`` survives a save that fails for its disk or store, such as a full one or
            one whose token has expired: the next save tries again, and the last one decides. See
            :class:`CheckpointSaverHook`.
        resume: ``"auto"`` starts with the newest checkpoint of the directory, ``"never"`` without one,
            and a path (``runs/1/model.ckpt-500``) with that one, even if the directory has newer ones,
            which ``max_to_keep`` deletes in time. Under a scheduler that restarts programs, only
            ``"auto"`` continues.
        keep_live_variables: whether a chief that is started again in a cluster keeps the variables on
            the servers if they are newer than the checkpoint; False restores it, as TF1 does.
        loggers: write the values of ``sess.log`` and the summaries of hooks, besides the event file in
            ``summary_dir``; see :class:`LoggersHook`.
        name: of the run, in log lines, its record, the monitor and trackers. Default: the last part of
            the ``checkpoint_dir``; see :class:`MonitoredSession`.

    Raises:
        ValueError: both seconds and steps are given, for checkpoints or for summaries; a wait is
            negative; both a saver and a scaffold; or ``save_on_cancel`` or
            ``on_save_error`` without checkpoints.
        TypeError: an argument is not a target, a number, a whole number of steps, a path or a scaffold.

    Example::

        hooks = [StopAtStepHook(last_step=1000)]
        async with MonitoredTrainingSession(checkpoint_dir="runs/1", hooks=hooks) as sess:
            while not sess.should_stop():
                await sess.run(train_op)
    """
    if not isinstance(cast("object", master), str):
        raise TypeError(
            f"master must be the target of a server, got {master!r}. Give a directory by its name: "
            "checkpoint_dir=..."
        )
    for argument, path in (("checkpoint_dir", checkpoint_dir), ("summary_dir", summary_dir)):
        if not isinstance(cast("object", path), str | os.PathLike | None):
            raise TypeError(f"{argument} must be a path or None, got {path!r}.")
    _check_numbers(
        log_step_count_steps=log_step_count_steps,
        max_wait_secs=max_wait_secs,
        stop_grace_period_secs=stop_grace_period_secs,
        save_checkpoint_steps=save_checkpoint_steps,
        save_checkpoint_secs=save_checkpoint_secs,
        save_summaries_steps=save_summaries_steps,
        save_summaries_secs=save_summaries_secs,
    )
    if not isinstance(cast("object", scaffold), Scaffold | None):
        raise TypeError(f"scaffold must be a Scaffold or None, got {scaffold!r}.")
    hooks, chief_only_hooks = check_hooks(hooks), check_hooks(chief_only_hooks)
    if not isinstance(cast("object", saver), Saver | None):
        raise TypeError(f"saver must be a Saver or None, got {saver!r}.")
    if saver is not None:
        if scaffold is not None:
            raise ValueError("You cannot provide both saver and scaffold: give the scaffold the saver.")
        scaffold = Scaffold(saver=saver, program=program)
    save_steps, save_secs = (
        _cadence(
            "save_checkpoint",
            save_checkpoint_steps,
            save_checkpoint_secs,
            (None, 600),
            is_used=is_chief,
        )
        if checkpoint_dir
        else (None, None)
    )
    if master:
        intervals: Any = {"save_secs": save_secs, "save_steps": save_steps}
        hooks = [*hooks, ClusterHook(is_chief, stop_grace_period_secs, **intervals)]
        recovery = recovery or Recovery(max_delay_secs=2.0)
    members = members_of(ProgramMembers, program)
    is_chief = is_chief and bool(members.is_chief)
    hooks = [*hooks, *(members.session_hooks() if members.session_hooks is not None else ())]
    policies: Any = {
        "recovery": recovery, "signals": signals, "interrupt": interrupt,
        "step_timeout_secs": step_timeout_secs, "name": name,
    }  # fmt: skip
    if not is_chief:
        hooks.append(LoggersHook(()))  # what the chief logs, too
        creator = WorkerSessionCreator(scaffold, master, config, max_wait_secs, program=program)
        return MonitoredSession(creator, hooks, stop_grace_period_secs, **policies)
    scaffold = scaffold if scaffold is not None else Scaffold(program=program)
    events = summary_dir or checkpoint_dir
    summary_dir = local_events(events) if events else None
    chief_hooks: list[SessionRunHook] = list(chief_only_hooks)
    loggers = check_loggers(loggers)
    is_written = any(isinstance(one, TensorBoardLogger) for one in loggers)
    if summary_dir and not is_written:
        loggers.insert(0, TensorBoardLogger(summary_dir))
    if loggers:
        chief_hooks.append(LoggersHook(loggers))
    if summary_dir:
        if log_step_count_steps is not None and log_step_count_steps > 0:
            chief_hooks.append(StepCounterHook(log_step_count_steps, output_dir=summary_dir))
        steps, secs = _cadence("save_summaries", save_summaries_steps, save_summaries_secs, (100, None))
        if steps or secs:
            chief_hooks.append(SummarySaverHook(steps, secs, output_dir=summary_dir, scaffold=scaffold))
    saves: CheckpointSaverHook | None = None
    if checkpoint_dir and (save_steps or save_secs):
        saves = CheckpointSaverHook(
            checkpoint_dir, save_secs, save_steps,
            scaffold=scaffold, save_graph_def=save_graph_def, save_on_cancel=save_on_cancel,
            on_save_error=on_save_error,
        )  # fmt: skip
        chief_hooks.append(saves)
    for name, given in (("save_on_cancel", save_on_cancel), ("on_save_error", on_save_error)):
        if given in (False, "raise") or saves is not None:
            continue
        raise ValueError(
            f"{name}={given!r} needs a checkpoint_dir, and save_checkpoint_secs or"
            " save_checkpoint_steps: no checkpoints are saved without."
        )
    return MonitoredSession(
        ChiefSessionCreator(
            scaffold,
            master,
            config,
            checkpoint_dir,
            program=program,
            resume=resume,
            keep_live_variables=keep_live_variables,
        ),
        [*chief_hooks, *hooks],
        stop_grace_period_secs,
        **policies,
    )


def _cadence(
    name: str,
    steps: Any,
    secs: Any,
    default: tuple[int | None, float | None],
    *,
    is_used: bool = True,
) -> tuple[Any, Any]:
    """Return the interval in steps and in seconds: one of them is None, or both if disabled.

    Raises:
        ValueError: both are given, and ``is_used``.
    """
    given = [value for value in (steps, secs) if value is not USE_DEFAULT and value is not None]
    if not given:
        return (
            default[0] if steps is USE_DEFAULT else None,
            default[1] if secs is USE_DEFAULT else None,
        )
    by_steps = steps if steps is not USE_DEFAULT and steps and steps > 0 else None
    by_secs = secs if secs is not USE_DEFAULT and secs and secs > 0 else None
    if by_steps and by_secs and is_used:
        raise ValueError(
            f"Can not provide both every_secs and every_steps: got {name}_secs={secs!r} and "
            f"{name}_steps={steps!r}. Pass one of them."
        )
    return by_steps, by_secs


def _check_numbers(**values: Any) -> None:
    """Refuse values that are not numbers, negative waits, and parts of a step."""
    for name, value in values.items():
        if value is USE_DEFAULT or value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, Real) or value != value:
            raise TypeError(f"{name} must be a number or None, got {value!r}.")
        if name.endswith("_steps"):
            whole_number(name, value)
        if value < 0 and name in ("max_wait_secs", "stop_grace_period_secs"):
            raise ValueError(f"invalid {name}={value!r}: it must be 0 or more.")
