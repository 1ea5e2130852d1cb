"""Place each operation of a graph on the session's task or on another task of the cluster."""

from __future__ import annotations

from asyncmon.distributed.cluster_spec import ClusterSpec
from asyncmon.errors import InvalidArgumentError
from asyncmon.graph import DeviceSpec
from asyncmon.graph.core.graph import Graph
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import ControlOpDef, OpDef
from asyncmon.graph.execution.analysis import Access

OWN = ""
"""The place of the session itself."""

_RESOURCES = ("queue", "reader")  # attributes: the first input is a resource
# Ops that use a part of a variable.
_PARTIAL = frozenset({"GatherV2", "GatherNd", "Shape", "ShapeN", "Size", "Rank"})


class Placement:
    """The places of operations, by their devices.

    A place is ``"/job:ps/task:0"``, or :data:`OWN` for the session's task. Ops that read, write or
    gather rows of a variable are placed with the variable, ops on a queue with the queue.

    Args:
        graph: the graph.
        cluster: the jobs and addresses.
        job: the job of the session's own task.
        task: its index.
        soft: accept devices that no task has, such as GPUs, and use the CPU of the task.

    Attributes:
        cluster: the tasks.
    """

    def __init__(
        self, graph: Graph, cluster: ClusterSpec, job: str, task: int, *, soft: bool = False
    ) -> None:
        self._soft = soft
        self._graph = graph
        self.cluster = cluster
        self._own = (job, task)
        self.own_task = f"/job:{job}/task:{task}"
        self._places: dict[str, str] = {"": OWN}

    def place(self, op: Operation) -> str:
        """Return the place of an operation.

        Raises:
            InvalidArgumentError: its device is no task of the cluster, or it accesses variables of
                several.
        """
        access = None if isinstance(op.op_def, OpDef) else Access.of(op)
        if access is not None:
            is_control = isinstance(op.op_def, ControlOpDef)  # the variables that it reads are inputs
            names = access.writes or (() if is_control else access.reads)
            places = {self._of_device(self._graph.get_operation_by_name(name)) for name in names}
            if len(places) > 1:
                raise InvalidArgumentError(
                    f"Operation {op.name!r} ({op.type}) accesses variables {list(names)} on several "
                    f"devices: {sorted(places)}. Put them on one, or read them outside and pass values."
                )
            if places:
                return places.pop()
        if op.inputs:
            source = op.inputs[0].op
            if any(name in op.attrs for name in _RESOURCES):
                return self._of_device(source)
            if op.type in _PARTIAL:
                op = next((x.op for x in op.inputs if x.op.type == "VariableV2"), op)
        return self._of_device(op)

    def check(self, op: Operation) -> None:
        """Raise InvalidArgumentError if the device of an operation is no task of the cluster."""
        self._of_device(op)

    def variable_place(self, name: str) -> str:
        """Return the place of a variable."""
        return self._of_device(self._graph.get_operation_by_name(name))

    def address(self, place: str) -> str:
        """Return the address of the task at a place."""
        spec = DeviceSpec.from_string(place)
        return self.cluster.task_address(str(spec.job), int(spec.task or 0))

    def _devices(self) -> list[str]:
        cluster = self.cluster
        tasks = [(job, task) for job in cluster.jobs for task in cluster.task_indices(job)]
        return [f"/job:{job}/replica:0/task:{task}/device:CPU:0" for job, task in tasks]

    def _of_device(self, op: Operation) -> str:
        device = op.device
        found = self._places.get(device)
        if found is None:
            found = self._places[device] = self._resolved(device, op)
        return found

    def _resolved(self, device: str, op: Operation) -> str:
        spec = DeviceSpec.from_string(device)
        job, task = spec.job, spec.task
        if spec.device_type not in (None, "CPU") and not self._soft:
            raise InvalidArgumentError(
                f"Cannot assign a device for operation {op.name}: Operation was explicitly assigned to "
                f"{device} but available devices are [ {', '.join(self._devices())} ]. Make sure the "
                "device specification refers to a valid device, or set allow_soft_placement in the "
                "config of the session."
            )
        if job is None:
            return OWN
        if task is None:
            task = self._own[1] if job == self._own[0] else 0
        if (job, task) == self._own:
            return OWN
        if job not in self.cluster.jobs or task not in self.cluster.task_indices(job):
            raise InvalidArgumentError(
                f"Cannot assign a device for operation {op.name!r}: it is to be on {device!r}, and the "
                f"cluster has {self.cluster.as_dict()}. This task is /job:{self._own[0]}/task:"
                f"{self._own[1]}."
            )
        return f"/job:{job}/task:{task}"


def is_constant(op: Operation, constants: set[Tensor]) -> bool:
    """Return whether each place repeats an operation for its own consumers.

    Args:
        op: the operation.
        constants: the outputs of such operations so far.
    """
    # It computes the same value everywhere. Or it reserves room in a queue, which belongs to the run
    # that puts the elements: that gives the room back if it fails.
    op_def = op.op_def
    return op.type == "QueueReserve" or (
        isinstance(op_def, OpDef)
        and op_def.kernel is not None
        and not (op_def.stateful or op_def.foreign)
        and not any(name in op.attrs for name in _RESOURCES)
        and constants.issuperset(op.inputs)
    )
