"""Variables found again by name. TF1: ``tf.get_variable``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncmon.graph.core.build import get_default_graph, name_scope
from asyncmon.graph.core.context import BuildContext, building, entered
from asyncmon.graph.core.dtypes import DType, as_dtype
from asyncmon.graph.core.keys import GraphKeys
from asyncmon.graph.core.tensor_shape import TensorShape, as_shape
from asyncmon.graph.variables.initializers import glorot_uniform_initializer, zeros_initializer
from asyncmon.graph.variables.scope import (
    AUTO_REUSE,
    Reuse,
    VariableScope,
    get_variable_scope,
    refuse_partitioner,
)
from asyncmon.graph.variables.variable import Variable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

__all__ = ["get_local_variable", "get_variable"]


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
) -> Any:
    """Return the variable of this name in the current scope: a new one, or the one that is there.

    TF1: ``tf.get_variable``.

    Args:
        name: put behind the names of the scopes.
        shape: of a new one; checked against that of one that is there.
        dtype: likewise; the scope's by default, float32.
        initializer: a function ``initializer(shape, dtype=...)``, or a value or tensor, which has a
            shape of its own; by default Glorot uniform for floats, zeros for the rest.
        regularizer: ``regularizer(variable)`` -> a loss that joins ``REGULARIZATION_LOSSES``, or None.
        trainable: whether optimizers find it; None is True.
        collections: those it joins; the global variables by default.
        caching_device: accepted for the original's sake; there is one device.
        partitioner: must be None: variables are whole.
        validate_shape: false lets it take values of any shape.
        use_resource: accepted for the original's sake; there is one kind of variable.
        custom_getter: ``custom_getter(getter, name, **arguments)`` -> what is returned instead; the
            variable itself is ``getter(name, **arguments)``. The name is the full one.
        constraint: ``constraint(value) -> value``, which optimizers apply after each update.

    Raises:
        ValueError: there is one and it may not be reused; there is none and it should be; shape or
            dtype differ from those of the one that is there.
    """
    scope = get_variable_scope()
    arguments: dict[str, Any] = {
        "shape": shape,
        "dtype": dtype,
        "initializer": scope.initializer if initializer is None else initializer,
        "regularizer": scope.regularizer if regularizer is None else regularizer,
        "reuse": scope.reuse,
        "trainable": trainable,
        "collections": collections,
        "caching_device": caching_device,
        "partitioner": partitioner,
        "validate_shape": validate_shape,
        "use_resource": use_resource,
        "constraint": scope.constraint if constraint is None else constraint,
    }
    full_name = f"{scope.name}/{name}" if scope.name else name
    getter = scope.custom_getter if custom_getter is None else custom_getter
    if getter is not None:
        return getter(_found_or_made, full_name, **arguments)
    return _found_or_made(full_name, **arguments)


def get_local_variable(
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool = False,
    collections: Iterable[Any] | None = None,
    caching_device: Any = None,
    partitioner: Any = None,
    validate_shape: bool = True,
    use_resource: bool | None = None,
    custom_getter: Callable[..., Any] | None = None,
    constraint: Callable[[Any], Any] | None = None,
) -> Any:
    """Return a variable that is not trained and not saved. TF1: same name. See :func:`get_variable`."""
    keys = list(collections) if collections else []
    return get_variable(
        name,
        shape,
        dtype,
        initializer,
        regularizer,
        False,
        [*keys, GraphKeys.LOCAL_VARIABLES],
        caching_device,
        partitioner,
        validate_shape,
        use_resource,
        custom_getter,
        constraint,
    )


def _found_or_made(
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    reuse: Reuse | None = None,
    trainable: bool | None = None,
    collections: Iterable[Any] | None = None,
    caching_device: Any = None,
    partitioner: Any = None,
    validate_shape: bool = True,
    use_resource: bool | None = None,
    constraint: Callable[[Any], Any] | None = None,
) -> Variable:
    """Return the variable of this full name; what a custom getter gets."""
    refuse_partitioner(partitioner)
    if not name:
        raise ValueError("get_variable() needs a name, got an empty one.")
    scope = get_variable_scope()
    reuse = scope.reuse if reuse is None else reuse
    graph = get_default_graph().root
    wanted = as_dtype(dtype) if dtype is not None else None
    store: dict[str, Variable] = graph.extras.setdefault("get_variable", {})
    found = store.get(name)
    if found is not None:
        return _shared(found, name, reuse, shape, wanted)
    if reuse and reuse is not AUTO_REUSE:
        raise ValueError(
            f"Variable {name} does not exist, or was not created with get_variable(). "
            "Did you mean to set reuse=AUTO_REUSE in VarScope?"
        )
    initial = _initial_value(name, shape, wanted, scope, initializer)
    kind = (wanted or scope.dtype) if callable(initial) else wanted
    context = building.get()
    device = "" if context is None else context.device
    with entered(BuildContext(graph, device=device, variable_scope=scope)):
        variable = Variable(
            initial,
            trainable,
            collections,
            validate_shape,
            name=name,
            dtype=kind,
            expected_shape=shape,
            constraint=constraint,
        )
        store[name] = variable
        if regularizer is not None:
            with name_scope(f"{name}/Regularizer/"):
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
    name: str, shape: Any, dtype: DType | None, scope: VariableScope, initializer: Any
) -> Any:
    dims = as_shape(shape)
    if initializer is not None and not callable(initializer):
        if shape is not None:
            raise ValueError("If initializer is a constant, do not specify shape.")
        return initializer
    if dims is None and shape is None and initializer is None:
        raise ValueError(
            f"Shape of a new variable ({name}) must be fully defined, but instead was <unknown>."
        )
    if dims is not None and None in dims:
        raise ValueError(
            f"Shape of a new variable ({name}) must be fully defined, "
            f"but instead was {TensorShape(dims)}."
        )
    kind = dtype or scope.dtype
    make = initializer
    if make is None:
        make = glorot_uniform_initializer() if kind.is_floating else zeros_initializer()
    if isinstance(make, type):
        make = make()
    return lambda: make() if dims is None else make(list(dims), dtype=kind)
