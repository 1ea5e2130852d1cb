"""Statistics of a traced step as messages; names are those of TF1."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from asyncmon.protobuf.field import Kind
from asyncmon.protobuf.message import Map, Message, Repeated, proto

_DEVICE = "/job:localhost/replica:0/task:0/device:CPU:0"


class AllocatorMemoryUsed(Message):
    """The memory of a node's outputs. ``tf.AllocatorMemoryUsed``."""

    allocator_name: str = proto(1, Kind.TEXT)
    total_bytes: int = proto(2, Kind.INT)
    peak_bytes: int = proto(3, Kind.INT)
    live_bytes: int = proto(4, Kind.INT)


class NodeExecStats(Message):
    """The times of a node in microseconds. ``tf.NodeExecStats``.

    ``all_start_micros`` is relative to the start of the run, the others to the start of the node.
    """

    node_name: str = proto(1, Kind.TEXT)
    all_start_micros: int = proto(2, Kind.INT)
    op_start_rel_micros: int = proto(3, Kind.INT)
    op_end_rel_micros: int = proto(4, Kind.INT)
    all_end_rel_micros: int = proto(5, Kind.INT)
    memory: Repeated[AllocatorMemoryUsed] = proto(6, AllocatorMemoryUsed, repeated=True)
    timeline_label: str = proto(8, Kind.TEXT)
    scheduled_micros: int = proto(9, Kind.INT)
    thread_id: int = proto(10, Kind.INT)


class DeviceStepStats(Message):
    """The nodes of one device. ``tf.DeviceStepStats``."""

    device: str = proto(1, Kind.TEXT)
    node_stats: Repeated[NodeExecStats] = proto(2, NodeExecStats, repeated=True)
    thread_names: Map[str] = proto(3, Kind.TEXT, key=Kind.INT)


class StepStats(Message):
    """All devices. ``tf.StepStats``."""

    dev_stats: Repeated[DeviceStepStats] = proto(1, DeviceStepStats, repeated=True)


class RunMetadataProto(Message):
    """The message of ``tf.RunMetadata``."""

    step_stats: StepStats = proto(1, StepStats)


def step_stats_of(nodes: Iterable[Any]) -> StepStats:
    """Convert the ``NodeStats`` of a traced run."""
    threads: dict[str, int] = {}
    nodes = list(nodes)
    if not nodes:
        return StepStats()
    stats = [_node_stats(node, threads.setdefault(node.thread, len(threads))) for node in nodes]
    names = {number: name for name, number in threads.items()}
    return StepStats(dev_stats=[DeviceStepStats(device=_DEVICE, node_stats=stats, thread_names=names)])


def _node_stats(node: Any, thread: int) -> NodeExecStats:
    took = max(1, round(node.duration * 1e6))  # 0 means unknown for TensorBoard
    memory = AllocatorMemoryUsed(allocator_name="cpu", total_bytes=node.nbytes, peak_bytes=node.nbytes)
    return NodeExecStats(
        node_name=node.name,
        all_start_micros=round(node.start * 1e6),
        op_end_rel_micros=took,  # op_start_rel_micros is 0 without a wait
        all_end_rel_micros=took,
        memory=[memory],
        timeline_label=f"{node.name} = {node.op}",
        thread_id=thread,
    )
