"""A cluster as data. TF1: ``tf.train.ClusterDef`` and ``JobDef``."""

from __future__ import annotations

from asyncmon.protobuf.field import Kind
from asyncmon.protobuf.message import Map, Message, Repeated, proto


class JobDef(Message):
    """A job: its name, and the addresses of its tasks by index. ``tf.train.JobDef``."""

    name: str = proto(1, Kind.TEXT)
    tasks: Map[str] = proto(2, Kind.TEXT, key=Kind.INT)


class ClusterDef(Message):
    """The jobs of a cluster. ``tf.train.ClusterDef``."""

    job: Repeated[JobDef] = proto(1, JobDef, repeated=True)
