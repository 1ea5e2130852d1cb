"""Place variables on parameter servers. TF1: ``tf.train.replica_device_setter``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

from asyncmon.distributed.cluster_spec import ClusterSpec
from asyncmon.graph import DeviceSpec, Operation

_log = logging.getLogger("asyncmon.distributed")
_PS_OPS = ("VariableV2",)


def replica_device_setter(
    ps_tasks: int = 0,
    ps_device: str = "/job:ps",
    worker_device: str | None = "/job:worker",
    merge_devices: bool = True,
    cluster: Any = None,
    ps_ops: Sequence[str] | None = None,
    ps_strategy: Callable[[Operation], int] | None = None,
) -> Callable[[Operation], str] | None:
    """Return a device function: variables on the ps tasks in turn, other operations on the worker.

    For ``with graph.device(...)``. Devices of inner scopes win. Local variables are placed
    too. TF1: same name.

    Args:
        ps_tasks: the number of tasks of the ps job; taken from ``cluster`` if that is given.
        ps_device: the device of variables, to which the task is added if it names a job; "" leaves them
            on the worker.
        worker_device: the device of other operations.
        merge_devices: false keeps a device of an inner scope unchanged.
        cluster: a :class:`ClusterSpec`, or an argument of one.
        ps_ops: the op types that go to the ps job, by default those of variables.
        ps_strategy: ``ps_strategy(op) -> task``; by default round robin.

    Returns:
        The function, or None, which sets no device, if there are no ps tasks.

    Raises:
        TypeError: ``cluster`` is none, or ``ps_strategy`` cannot be called.
        ValueError: a device that is not valid; a worker's is found at the first op.
    """
    if cluster is not None:
        spec = cluster if isinstance(cluster, ClusterSpec) else ClusterSpec(cluster)
        job = DeviceSpec.from_string(ps_device).job
        ps_tasks = spec.num_tasks(job) if job in spec.jobs else 0
    if ps_tasks == 0:
        return None
    if not merge_devices:
        _log.warning(
            "DEPRECATION: It is recommended to set merge_devices=true in replica_device_setter"
        )
    numbers = count()
    strategy = ps_strategy or (lambda _op: next(numbers) % ps_tasks)
    if not callable(strategy):
        raise TypeError("ps_strategy must be callable")
    types = _PS_OPS if ps_ops is None else ps_ops

    def device_of(op: Operation) -> str:
        if op.device and not merge_devices:
            return op.device
        current = DeviceSpec.from_string(op.device)
        if not ps_device or op.type not in types:
            return DeviceSpec.from_string(worker_device).make_merged_spec(current).to_string()
        device = DeviceSpec.from_string(ps_device)
        if device.job and current.job in (None, "", device.job):
            device.task = strategy(op)
        return device.make_merged_spec(current).to_string()

    return device_of
