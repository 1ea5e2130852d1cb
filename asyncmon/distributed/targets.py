"""Which module makes the backend for a target. It is imported for the first such session."""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Protocol
from weakref import WeakValueDictionary

from asyncmon.graph.core.graph import Graph
from asyncmon.graph.session.backend import Backend, register_session_factory
from asyncmon.session_config import SessionConfig
from asyncmon.system.process_local import ProcessLocal

# By the first part of targets. Each module has backend(target, graph, config).
_MODULES = {
    "grpc": "asyncmon.distributed.transport",
    "local": "asyncmon.distributed.local",
}


class ServerHere(Protocol):
    """A server of this process."""

    @property
    def is_of_this_loop(self) -> bool:
        """Whether the running event loop is the server's."""

    def start_with_loop(self) -> None:
        """Start, if that was left to the event loop, and it is running."""

    def backend(self, graph: Graph, config: SessionConfig) -> Backend:
        """Return the backend of a session in the server's event loop."""

    async def reset(self, containers: Sequence[str]) -> None:
        """Clear the state of the server and of its cluster."""


servers_here: ProcessLocal[dict[str, ServerHere]] = ProcessLocal(dict)
"""The servers of this process, by target."""

servers_waiting: ProcessLocal[WeakValueDictionary[str, ServerHere]] = ProcessLocal(WeakValueDictionary)
"""Servers constructed before the event loop ran. The first session at their target starts them."""


def start_server_of(target: str) -> None:
    """Start the server with this target, if it is one of :data:`servers_waiting`."""
    found = servers_waiting.get().get(target)
    if found is not None:
        found.start_with_loop()


def _register(scheme: str, module: str) -> None:
    def factory(target: str, graph: Graph, config: SessionConfig) -> Backend:
        here = _here(target, config)
        if here is not None:
            return here.backend(graph, config)
        made: Backend = importlib.import_module(module).backend(target, graph, config)
        return made

    async def reset(target: str, containers: Sequence[str], config: SessionConfig) -> None:
        here = _here(target, config)
        if here is not None:
            await here.reset(containers)
            return
        backend = importlib.import_module(module).backend(target, Graph(), config)
        try:
            await backend.reset(containers)
        finally:
            await backend.close()

    register_session_factory(scheme, factory, None if scheme == "local" else reset)


def _here(target: str, config: SessionConfig) -> ServerHere | None:
    """Return the server that sessions of this event loop use without messages."""
    start_server_of(target)
    found = servers_here.get().get(target)
    is_used = found is not None and not config.rpc_options.use_rpc_for_inprocess_master
    return found if is_used and found is not None and found.is_of_this_loop else None


for _scheme, _module in _MODULES.items():
    _register(_scheme, _module)
