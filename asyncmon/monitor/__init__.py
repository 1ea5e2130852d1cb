"""A live page for training runs and its JSON API; needs the extra ``web``.

::

    app = Starlette(routes=[Mount("/train", am.monitor.create_app(session))], lifespan=lifespan)

or from a script, ``async with am.monitor.serve(session):``, or in a process of its own,
``python -m asyncmon monitor runs --port 6060``.

From the ground up: ``scalars`` and ``media`` (data in memory), ``run`` (the protocol of a run),
``run_directory`` and ``live_run`` (its two implementations), ``runs`` (the table), ``feed`` (the event
stream), ``guard`` (access control), ``api`` (the endpoints), ``app``, ``serving``.
"""

import importlib as _importlib
import typing as _typing

if _typing.TYPE_CHECKING:
    from asyncmon.monitor.app import create_app as create_app
    from asyncmon.monitor.live_run import LiveRun as LiveRun
    from asyncmon.monitor.metrics import PrometheusMetrics as PrometheusMetrics
    from asyncmon.monitor.run_directory import RunDirectory as RunDirectory
    from asyncmon.monitor.serving import MonitorServer as MonitorServer
    from asyncmon.monitor.serving import serve as serve
    from asyncmon.monitor.tracing import trace as trace

_MODULES = {
    "LiveRun": "live_run",
    "MonitorServer": "serving",
    "PrometheusMetrics": "metrics",
    "RunDirectory": "run_directory",
    "create_app": "app",
    "serve": "serving",
    "trace": "tracing",
}

__all__ = list(_MODULES)

if not _typing.TYPE_CHECKING:

    def __getattr__(name: str) -> _typing.Any:
        if name in _MODULES:  # each needs another extra
            return getattr(_importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
        raise AttributeError(f"asyncmon.monitor has no {name!r}; it has: {', '.join(__all__)}.")


__dir__ = __all__.copy
