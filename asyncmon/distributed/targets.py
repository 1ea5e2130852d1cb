"""Which module makes the backend for a target. It is imported for the first such session."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from asyncmon.graph.session.backend import register_session_factory

if TYPE_CHECKING:
    from asyncmon.graph.construction.graph import Graph
    from asyncmon.graph.session.backend import Backend
    from asyncmon.session_config import SessionConfig

_MODULES: dict[str, str] = {
    "local": "asyncmon.distributed.local",
    "ray": "asyncmon.distributed.ray_backend",
}
"""By the first part of targets. Each module has ``backend(target, graph, config)``."""


def _register(scheme: str, module: str) -> None:
    def factory(target: str, graph: Graph, config: SessionConfig) -> Backend:
        made: Backend = importlib.import_module(module).backend(target, graph, config)
        return made

    register_session_factory(scheme, factory)


for _scheme, _module in _MODULES.items():
    _register(_scheme, _module)
