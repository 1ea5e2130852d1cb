"""What a traced step took, as the bytes of a ``RunMetadata``, for TensorBoard's graph page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from asyncmon.summary.wire import delimited, integer, string

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["NodeTimes", "RunTimes", "encode_run_metadata"]

_DEVICE = "/job:localhost/replica:0/task:0/device:CPU:0"


class NodeTimes(Protocol):
    """One node of a traced step."""

    @property
    def name(self) -> str:
        """The operation."""

    @property
    def op(self) -> str:
        """Its type."""

    @property
    def start(self) -> float:
        """Seconds since the start of the step."""

    @property
    def duration(self) -> float:
        """Seconds."""

    @property
    def thread(self) -> str:
        """Where it ran."""

    @property
    def nbytes(self) -> int:
        """Bytes of its outputs."""


class RunTimes(Protocol):
    """What a traced step took; ``am.graph.RunMetadata`` is one."""

    @property
    def nodes(self) -> Iterable[NodeTimes]:
        """The nodes, in the order in which they ran."""


def encode_run_metadata(times: Iterable[NodeTimes]) -> bytes:
    """Return a serialized ``RunMetadata`` with the ``StepStats`` of these nodes."""
    threads: dict[str, int] = {}
    nodes = []
    for node in times:
        thread = threads.setdefault(node.thread, len(threads))
        nodes.append(delimited(2, _node_stats(node, thread)))
    device = string(1, _DEVICE) + b"".join(nodes)
    names = [delimited(3, integer(1, n) + string(2, name)) for name, n in threads.items()]
    return delimited(1, delimited(1, device + b"".join(names)))


def _node_stats(node: NodeTimes, thread: int) -> bytes:
    took = max(1, round(node.duration * 1e6))  # TensorBoard takes 0 for unknown
    memory = string(1, "cpu") + integer(2, node.nbytes) + integer(3, node.nbytes)
    return b"".join(
        (
            string(1, node.name),
            integer(2, round(node.start * 1e6)),
            integer(4, took),  # op_end_rel_micros; what starts at once has no op_start_rel_micros
            integer(5, took),
            delimited(6, memory),
            string(8, f"{node.name} = {node.op}"),
            integer(10, thread),
        )
    )
