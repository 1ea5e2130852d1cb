"""Variables found again by name. TF1: ``tf.get_variable``, ``tf.variable_scope``."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from asyncmon.graph.build import get_default_graph
from asyncmon.graph.context import BuildContext, building, entered
from asyncmon.graph.convert import is_tensor_like
from asyncmon.graph.dtypes import DType, as_dtype, float32
from asyncmon.graph.graph_keys import GraphKeys
from asyncmon.graph.initializers import glorot_uniform_initializer, zeros_initializer
from asyncmon.graph.tensor_shape import TensorShape, as_shape
from asyncmon.graph.variables import Variable

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from asyncmon.graph.graph import Graph

__all__ = [
    "AUTO_REUSE",
    "VariableScope",
    "get_local_variable",
    "get_variable",
    "get_variable_scope",
    "variable_scope",
]


class _Reuse(Enum):
    AUTO = 1

    def __repr__(self) -> str:
        return "AUTO_REUSE"


AUTO_REUSE: Final = _Reuse.AUTO
"""For ``reuse=``: find the variable, or make it where there is none. TF1: ``tf.AUTO_REUSE``."""


@dataclass(frozen=True, slots=True)
class VariableScope:
    """What applies to ``get_variable`` inside a scope. TF1: ``tf.VariableScope``.

    Attributes:
        name: put, with a slash, before the names of variables.
        reuse: True finds variables, False makes them, ``AUTO_REUSE`` does either.
        initializer: used where none is given.
        regularizer: likewise.
        dtype: likewise.
        original_name_scope: of the ops built in it the first time.
    """

    name: str = ""
    reuse: bool | _Reuse = False
    initializer: Any = None
    regularizer: Any = None
    dtype: DType = float32
    original_name_scope: str = ""

    def reuse_variables(self) -> None:
        """Find variables from here to the end of the scope. TF1: same name."""
        context = _context()
        with_reuse = replace(context.variable_scope or VariableScope(), reuse=True)
        building.set(context.but(variable_scope=with_reuse))


def get_variable_scope() -> VariableScope:
    """Return the current scope. TF1: same name."""
    context = building.get()
    scope = None if context is None else context.variable_scope
    return scope if isinstance(scope, VariableScope) else VariableScope()


@contextmanager
def variable_scope(
    name_or_scope: str | VariableScope | None,
    default_name: str | None = None,
    values: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    reuse: bool | _Reuse | None = None,
    dtype: Any = None,
    auxiliary_name_scope: bool = True,
) -> Iterator[VariableScope]:
    """Put a prefix before the names of variables and ops, and say whether variables are found again.

    TF1: ``tf.variable_scope``.

    Args:
        name_or_scope: a name inside the current scope, or a scope to enter again.
        default_name: made unique; used where ``name_or_scope`` is None.
        values: tensors whose graph is meant; by default the default graph.
        initializer: the default of ``get_variable`` inside.
        regularizer: likewise.
        reuse: True, False or ``AUTO_REUSE``; None is that of the outer scope.
        dtype: the default of ``get_variable`` inside.
        auxiliary_name_scope: false leaves the names of ops alone.

    Raises:
        TypeError: ``name_or_scope`` is something else.
        ValueError: neither a name nor a default name.
    """
    graph = get_default_graph() if not values else next(v.graph for v in values if is_tensor_like(v))
    context = _context()
    outer = get_variable_scope()
    if isinstance(name_or_scope, VariableScope):
        scope = name_or_scope
        label = scope.name.rpartition("/")[2]
    elif isinstance(name_or_scope, str):
        label = name_or_scope
        scope = replace(outer, name=f"{outer.name}/{label}" if outer.name else label)
    elif name_or_scope is not None:
        raise TypeError(
            f"VariableScope: name_or_scope must be a string or VariableScope, got {name_or_scope!r}."
        )
    elif default_name is None:
        raise ValueError("If default_name is None then name_or_scope is required")
    else:
        if reuse:
            raise ValueError("reuse=True cannot be used without a name_or_scope")
        label = _unique_scope(graph, outer.name, default_name)
        scope = replace(outer, name=f"{outer.name}/{label}" if outer.name else label)
    changes: dict[str, Any] = {
        "initializer": initializer,
        "regularizer": regularizer,
        "dtype": None if dtype is None else as_dtype(dtype),
        "reuse": reuse or scope.reuse,
    }
    scope = replace(scope, **{key: value for key, value in changes.items() if value is not None})
    if auxiliary_name_scope and label:
        with graph.name_scope(label) as names:
            scope = replace(scope, original_name_scope=scope.original_name_scope or names)
            with entered(_context().but(variable_scope=scope)):
                yield scope
    else:
        with entered(context.but(variable_scope=scope)):
            yield scope


def get_variable(
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    trainable: bool = True,
    collections: Iterable[Any] | None = None,
    validate_shape: bool = True,
) -> Variable:
    """Return the variable of this name in the current scope: a new one, or the one that is there.

    TF1: ``tf.get_variable``.

    Args:
        name: put behind the names of the scopes.
        shape: of a new one; checked against that of one that is there.
        dtype: likewise; the scope's by default, float32.
        initializer: a function ``initializer(shape, dtype=...)``, or a value or tensor, which has a
            shape of its own; by default Glorot uniform for floats, zeros for the rest.
        regularizer: ``regularizer(variable)`` -> a loss that joins ``REGULARIZATION_LOSSES``, or None.
        trainable: whether optimizers find it.
        collections: those it joins; the global variables by default.
        validate_shape: false lets it take values of any shape.

    Raises:
        ValueError: there is one and it may not be reused; there is none and it should be; shape or
            dtype differ from those of the one that is there.
    """
    scope = get_variable_scope()
    graph = get_default_graph().root
    full_name = f"{scope.name}/{name}" if scope.name else name
    wanted = as_dtype(dtype) if dtype is not None else None
    store: dict[str, Variable] = graph.extras.setdefault("get_variable", {})
    found = store.get(full_name)
    if found is not None:
        return _shared(found, full_name, scope, shape, wanted)
    if scope.reuse is True:
        raise ValueError(
            f"Variable {full_name} does not exist, or was not created with get_variable(). "
            "Did you mean to set reuse=AUTO_REUSE in VarScope?"
        )
    initial = _initial_value(
        full_name, shape, wanted, scope, scope.initializer if initializer is None else initializer
    )
    kind = (wanted or scope.dtype) if callable(initial) else wanted
    with entered(BuildContext(graph, device=_context().device, variable_scope=scope)):
        variable = Variable(initial, trainable, collections, validate_shape, full_name, kind, shape)
        store[full_name] = variable
        regularizer = scope.regularizer if regularizer is None else regularizer
        if regularizer is not None:
            loss = regularizer(variable)
            if loss is not None:
                graph.add_to_collection(GraphKeys.REGULARIZATION_LOSSES, loss)
    return variable


def get_local_variable(
    name: str,
    shape: Any = None,
    dtype: Any = None,
    initializer: Any = None,
    regularizer: Any = None,
    collections: Iterable[Any] | None = None,
    validate_shape: bool = True,
) -> Variable:
    """Return a variable that is not trained and not saved. TF1: same name. See :func:`get_variable`."""
    keys = [GraphKeys.LOCAL_VARIABLES] if collections is None else collections
    return get_variable(name, shape, dtype, initializer, regularizer, False, keys, validate_shape)


def _shared(
    found: Variable, name: str, scope: VariableScope, shape: Any, dtype: DType | None
) -> Variable:
    if not scope.reuse:
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


def _unique_scope(graph: Graph, outer: str, name: str) -> str:
    used: set[str] = graph.extras.setdefault("variable_scopes", set())
    label, count = name, 0
    while (full := f"{outer}/{label}" if outer else label) in used:
        count += 1
        label = f"{name}_{count}"
    used.add(full)
    return label


def _context() -> BuildContext:
    get_default_graph()
    context = building.get()
    assert context is not None
    return context
