"""Building nodes in the default graph.

Every op function ends in ``create_op`` or one of its two siblings, which convert the inputs and add the
node to the graph of the inputs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from threading import local
from typing import Any

import numpy as np

from asyncmon.graph.core import rules
from asyncmon.graph.core.convert import is_tensor_like, static_ints, tensors_in, to_pair, to_tensor
from asyncmon.graph.core.default_session import interactive
from asyncmon.graph.core.dtypes import as_dtype, int32, int64
from asyncmon.graph.core.graph import BuildContext, Graph, building
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.op import constant_of
from asyncmon.graph.core.shape import Dimension
from asyncmon.system.cancellation import current_task
from asyncmon.system.notebook import call_in_each_cell, in_shell

_of_thread = local()  # its graph is the default graph of a thread for code outside of tasks


def get_default_graph() -> Graph:
    """Return the graph that new ops go to. TF1: same name.

    :meth:`Graph.as_default` sets it for the current task and the tasks started inside. Without one, it
    is the graph of an open interactive session, or the default graph of this thread for code outside
    of tasks (each line of ``python -m asyncio`` has its own context). The cells of a notebook have one,
    though each with an ``await`` is a task. Otherwise this creates a graph, which in a task is the
    default graph of that task only.
    """
    context = building.get()
    if context is None:
        graph = interactive[-1].graph if interactive else getattr(_of_thread, "graph", None)
        context = _set_default(graph or Graph(), shared=not interactive)
    assert isinstance(context.graph, Graph)
    return context.graph


def reset_default_graph() -> None:
    """Set the default graph of this context to a new, empty graph. TF1: same name."""
    _set_default(Graph())


def _set_default(graph: Graph, shared: bool = True) -> BuildContext:
    if shared and current_task() is None:
        _of_thread.graph = graph
    context = BuildContext(graph)
    building.set(context)
    if shared and in_shell():
        _cells.keep(context)
    return context


class _Cells:
    """The default graph of IPython's cells, from one to the next."""

    def __init__(self) -> None:
        self._context: BuildContext | None = None
        self._task: object = None

    def keep(self, context: BuildContext) -> None:
        """Keep a context that the code of a cell has set, and not a task that it has started."""
        if self._context is None:
            self._task = current_task()
            call_in_each_cell(self._begin)
        if self._task is current_task():
            self._context = context

    def _begin(self) -> None:
        self._task = current_task()
        building.set(self._context)


_cells = _Cells()


def graph_of(values: Iterable[Any]) -> Graph:
    """Return the graph of an op on these values: their own, or the default graph."""
    tensor: Any
    for value in values:
        for tensor in (value,) if type(value) is Tensor else tensors_in(value):
            graph: Graph = tensor.graph._target()
            return graph
    return get_default_graph()


