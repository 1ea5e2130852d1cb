"""Options and metadata of a run, and the statistics of a traced one as messages; names are TF1's."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from asyncmon.protobuf.field import Kind
from asyncmon.protobuf.message import Map, Message, Repeated, proto

logger = logging.getLogger(__name__)

_WITHOUT_EFFECT = (
    "inter_op_thread_pool",
    "output_partition_graphs",
    "report_tensor_allocations_upon_oom",
)
_reported: set[str] = set()

_DEVICE = "/job:localhost/replica:0/task:0/device:CPU:0"


@dataclass(slots=True)
class RunOptions:
    """Options of a run. TF1: ``tf.RunOptions``.

    Attributes:
        trace_level: ``FULL_TRACE`` (or any level above ``NO_TRACE``) fills the run's metadata.
        timeout_in_ms: the run raises ``DeadlineExceededError`` if it takes longer; 0 means the limit of
            the session's config, if any. The session stays usable, with the state before the run.
        inter_op_thread_pool: no effect, like the remaining options; setting one is logged once.
    """

    NO_TRACE: ClassVar[int] = 0
    SOFTWARE_TRACE: ClassVar[int] = 1
    HARDWARE_TRACE: ClassVar[int] = 2
    FULL_TRACE: ClassVar[int] = 3

    trace_level: int = 0
    timeout_in_ms: int = 0
    inter_op_thread_pool: int = 0
    output_partition_graphs: bool = False
    report_tensor_allocations_upon_oom: bool = False


@dataclass(slots=True)
class NodeStats:
    """The time and memory of a node in a traced run.

    Attributes:
        name: the operation's name.
        op: its type.
        start: seconds since the start of the run.
        duration: seconds.
        thread: the name of the thread that ran it.
        nbytes: the size of its outputs in bytes.
    """

    name: str
    op: str
    start: float
    duration: float
    thread: str
    nbytes: int


@dataclass(slots=True)
class RunMetadata:
    """The trace of a run, filled if ``options.trace_level`` requests it. TF1: ``tf.RunMetadata``.

    Attributes:
        nodes: the nodes in the order of their ends; times of awaited nodes include the wait.
        duration: seconds from the call to the end, including waits.
        extras: additions of hooks and other programs, by name.
    """

    nodes: list[NodeStats] = field(default_factory=list)
    duration: float = 0.0
    extras: dict[str, Any] = field(default_factory=dict)

    @property
    def step_stats(self) -> StepStats:
        """The nodes in TF1's form: ``step_stats.dev_stats[0].node_stats[i].node_name`` and so on."""
        return step_stats_of(self.nodes)

    def SerializeToString(self) -> bytes:
        """Encode it as a protobuf message with the ``step_stats``. TF1: same name."""
        return RunMetadataProto(step_stats=self.step_stats).SerializeToString()


def check_options(options: Any, metadata: Any) -> None:
    """Check the types of the options and the metadata of a run.

    TypeError if one of them is neither None nor of its type.
    """
    if options is not None and not isinstance(options, RunOptions):
        raise TypeError(f"options must be a RunOptions, got {options!r}.")
    if metadata is not None and not isinstance(metadata, RunMetadata):
        raise TypeError(f"run_metadata must be a RunMetadata, got {metadata!r}.")
    for name in _WITHOUT_EFFECT:
        if options is not None and getattr(options, name) and name not in _reported:
            _reported.add(name)
            logger.info("RunOptions: %s: set, and without effect in this engine.", name)


# --- messages -------------------------------------------------------------------------------------
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


def step_stats_of(nodes: Iterable[NodeStats]) -> StepStats:
    """Convert the nodes of a traced run."""
    threads: dict[str, int] = {}
    nodes = list(nodes)
    if not nodes:
        return StepStats()
    stats = [_node_stats(node, threads.setdefault(node.thread, len(threads))) for node in nodes]
    names = {number: name for name, number in threads.items()}
    return StepStats(dev_stats=[DeviceStepStats(device=_DEVICE, node_stats=stats, thread_names=names)])


def _node_stats(node: NodeStats, thread: int) -> NodeExecStats:
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
