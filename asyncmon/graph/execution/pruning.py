"""Which operations fetches need: the others are no part of a plan."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from asyncmon.graph.core.walk import ancestors, predecessors

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from asyncmon.graph.core.node import Operation, Tensor


def needed_ops(targets: Sequence[Tensor | Operation], fed: Collection[Tensor]) -> list[Operation]:
    """Return the operations that targets need, in the order in which they were built."""
    ops = [target.op for target in targets if target not in fed]
    return ancestors(ops, partial(predecessors, fed=fed))
