"""Past one process: clusters, and sessions that another process runs.

A target names where a session is run, a :class:`Server` for example. One service does what sessions ask
for, whatever carries the messages::

    Session("grpc://host:port")  ->  RemoteBackend  ->  channel  ->  SessionService  ->  a session there

A cluster names the processes of a job, and a device which of them holds a variable::

    cluster = ClusterSpec({"ps": ["host:2222"], "worker": ["host:2223", "host:2224"]})
    with graph.device(replica_device_setter(cluster=cluster)):
        ...  # variables go to the ps tasks in turn, all else to the worker
"""

from asyncmon.distributed import targets as targets
from asyncmon.distributed.cluster_spec import ClusterSpec as ClusterSpec
from asyncmon.distributed.device_setter import replica_device_setter as replica_device_setter
from asyncmon.distributed.ray_launch import launch as launch
from asyncmon.distributed.ray_task import ClusterTask as ClusterTask
from asyncmon.distributed.server import Server as Server
from asyncmon.distributed.sync_replicas_optimizer import (
    SyncReplicasOptimizer as SyncReplicasOptimizer,
)
