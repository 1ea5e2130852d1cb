"""What may be asked of a session or a run, and what a run tells. TF1: ``tf.RunOptions`` and kin."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import Any, ClassVar


@dataclass(slots=True)
class RunOptions:
    """How one run is to be done. TF1: ``tf.RunOptions``.

    Attributes:
        trace_level: ``FULL_TRACE`` (or any level above ``NO_TRACE``) fills the run's metadata.
        timeout_in_ms: the run raises ``DeadlineExceededError`` when it takes longer; 0 is no limit. The
            session stays usable and its state is that before the run.
    """

    NO_TRACE: ClassVar[int] = 0
    SOFTWARE_TRACE: ClassVar[int] = 1
    HARDWARE_TRACE: ClassVar[int] = 2
    FULL_TRACE: ClassVar[int] = 3

    trace_level: int = 0
    timeout_in_ms: int = 0


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionConfig:
    """How a session uses the machine. TF1: ``tf.ConfigProto``, as far as it makes sense here.

    Attributes:
        inline_ms: a plan that takes less, by its own measured average, runs on the loop's thread, which
            it holds for that long; 0 always uses a worker thread. So does a run that is fed many more
            elements than those before, and a plan with a ``while_loop``.
        workers: how many threads compute beside the loop, and beside the one that all steps have; they
            are started when they are needed.
        intra_op_parallelism_threads: how many threads work together on what is large in a run; 0 is one
            for each core.
    """

    inline_ms: float = 1.0
    workers: int = field(default_factory=lambda: max(2, os.cpu_count() or 1))
    intra_op_parallelism_threads: int = 0

    def __post_init__(self) -> None:
        if self.inline_ms < 0:
            raise ValueError(f"inline_ms must be 0 or more, got {self.inline_ms!r}.")
        if self.workers < 1:
            raise ValueError(f"workers must be 1 or more, got {self.workers!r}.")
        if self.intra_op_parallelism_threads < 0:
            raise ValueError(
                "intra_op_parallelism_threads must be 0 or more, "
                f"got {self.intra_op_parallelism_threads!r}."
            )


def check_options(options: Any, metadata: Any) -> None:
    """Refuse what is neither None nor what a run takes.

    Raises:
        TypeError: it is something else.
    """
    if options is not None and not isinstance(options, RunOptions):
        raise TypeError(f"options must be a RunOptions, got {options!r}.")
    if metadata is not None and not isinstance(metadata, RunMetadata):
        raise TypeError(f"run_metadata must be a RunMetadata, got {metadata!r}.")
