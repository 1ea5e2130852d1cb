"""Many runs in one service: a persistent queue of jobs, for the processes of one host.

::

    queue = am.jobs.JobQueue("jobs", max_running=3)

    @queue.kind("digits")
    async def train(job):
        async with am.MonitoredTrainingSession(checkpoint_dir=job.directory, ...) as sess:
            ...

    async with queue:
        job = await queue.submit("digits", {"rate": 0.1}, name="digits-1")
        await job.wait()

From the ground up: ``store`` (the file), ``lease`` (the lock of an attempt), ``table`` (states and the
transactions that change them), ``execution`` (one attempt, and its sessions), ``child_process`` and
``child`` (the same in a process of its own), ``worker`` (the loop of a process), ``job`` and
``job_queue``, ``halving`` (sweeps), ``app`` (HTTP; needs the extra
``web``).
"""

import importlib as _importlib
import typing as _typing

from asyncmon.jobs.execution import RunningJob
from asyncmon.jobs.halving import halving
from asyncmon.jobs.job import Event, Job, Outcome
from asyncmon.jobs.job_queue import JobQueue
from asyncmon.jobs.table import State, StateError

__all__ = [
    "Event", "Job", "JobQueue", "Outcome", "RunningJob", "State", "StateError", "create_app", "halving",
]  # fmt: skip

if _typing.TYPE_CHECKING:
    from asyncmon.jobs.app import create_app
else:

    def __getattr__(name: str) -> _typing.Any:
        if name == "create_app":  # needs the extra
            return _importlib.import_module("asyncmon.jobs.app").create_app
        raise AttributeError(f"asyncmon.jobs has no {name!r}; it has: {', '.join(__all__)}.")


__dir__ = __all__.copy
