"""The recorder of a session: all logged values go to all of its sinks."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from asyncmon.summary.logged import LoggedValue, checked_config, logged_values
from asyncmon.summary.values import HParam
from asyncmon.system import clock

logger = logging.getLogger(__name__)


class Sink(Protocol):
    """Gets the values of a session. The methods do not block, raise nothing, and are thread-safe."""

    place: object
    """The real path of the directory whose event file the sink writes; else its logger, or None."""

    def put_values(self, step: int | None, wall_time: float, values: Mapping[str, LoggedValue]) -> None:
        """Add values by tag."""

    def put_summary(self, step: int | None, wall_time: float, summary: Any) -> None:
        """Add the value of a summary op."""

    def put_config(self, config: Mapping[str, HParam]) -> None:
        """Add hyperparameters."""


class Recorder:
    """The values of one session, over recoveries, and the sinks that get all of them.

    ``sess.log``, ``coord.log``, the contexts of runs and step functions, the standard hooks and summary
    ops record here. Sinks come and go with the hook that adds them.

    Args:
        step: returns the global step now, or None.
    """

    def __init__(self, step: Callable[[], int | None]) -> None:
        self._step = step
        self._groups: tuple[tuple[Sink, ...], ...] = ()
        self._warned = False  # that values are logged without a sink
        self._refused: set[str] = set()

    def add(self, sinks: tuple[Sink, ...]) -> Callable[[], None]:
        """Add the sinks of one hook, which may have none. Return a function that removes them."""
        self._groups = (*self._groups, sinks)
        return lambda: self._remove(sinks)

    def _remove(self, sinks: tuple[Sink, ...]) -> None:
        self._groups = tuple(group for group in self._groups if group is not sinks)

    def log(self, values: Any, value: Any = None, *, step: int | None = None) -> None:
        """Record values at a step, see ``MonitoredSession.log``."""
        found, refused = logged_values(values, value, step=step)
        self.refuse(refused)
        self._warn()
        if found:
            self.record(found, self._step() if step is None else int(step))

    def log_config(self, config: Mapping[str, Any]) -> None:
        """Record hyperparameters, see ``MonitoredSession.log_config``."""
        found = checked_config(config)
        self._warn()
        for sink in self._sinks():
            sink.put_config(found)

    def record(
        self, values: Mapping[str, LoggedValue], step: int | None, written: object = None
    ) -> None:
        """Record checked values by tag.

        Args:
            written: the place that has them already.
        """
        now = clock.wall()
        for sink in self._sinks(written):
            sink.put_values(step, now, values)

    def record_summary(self, summary: Any, step: int | None, written: object = None) -> None:
        """Record the value of a summary op, a ``Summary`` or its bytes. See :meth:`record`."""
        now = clock.wall()
        for sink in self._sinks(written):
            sink.put_summary(step, now, summary)

    def refuse(self, refused: Mapping[str, str]) -> None:
        """Log why values are left out, once for each tag."""
        for tag, reason in refused.items():
            if tag not in self._refused:
                self._refused.add(tag)
                logger.warning(
                    "The logged value %r is left out: %s. This is logged once for its tag.", tag, reason
                )

    def _sinks(self, written: object = None) -> list[Sink]:
        sinks = [sink for group in self._groups for sink in group]
        return [sink for sink in sinks if written is None or sink.place != written]

    def _warn(self) -> None:
        if not self._groups and not self._warned:
            self._warned = True
            logger.warning(
                "Values are logged, and the session has no logger: pass loggers=[...], a summary_dir "
                "or a checkpoint_dir to MonitoredTrainingSession, or a LoggersHook in hooks."
            )
