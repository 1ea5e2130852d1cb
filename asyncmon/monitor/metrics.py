"""Metrics of sessions for Prometheus; needs the extra ``web``."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import re
from contextlib import suppress
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

try:
    import prometheus_client as prometheus
except ImportError as missing:
    raise ImportError("Metrics need prometheus-client: pip install 'asyncmon[web]'") from missing

from collections.abc import Mapping, Sequence

from asyncmon.hooks.loop_lag import loop_lags
from asyncmon.monitor.run import queues_of
from asyncmon.runtime import MonitoredSession, SingularMonitoredSession, Span
from asyncmon.runtime.session_state import SessionState
from asyncmon.system import clock

logger = logging.getLogger(__name__)

_LAG_SECS = 0.1
_QUEUE_SECS = 1.0  # interval between two queries of the queues

KEEP_SECS = 300.0
"""The values of a closed session leave the registry after this time: a last scrape has them."""

_RUN_BUCKETS = (1e-4, 3e-4, 1e-3, 3e-3, 0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100)
_LAG_BUCKETS = (1e-3, 2.5e-3, 5e-3, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
_SAVE_BUCKETS = (0.01, 0.03, 0.1, 0.3, 1, 3, 10, 30, 100, 300, 1000)

_AROUND_RUNS = ("before_run", "after_run")


class PrometheusMetrics:
    """Counts and times what a session does, for a Prometheus registry.

    The metrics are ``asyncmon_steps_total``, ``asyncmon_global_step``, ``asyncmon_run_seconds``,
    ``asyncmon_hook_seconds`` (of ``before_run`` and ``after_run``, by ``hook``),
    ``asyncmon_loop_lag_seconds``, ``asyncmon_checkpoint_seconds``, ``asyncmon_checkpoint_bytes`` (of
    the last one), ``asyncmon_checkpoint_failures_total``, ``asyncmon_recoveries_total``,
    ``asyncmon_queue_size`` (by ``queue``), ``asyncmon_pipeline`` (by ``pipeline`` and ``value``, a
    field of :class:`~asyncmon.runtime.PipelineStatistics`) and ``asyncmon_run_state`` (1 for the
    present ``state``, see :class:`~asyncmon.runtime.RunRecord`, and 0 for the earlier ones).

    Create it before the session is opened, or while it is open, in its event loop. A task that ends
    with the session measures lag and queues. The sessions of one registry share the metrics; sessions
    with the same labels add to the same values, so that a restarted session continues them. The values
    of a session leave the registry five minutes after its close, unless another one adds to them.

    Args:
        session: to observe.
        registry: a ``CollectorRegistry``. Default: that of the process.
        labels: labels of all metrics, by name. ``run`` defaults to the session's name.

    Raises:
        ValueError: the registry has metrics with other labels, or a label name is invalid.
        ImportError: prometheus-client is not installed.

    Example::

        metrics = am.monitor.PrometheusMetrics(session, labels={"run": "digits"})
        app = Starlette(routes=[Mount("/metrics", prometheus_client.make_asgi_app())])
    """

    def __init__(
        self,
        session: MonitoredSession | SingularMonitoredSession,
        registry: Any = None,
        labels: Mapping[str, str] | None = None,
    ) -> None:
        labels = {"run": session.name, **(labels or {})}
        self._session = session
        self._families = families = _families_of(registry or prometheus.REGISTRY, tuple(sorted(labels)))
        self._labels = labels
        self._hooks: dict[str, Any] = {}  # the summary of each
        self._queues: set[str] = set()
        self._pipelines: set[tuple[str, str]] = set()
        self._states: dict[str, Any] = {}  # the gauge of each
        self._task: asyncio.Task[None] | None = None
        self._leaving: asyncio.TimerHandle | None = None  # the registry, after the close
        self._own = {name: family.labels(**labels) for name, family in families.plain.items()}
        if session.state is SessionState.OPEN:
            self._start()
        self._remove = session.observe(self)
        self._key = tuple(labels[name] for name in families.labels)
        families.users.setdefault(self._key, WeakSet()).add(self)
        _of_sessions.setdefault(session, WeakSet()).add(self)

    def close(self) -> None:
        """Stop counting. The values stay in the registry. A second call does nothing."""
        self._remove()
        self._stop()

    def remove(self) -> None:
        """Stop counting, and remove the values from the registry.

        They stay if another session adds to them. A second call does nothing.
        """
        self.close()
        if self._leaving is not None:
            self._leaving.cancel()
        users = self._families.users
        others = users.get(self._key)
        if others is None or self not in others:
            return
        others.discard(self)
        if others:
            return
        del users[self._key]
        self._forget_queues(self._queues)
        values = [self._labels[name] for name in self._families.labels]
        for family in self._families.plain.values():
            _remove(family, values)
        for family, found in (
            (self._families.hook_secs, self._hooks),
            (self._families.run_state, self._states),
        ):
            for value in found:
                _remove(family, [*values, value])

    async def aclose(self) -> None:
        """Call :meth:`close` and wait for the task that measures lag and queues."""
        task = self._task
        self.close()
        if task is not None:
            await asyncio.wait([task])

    # -- the observer

    def began(self, span: Span) -> None:
        """Start measuring lag and queues when the session opens."""
        if span.kind == "opening":
            self._start()
            self._show_state()

    def ended(self, span: Span) -> None:
        """Count the span and record its duration."""
        assert span.ended is not None, "it has ended"
        secs = span.ended - span.started
        if span.kind == "hook":
            if span.attributes["method"] in _AROUND_RUNS:
                self._hook(span.attributes["hook"]).observe(secs)
        elif span.kind == "run":
            self._own["run_seconds"].observe(secs)
            self._count_steps(span)
        elif span.kind == "save":
            self._count_save(span, secs)
        elif span.kind == "recovery" and span.error is None:
            self._own["recoveries"].inc()
        elif span.kind == "closing":
            self._stop()
            # A service with a run a minute would else have the series of all of them.
            loop, context = asyncio.get_running_loop(), contextvars.Context()
            self._leaving = loop.call_later(KEEP_SECS, self.remove, context=context)
            self._show_state()

    def _count_steps(self, span: Span) -> None:
        if span.end_step is not None:
            self._own["global_step"].set(span.end_step)
            self._own["steps"].inc(max(span.end_step - (span.step or 0), 0))
        elif span.error is None:  # a program without a global step
            self._own["steps"].inc()

    def _count_save(self, span: Span, secs: float) -> None:
        if isinstance(span.error, Exception):
            self._own["checkpoint_failures"].inc()
        elif span.attributes["bytes"] is not None:  # not superseded, skipped or still running
            self._own["checkpoint_seconds"].observe(secs)
            self._own["checkpoint_bytes"].set(span.attributes["bytes"])

    def _hook(self, label: str) -> Any:
        found = self._hooks.get(label)
        if found is None:
            found = self._hooks[label] = self._families.hook_secs.labels(hook=label, **self._labels)
        return found

    # -- state, lag and queues

    def _show_state(self) -> None:
        record = self._session.outcome
        if record is not None and record.state not in self._states:
            labels = {**self._labels, "state": record.state}
            self._states[record.state] = self._families.run_state.labels(**labels)
        for state, gauge in self._states.items():
            gauge.set(record is not None and state == record.state)

    def _start(self) -> None:
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(
                self._measure(), name="asyncmon metrics", context=contextvars.Context()
            )

    def _stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def _measure(self) -> None:
        due = clock.monotonic()
        try:
            async for lag in loop_lags(_LAG_SECS):
                self._own["loop_lag_seconds"].observe(lag)
                self._show_state()
                if clock.monotonic() >= due:
                    due = clock.monotonic() + _QUEUE_SECS
                    self._show_pipelines()
                    await self._look_at_queues()
        except Exception:
            logger.exception("Lag and queues of the session are not measured any more.")
        finally:
            self._forget_queues(self._queues)
            self._forget_pipelines()

    def _show_pipelines(self) -> None:
        for found in self._session.statistics().pipelines:
            for value in _PIPELINE_VALUES:
                self._pipelines.add((found.name, value))
                labels = {**self._labels, "pipeline": found.name, "value": value}
                self._families.pipeline.labels(**labels).set(getattr(found, value))

    def _forget_pipelines(self) -> None:
        for name, value in self._pipelines:
            labels = {**self._labels, "pipeline": name, "value": value}
            _remove(self._families.pipeline, [labels[key] for key in self._families.pipeline_labels])
        self._pipelines = set()

    async def _look_at_queues(self) -> None:
        found = await queues_of(self._session, _QUEUE_SECS)
        self._forget_queues(self._queues - {one.name for one in found})
        for one in found:
            self._queues.add(one.name)
            self._families.queue_size.labels(queue=one.name, **self._labels).set(one.size)

    def _forget_queues(self, names: set[str]) -> None:
        for name in names:
            labels = {**self._labels, "queue": name}
            _remove(self._families.queue_size, [labels[key] for key in self._families.queue_labels])
        self._queues = self._queues - names


def _remove(family: Any, labels: Sequence[str]) -> None:
    with suppress(KeyError):  # never set, or removed by another session with the same labels
        family.remove(*labels)


_RESERVED = ("hook", "queue", "state", "pipeline", "value", "le")

_PIPELINE_VALUES = (
    "read", "queued", "running", "ready", "held", "consumed", "made", "again", "dropped", "stale",
    "failures", "lost", "mean_age", "learner_wait_secs", "workers_wait_secs",
)  # fmt: skip

# The metrics with the labels of a session only: kind, description and options by name.
_PLAIN: dict[str, tuple[Any, str, dict[str, Any]]] = {
    "steps": (prometheus.Counter, "Global steps that runs completed.", {}),
    "global_step": (prometheus.Gauge, "The global step.", {}),
    "run_seconds": (
        prometheus.Histogram, "Duration of runs, with hooks and recoveries.", {"buckets": _RUN_BUCKETS},
    ),
    "loop_lag_seconds": (
        prometheus.Histogram, "How late the event loop wakes a task.", {"buckets": _LAG_BUCKETS},
    ),
    "checkpoint_seconds": (
        prometheus.Histogram, "Duration of saves, from the snapshot to the commit.",
        {"buckets": _SAVE_BUCKETS},
    ),
    "checkpoint_bytes": (prometheus.Gauge, "Size of the last checkpoint.", {}),
    "checkpoint_failures": (prometheus.Counter, "Saves that failed.", {}),
    "recoveries": (prometheus.Counter, "Sessions that replaced one that failed.", {}),
}  # fmt: skip


class _Families:
    """The metrics of one registry, with the labels of its first session."""

    def __init__(self, registry: Any, labels: tuple[str, ...]) -> None:
        self.labels = labels
        self.queue_labels = (*labels, "queue")
        self.hook_labels = (*labels, "hook")
        self.pipeline_labels = (*labels, "pipeline", "value")
        self.users: dict[tuple[str, ...], WeakSet[PrometheusMetrics]] = {}
        self.plain = {
            name: kind(f"asyncmon_{name}", text, labelnames=labels, registry=registry, **options)
            for name, (kind, text, options) in _PLAIN.items()
        }
        self.hook_secs = prometheus.Summary(
            "asyncmon_hook_seconds", "Duration of the calls of hooks around runs.",
            labelnames=self.hook_labels, registry=registry,
        )  # fmt: skip
        self.run_state = prometheus.Gauge(
            "asyncmon_run_state", "1 for the state of the run, 0 for its earlier ones.",
            labelnames=(*labels, "state"), registry=registry,
        )  # fmt: skip
        self.pipeline = prometheus.Gauge(
            "asyncmon_pipeline", "Elements, ages in steps and waits in seconds of a pipeline.",
            labelnames=self.pipeline_labels, registry=registry,
        )  # fmt: skip
        self.queue_size = prometheus.Gauge(
            "asyncmon_queue_size", "Elements in a queue or a channel.",
            labelnames=self.queue_labels, registry=registry,
        )  # fmt: skip


_families: WeakKeyDictionary[Any, _Families] = WeakKeyDictionary()
_of_sessions: WeakKeyDictionary[Any, WeakSet[PrometheusMetrics]] = WeakKeyDictionary()


def remove_of(session: Any) -> None:
    """Remove the metrics of a session, see :meth:`PrometheusMetrics.remove`."""
    for metrics in list(_of_sessions.get(session, ())):
        metrics.remove()


def _families_of(registry: Any, labels: tuple[str, ...]) -> _Families:
    for name in labels:
        if not re.fullmatch("[a-zA-Z_][a-zA-Z0-9_]*", name) or name in _RESERVED:
            raise ValueError(f"A label cannot have the name {name!r}; use letters, digits and _.")
    families = _families.get(registry)
    if families is None:
        families = _families[registry] = _Families(registry, labels)
    elif families.labels != labels:
        raise ValueError(
            f"The sessions of a registry have the same labels, here {families.labels}, got {labels}. "
            "Pass the same names, or a registry of its own."
        )
    return families
