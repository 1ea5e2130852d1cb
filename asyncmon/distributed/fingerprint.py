"""What all sessions of a run have in common: the tasks of their cluster, and the variables."""

from __future__ import annotations

from typing import Any

import msgspec

from asyncmon.distributed.cluster_spec import ClusterSpec
from asyncmon.graph import DeviceSpec
from asyncmon.graph.core.graph import Graph

_SHOWN = 5  # differences that an error lists

Variables = dict[str, tuple[str, str, list[int | None] | None]]
Tasks = dict[str, dict[str, str]]


def variables_of(graph: Graph) -> Variables:
    """Return the job and task, dtype and shape of each global variable of a graph."""
    found: Variables = {}
    for variable in graph.get_collection("variables"):
        spec = DeviceSpec.from_string(variable.op.device)
        place = "" if spec.job is None else f"/job:{spec.job}/task:{spec.task or 0}"
        shape = variable.op.outputs[0].shape
        dims = None if shape.rank is None else shape.as_list()
        found[variable.op.name] = place, variable.op.outputs[0].dtype.base_dtype.name, dims
    return found


def tasks_of(cluster: ClusterSpec) -> Tasks:
    """Return the addresses of the tasks of a cluster."""
    return {
        job: {str(i): cluster.task_address(job, i) for i in cluster.task_indices(job)}
        for job in cluster.jobs
    }


class Fingerprint(msgspec.Struct, frozen=True):
    """The cluster and the variables of a session. None: unknown, which equals any.

    Attributes:
        cluster: addresses by job and task.
        variables: place, dtype and shape by name.
    """

    cluster: Tasks | None
    variables: Variables | None

    def differences(self, other: Fingerprint) -> list[str]:
        """Return the differences of another fingerprint from this one, some at most, as text."""
        found = []
        if self.cluster is not None and other.cluster is not None:
            # Of jobs that hold variables: other tasks may join, leave and move.
            jobs = {DeviceSpec.from_string(place).job for place, *_ in (self.variables or {}).values()}
            mine, theirs = _places(self.cluster, jobs), _places(other.cluster, jobs)
            for place in sorted({*mine, *theirs}):
                here, there = mine.get(place), theirs.get(place)
                if here != there:
                    found.append(f"{place} is {_or_none(there)} and should be {_or_none(here)}")
        if self.variables is not None and other.variables is not None:
            for name in sorted({*self.variables, *other.variables}):
                here_is, there_is = self.variables.get(name), other.variables.get(name)
                if here_is != there_is:
                    found.append(
                        f"variable {name!r} is {_described(there_is)} and should be "
                        f"{_described(here_is)}"
                    )
        rest = len(found) - _SHOWN
        return [*found[:_SHOWN], *([f"and {rest} more"] if rest > 0 else [])]


def _places(tasks: Tasks, jobs: set[str | None]) -> dict[str, str]:
    return {
        f"/job:{job}/task:{index}": address
        for job, found in tasks.items()
        if job in jobs
        for index, address in found.items()
    }


def _or_none(address: str | None) -> str:
    return "missing" if address is None else repr(address)


def _described(variable: Any) -> str:
    if variable is None:
        return "missing"
    place, dtype, shape = variable
    return f"{dtype} {shape} on {place or 'the task of the session'}"
