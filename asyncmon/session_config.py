"""The configuration of sessions. TF1: ``tf.ConfigProto`` and its nested messages."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

from asyncmon.system.process import ProcessLocal

logger = logging.getLogger(__name__)

default_inline_ms: ProcessLocal[float] = ProcessLocal(lambda: 1.0)
"""``inline_ms`` of configs that are made without one in this process."""


@dataclass(slots=True, kw_only=True)
class GPUOptions:
    """TF1: ``tf.GPUOptions``. Without effect: the engine runs on the CPU."""

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
    """TF1: ``tf.OptimizerOptions``. Without effect: plans are always optimised."""

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
    """TF1: ``tf.GraphOptions``. Without effect: plans are always optimised."""

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
    """Options of connections to other processes. TF1: ``tf.RPCOptions``, with its fields.

    Attributes:
        timeout_secs: the time without an answer, in seconds, after which calls raise
            ``UnavailableError``. Runs may take longer: the server sends keep-alive messages.
        token: a shared secret. Without a token and certificates a server accepts only connections
            from its own machine, by processes of its own user.
        certificate: the path of the own certificate, PEM: of a server, or of a client of a server that
            requires one.
        private_key: the path of its private key, PEM.
        authority: the path of the certificate authorities of the peer, PEM. A server with one requires
            certificates of its clients.
        compression_algorithm: "", "deflate" or "gzip".
        use_rpc_for_inprocess_master: also connect to a server of this process by RPC.
        max_bytes_in_flight: of a server: the bytes of large requests that it receives and executes at a
            time. Others wait, up to half of ``timeout_secs``, and then raise
            ``ResourceExhaustedError``.
        compression_level: without effect, as are the following fields.
    """

    timeout_secs: float = 10.0
    token: str | None = field(default=None, repr=False)
    certificate: str | None = None
    private_key: str | None = None
    authority: str | None = None
    compression_algorithm: str = ""
    use_rpc_for_inprocess_master: bool = False
    max_bytes_in_flight: int = 1 << 30
    compression_level: int = 0
    cache_rpc_response: bool = False
    disable_session_connection_sharing: bool = False
    num_channels_per_target: int = 0


@dataclass(slots=True, kw_only=True)
class SessionConfig:
    """The configuration of a session. TF1: ``tf.ConfigProto``, with all of its fields.

    Attributes, also those of ``gpu_options`` and ``graph_options``, may be set until a session is made
    with it. One INFO line lists the fields that are set but have no effect.

    Attributes:
        inline_ms: a plan whose measured average is shorter runs on the thread of the event loop and
            blocks it for that time, 1 ms by default. 0 always uses a worker thread, as do runs with
            much larger feeds than before and plans with a ``while_loop``.
        workers: the number of threads that compute beside the event loop and the thread of the steps.
            They are started on demand.
        intra_op_parallelism_threads: the number of threads that share large operations of a run; 0 is
            one per core. If set, the BLAS of the process has one thread during a run, and the threads
            of the session divide large products.
        inter_op_parallelism_threads: TF1's name of ``workers``; overrides it unless 0.
        operation_timeout_in_ms: the default ``timeout_in_ms`` of runs; 0 is no limit.
        rpc_options: options of the connection to the process of a target.
        isolate_session_state: give the session a state of its own on the server of its target, and on
            each task of its cluster, which ends with the session.
        kernels: ``"torch"`` computes convolution, pooling, their gradients and large products with
            PyTorch (extra ``torch``), on ``intra_op_parallelism_threads`` threads; results may differ
            in rounding. ``"numpy"`` uses this engine.

    Example::

        config = SessionConfig(allow_soft_placement=True, intra_op_parallelism_threads=2)
        config.gpu_options.allow_growth = True
        async with MonitoredTrainingSession(config=config) as sess:
            ...
    """

    inline_ms: float = field(default_factory=lambda: default_inline_ms.get())
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
        """Check the values.

        Raises:
            ValueError: a value is out of range.
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
        """Return the fields of the engine that differ from their defaults, by name."""
        default = SessionConfig()
        values = {name: getattr(self, name) for name in sorted(_ENGINE)}
        return {name: value for name, value in values.items() if value != getattr(default, name)}

    def report_unused(self) -> None:
        """Log the fields that are set but have no effect, once for the same fields."""
        unused = [name for name in _set_fields(self) if name not in _USED]
        if unused and (names := ", ".join(unused)) not in _reported:
            _reported.add(names)
            logger.info("SessionConfig: %s: set, and without effect in this engine.", names)


_ENGINE = {
    "inline_ms", "workers", "intra_op_parallelism_threads", "inter_op_parallelism_threads",
    "operation_timeout_in_ms", "kernels", "isolate_session_state",
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
    """Yield the dotted names of fields that differ from their defaults."""
    default = type(message)()
    for one in fields(message):
        value = getattr(message, one.name)
        if is_dataclass(value):
            yield from _set_fields(value, f"{prefix}{one.name}.")
        elif value != getattr(default, one.name):
            yield prefix + one.name
