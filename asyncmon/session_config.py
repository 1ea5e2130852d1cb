"""How a session uses the machine. TF1: ``tf.ConfigProto`` and the messages inside."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

logger = logging.getLogger(__name__)


@dataclass(slots=True, kw_only=True)
class GPUOptions:
    """TF1: ``tf.GPUOptions``. Taken, and without meaning: the engine runs on the CPU."""

    per_process_gpu_memory_fraction: float = 0.0
    allow_growth: bool = False
    allocator_type: str = ""
    deferred_deletion_bytes: int = 0
    visible_device_list: str = ""
    polling_active_delay_usecs: int = 0
    polling_inactive_delay_msecs: int = 0
    force_gpu_compatible: bool = False
    experimental: SimpleNamespace = field(default_factory=SimpleNamespace)


@dataclass(slots=True, kw_only=True)
class OptimizerOptions:
    """TF1: ``tf.OptimizerOptions``. Taken, and without meaning: plans are optimised always."""

    L1: ClassVar[int] = 0
    L0: ClassVar[int] = -1
    DEFAULT: ClassVar[int] = 0
    OFF: ClassVar[int] = -1
    ON_1: ClassVar[int] = 1
    ON_2: ClassVar[int] = 2

    do_common_subexpression_elimination: bool = False
    do_constant_folding: bool = False
    max_folded_constant_in_bytes: int = 0
    do_function_inlining: bool = False
    opt_level: int = 0
    global_jit_level: int = 0
    cpu_global_jit: bool = False


@dataclass(slots=True, kw_only=True)
class GraphOptions:
    """TF1: ``tf.GraphOptions``. Taken, and without meaning: plans are optimised always."""

    enable_recv_scheduling: bool = False
    optimizer_options: OptimizerOptions = field(default_factory=OptimizerOptions)
    build_cost_model: int = 0
    build_cost_model_after: int = 0
    infer_shapes: bool = False
    place_pruned_graph: bool = False
    enable_bfloat16_sendrecv: bool = False
    timeline_step: int = 0
    rewrite_options: SimpleNamespace = field(default_factory=SimpleNamespace)


@dataclass(slots=True, kw_only=True)
class RPCOptions:
    """How a session or a server talks to other processes. TF1: ``tf.RPCOptions``, with its fields.

    Attributes:
        timeout_secs: an answer that does not come for so long is an ``UnavailableError``. A run may
            take longer: the other side says that it goes on.
        token: a secret that both sides know; without one and without certificates a server takes
            connections of its own machine only.
        certificate: the path of this side's certificate, PEM: a server's, or a client's for a server
            that asks for one.
        private_key: the path of its key, PEM.
        authority: the path of the certificates that the other side's must be signed by, PEM. A server
            with one asks its clients for certificates.
        compression_algorithm: "", "deflate" or "gzip".
        use_rpc_for_inprocess_master: talk to a server of this process as to any other.
        compression_level: without effect, as are the next ones.
    """

    timeout_secs: float = 10.0
    token: str | None = field(default=None, repr=False)
    certificate: str | None = None
    private_key: str | None = None
    authority: str | None = None
    compression_algorithm: str = ""
    use_rpc_for_inprocess_master: bool = False
    compression_level: int = 0
    cache_rpc_response: bool = False
    disable_session_connection_sharing: bool = False
    num_channels_per_target: int = 0


@dataclass(slots=True, kw_only=True)
class SessionConfig:
    """How a session uses the machine. TF1: ``tf.ConfigProto``, with all of its fields.

    Attributes may be set one by one, those of ``gpu_options`` and ``graph_options`` too, before a
    session is made of it. Fields that are set and have no meaning here are named in one INFO line.

    Attributes:
        inline_ms: a plan that takes less, by its own measured average, runs on the loop's thread, which
            it holds for that long; 0 always uses a worker thread. So does a run that is fed many more
            elements than those before, and a plan with a ``while_loop``.
        workers: how many threads compute beside the loop, and beside the one that all steps have; they
            are started when they are needed.
        intra_op_parallelism_threads: how many threads work together on what is large in a run; 0 is one
            for each core. Where it is set, the process's BLAS has one thread while a run computes: the
            session's own threads divide large products.
        inter_op_parallelism_threads: TF1's name of ``workers``, which it overrides; 0 leaves that.
        operation_timeout_in_ms: the ``timeout_in_ms`` of runs that are given no other; 0 is no limit.
        rpc_options: how to talk to the process that a target names.
        kernels: ``"torch"`` has convolution, pooling, their gradients and large products computed by
            PyTorch (extra ``torch``), on as many threads as ``intra_op_parallelism_threads`` says;
            results may differ in rounding. ``"numpy"``: by this engine.

    Example::

        config = SessionConfig(allow_soft_placement=True, intra_op_parallelism_threads=2)
        config.gpu_options.allow_growth = True
        async with MonitoredTrainingSession(config=config) as sess:
            ...
    """

    inline_ms: float = 1.0
    workers: int = field(default_factory=lambda: max(2, os.cpu_count() or 1))
    intra_op_parallelism_threads: int = 0
    inter_op_parallelism_threads: int = 0
    operation_timeout_in_ms: int = 0
    kernels: str = "numpy"

    device_count: dict[str, int] = field(default_factory=dict)
    use_per_session_threads: bool = False
    session_inter_op_thread_pool: list[Any] = field(default_factory=list)
    placement_period: int = 0
    device_filters: list[str] = field(default_factory=list)
    gpu_options: GPUOptions = field(default_factory=GPUOptions)
    allow_soft_placement: bool = False
    log_device_placement: bool = False
    graph_options: GraphOptions = field(default_factory=GraphOptions)
    rpc_options: RPCOptions = field(default_factory=RPCOptions)
    cluster_def: Any = None
    isolate_session_state: bool = False
    share_cluster_devices_in_session: bool = False
    experimental: SimpleNamespace = field(default_factory=SimpleNamespace)

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Refuse numbers that mean nothing.

        Raises:
            ValueError: one is out of range.
        """
        if self.inline_ms < 0:
            raise ValueError(f"inline_ms must be 0 or more, got {self.inline_ms!r}.")
        if self.rpc_options.timeout_secs <= 0:
            raise ValueError(
                f"rpc_options.timeout_secs must be over 0, got {self.rpc_options.timeout_secs!r}."
            )
        if self.kernels not in ("numpy", "torch"):
            raise ValueError(f"kernels must be 'numpy' or 'torch', got {self.kernels!r}.")
        if self.workers < 1:
            raise ValueError(f"workers must be 1 or more, got {self.workers!r}.")
        for name in (
            "intra_op_parallelism_threads", "inter_op_parallelism_threads", "operation_timeout_in_ms"
        ):  # fmt: skip
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be 0 or more, got {getattr(self, name)!r}.")

    def engine_options(self) -> dict[str, Any]:
        """Return the fields that the engine uses and that differ from their defaults, by name."""
        default = SessionConfig()
        values = {name: getattr(self, name) for name in sorted(_ENGINE)}
        return {name: value for name, value in values.items() if value != getattr(default, name)}

    def report_unused(self) -> None:
        """Log which fields are set and have no meaning here, once for the same ones."""
        unused = [name for name in _set_fields(self) if name not in _USED]
        if unused and (names := ", ".join(unused)) not in _reported:
            _reported.add(names)
            logger.info("SessionConfig: %s: set, and without effect in this engine.", names)


_ENGINE = {
    "inline_ms", "workers", "intra_op_parallelism_threads", "inter_op_parallelism_threads",
    "operation_timeout_in_ms", "kernels",
}  # fmt: skip
_USED = _ENGINE | {
    f"rpc_options.{name}"
    for name in (
        "timeout_secs", "token", "certificate", "private_key", "authority", "compression_algorithm",
        "use_rpc_for_inprocess_master",
    )
}  # fmt: skip
_reported: set[str] = set()


def _set_fields(message: Any, prefix: str = "") -> Iterator[str]:
    """Yield the names of fields that differ from their defaults, with dots for those inside."""
    default = type(message)()
    for one in fields(message):
        value = getattr(message, one.name)
        if is_dataclass(value):
            yield from _set_fields(value, f"{prefix}{one.name}.")
        elif value != getattr(default, one.name):
            yield prefix + one.name
