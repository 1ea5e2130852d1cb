"""The global step, the number of training steps. TF1: ``tf.train.get_global_step`` and others."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from typing import Any

import numpy as np

from asyncmon.graph.core.build import get_default_graph
from asyncmon.graph.core.dtypes import int64
from asyncmon.graph.core.graph import Graph
from asyncmon.graph.core.keys import GraphKeys
from asyncmon.graph.core.node import Tensor
from asyncmon.graph.core.shape import num_elements
from asyncmon.graph.variables.get_variable import get_variable
from asyncmon.graph.variables.initializers import zeros_initializer
from asyncmon.graph.variables.variable import Variable

_log = logging.getLogger("asyncmon.graph")


def get_global_step(graph: Graph | None = None) -> Any:
    """Return the graph's global step, a variable or tensor, or None. TF1: same name.

    It is the single member of ``GraphKeys.GLOBAL_STEP``, or else the tensor ``global_step:0``.
    TypeError if it is not an integer scalar.
    """
    found = _found(get_default_graph() if graph is None else graph)
    if found is not None:
        assert_global_step(found)
    return found


def step_counter(graph: Graph) -> Any:
    """Return the global step if it is one integer, of any shape, or None."""
    found = _found(graph)
    counts = isinstance(found, Variable | Tensor) and found.dtype.is_integer
    return found if counts and num_elements(found.get_shape().dims) in (1, None) else None


def _found(graph: Graph) -> Any:
    steps = graph.get_collection(GraphKeys.GLOBAL_STEP)
    if len(steps) > 1:
        _log.error("Multiple tensors in global_step collection.")
        return None
    if steps:
        return steps[0]
    try:
        found = graph.get_tensor_by_name("global_step:0")
    except KeyError:
        return None
    variables = {v.name: v for v in graph.get_collection(GraphKeys.GLOBAL_VARIABLES)}
    return variables.get(found.name, found)


def create_global_step(graph: Graph | None = None) -> Variable:
    """Create the global step of a graph: int64, 0, saved, not trainable. TF1: same name.

    ``get_variable`` creates it, so the name starts with that of the variable scope. ValueError if it
    exists, or the scope has ``reuse=True``.
    """
    graph = get_default_graph() if graph is None else graph
    if get_global_step(graph) is not None:
        raise ValueError('"global_step" already exists.')
    is_default = graph.root is get_default_graph().root
    with nullcontext() if is_default else graph.root.as_default():
        step: Variable = get_variable(
            "global_step",
            [],
            int64,
            zeros_initializer(),
            trainable=False,
            collections=[GraphKeys.GLOBAL_VARIABLES, GraphKeys.GLOBAL_STEP],
        )
    return step


def get_or_create_global_step(graph: Graph | None = None) -> Any:
    """Return the graph's global step; create it if there is none. TF1: same name."""
    graph = get_default_graph() if graph is None else graph
    found = get_global_step(graph)
    return create_global_step(graph) if found is None else found


def assert_global_step(global_step_tensor: Any) -> None:
    """Raise TypeError unless this is an integer scalar, a variable or a tensor. TF1: same name."""
    step = global_step_tensor
    if not isinstance(step, Variable | Tensor):
        raise TypeError(f'Existing "global_step" must be a Variable or Tensor: {step!r}.')
    if not step.dtype.is_integer:
        raise TypeError(f'Existing "global_step" does not have integer type: {step.dtype.name}')
    if step.get_shape().ndims not in (0, None):
        raise TypeError(f'Existing "global_step" is not scalar: {step.get_shape()}')


async def global_step(sess: Any, global_step_tensor: Any) -> int:
    """Return the value of the global step, a variable, tensor or name, in a session. TF1: same name.

    The shape [1] is accepted, too.
    """
    return int(np.asarray(await sess.run(global_step_tensor)).item())
