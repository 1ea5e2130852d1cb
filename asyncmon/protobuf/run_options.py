"""Options and metadata of a run. TF1: ``tf.RunOptions`` and ``tf.RunMetadata``."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import Any, ClassVar

from asyncmon.protobuf.step_stats import RunMetadataProto, StepStats, step_stats_of

logger = logging.getLogger(__name__)

_WITHOUT_EFFECT = (
    "inter_op_thread_pool",
    "output_partition_graphs",
    "report_tensor_allocations_upon_oom",
)
_reported: set[str] = set()


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

    Raises:
        TypeError: one of them is neither None nor of its type.
    """
    if options is not None and not isinstance(options, RunOptions):
        raise TypeError(f"options must be a RunOptions, got {options!r}.")
    if metadata is not None and not isinstance(metadata, RunMetadata):
        raise TypeError(f"run_metadata must be a RunMetadata, got {metadata!r}.")
    for name in _WITHOUT_EFFECT:
        if options is not None and getattr(options, name) and name not in _reported:
            _reported.add(name)
            logger.info("RunOptions: %s: set, and without effect in this engine.", name)
