"""The parts of a session that its data and its pipelines use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple, Protocol

from asyncmon.checkpoint.stateful import StatefulObjects
from asyncmon.runtime.frontier import Recoveries
from asyncmon.runtime.open_sources import OpenSources
from asyncmon.runtime.stop.control import StopControl
from asyncmon.runtime.stop.origin import Kind
from asyncmon.runtime.tasks import Task


class Tasks(Protocol):
    """The tasks of a session. See ``SessionTasks``."""

    def start(self, fn: Callable[..., Awaitable[Any]], *args: Any, name: str) -> Task: ...
    def report(self, error: BaseException, name: str, kind: Kind) -> BaseException: ...
    def raised(self, error: BaseException) -> None: ...


class DataParts(NamedTuple):
    """The parts of one session, over recoveries."""

    stateful: StatefulObjects
    recoveries: Recoveries
    stops: StopControl
    sources: OpenSources
    saves: Callable[[], bool]
    """Returns whether a hook saves checkpoints."""
    on_committed: list[Callable[[int | None], None]]
    """See ``Saves.on_committed``."""
    tasks: Tasks
    peek_with_step: Callable[[Any, Any], Awaitable[tuple[int | None, Any]]]
