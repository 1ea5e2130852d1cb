"""Variables: the state of a program. TF1: ``tf.Variable`` and functions on collections of variables.

A variable is a node; its value belongs to a session. A read returns the value before the writes of the
run, unless a data or control dependency orders it after a write. A fetch of the variable itself returns
the value after all writes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

from asyncmon.graph.core.build import (
    control_dependencies,
    convert_to_tensor,
    create_op,
    device,
    get_collection,
    get_default_graph,
    name_scope,
)
from asyncmon.graph.core.default_session import session_for
from asyncmon.graph.core.dtypes import DType
from asyncmon.graph.core.graph import BuildContext, Graph, building, current_container, entered
from asyncmon.graph.core.keys import GraphKeys
from asyncmon.graph.core.node import Operation, Operators, Tensor
from asyncmon.graph.core.shape import TensorShape, as_shape
from asyncmon.graph.core.walk import ancestors
from asyncmon.graph.ops import variable_ops
from asyncmon.graph.ops.basic import group

_INITIALIZERS = "initializers"  # in a graph's extras: replaced initializers, by variable
_READS = frozenset({"VariableV2", "ReadVariable"})


class SliceInfo:
    """The place of a part in the variable that checkpoints have. TF1: ``tf.Variable.SaveSliceInfo``.

    Attributes:
        full_name: the name of the whole variable.
        full_shape: its shape.
        var_offset: the first index of the part in each dimension.
        var_shape: the shape of the part.
    """

    def __init__(
        self,
        full_name: str,
        full_shape: Iterable[int],
        var_offset: Iterable[int],
        var_shape: Iterable[int],
    ) -> None:
        self.full_name = full_name
        self.full_shape = list(full_shape)
        self.var_offset = list(var_offset)
        self.var_shape = list(var_shape)

    @property
    def spec(self) -> str:
        """The place as a string: ``"5 3 3,2:0,3"``, the shape, then offset and size by dimension."""
        shape = " ".join(map(str, self.full_shape))
        places = zip(self.var_offset, self.var_shape, strict=True)
        return f"{shape} " + ":".join(f"{offset},{size}" for offset, size in places)

    def slices(self) -> tuple[slice, ...]:
        """Return the index of the part in the whole array."""
        places = zip(self.var_offset, self.var_shape, strict=True)
        return tuple(slice(offset, offset + size) for offset, size in places)


@contextmanager
def _initial_scope(by_function: bool) -> Iterator[list[Operation]]:
    """Build an initial value; list the ops of a function, which get the variable's device."""
    made: list[Operation] = []

    def note(op: Operation) -> str:
        made.append(op)
        return op.device

    context = building.get()
    with name_scope("Initializer") if by_function else nullcontext():
        if by_function and context is not None and context.devices:
            with device(None), device(note):
                yield made
        else:
            yield made


def _of_rows(name: str, does: str) -> Callable[..., Tensor]:
    """Return a method for a scatter function that takes indices and rows."""
    write: Callable[..., Tensor] = getattr(variable_ops, name)

    def method(
        self: Variable, sparse_delta: Any, use_locking: bool = False, name: str | None = None
    ) -> Tensor:
        return write(self, sparse_delta.indices, sparse_delta.values, name=name)

    method.__name__, method.__qualname__ = name, f"Variable.{name}"
    method.__doc__ = f"Return a tensor that {does} the rows of an ``IndexedSlices``. TF1: same name."
    return method


