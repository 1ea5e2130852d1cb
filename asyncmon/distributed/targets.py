"""Which module makes the backend for a target. It is imported for the first such session."""

from __future__ import annotations

import importlib
from collections.abc import Callable

from asyncmon.graph.core.graph import Graph
from asyncmon.graph.session.backend import Backend, register_session_factory
from asyncmon.session_config import SessionConfig
from asyncmon.system.process import ProcessLocal

_MODULES = {
    "grpc": "asyncmon.distributed.transport",
    "local": "asyncmon.distributed.local",
    "ray": "asyncmon.distributed.ray_backend",
}
"""By the first part of targets. Each module has ``backend(target, graph, config)``."""

servers_here: ProcessLocal[dict[str, Callable[[Graph, SessionConfig], Backend | None]]] = ProcessLocal(
    dict
)
"""What makes the backends of sessions for servers of this process, by target.

None where the server is of another event loop.
"""


def _register(scheme: str, module: str) -> None:
    def factory(target: str, graph: Graph, config: SessionConfig) -> Backend:
        here = servers_here.get().get(target)
        if here is not None and not config.rpc_options.use_rpc_for_inprocess_master:
            found = here(graph, config)
            if found is not None:
                return found
        made: Backend = importlib.import_module(module).backend(target, graph, config)
        return made

    register_session_factory(scheme, factory)


for _scheme, _module in _MODULES.items():
    _register(_scheme, _module)
