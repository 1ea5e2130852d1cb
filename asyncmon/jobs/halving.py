"""Sweeps: successive halving, whose only state is that of its jobs."""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from asyncmon.jobs.job import Job, Outcome
from asyncmon.jobs.job_queue import JobQueue
from asyncmon.jobs.table import FINAL, State, StateError


async def halving(
    queue: JobQueue,
    kind: str,
    trials: Sequence[Mapping[str, Any]],
    *,
    metric: str,
    rungs: Sequence[int],
    name: str,
    eta: int = 3,
    mode: Literal["min", "max"] = "min",
) -> list[Outcome]:
    """Train trials to one rung after another, and keep the best ``1 / eta`` of them at each.

    Each trial is a job, ``<name>-<number>``. It pauses at a rung when it has reported a metric there:
    ``job.report(step, loss=loss)`` at the step of the rung or, once, beyond it. When all trials have
    reached the rung, or have ended, the best ones are resumed and the others cancelled. A trial without
    the metric, or with NaN, is the worst. The kind itself ends at the last rung; a survivor that was
    paused beyond it is resumed to end.

    Called again, also in a new process after a kill, it reads what finished trials have reported, and
    continues the others: it decides the same. Cancelling it leaves the trials as they are. A trial that
    is paused by hand holds up its rung until it is resumed.

    Args:
        queue: an open queue.
        kind: one of its kinds.
        trials: the parameters of each trial.
        metric: the name in ``job.report`` to compare.
        rungs: rising steps.
        name: of the sweep.
        eta: how many trials compete for each place at the next rung.
        mode: whether the smallest or the largest value is the best.

    Returns:
        The outcome of each trial, in the order of the trials.

    Raises:
        ValueError: there is no trial; the rungs do not rise; ``eta`` is below 2; the mode is unknown.
        FileExistsError: a job of this name has other parameters or rungs.
        LookupError: the kind is unknown; trials have reported other metrics only.
        RuntimeError: the queue is not open, or was closed during this call.

    Example::

        trials = [{"rate": rate} for rate in (0.3, 0.1, 0.03, 0.01)]
        outcomes = await am.jobs.halving(
            queue, "line", trials, metric="loss", rungs=[10, 30, 90], name="rates"
        )
    """
    steps = tuple(rungs)
    if not trials or not steps or list(steps) != sorted(set(steps)) or steps[0] < 1:
        raise ValueError(f"halving needs trials, and rising steps as rungs, got {rungs!r}.")
    if eta < 2 or mode not in ("min", "max"):
        raise ValueError(f"halving needs eta >= 2 and mode 'min' or 'max', got {eta!r} and {mode!r}.")
    specs = [
        queue._spec(kind, trial, f"{name}-{number}", rungs=steps) for number, trial in enumerate(trials)
    ]
    jobs = [job for job, _ in await queue._submit(specs)]
    alive = list(jobs)
    for number, rung in enumerate(steps):
        passed = steps[number - 1] if number else -1
        await asyncio.gather(*[_reach(queue, job, rung, passed) for job in alive])
        _check_reports(alive, rung, metric)
        is_last = number == len(steps) - 1
        alive.sort(key=lambda job: _score(job, rung, metric, mode))  # stable: of equals the first one
        count = len(alive) if is_last else max(1, len(alive) // eta)
        for job in alive[count:]:
            with contextlib.suppress(StateError):  # it has ended
                await job.cancel()
        alive = alive[:count]
    await asyncio.gather(*[_reach(queue, job, None, steps[-1]) for job in alive])
    outcomes = [(await job.wait()).outcome for job in jobs]
    return [outcome for outcome in outcomes if outcome is not None]


def _check_reports(trials: Sequence[Job], rung: int, metric: str) -> None:
    reported = {name for job in trials for name in job._row["judged"].get(str(rung), {})}
    if reported and metric not in reported:
        raise LookupError(
            f"No trial has reported the metric {metric!r} at step {rung}; there are {sorted(reported)}."
            f" Pass one of these to halving(), or call job.report(step, {metric}=value)."
        )


async def _reach(queue: JobQueue, job: Job, rung: int | None, passed: int) -> None:
    """Continue a trial after the rung that it has passed, and wait until it is judged at the next.

    Args:
        rung: the next one; None to wait for its end.
    """
    changes = queue._changes
    while True:
        count = changes.count
        await job.refresh()
        if job.state in FINAL:
            return
        if job.state is State.PAUSED:
            if str(rung) in job._row["judged"]:
                return
            if job._row["passed"] < passed:
                with contextlib.suppress(StateError):  # another call of this sweep was faster
                    await queue._resume(job.id, passed)
                continue
        if not await changes.wait(count):
            raise RuntimeError(f"The queue was closed before {job.name!r} has reached step {rung}.")


def _score(job: Job, rung: int, metric: str, mode: str) -> float:
    value = job._row["judged"].get(str(rung), {}).get(metric)
    if not isinstance(value, int | float) or math.isnan(value):  # NaN and infinities are texts
        return math.inf
    return value if mode == "min" else -value
