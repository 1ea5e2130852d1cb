"""Traces of sessions by OpenTelemetry; needs the extra ``otel``."""

from __future__ import annotations

from typing import Any

try:
    from opentelemetry import context
    from opentelemetry import trace as otel
except ImportError as missing:
    raise ImportError("Traces need OpenTelemetry: pip install 'asyncmon[otel]'") from missing

from collections.abc import Callable

from asyncmon.runtime import MonitoredSession, SingularMonitoredSession, Span
from asyncmon.runtime.stop.origin import is_end_of_data
from asyncmon.system import clock
from asyncmon.system.error_text import phrase


def trace(
    session: MonitoredSession | SingularMonitoredSession, tracer: Any = None
) -> Callable[[], None]:
    """Record OpenTelemetry spans of a session.

    The spans are ``asyncmon.opening``, ``asyncmon.creation``, ``asyncmon.restore``, ``asyncmon.run``,
    ``asyncmon.hook <label>.<method>``, ``asyncmon.save``, ``asyncmon.recovery``, ``asyncmon.closing``,
    nested as the work is. A span of the program or of a hook is a child of the span of its run or hook.
    ``background`` has no span, and spans created in it are not children of a run. The attributes are
    ``asyncmon.step`` and ``asyncmon.end_step``, and ``asyncmon.bytes`` of a save; a failed span records
    the error. The end of the data and a cancellation are not failures.

    Without a configured SDK nothing is recorded; a run then costs some microseconds more.

    Args:
        session: to observe, opened or not.
        tracer: default: that of the global provider, named ``asyncmon``.

    Returns:
        A function that ends the tracing; open spans are still completed.

    Raises:
        ImportError: opentelemetry-api is not installed.

    Example::

        am.monitor.trace(session)
        async with session:
            ...
    """
    return session.observe(_Tracing(tracer if tracer is not None else otel.get_tracer("asyncmon")))


class _Tracing:
    """An observer that creates spans and makes them current in the context of the work."""

    def __init__(self, tracer: otel.Tracer) -> None:
        self._tracer = tracer
        self._outer = context.get_current()  # of the session
        self._under_way: dict[Span, tuple[otel.Span | None, Any]] = {}

    def began(self, span: Span) -> None:
        if span.kind == "opening":
            self._outer = context.get_current()
        if span.kind == "background":  # it outlives the run or recovery that started it
            self._under_way[span] = None, context.attach(self._outer)
            return
        attributes: dict[str, Any] = {"asyncmon.step": span.step}
        attributes |= {f"asyncmon.{key}": value for key, value in span.attributes.items()}
        made = self._tracer.start_span(
            f"asyncmon.hook {span.name}" if span.kind == "hook" else f"asyncmon.{span.kind}",
            attributes={key: value for key, value in attributes.items() if value is not None},
            start_time=_epoch_nanoseconds(span.started),
        )
        self._under_way[span] = made, context.attach(otel.set_span_in_context(made))

    def ended(self, span: Span) -> None:
        made, token = self._under_way.pop(span)
        context.detach(token)
        if made is None:
            return
        assert span.ended is not None, "it has ended"
        if span.kind != "hook":
            made.set_attribute("asyncmon.name", span.name)
        for key, value in (("end_step", span.end_step), ("bytes", span.attributes.get("bytes"))):
            if value is not None:
                made.set_attribute(f"asyncmon.{key}", value)
        error = span.error
        if isinstance(error, Exception) and not is_end_of_data(error):
            made.record_exception(error)
            made.set_status(otel.Status(otel.StatusCode.ERROR, phrase(error)))
        elif error is not None:
            made.set_attribute("asyncmon.ended_by", phrase(error))
        made.end(_epoch_nanoseconds(span.ended))


def _epoch_nanoseconds(time: float) -> int:
    """Return a time of the loop's clock in nanoseconds since 1970."""
    return round((clock.wall() - clock.monotonic() + time) * 1e9)
