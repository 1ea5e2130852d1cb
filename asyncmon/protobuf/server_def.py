"""A task of a cluster as data. TF1: ``tf.train.ServerDef``."""

from __future__ import annotations

from asyncmon.protobuf.cluster_def import ClusterDef
from asyncmon.protobuf.field import Kind
from asyncmon.protobuf.message import Message, proto


class ServerDef(Message):
    """The cluster of a server, and the server's job and task index. ``tf.train.ServerDef``."""

    cluster: ClusterDef = proto(1, ClusterDef)
    job_name: str = proto(2, Kind.TEXT)
    task_index: int = proto(3, Kind.INT)
    protocol: str = proto(5, Kind.TEXT)
    port: int = proto(6, Kind.INT)
