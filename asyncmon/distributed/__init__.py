"""Past one process: clusters, and sessions that another process runs.

A target names the process that runs a session, such as a :class:`Server`. One service executes the
requests of sessions, over any transport::

    Session("grpc://host:port")  ->  RemoteBackend  ->  channel  ->  SessionService  ->  a session there

A cluster names the processes of a job, and a device which of them holds a variable::

    cluster = ClusterSpec({"ps": ["host:2222"], "worker": ["host:2223", "host:2224"]})
    with graph.device(replica_device_setter(cluster=cluster)):
        ...  # variables go to the ps tasks in turn, other operations to the worker
"""

# fmt: off
# isort: off
from asyncmon.distributed import targets
from asyncmon.distributed.cluster_spec import ClusterSpec
from asyncmon.distributed.device_setter import (
    GreedyLoadBalancingStrategy, RandomStrategy, byte_size_load_fn, replica_device_setter,
)
from asyncmon.distributed.server import Server

__all__ = [
    "ClusterSpec", "GreedyLoadBalancingStrategy", "RandomStrategy", "Server", "byte_size_load_fn",
    "replica_device_setter", "targets",
]
# fmt: on
# isort: on
__dir__ = __all__.copy
