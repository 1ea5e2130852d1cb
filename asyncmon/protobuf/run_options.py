"""What may be asked of a session or a run, and what a run tells. TF1: ``tf.RunOptions`` and kin."""

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
    """How one run is to be done. TF1: ``tf.RunOptions``.

    Attributes:
        trace_level: ``FULL_TRACE`` (or any level above ``NO_TRACE``) fills the run's metadata.
        timeout_in_ms: the run raises ``DeadlineExceededError`` when it takes longer; 0 is no limit, or
            that of the session's config. The session stays usable and its state is that before the run.
        inter_op_thread_pool: without effect, as are the next ones; one that is set is logged, once.
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
    """What one node of a traced run took.

    Attributes:
        name: the operation's name.
        op: its type.
        start: seconds since the start of the run.
        duration: seconds.
        thread: the name of the thread that ran it.
        nbytes: bytes of its outputs.
    """

    name: str
    op: str
    start: float
    duration: float
    thread: str
    nbytes: int


@dataclass(slots=True)
class RunMetadata:
    """What a traced run did, filled when ``options.trace_level`` asks for it. TF1: ``tf.RunMetadata``.

    Attributes:
        nodes: in the order in which they ended, awaited ones with the time they waited.
        duration: seconds from the call to the end, what the run waited for included.
        extras: what hooks and other programs add, by name.
    """

    nodes: list[NodeStats] = field(default_factory=list)
    duration: float = 0.0
    extras: dict[str, Any] = field(default_factory=dict)

    @property
    def step_stats(self) -> StepStats:
        """The nodes as TF1 has them: ``step_stats.dev_stats[0].node_stats[i].node_name`` and so on."""
        return step_stats_of(self.nodes)

    def SerializeToString(self) -> bytes:
        """Return it as a protobuf message, which holds the ``step_stats``. TF1: same name."""
        return RunMetadataProto(step_stats=self.step_stats).SerializeToString()


def check_options(options: Any, metadata: Any) -> None:
    """Refuse what is neither None nor what a run takes.

    Raises:
        TypeError: it is something else.
    """
    if options is not None and not isinstance(options, RunOptions):
        raise TypeError(f"options must be a RunOptions, got {options!r}.")
    if metadata is not None and not isinstance(metadata, RunMetadata):
        raise TypeError(f"run_metadata must be a RunMetadata, got {metadata!r}.")
    for name in _WITHOUT_EFFECT:
        if options is not None and getattr(options, name) and name not in _reported:
            _reported.add(name)
            logger.info("RunOptions: %s: set, and without effect in this engine.", name)
