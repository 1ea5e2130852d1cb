"""Messages that describe a cluster. TF1: ``tf.train.ClusterDef``, ``JobDef``, ``ServerDef``."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from asyncmon.protobuf.field import Kind
from asyncmon.protobuf.message import Map, Message, Repeated, proto
from asyncmon.session_config import SessionConfig


class JobDef(Message):
    """A job: its name, and the addresses of its tasks by index. ``tf.train.JobDef``."""

    name: str = proto(1, Kind.TEXT)
    tasks: Map[str] = proto(2, Kind.TEXT, key=Kind.INT)
    elastic: bool = proto(100, Kind.BOOL)  # not in TF1, which ignores it


class ClusterDef(Message):
    """The jobs of a cluster. ``tf.train.ClusterDef``."""

    job: Repeated[JobDef] = proto(1, JobDef, repeated=True)


class ServerDef(Message):
    """The cluster of a server, and the server's job and task index. ``tf.train.ServerDef``."""

    cluster: ClusterDef = proto(1, ClusterDef)
    job_name: str = proto(2, Kind.TEXT)
    task_index: int = proto(3, Kind.INT)
    protocol: str = proto(5, Kind.TEXT)
    port: int = proto(6, Kind.INT)

    def __init__(self, *args: Any, default_session_config: Any = None, **values: Any) -> None:
        super().__init__(*args, **values)
        if default_session_config is not None:
            self.default_session_config = default_session_config

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "default_session_config":
            self.__dict__[name] = value
        else:
            super().__setattr__(name, value)

    @cached_property
    def default_session_config(self) -> SessionConfig:
        """The configuration of the server. It is copied with the message, and not encoded."""
        return SessionConfig()
