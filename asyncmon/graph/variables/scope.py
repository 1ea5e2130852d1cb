"""Variable scopes, and variables by name.

TF1: ``tf.variable_scope``, ``tf.get_variable``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial, wraps
from inspect import signature
from typing import Any, Final

from asyncmon.graph.core.build import (
    colocate_with,
    control_dependencies,
    create_op,
    get_default_graph,
    name_scope,
)
from asyncmon.graph.core.convert import is_tensor_like
from asyncmon.graph.core.dtypes import DType, as_dtype, float32
from asyncmon.graph.core.graph import BuildContext, building, entered
from asyncmon.graph.core.keys import GraphKeys
from asyncmon.graph.core.node import Tensor
from asyncmon.graph.core.shape import TensorShape, as_shape, is_known
from asyncmon.graph.ops.basic import constant
from asyncmon.graph.ops.create import fill
from asyncmon.graph.variables.initializers import glorot_uniform_initializer, zeros_initializer
from asyncmon.graph.variables.variable import Variable


class _Reuse(Enum):
    AUTO = 1

    def __repr__(self) -> str:
        return "AUTO_REUSE"


AUTO_REUSE: Final = _Reuse.AUTO
"""For ``reuse=``: return the existing variable, or create it. TF1: ``tf.AUTO_REUSE``."""

Reuse = bool | _Reuse


@dataclass(slots=True, eq=False)
class VariableScope:
    """The defaults of ``get_variable`` inside a scope. TF1: ``tf.VariableScope``.

    Attributes:
        name: the prefix, without the last slash, of the names of variables.
        reuse: True returns existing variables, False creates them, ``AUTO_REUSE`` does either.
        original_name_scope: the name scope of the first entry.
    """

    name: str = ""
    reuse: Reuse = False
    initializer: Any = None
    regularizer: Any = None
    dtype: DType = float32
    custom_getter: Any = None
    constraint: Any = None
    original_name_scope: str = ""
    _outer: VariableScope | None = field(default=None, repr=False)

    def reuse_variables(self) -> None:
        """Set ``reuse`` to True, also for later entries of the scope. TF1: same name."""
        self.reuse = True

    def set_initializer(self, initializer: Any) -> None:
        """Set the default of ``get_variable``. TF1: same name."""
        self.initializer = initializer

    def set_regularizer(self, regularizer: Any) -> None:
        """Set the default of ``get_variable``. TF1: same name."""
        self.regularizer = regularizer

    def set_dtype(self, dtype: Any) -> None:
        """Set the default of ``get_variable``. TF1: same name."""
        self.dtype = as_dtype(dtype)

    def set_custom_getter(self, custom_getter: Any) -> None:
        """Set the default of ``get_variable``. TF1: same name."""
        self.custom_getter = custom_getter

    def get_collection(self, name: Any) -> list[Any]:
        """Return the members of a collection in this scope. TF1: same name."""
        return get_default_graph().get_collection(name, f"{self.name}/" if self.name else "")

    def global_variables(self) -> list[Variable]:
        """Return the global variables of this scope. TF1: same name."""
        return self.get_collection(GraphKeys.GLOBAL_VARIABLES)

    def local_variables(self) -> list[Variable]:
        """Return the local variables of this scope. TF1: same name."""
        return self.get_collection(GraphKeys.LOCAL_VARIABLES)

    def trainable_variables(self) -> list[Variable]:
        """Return the variables of this scope that optimizers update. TF1: same name."""
        return self.get_collection(GraphKeys.TRAINABLE_VARIABLES)


def get_variable_scope() -> VariableScope:
    """Return the current scope. TF1: same name."""
    graph, scope = get_default_graph().root, _context().variable_scope
    if scope is None:
        scope = graph.extras.setdefault("variable_scope", VariableScope())
    assert isinstance(scope, VariableScope)
    return scope


@contextmanager
def variable_scope(
    name_or_scope: str | VariableScope | None,
    default_name: str | None = None,
    values: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    caching_device: Any = None,
    partitioner: Any = None,
    custom_getter: Any = None,
    reuse: Reuse | None = None,
    dtype: Any = None,
    use_resource: bool | None = None,
    constraint: Any = None,
    auxiliary_name_scope: bool = True,
) -> Iterator[VariableScope]:
    """Prefix the names of variables and ops, and set the defaults of ``get_variable``. TF1: same name.

    The defaults are ``initializer``, ``regularizer``, ``dtype``, ``custom_getter`` (wraps that of the
    outer scope) and ``constraint``. ``caching_device`` and ``use_resource`` are without effect.

    Args:
        name_or_scope: a name inside the current scope, or a scope to enter again.
        default_name: used if ``name_or_scope`` is None; made unique among the scopes opened since the
            entry of the outer scope.
        values: tensors of the graph to use; by default the default graph.
        partitioner: must be None: variables are whole.
        reuse: True, False or ``AUTO_REUSE``; None is that of the outer scope.
        auxiliary_name_scope: false leaves the names of ops alone.

    Raises:
        RuntimeError: the exit of the scope precedes that of an inner scope.
    """
    graph = get_default_graph() if not values else next(v.graph for v in values if is_tensor_like(v))
    _refuse_partitioner(partitioner)
    if reuse not in (True, False, None, AUTO_REUSE):
        raise ValueError(f"The reuse parameter must be True or False or None, got {reuse!r}.")
    outer = get_variable_scope()
    opened: dict[str, int] = graph.root.extras.setdefault("variable_scopes", {})
    before = dict(opened)
    if isinstance(name_or_scope, VariableScope):
        scope, label = name_or_scope, name_or_scope.name.rpartition("/")[2]
    else:
        label = _label(name_or_scope, default_name, opened, outer.name, reuse)
        scope = replace(outer, name=_joined(outer.name, label), original_name_scope="")
    if custom_getter is not None and scope.custom_getter is not None:
        custom_getter = partial(_nested_getter, custom_getter, scope.custom_getter)
    changes: dict[str, Any] = {
        "initializer": initializer,
        "regularizer": regularizer,
        "dtype": None if dtype is None else as_dtype(dtype),
        "reuse": reuse or scope.reuse,
        "custom_getter": custom_getter,
        "constraint": constraint,
    }
    changes = {key: value for key, value in changes.items() if value is not None}
    scope = replace(scope, **changes, _outer=outer)
    opened[scope.name] = opened.get(scope.name, 0) + 1
    names = graph.name_scope(label) if auxiliary_name_scope and label else nullcontext("")
    try:
        with names as prefix, entered(_context()._replace(variable_scope=scope)):
            scope.original_name_scope = scope.original_name_scope or prefix
            yield scope
            _check_innermost(scope)
    finally:
        if isinstance(name_or_scope, VariableScope):
            opened.clear()
            opened.update(before)
        else:  # the next entry numbers default names from the start
            opened.update(dict.fromkeys((n for n in opened if n.startswith(f"{scope.name}/")), 0))


def _check_innermost(scope: VariableScope) -> None:
    # if the exit is in another context, none of these scopes is current
    inner = _context().variable_scope
    while inner is not None and inner is not scope:
        inner = inner._outer
        if inner is scope:
            raise RuntimeError(
                f"Improper nesting of variable_scope: {scope.name!r} is left before "
                f"{_context().variable_scope.name!r}, which was entered inside."
            )


def _label(
    name: Any, default_name: str | None, opened: dict[str, int], outer: str, reuse: Reuse | None
) -> str:
    """Return the last part of a scope's name; a default name is made unique in the outer scope."""
    if isinstance(name, str):
        return name
    if name is not None:
        raise TypeError(f"name_or_scope must be a string or VariableScope, got {name!r}.")
    if default_name is None:
        raise TypeError("If default_name is None then name_or_scope is required")
    if reuse:
        raise ValueError("reuse=True cannot be used without a name_or_scope")
    label, count = default_name, 0
    while opened.get(_joined(outer, label), 0):
        count += 1
        label = f"{default_name}_{count}"
    return label