class Variable(Operators):
    """A value that lives in a session from step to step. TF1: ``tf.Variable``.

    Accepted wherever a tensor is. Initialise it in a session before a read:
    ``await session.run(global_variables_initializer())``.

    Args:
        initial_value: a tensor, a value, or a function without arguments that returns one.
        trainable: add it to ``GraphKeys.TRAINABLE_VARIABLES``, the variables that optimizers update.
        collections: the collections to add it to; ``[GraphKeys.GLOBAL_VARIABLES]`` by default, whose
            members are saved in checkpoints.
        validate_shape: false allows values of any shape.
        caching_device: without effect: a run reads it once.
        name: made unique; "Variable" by default.
        variable_def: must be None: variables are not built from protocol buffers.
        dtype: the dtype; by default that of ``initial_value``.
        expected_shape: checked against the shape of ``initial_value``.
        import_scope: must be None, as ``variable_def``.
        constraint: ``constraint(value) -> value``, applied by optimizers after each update.
        use_resource: without effect: there is one kind of variable.
        synchronization, aggregation: without effect: a variable has one copy.
        shape: checked as ``expected_shape``; a partially known one allows values of any shape.

    Attributes:
        op: its operation, whose name is the variable's name in snapshots.
        graph: its graph, the outermost one.
        initial_value: the tensor that the initializer assigns.
        initializer: the operation that assigns the initial value.

    Example::

        step = Variable(0, name="step", trainable=False)
        count = step.assign_add(1)
        async with Session() as sess:
            await sess.run(global_variables_initializer())
            assert await sess.run(count) == 1
    """

    SaveSliceInfo = SliceInfo

    def __init__(
        self,
        initial_value: Any = None,
        trainable: bool | None = None,
        collections: Iterable[Any] | None = None,
        validate_shape: bool = True,
        caching_device: Any = None,
        name: str | None = None,
        variable_def: Any = None,
        dtype: Any = None,
        expected_shape: Any = None,
        import_scope: Any = None,
        constraint: Callable[[Any], Any] | None = None,
        use_resource: bool | None = None,
        synchronization: Any = None,
        aggregation: Any = None,
        shape: Any = None,
    ) -> None:
        if variable_def is not None or import_scope is not None:
            raise ValueError("variable_def and import_scope must be None: give an initial_value.")
        if initial_value is None:
            raise ValueError("initial_value must be specified.")
        if collections is not None and not isinstance(collections, list | tuple | set):
            raise ValueError(f"collections must be a list, tuple or set, got {collections!r}.")
        if constraint is not None and not callable(constraint):
            raise ValueError("The `constraint` argument must be a callable.")
        self.graph: Graph = get_default_graph().root
        self.trainable = trainable is None or trainable
        self.constraint = constraint
        with entered(_outside_control_flow(self.graph)), name_scope(name, "Variable") as scope:
            with _initial_scope(callable(initial_value)) as made:
                value = initial_value() if callable(initial_value) else initial_value
                initial = convert_to_tensor(value, dtype, "initial_value")
            found = initial.get_shape()
            for expected in (expected_shape, shape):
                if expected is not None and not found.is_compatible_with(expected):
                    raise ValueError(f"The initial value has shape {found}, expected {expected}.")
            if shape is not None and not TensorShape(shape).is_fully_defined():
                validate_shape = False
            if validate_shape and not found.is_fully_defined():
                raise ValueError(
                    f"initial_value must have a shape specified: {initial!r}. "
                    "Give it one, or pass validate_shape=False."
                )
            attrs = {
                "variable": scope.removesuffix("/"),
                "dtype": initial.dtype,
                "shape": as_shape(found) if validate_shape else None,
            }
            if container := current_container():
                attrs["container"] = container
            self._tensor: Tensor = create_op("VariableV2", (), attrs, scope)
            self.op: Operation = self._tensor.op
            for op in made:
                op.device = op.device or self.op.device
            assert self.op.name == attrs["variable"]
            self.initial_value = _with_initialized_reads(initial)
            self.initializer: Operation = variable_ops.assign(
                self, self.initial_value, validate_shape, name="Assign"
            ).op
        self._save_slice_info: SliceInfo | None = None
        keys = [GraphKeys.GLOBAL_VARIABLES] if collections is None else list(collections)
        if self.trainable and GraphKeys.TRAINABLE_VARIABLES not in keys:
            keys.append(GraphKeys.TRAINABLE_VARIABLES)
        self.graph.add_to_collections(keys, self)

    @property
    def name(self) -> str:
        """The name of its tensor, ``"v:0"``."""
        return self._tensor.name

    @property
    def save_name(self) -> str:
        """Its name in checkpoints; for a part, that of the whole variable."""
        info = self._save_slice_info
        return self.op.name if info is None else info.full_name

    def _set_save_slice_info(self, save_slice_info: SliceInfo | None) -> None:
        """Make it a part of a variable in checkpoints. TF1: same name."""
        self._save_slice_info = save_slice_info

    def _get_save_slice_info(self) -> SliceInfo | None:
        """Return its place in a partitioned variable, or None. TF1: same name."""
        return self._save_slice_info

    @property
    def dtype(self) -> DType:
        """The type of its elements."""
        return self._tensor.spec.dtype

    @property
    def shape(self) -> TensorShape:
        """Its static shape."""
        return self._tensor.shape

    @property
    def device(self) -> str:
        """The device it was built for, or ""."""
        return self._tensor.device

    def get_shape(self) -> TensorShape:
        """Return :attr:`shape`. TF1: same name."""
        return self.shape

    def value(self) -> Tensor:
        """Return its value after the current control dependencies, if there are any.

        Without them, return the variable's own tensor; a fetch of it is read after the run's writes.
        """
        context = building.get()
        ordered = context is not None and context.control and context.graph.root is self.graph
        return self.read_value() if ordered else self._tensor

    def read_value(self) -> Tensor:
        """Return its value after the current control dependencies, in the current branch.

        Without them, return the value before the run's writes, also in a fetch.
        """
        return create_op("ReadVariable", (self,), None, "read")

    def initialized_value(self) -> Tensor:
        """Return its value, or its initial value if it has none yet. TF1: same name."""
        return create_op("InitializedValue", (self, self.initial_value))

    def set_initial_value(self, value: Any) -> None:
        """Replace the initial value. Initializer ops built before keep the old one."""
        with entered(_outside_control_flow(self.graph)), name_scope(f"{self.op.name}/"):
            self.initial_value = convert_to_tensor(value, self.dtype)
            self.initializer = variable_ops.assign(self, self.initial_value, name="Assign").op
        self.graph.extras.setdefault(_INITIALIZERS, {})[self.op.name] = self.initializer

    def eval(self, session: Any = None) -> Awaitable[Any]:
        """Return its value in a session, by default the default one. TF1: same name.

        ValueError if there is no session, or it runs another graph.
        """
        return self._tensor.eval(session=session)

    def load(self, value: Any, session: Any = None) -> Awaitable[None]:
        """Set it in a session, by default the default one, initialised or not. TF1: same name.

        Adds no operation to the graph: it runs the initializer and feeds the value. ValueError if there
        is no session, or it runs another graph; or the shape differs.
        """
        chosen = session_for(self.graph, session, "load a variable", "load")
        done: Awaitable[None] = chosen.run(self.initializer, {self.initializer.inputs[1]: value})
        return done

    def _as_tensor(self) -> Tensor:
        return self.value()

    def _as_graph_element(self) -> Tensor:
        return self._tensor

    def _ref(self) -> Tensor:
        """Return its own tensor, also under control dependencies. TF1: same name."""
        return self._tensor

    def __getitem__(self, index: Any) -> Tensor:
        """Return a part of its value; ``v[index].assign(value)`` sets that part. TF1: same name."""
        part = super().__getitem__(index)
        if part.op.type == "StridedSlice":
            part.assign = partial(variable_ops.assign_part, self, part.op)
        return part

    def assign(
        self, value: Any, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Assign a value; return the new value, or the operation if not ``read_value``.

        TF1: same name. ``use_locking`` is without effect: the writes of a run are one transaction.
        """
        return _written(variable_ops.assign(self, value, name=name), read_value)

    def assign_add(
        self, delta: Any, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Add a value; return the new value. Arguments as :meth:`assign`."""
        return _written(variable_ops.assign_add(self, delta, name=name), read_value)

    def assign_sub(
        self, delta: Any, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> Any:
        """Subtract a value; return the new value. Arguments as :meth:`assign`."""
        return _written(variable_ops.assign_sub(self, delta, name=name), read_value)

    scatter_add = _of_rows("scatter_add", "adds")
    scatter_sub = _of_rows("scatter_sub", "subtracts")
    scatter_update = _of_rows("scatter_update", "sets")

    def scatter_nd_add(self, indices: Any, updates: Any, name: str | None = None) -> Any:
        """Add updates at coordinates; return the new value. TF1: same name."""
        return variable_ops.scatter_nd_add(self, indices, updates, name=name)

    def scatter_nd_sub(self, indices: Any, updates: Any, name: str | None = None) -> Any:
        """Subtract updates at coordinates; return the new value. TF1: same name."""
        return variable_ops.scatter_nd_sub(self, indices, updates, name=name)

    def scatter_nd_update(self, indices: Any, updates: Any, name: str | None = None) -> Any:
        """Set elements or slices at coordinates; return the new value. TF1: same name."""
        return variable_ops.scatter_nd_update(self, indices, updates, name=name)

    def gather_nd(self, indices: Any, name: str | None = None) -> Tensor:
        """Return the elements or slices at coordinates. TF1: same name."""
        return create_op("GatherNd", (self, indices), {"batch_dims": 0}, name)

    def sparse_read(self, indices: Any, name: str | None = None) -> Tensor:
        """Return some of its rows. TF1: same name."""
        return create_op("GatherV2", (self, indices), {"axis": 0, "batch_dims": 0}, name)

    def count_up_to(self, limit: int) -> Any:
        """Return its value, then add 1; OutOfRangeError at the limit. TF1: same name."""
        return variable_ops.count_up_to(self, limit)

    def set_shape(self, shape: Any) -> None:
        """Refine the static shape. TF1: same name."""
        self._tensor.set_shape(shape)

    def __repr__(self) -> str:
        return f"<Variable {self.name!r} shape={self.shape} dtype={self.dtype.name}>"


def _written(assigned: Tensor, read_value: bool) -> Tensor | Operation:
    return assigned if read_value else assigned.op


def _outside_control_flow(graph: Graph) -> BuildContext:
    """Return the context to build a variable in, outside branches, loops and control dependencies."""
    context = building.get()
    assert context is not None, "set in get_default_graph"
    if context.graph is graph:
        return context._replace(control=())
    return context._replace(graph=graph, scope="", control=())


def _with_initialized_reads(initial: Tensor) -> Tensor:
    """Return an initial value whose reads of variables fall back to their initial values."""
    # One run can then initialise variables that depend on each other, in any order. The ops between the
    # reads and the value are copied; a value without such reads is returned unchanged.
    copies: dict[Tensor, Tensor] = {}
    changed: dict[str, Operation] = get_default_graph().root.extras.get(_INITIALIZERS, {})

    def before(op: Operation) -> list[Operation]:  # none of a node that reads or writes a variable
        return [] if op.op_def.refs else [tensor.op for tensor in op.inputs]

    for op in ancestors([initial.op], before):
        if op.type in _READS:
            ref = op.inputs[0] if op.inputs else op.outputs[0]
            initializer = changed.get(ref.op.name) or ref.graph.get_operation_by_name(
                f"{ref.op.name}/Assign"
            )
            copies[op.outputs[0]] = create_op("InitializedValue", (ref, initializer.inputs[1]))
        elif not op.op_def.refs and any(tensor in copies for tensor in op.inputs):
            copy = op.graph.add_op(
                op.type,
                [copies.get(tensor, tensor) for tensor in op.inputs],
                op.attrs if op.rng_key is None else {**op.attrs, "seed": op.rng_key[1]},
                f"{op.name.rpartition('/')[2]}_guarded",
            )
            copy.rng_key, copy.device = op.rng_key, op.device
            copies.update(zip(op.outputs, copy.outputs, strict=True))
    return copies.get(initial, initial)


def global_variables(scope: str | None = None) -> list[Variable]:
    """Return the variables that are saved and restored. TF1: same name."""
    return get_collection(GraphKeys.GLOBAL_VARIABLES, scope)


def local_variables(scope: str | None = None) -> list[Variable]:
    """Return the variables of this process, which are not saved. TF1: same name."""
    return get_collection(GraphKeys.LOCAL_VARIABLES, scope)


def trainable_variables(scope: str | None = None) -> list[Variable]:
    """Return the variables that optimizers update. TF1: same name."""
    return get_collection(GraphKeys.TRAINABLE_VARIABLES, scope)


def model_variables(scope: str | None = None) -> list[Variable]:
    """Return the variables of ``GraphKeys.MODEL_VARIABLES``. TF1: same name."""
    return get_collection(GraphKeys.MODEL_VARIABLES, scope)


def moving_average_variables(scope: str | None = None) -> list[Variable]:
    """Return the variables that have a moving average. TF1: same name."""
    return get_collection(GraphKeys.MOVING_AVERAGE_VARIABLES, scope)


def variables_initializer(var_list: Iterable[Variable], name: str = "init") -> Operation:
    """Return an operation that initialises these variables. TF1: same name."""
    return group(*(variable.initializer for variable in var_list), name=name)


def global_variables_initializer() -> Operation:
    """Return an operation that initialises all global variables. TF1: same name."""
    return variables_initializer(global_variables())


def local_variables_initializer() -> Operation:
    """Return an operation that initialises all local variables. TF1: same name."""
    return variables_initializer(local_variables())


def report_uninitialized_variables(
    var_list: Iterable[Variable] | None = None, name: str = "report_uninitialized_variables"
) -> Tensor:
    """Return a vector with the names of the variables that have no value. TF1: same name.

    ``var_list`` is by default the global and local variables.
    """
    variables = list(global_variables() + local_variables() if var_list is None else var_list)
    with name_scope(name), control_dependencies(None):
        checks = [variable_ops.is_variable_initialized(variable) for variable in variables]
        names = tuple(variable.op.name for variable in variables)
        return create_op("ReportUninitializedVariables", checks, {"names": names})
