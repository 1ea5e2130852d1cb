"""What a supervisor is made of."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from asyncmon.checkpoint import Saver
from asyncmon.graph.core.graph import Graph
from asyncmon.graph.variables.global_step import get_global_step
from asyncmon.runtime.coordinator import Coordinator
from asyncmon.runtime.event_output import EventOutput
from asyncmon.runtime.program import as_program, program_scope
from asyncmon.runtime.session_manager import SessionManager

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from asyncmon.runtime.protocol import Session

__all__ = ["SupervisorPieces"]


class SupervisorPieces:
    """The constructor and the properties of :class:`~asyncmon.runtime.supervisor.Supervisor`."""

    USE_DEFAULT = 0

    def __init__(
        self,
        graph: Any = None,
        ready_op: Any = USE_DEFAULT,
        ready_for_local_init_op: Any = USE_DEFAULT,
        is_chief: bool = True,
        init_op: Any = USE_DEFAULT,
        init_feed_dict: Mapping[Any, Any] | None = None,
        local_init_op: Any = USE_DEFAULT,
        logdir: str | os.PathLike[str] | None = None,
        summary_op: Any = USE_DEFAULT,
        saver: Any = USE_DEFAULT,
        global_step: Any = USE_DEFAULT,
        save_summaries_secs: float = 120,
        save_model_secs: float = 600,
        recovery_wait_secs: float = 30,
        stop_grace_secs: float = 120,
        checkpoint_basename: str = "model.ckpt",
        session_manager: SessionManager | None = None,
        summary_writer: Any = USE_DEFAULT,
        init_fn: Callable[[Session], Awaitable[Any] | Any] | None = None,
        local_init_run_options: Any = None,
        *,
        save_at_end: bool = False,
    ) -> None:
        self._program = program = as_program(graph)
        self._is_chief = is_chief
        self._init_feed_dict = init_feed_dict
        self._init_fn = init_fn
        self._stop_grace_secs = stop_grace_secs
        self._save_at_end = save_at_end
        with program_scope(program):
            self._ready_op = _given(ready_op, program.ready_op)
            self._init_op = _given(init_op, program.init_op)
            self._local_init_op = _given(local_init_op, program.local_init_op)
            self._ready_for_local_init_op = _given(
                ready_for_local_init_op,
                program.ready_for_local_init_op if self._local_init_op is not None else _nothing,
            )
            self._saver = _given(saver, getattr(program, "saver", _new_saver))
            self._summary_op = _given(summary_op, program.summary_op) if is_chief else None
            self._global_step = _given(global_step, self._default_global_step)
            by_default = global_step is SupervisorPieces.USE_DEFAULT
            self._counts_itself = by_default and program.has_global_step()
        self._coord = Coordinator()
        self._logdir = None if logdir is None or not is_chief else os.fspath(logdir)
        self._save_summaries_secs = save_summaries_secs if is_chief else None
        self._save_model_secs = save_model_secs if is_chief else None
        self._save_path = os.path.join(self._logdir, checkpoint_basename) if self._logdir else None
        given = (
            None if summary_writer is SupervisorPieces.USE_DEFAULT or not is_chief else summary_writer
        )
        shared = summary_writer is SupervisorPieces.USE_DEFAULT
        self._output = EventOutput(self._logdir, given, shared, getattr(program, "graph", program))
        self._session_manager = session_manager or SessionManager(
            local_init_op=self._local_init_op,
            ready_op=self._ready_op,
            ready_for_local_init_op=self._ready_for_local_init_op,
            graph=program,
            recovery_wait_secs=recovery_wait_secs,
            local_init_run_options=local_init_run_options,
        )
        program.finalize()

    # -- what it is made of

    @property
    def is_chief(self) -> bool:
        """Whether this one initialises, saves and writes events."""
        return self._is_chief

    @property
    def session_manager(self) -> SessionManager:
        """What makes the sessions."""
        return self._session_manager

    @property
    def coord(self) -> Coordinator:
        """The coordinator of the services and of whatever else runs beside the session."""
        return self._coord

    @property
    def init_op(self) -> Any:
        """What initialises the state."""
        return self._init_op

    @property
    def init_feed_dict(self) -> Mapping[Any, Any] | None:
        """What is fed to ``init_op``."""
        return self._init_feed_dict

    @property
    def ready_op(self) -> Any:
        """What names what is not initialised."""
        return self._ready_op

    @property
    def ready_for_local_init_op(self) -> Any:
        """What names what ``local_init_op`` lacks."""
        return self._ready_for_local_init_op

    @property
    def summary_writer(self) -> Any:
        """The writer of events, or None."""
        return self._output.writer

    @property
    def summary_op(self) -> Any:
        """What gives the summaries that are written by time, or None."""
        return self._summary_op

    @property
    def save_summaries_secs(self) -> float | None:
        """Seconds between summaries; None where this one is not the chief."""
        return self._save_summaries_secs

    @property
    def global_step(self) -> Any:
        """The tensor that counts steps, or None."""
        return self._global_step

    @property
    def saver(self) -> Any:
        """What restores and saves, or None."""
        return self._saver

    @property
    def save_model_secs(self) -> float | None:
        """Seconds between checkpoints; None where this one is not the chief."""
        return self._save_model_secs

    @property
    def save_path(self) -> str | None:
        """The prefix of checkpoints, without the step; None where none are written."""
        return self._save_path

    def _default_global_step(self) -> Any:
        graph = getattr(self._program, "graph", None)
        return get_global_step(graph) if isinstance(graph, Graph) else None


def _given(value: Any, default: Callable[[], Any]) -> Any:
    return default() if value is SupervisorPieces.USE_DEFAULT else value


def _nothing() -> None:
    """Return what there is where there is nothing."""


def _new_saver() -> Saver:
    return Saver(allow_empty=True)