def _joined(outer: str, label: str) -> str:
    return f"{outer}/{label}" if outer else label


def _nested_getter(outside: Any, inside: Any, getter: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a custom getter; its ``getter`` is the custom getter of the outer scope."""
    return outside(partial(inside, getter), *args, **kwargs)


def _refuse_partitioner(partitioner: Any) -> None:
    if partitioner is not None:
        raise ValueError(f"partitioner must be None, got {partitioner!r}: variables are whole.")


def _context() -> BuildContext:
    get_default_graph()
    context = building.get()
    assert context is not None, "set in get_default_graph"
    return context


def get_variable(
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool | None = None,
    collections: Iterable[Any] | None = None,
    caching_device: Any = None,
    partitioner: Any = None,
    validate_shape: bool = True,
    use_resource: bool | None = None,
    custom_getter: Callable[..., Any] | None = None,
    constraint: Callable[[Any], Any] | None = None,
    synchronization: Any = None,
    aggregation: Any = None,
) -> Any:
    """Return the variable of this name in the current scope, an existing or a new one. TF1: same name.

    The other arguments are those of :class:`Variable`.

    Args:
        name: the name inside the current scope.
        shape: the shape of a new variable; checked against that of an existing one, as is ``dtype``.
        dtype: the dtype; by default that of the scope, float32.
        initializer: a function ``initializer(shape, dtype=...)``, or a value or tensor, without
            ``shape``; by default Glorot uniform for floats, else zeros.
        regularizer: ``regularizer(variable)``, returns a loss for ``REGULARIZATION_LOSSES``, or None.
        partitioner: must be None: variables are whole.
        custom_getter: ``custom_getter(getter, name, **arguments)``, returns the result instead. It gets
            the variable from ``getter(name, **arguments)``, with the full name.
        synchronization, aggregation: without effect: a variable has one copy.
    """
    scope = get_variable_scope()
    getter = scope.custom_getter if custom_getter is None else custom_getter
    get = _find_or_create if getter is None else partial(getter, _find_or_create)
    return get(
        _joined(scope.name, name),
        shape=shape,
        dtype=dtype,
        initializer=scope.initializer if initializer is None else initializer,
        regularizer=scope.regularizer if regularizer is None else regularizer,
        reuse=scope.reuse,
        trainable=trainable,
        collections=collections,
        caching_device=caching_device,
        partitioner=partitioner,
        validate_shape=validate_shape,
        use_resource=use_resource,
        constraint=scope.constraint if constraint is None else constraint,
    )


def named_variables() -> dict[str, Variable]:
    """Return the variables of the default graph created by ``get_variable``, by name."""
    made: dict[str, Variable] = get_default_graph().root.extras.get("get_variable", {})
    return dict(made)


@wraps(get_variable, assigned=())
def get_local_variable(*args: Any, **kwargs: Any) -> Any:
    """Return a variable that is not trained and not saved. TF1: same name. See :func:`get_variable`."""
    arguments = signature(get_variable).bind(*args, **kwargs).arguments
    keys = [*(arguments.get("collections") or ()), GraphKeys.LOCAL_VARIABLES]
    return get_variable(**{**arguments, "trainable": False, "collections": keys})


def _find_or_create(
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    reuse: Reuse | None = None,
    partitioner: Any = None,
    **settings: Any,
) -> Variable:
    """Return the variable of a full name; the ``getter`` of custom getters."""
    _refuse_partitioner(partitioner)
    if not name:
        raise ValueError("get_variable() needs a name, got an empty one.")
    scope = get_variable_scope()
    reuse = scope.reuse if reuse is None else reuse
    graph = get_default_graph().root
    wanted = None if dtype is None else as_dtype(dtype)
    variables: dict[str, Variable] = graph.extras.setdefault("get_variable", {})
    if name in variables:
        return _shared(variables[name], name, reuse, shape, wanted)
    if reuse and reuse is not AUTO_REUSE:
        raise ValueError(
            f"Variable {name} does not exist, or was not created with get_variable(). "
            "Did you mean to set reuse=AUTO_REUSE in VarScope?"
        )
    initial, wanted = _initial_value(name, shape, wanted, initializer, scope.dtype)
    with entered(_context()._replace(graph=graph, scope="", control=())):
        variable = Variable(initial, name=name, dtype=wanted, expected_shape=shape, **settings)
        variables[name] = variable
        if regularizer is not None:
            with name_scope(f"{name}/Regularizer/"), colocate_with(variable):
                loss = regularizer(variable)
            if loss is not None:
                graph.add_to_collection(GraphKeys.REGULARIZATION_LOSSES, loss)
    return variable


def _shared(found: Variable, name: str, reuse: Reuse, shape: Any, dtype: DType | None) -> Variable:
    if not reuse:
        raise ValueError(
            f"Variable {name} already exists, disallowed. "
            "Did you mean to set reuse=True or reuse=AUTO_REUSE in VarScope?"
        )
    if shape is not None and not found.shape.is_compatible_with(shape):
        raise ValueError(
            f"Trying to share variable {name}, but specified shape {TensorShape(as_shape(shape))} "
            f"and found shape {found.shape}."
        )
    if dtype is not None and dtype is not found.dtype:
        raise ValueError(
            f"Trying to share variable {name}, but specified dtype {dtype.name} "
            f"and found dtype {found.dtype.name}."
        )
    return found


def _initial_value(
    name: str, shape: Any, dtype: DType | None, initializer: Any, default: DType
) -> tuple[Any, DType | None]:
    """Return the initial value of a new variable, and its dtype if that is fixed."""
    if initializer is not None and not callable(initializer):
        if shape is not None:
            raise ValueError("If initializer is a constant, do not specify shape.")
        return initializer, dtype
    dtype = dtype or default
    dims = as_shape(shape)
    if initializer is None if dims is None else None in dims:
        but = f"but instead was {TensorShape(dims)}."
        raise ValueError(f"Shape of a new variable ({name}) must be fully defined, {but}")
    if initializer is None:
        initializer = glorot_uniform_initializer() if dtype.is_floating else zeros_initializer()
    elif isinstance(initializer, type):
        initializer = initializer()
    if dims is None:
        return initializer, dtype
    return partial(initializer, list(dims), dtype=dtype), dtype


def make_slot(primary: Any, initial_value: Any, name: str, shape: list[int] | None = None) -> Variable:
    """Create a variable ``primary/name`` for ``primary``, a variable or a tensor.

    It has the device of ``primary`` if that is a variable. ``initial_value`` is a tensor, or a
    number to fill the shape with. The shape is by default that of ``primary``.
    """
    outer = get_variable_scope().name
    full_name = f"{outer}/{primary.op.name}/{name}" if outer else f"{primary.op.name}/{name}"
    dims: Any = as_shape(primary.shape if shape is None else shape)
    is_number = isinstance(initial_value, int | float)

    def filled() -> Tensor:
        return fill(dims, constant(initial_value, primary.dtype))

    beside = colocate_with(primary) if isinstance(primary, Variable) else nullcontext()
    with primary.graph.name_scope(None), control_dependencies(None), beside:
        validated = not is_number or is_known(dims)
        if not validated:
            dims = create_op("Shape", (getattr(primary, "initialized_value", lambda: primary)(),))
        initial = filled if is_number else initial_value
        return Variable(initial, False, validate_shape=validated, name=full_name)
