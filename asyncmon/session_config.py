"""The configuration of sessions. TF1: ``tf.ConfigProto`` and its nested messages."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from asyncmon.system.process_local import ProcessLocal

logger = logging.getLogger(__name__)

default_inline_ms: ProcessLocal[float] = ProcessLocal(lambda: 1.0)
"""``inline_ms`` of configs that are made without one in this process."""


class UnusedOptions(dict[str, Any]):
    """Options without effect, as attributes or items. One that is not set reads as an empty, false one.

    ::

        config.gpu_options.allow_growth = True
        config.graph_options.optimizer_options.opt_level = -1
    """

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # copy and pickle look for optional methods
        return self.setdefault(name, UnusedOptions())

    __setattr__ = dict.__setitem__


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
    """The configuration of a session. TF1: ``tf.ConfigProto``.

    Attributes may be set until a session is made with it. The other fields of TF1 are accepted, and any
    option in ``gpu_options``, ``graph_options`` and ``experimental``. One INFO line lists the options
    that are set but have no effect.

    Attributes:
        inline_ms: a plan whose measured average is shorter runs on the thread of the event loop and
            blocks it for that time, 1 ms by default. 0 always uses a worker thread, as do runs with
            much larger feeds than before and plans with a ``while_loop``.
        workers: the number of threads that compute beside the event loop and the thread of the steps.
            They are started on demand.
        intra_op_parallelism_threads: the number of threads that share large operations of a run; 0 is
            one per core. If set, the BLAS of the process has one thread during a run, and the threads
            of the session divide large products. For a ``TorchProgram`` it is the number of torch's
            threads in the process, which the close of the session restores.
        inter_op_parallelism_threads: TF1's name of ``workers``; overrides it unless 0.
        operation_timeout_in_ms: the default ``timeout_in_ms`` of runs; 0 is no limit.
        allow_soft_placement: compute ops of a device that a server lacks on its CPU,
            such as a GPU, which is an error otherwise. In one process the CPU is always used.
        rpc_options: options of the connection to the process of a target.
        isolate_session_state: give the session a state of its own on the server of its target, and on
            each task of its cluster, which ends with the session.
        kernels: ``"torch"`` computes convolution, pooling, their gradients and large products with
            PyTorch (extra ``torch``), on ``intra_op_parallelism_threads`` threads; results may differ
            in rounding. ``"auto"`` does so in runs with convolutions or large products, where they are
            faster, if PyTorch is installed, and logs it once. ``"numpy"`` uses this engine.

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

    rpc_options: RPCOptions = field(default_factory=RPCOptions)
    isolate_session_state: bool = False

    allow_soft_placement: bool = False

    # Without effect. The names are fixed, so that a misspelt option is refused.
    cluster_def: Any = None
    device_count: Any = field(default_factory=dict)
    device_filters: Any = field(default_factory=list)
    experimental: Any = field(default_factory=UnusedOptions)
    gpu_options: Any = field(default_factory=UnusedOptions)
    graph_options: Any = field(default_factory=UnusedOptions)
    log_device_placement: Any = False
    placement_period: Any = 0
    session_inter_op_thread_pool: Any = field(default_factory=list)
    share_cluster_devices_in_session: Any = False
    use_per_session_threads: Any = False

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
        if self.kernels not in ("numpy", "torch", "auto"):
            raise ValueError(f"kernels must be 'numpy', 'torch' or 'auto', got {self.kernels!r}.")
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
        unused = [name for name in _set_options(self) if name not in _USED]
        if unused and (names := ", ".join(unused)) not in _reported:
            _reported.add(names)
            logger.info("SessionConfig: %s: set, and without effect in this engine.", names)


_ENGINE = {
    "inline_ms", "workers", "intra_op_parallelism_threads", "inter_op_parallelism_threads",
    "operation_timeout_in_ms", "kernels", "isolate_session_state", "allow_soft_placement",
}  # fmt: skip
_USED = _ENGINE | {
    f"rpc_options.{name}"
    for name in (
        "timeout_secs", "token", "certificate", "private_key", "authority", "compression_algorithm",
        "use_rpc_for_inprocess_master",
    )
}  # fmt: skip
_reported: set[str] = set()


def _set_options(options: Any, prefix: str = "") -> Iterator[str]:
    """Yield the dotted names of options that are set to another value than their default."""
    values, default = options, type(options)()
    if is_dataclass(options):
        values = {one.name: getattr(options, one.name) for one in fields(options)}
    for name, value in values.items():
        if is_dataclass(value) or isinstance(value, UnusedOptions):
            yield from _set_options(value, f"{prefix}{name}.")
        elif value and value != getattr(default, name):
            yield prefix + name
