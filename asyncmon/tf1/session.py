"""TF1: ``tf.InteractiveSession``, ``tf.ConfigProto`` and the messages in it."""

from asyncmon.graph import Graph, Session, get_default_graph
from asyncmon.graph.core.default_session import interactive
from asyncmon.session_config import RPCOptions, SessionConfig, UnusedOptions

__all__ = [
    "ConfigProto", "GPUOptions", "GraphOptions", "InteractiveSession", "OptimizerOptions", "RPCOptions",
]  # fmt: skip

ConfigProto = SessionConfig
GPUOptions = GraphOptions = UnusedOptions


class OptimizerOptions(UnusedOptions):
    """TF1: ``tf.OptimizerOptions``. Without effect: plans are always optimised."""

    L1 = DEFAULT = 0
    L0 = OFF = -1
    ON_1 = 1
    ON_2 = 2


class InteractiveSession(Session):
    """A session that is the default session from its construction to its ``close``. TF1: same name.

    For ``python -m asyncio`` and notebooks, where each line or cell may run in a context of its own: it
    is the default session of the whole process, and its graph the default graph, unless another one is
    set. Create it before the graph. ``close`` ends that.

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
        """Stop being the default session, and close. A second call does nothing."""
        if self in interactive:
            interactive.remove(self)
            if self._graph_scope is not None and get_default_graph() is self.graph:  # not elsewhere
                self._graph_scope.__exit__(None, None, None)
        await super().close()
