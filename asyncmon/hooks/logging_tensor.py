"""Log values of fetches."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from asyncmon.checkpoint.saveable_session import FetchMembers
from asyncmon.hooks.hook_support import (
    current_graph,
    leave_out,
    log_errors,
    named_tensor,
    samples_every,
    whole_number,
)
from asyncmon.runtime import (
    Coordinator,
    Session,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from asyncmon.system import clock
from asyncmon.system.members import members_of

logger = logging.getLogger(__name__)


class LoggingTensorHook(SessionRunHook):
    """Log values periodically and at the end. TF1: ``tf.train.LoggingTensorHook``.

    Only runs that log fetch the values, together with the fetches of the caller. By runs, the first
    run logs, then one every ``every_n_iter``; recoveries do not reset the count. By seconds, a
    background task samples the next run at each interval.

    Args:
        tensors: fetches by tag, logged in this order; or fetches, with their names as tags.
        every_n_iter: the interval in runs of this session.
        every_n_secs: the interval in seconds. 0 or less logs each run.
        at_end: also log at a successful end, unless the last step was logged. For a graph, the values
            at the end; for another program, the values of the last run, so that each run fetches them.
        formatter: a plain function that returns the line for a dict of tags and values.

    Raises:
        ValueError: both of ``every_n_iter`` and ``every_n_secs`` are given, or neither and no
            ``at_end``, or ``every_n_iter`` is not positive, or ``every_n_secs`` is NaN.

    Example::

        hooks = [LoggingTensorHook({"loss": loss, "rate": learning_rate}, every_n_iter=100)]
    """

    def __init__(
        self,
        tensors: Mapping[str, Any] | Iterable[Any],
        every_n_iter: int | None = None,
        every_n_secs: float | None = None,
        at_end: bool = False,
        formatter: Callable[[dict[str, Any]], str] | None = None,
    ) -> None:
        neither, both = every_n_iter is every_n_secs is None, None not in (every_n_iter, every_n_secs)
        if both or (neither and not at_end):
            raise ValueError(
                "either at_end and/or exactly one of every_n_iter and every_n_secs must be provided."
            )
        if every_n_iter is not None:
            every_n_iter = whole_number("every_n_iter", every_n_iter, least=1)
        elif every_n_secs is not None and clock.seconds("every_n_secs", every_n_secs) <= 0:
            every_n_iter, every_n_secs = 1, None
        self._tensors = _by_tag(tensors)
        self._every_n_iter, self._every_n_secs = every_n_iter, every_n_secs
        self._at_end = at_end
        self._formatter = formatter
        if self._every_n_iter is None and not at_end:
            leave_out(self, LoggingTensorHook, "before_run", "after_run")
        if self._every_n_secs is None:
            leave_out(self, LoggingTensorHook, "background")

    async def begin(self) -> None:
        """Look up the names in the graph, and reset the count.

        Raises:
            KeyError: a name is not in the graph.
            ValueError: a name is ambiguous, or a tensor belongs to another graph.
        """
        self._args = SessionRunArgs({tag: named_tensor(fetch) for tag, fetch in self._tensors.items()})
        self._fetches_always = self._at_end and current_graph() is None
        self._due = False
        self._runs = 0
        self._last_values: Mapping[str, Any] | None = None
        self._logged_at: float | None = None
        self._logged_run: tuple[int | None, int] | None = None
        self._logged_step: int | None = None  # by seconds

    async def before_run(self, run_context: SessionRunContext) -> SessionRunArgs | None:
        period = self._every_n_iter
        self._due = period is not None and self._runs % period == 0
        return self._args if self._due or self._fetches_always else None

    async def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        self._runs += 1
        self._last_values = run_values.results
        if self._due:
            self._log(run_values.results)
            self._logged_run = run_values.step, self._runs

    async def background(self, session: Session, coord: Coordinator) -> None:
        assert self._every_n_secs is not None, "left out by runs"
        async for values, step in samples_every(coord, self._every_n_secs, self._args.fetches):
            with log_errors(self, "a report"):
                self._log(values)
            self._logged_step = step

    async def end(self, session: Session) -> None:
        step = session.global_step
        logged = self._logged_run == (step, self._runs) or self._logged_step == step is not None
        if not self._at_end or logged:
            return
        values = self._last_values if self._fetches_always else await session.run(self._args.fetches)
        if values is not None:
            self._log(values)

    def _log(self, values: Mapping[str, Any]) -> None:
        now, before = clock.monotonic(), self._logged_at
        self._logged_at = now
        if self._formatter is not None:
            logger.info("%s", self._formatter(dict(values)))
            return
        line = ", ".join(f"{tag} = {_text(values[tag])}" for tag in self._tensors)
        if before is None:
            logger.info("%s", line)
        else:
            logger.info("%s (%.3f sec)", line, now - before)


def _by_tag(tensors: Mapping[str, Any] | Iterable[Any]) -> dict[str, Any]:
    if isinstance(tensors, Mapping):
        return dict(tensors)
    if isinstance(tensors, str) or not isinstance(tensors, Iterable):
        raise TypeError(
            f"tensors must be a dict of tags and fetches or a list of fetches, got {tensors!r}. "
            "Write [...] around a single one."
        )
    return {
        fetch if isinstance(fetch, str) else members_of(FetchMembers, fetch).name or str(fetch): fetch
        for fetch in tensors
    }


def _text(value: Any) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, np.ndarray):
        if value.dtype == object:
            texts = [_text(item) for item in value.ravel()]
            value = np.array(texts, object).reshape(value.shape)
        return np.array2string(value, suppress_small=True)
    return str(value)
