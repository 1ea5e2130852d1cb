"""Place variables on parameter servers. TF1: ``tf.train.replica_device_setter``."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import numpy as np

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
        ps_strategy: ``ps_strategy(op) -> task``, such as a :class:`GreedyLoadBalancingStrategy`; by
            default round robin.

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


class GreedyLoadBalancingStrategy:
    """Chooses the task with the smallest sum of loads so far, for ``ps_strategy``.

    TF1: ``tf.contrib.training.GreedyLoadBalancingStrategy``.

    Args:
        num_tasks: the number of ps tasks.
        load_fn: returns the load of an operation, such as :func:`byte_size_load_fn`.

    Example::

        strategy = GreedyLoadBalancingStrategy(2, byte_size_load_fn)
        with graph.device(replica_device_setter(cluster=cluster, ps_strategy=strategy)):
            ...
    """

    def __init__(self, num_tasks: int, load_fn: Callable[[Operation], float]) -> None:
        self._load_fn = load_fn
        self._loads = [0.0] * num_tasks

    def __call__(self, op: Operation) -> int:
        """Return the task of an operation."""
        task = min(range(len(self._loads)), key=self._loads.__getitem__)
        self._loads[task] += self._load_fn(op)
        return task


class RandomStrategy:
    """Chooses tasks at random, for ``ps_strategy``. TF1: ``tf.contrib.training.RandomStrategy``.

    Args:
        num_tasks: the number of ps tasks.
        seed: of the choices, which should be equal in all processes.
    """

    def __init__(self, num_tasks: int, seed: int = 0) -> None:
        self._num_tasks = num_tasks
        self._rng = np.random.RandomState(seed)

    def __call__(self, op: Operation) -> int:
        """Return the task of an operation."""
        return int(self._rng.randint(self._num_tasks))


def byte_size_load_fn(op: Operation) -> int:
    """Return the size of a variable in bytes, a load. TF1: ``tf.contrib.training.byte_size_load_fn``.

    Raises:
        ValueError: the operation has not one output, or the shape of that is not known.
    """
    if len(op.outputs) != 1:
        raise ValueError(f"Op {op!r} must have a single output")
    output = op.outputs[0]
    output.shape.assert_is_fully_defined()
    return (output.shape.num_elements() or 0) * output.dtype.size
