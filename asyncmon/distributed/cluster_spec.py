"""The jobs of a cluster and the addresses of their tasks. TF1: ``tf.train.ClusterSpec``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from asyncmon.protobuf.cluster_def import ClusterDef


class ClusterSpec:
    """The jobs of a cluster, each with the addresses of its tasks. TF1: ``tf.train.ClusterSpec``.

    Args:
        cluster: a dictionary from names of jobs to lists of addresses (``"host:port"``), or to
            dictionaries from indices to addresses, which may have gaps; a ``ClusterDef``, which is
            kept unless ``elastic`` is given; or another ClusterSpec, which is copied.
        elastic: the names of jobs whose tasks join and leave a run at any time. The servers need not
            know their addresses. Tasks of other jobs are those of the cluster. Default: as in
            ``cluster``, if that is no dictionary.

    Raises:
        TypeError: anything else, or a name or address that is neither text nor bytes.
        ValueError: an index that is no int32, or an elastic job that is not in the cluster.

    Example:
        >>> cluster = ClusterSpec({"ps": ["a:2222"], "worker": {1: "b:2222"}})
        >>> cluster.task_address("worker", 1)
        'b:2222'

    It equals a dictionary ``{job: {index: address}}``, and a ClusterSpec of the same jobs.
    """

    __hash__ = None  # type: ignore[assignment]  # compared by value

    def __init__(self, cluster: Any, *, elastic: Iterable[str] | None = None) -> None:
        self._jobs: dict[str, dict[int, str]]
        if isinstance(cluster, dict):
            self._jobs = {job: _by_index(job, tasks) for job, tasks in cluster.items()}
            self._cluster_def = _cluster_def(self._jobs)
        elif isinstance(cluster, ClusterDef) and elastic is None:
            self._cluster_def = cluster
        elif isinstance(cluster, ClusterDef | ClusterSpec):
            found = cluster if isinstance(cluster, ClusterDef) else cluster.as_cluster_def()
            self._cluster_def = ClusterDef()
            self._cluster_def.CopyFrom(found)
        else:
            raise TypeError(
                "`cluster` must be a dictionary mapping one or more job names to lists of network "
                "addresses, or a `ClusterDef` protocol buffer"
            )
        if not isinstance(cluster, dict):
            self._jobs = {job.name: dict(job.tasks) for job in self._cluster_def.job}
        if elastic is not None:
            names = [elastic] if isinstance(elastic, str) else list(elastic)
            if unknown := [name for name in names if name not in self._jobs]:
                raise ValueError(f"elastic={names!r}: {self!r} has no job {unknown[0]!r}.")
            for job in self._cluster_def.job:
                job.elastic = job.name in names

    def as_dict(self) -> dict[str, list[str] | dict[int, str]]:
        """Return ``{job: addresses}``: a list, or a dictionary by index where there are gaps."""
        return {
            job: [tasks[i] for i in sorted(tasks)]
            if tasks and max(tasks) + 1 == len(tasks)
            else dict(sorted(tasks.items()))
            for job, tasks in self._jobs.items()
        }

    def as_cluster_def(self) -> ClusterDef:
        """Return it as a ``ClusterDef``. TF1: same name."""
        return self._cluster_def

    @property
    def jobs(self) -> list[str]:
        """The names of the jobs."""
        return list(self._jobs)

    @property
    def elastic(self) -> list[str]:
        """The names of the jobs whose tasks join and leave a run at any time."""
        return [job.name for job in self._cluster_def.job if job.elastic]

    def num_tasks(self, job_name: str) -> int:
        """Return how many tasks a job has. ValueError where there is no such job, here and below."""
        return len(self._tasks(job_name))

    def task_indices(self, job_name: str) -> list[int]:
        """Return the indices of a job's tasks, sorted."""
        return sorted(self._tasks(job_name))

    def task_address(self, job_name: str, task_index: int) -> str:
        """Return the address of a task. ValueError where there is no such task."""
        tasks = self._tasks(job_name)
        if task_index not in tasks:
            raise ValueError(f"No task with index {task_index!r} in job {job_name!r}")
        return tasks[task_index]

    def job_tasks(self, job_name: str) -> list[str | None]:
        """Return the addresses of a job's tasks by index, None in gaps."""
        tasks = self._tasks(job_name)
        return [tasks.get(i) for i in range(max(tasks, default=-1) + 1)]

    def _tasks(self, job_name: str) -> dict[int, str]:
        if job_name not in self._jobs:
            raise ValueError(f"No such job in cluster: {job_name!r}")
        return self._jobs[job_name]

    def __bool__(self) -> bool:
        return bool(self._jobs)

    def __eq__(self, other: object) -> bool:
        return self._jobs == (other._jobs if isinstance(other, ClusterSpec) else other)

    def __repr__(self) -> str:
        jobs = self.as_dict()
        text = ", ".join(f"{job!r}: {jobs[job]!r}" for job in sorted(jobs))
        return f"ClusterSpec({{{text}}}{f', elastic={self.elastic!r}' if self.elastic else ''})"


def _by_index(job: str, tasks: Any) -> dict[int, str]:
    if isinstance(tasks, list | tuple):
        return dict(enumerate(tasks))
    if isinstance(tasks, dict):
        return {int(index): address for index, address in tasks.items()}
    raise TypeError(
        f"The tasks for job {job!r} must be a list or a dictionary from integers to strings."
    )


def _cluster_def(jobs: Mapping[str, Mapping[int, str]]) -> ClusterDef:
    cluster = ClusterDef()
    for name, tasks in sorted(jobs.items()):
        job = cluster.job.add(name=_text("Job name", name))
        for index, address in sorted(tasks.items()):
            if not -(1 << 31) <= index < 1 << 31:
                raise ValueError(f"Value out of range: {index}")
            job.tasks[index] = _text("Task address", address)
    return cluster


def _text(what: str, value: Any) -> str:
    if not isinstance(value, str | bytes):
        raise TypeError(f"{what} {value!r} must be bytes or unicode")
    return value if isinstance(value, str) else value.decode()
