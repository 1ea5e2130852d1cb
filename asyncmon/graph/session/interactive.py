"""A session for the prompt. TF1: ``tf.InteractiveSession``."""

from __future__ import annotations

from asyncmon.graph.core.build import get_default_graph
from asyncmon.graph.core.default_session import interactive
from asyncmon.graph.core.graph import Graph
from asyncmon.graph.session.session import Session
from asyncmon.session_config import SessionConfig


class InteractiveSession(Session):
    """A session that is the default one from its construction to its ``close``. TF1: same name.

    For ``python -m asyncio`` and notebooks, where each line or cell may run in a context of its own: it
    is the default session of the whole process, and its graph the default graph, wherever no other one
    is set. Make it before the graph is built. ``close`` ends that.

    Args: as for :class:`Session`.

    Example::

        >>> sess = InteractiveSession()
        >>> x = constant([1.0, 2.0])
        >>> await reduce_sum(x).eval()
        3.0
    """

    def __init__(
        self, target: str = "", graph: Graph | None = None, config: SessionConfig | None = None
    ) -> None:
        super().__init__(target, graph, config)
        interactive.append(self)
        self._graph_scope = None if graph is None else graph.as_default()
        if self._graph_scope is not None:
            self._graph_scope.__enter__()

    async def close(self) -> None:
        """Be the default no longer, and close. A second call does nothing."""
        if self in interactive:
            interactive.remove(self)
            if self._graph_scope is not None and get_default_graph() is self.graph:  # not elsewhere
                self._graph_scope.__exit__(None, None, None)
        await super().close()