def create_operation(
    type: str,
    inputs: Sequence[Any] = (),
    attrs: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Operation:
    """Add a node and return it.

    Args:
        type: the op type, an entry of the table.
        inputs: tensors, or values for :func:`convert_to_tensor`; the first inputs of an op on variables
            are variables.
        attrs: passed to the op's kernel and shape rule by name.
        name: the node's name, made unique; by default the type.

    Raises:
        RuntimeError: the graph is finalized.
        ValueError, TypeError: the inputs do not fit the op.
    """
    return graph_of(inputs).create(type, inputs, attrs or {}, name)


def create_op(
    type: str,
    inputs: Sequence[Any] = (),
    attrs: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> Tensor:
    """Add a node with one output and return the output. See :func:`create_operation`."""
    (output,) = create_operation(type, inputs, attrs, name).outputs
    return output


def create_ops(
    type: str,
    inputs: Sequence[Any] = (),
    attrs: Mapping[str, Any] | None = None,
    name: str | None = None,
) -> tuple[Tensor, ...]:
    """Add a node with several outputs and return them. See :func:`create_operation`."""
    return create_operation(type, inputs, attrs, name).outputs


def convert_to_tensor(
    value: Any,
    dtype: Any = None,
    name: str | None = None,
    preferred_dtype: Any = None,
    dtype_hint: Any = None,
) -> Tensor:
    """Return a tensor with this value. TF1: same name.

    Args:
        value: a tensor (returned unchanged), a variable (its value), a number, string, array, or a
            nested list of these.
        dtype: the required dtype.
        name: the name of a new node.
        preferred_dtype: tried first if ``dtype`` is None.
        dtype_hint: a newer name of ``preferred_dtype``.

    Raises:
        ValueError: a tensor of another dtype, or None.
        TypeError: a value that the dtype cannot hold.
    """
    graph = graph_of((value,))
    preferred_dtype = dtype_hint if preferred_dtype is None else preferred_dtype
    if dtype is None and preferred_dtype is not None and not is_tensor_like(value):
        try:
            return to_tensor(graph, value, as_dtype(preferred_dtype), name)
        except (TypeError, ValueError):
            pass
    return to_tensor(graph, value, None if dtype is None else as_dtype(dtype), name)


def convert_pair(x: Any, y: Any, label: str) -> tuple[Tensor, Tensor]:
    """Convert two operands to tensors; a value that is no tensor takes the dtype of the other operand.

    ``label`` is the name or type of the op, the scope of the names of constants.
    """
    return to_pair(graph_of((x, y)), x, y, label)


def axes_of(value: Any, what: str = "axis") -> tuple[int, ...] | Tensor | None:
    """Return axes as ints if they are known, else as an integer tensor. None stays None.

    TypeError if they are not integers.
    """
    if value is None:
        return None
    if not (is_tensor_like(value) or any(True for _ in tensors_in(value))):
        if type(value) is not int and np.ndim(value) > 1:
            raise ValueError(f"Shape must be at most rank 1 but is rank {np.ndim(value)}: {what}")
        return static_ints(value, what)
    tensor = convert_to_tensor(value)
    rules.check_dtype(tensor.dtype, (int32, int64), what)
    known = constant_of(tensor.spec)
    return tensor if known is None else tuple(np.ravel(known).tolist())


def axis_of(value: Any, what: str = "axis", vector: bool = False) -> int | Tensor:
    """Return one axis as an int if it is known, else as a scalar tensor or ``vector`` of one element.

    TypeError if it is not an integer. ValueError if there is not exactly one.
    """
    if type(value) is int:
        return value
    axes = axes_of(value, what)
    if not vector and isinstance(axes, tuple):
        rules.with_rank(getattr(value, "shape", None) if is_tensor_like(value) else np.shape(value), 0)
    if axes is None or (isinstance(axes, tuple) and len(axes) != 1):
        raise ValueError(f"{what} must be one integer, got {value!r}.")
    if isinstance(axes, tuple):
        return axes[0]
    if not (vector and axes.spec.shape == (1,)):
        rules.with_rank(axes.spec.shape, 0)
    return axes


def shape_tensor(value: Any) -> Tensor:
    """Convert a shape (an int, ints, an array, tensors or a mix) to an integer vector tensor."""
    if hasattr(value, "as_list"):
        value = value.as_list()
    elif isinstance(value, list | tuple):
        value = [d.value if isinstance(d, Dimension) else d for d in value] or np.zeros(0, np.int32)
    elif isinstance(value, np.ndarray) and not value.size:
        value = value.astype(np.int32)
    tensor = convert_to_tensor(value)
    if not tensor.dtype.is_integer:
        raise TypeError(f"A shape must be of integers, got {value!r} of dtype {tensor.dtype.name}.")
    return tensor


class name_scope:  # TF1's name
    """Prefix the names of the ops built inside ``with``. TF1: ``tf.name_scope``.

    Args:
        name: the scope; None stands for ``default_name``.
        default_name: see ``name``.
        values: tensors that determine the graph; by default the default graph.
    """

    def __init__(
        self, name: str | None, default_name: str | None = None, values: Iterable[Any] | None = None
    ) -> None:
        self._name = default_name if name is None else name
        self._values = values
        self._scope: AbstractContextManager[str] | None = None

    @property
    def name(self) -> str | None:
        """The ``name`` argument, or the default. TF1: same name."""
        return self._name

    def __enter__(self) -> str:
        self._scope = graph_of(self._values or ()).name_scope(self._name)
        return self._scope.__enter__()

    def __exit__(self, *exc_info: Any) -> None:
        assert self._scope is not None
        self._scope.__exit__(*exc_info)


def control_dependencies(control_inputs: Sequence[Any] | None) -> AbstractContextManager[None]:
    """Run the ops built inside ``with`` after these. TF1: ``tf.control_dependencies``."""
    return get_default_graph().control_dependencies(control_inputs)


def device(device_name_or_function: Any) -> AbstractContextManager[None]:
    """Place the ops built inside ``with`` on a device. TF1: ``tf.device``.

    Nested scopes are merged; the parts of an inner name override those of an outer one. Ops that read
    or write a variable always have the device of the variable.

    Args:
        device_name_or_function: ``"/job:ps/task:0"``, a :class:`DeviceSpec`, None to ignore the outer
            scopes, or a function from a new op, whose ``device`` is set by the inner scopes, to the
            name that replaces it.

    Raises:
        ValueError: a name that is not valid.
    """
    return get_default_graph().device(device_name_or_function)


def colocate_with(op: Any, ignore_existing: bool = False) -> AbstractContextManager[None]:
    """Place the ops built inside ``with`` on the device of another op. TF1: ``tf.colocate_with``.

    Args:
        op: an operation, tensor or variable. Outer device scopes have no effect, nor have inner ones if
            it has a device. None ends colocation and needs ``ignore_existing``.
        ignore_existing: ignore the device of an outer ``colocate_with`` if this op has none.

    Raises:
        ValueError: ``op`` is None without ``ignore_existing``.
        TypeError: ``op`` is of another type.
    """
    return get_default_graph().colocate_with(op, ignore_existing)


def container(container_name: str) -> AbstractContextManager[str]:
    """Put the variables and queues built inside ``with`` into a container. TF1: ``tf.container``.

    See :meth:`Graph.container`.
    """
    return get_default_graph().container(container_name)


def set_random_seed(seed: int | None) -> None:
    """Set the seed of the default graph, from which ops derive theirs. TF1: same name."""
    get_default_graph().seed = seed


def get_collection(key: Any, scope: str | None = None) -> list[Any]:
    """Return a copy of a collection of the default graph. TF1: same name."""
    return get_default_graph().get_collection(key, scope)


def get_collection_ref(key: Any) -> list[Any]:
    """Return a collection of the default graph, which may be changed in place. TF1: same name."""
    return get_default_graph().get_collection_ref(key)


def add_to_collection(name: Any, value: Any) -> None:
    """Append to a collection of the default graph. TF1: same name."""
    get_default_graph().add_to_collection(name, value)


def add_to_collections(names: Any, value: Any) -> None:
    """Append to several collections of the default graph. TF1: same name."""
    get_default_graph().add_to_collections(names, value)
