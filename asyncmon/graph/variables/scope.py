"""Scopes of variables. TF1: ``tf.variable_scope`` and ``tf.VariableScope``."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from asyncmon.graph.core.build import get_default_graph
from asyncmon.graph.core.context import BuildContext, building, entered
from asyncmon.graph.core.convert import is_tensor_like
from asyncmon.graph.core.dtypes import DType, as_dtype, float32
from asyncmon.graph.core.keys import GraphKeys

if TYPE_CHECKING:
    from collections.abc import Iterator

    from asyncmon.graph.variables.variable import Variable

__all__ = [
    "AUTO_REUSE",
    "Reuse",
    "VariableScope",
    "get_variable_scope",
    "refuse_partitioner",
    "variable_scope",
]


class _Reuse(Enum):
    AUTO = 1

    def __repr__(self) -> str:
        return "AUTO_REUSE"


AUTO_REUSE: Final = _Reuse.AUTO
"""For ``reuse=``: find the variable, or make it where there is none. TF1: ``tf.AUTO_REUSE``."""

Reuse = bool | _Reuse


@dataclass(slots=True, eq=False)
class VariableScope:
    """What applies to ``get_variable`` inside a scope, from now to its end. TF1: ``tf.VariableScope``.

    Attributes:
        name: put, with a slash, before the names of variables.
        reuse: True finds variables, False makes them, ``AUTO_REUSE`` does either.
        initializer: used where none is given.
        regularizer: likewise.
        dtype: likewise.
        custom_getter: called in place of ``get_variable``; see there.
        constraint: used where none is given.
        original_name_scope: of the ops built in it the first time.
    """

    name: str = ""
    reuse: Reuse = False
    initializer: Any = None
    regularizer: Any = None
    dtype: DType = float32
    custom_getter: Any = None
    constraint: Any = None
    original_name_scope: str = ""

    def reuse_variables(self) -> None:
        """Find variables from here on, also where the scope is entered again. TF1: same name."""
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
        """Return the items of a collection whose names are in this scope. TF1: same name."""
        return get_default_graph().get_collection(name, f"{self.name}/" if self.name else "")

    def global_variables(self) -> list[Variable]:
        """Return the global variables of this scope. TF1: same name."""
        return self.get_collection(GraphKeys.GLOBAL_VARIABLES)

    def local_variables(self) -> list[Variable]:
        """Return the local variables of this scope. TF1: same name."""
        return self.get_collection(GraphKeys.LOCAL_VARIABLES)

    def trainable_variables(self) -> list[Variable]:
        """Return the variables of this scope that optimizers change. TF1: same name."""
        return self.get_collection(GraphKeys.TRAINABLE_VARIABLES)


def get_variable_scope() -> VariableScope:
    """Return the current scope. TF1: same name."""
    graph = get_default_graph().root
    scope = _context().variable_scope
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
    """Put a prefix before the names of variables and ops, and say whether variables are found again.

    TF1: ``tf.variable_scope``.

    Args:
        name_or_scope: a name inside the current scope, or a scope to enter again.
        default_name: made unique among the scopes open or left since the outer scope was entered;
            used where ``name_or_scope`` is None.
        values: tensors whose graph is meant; by default the default graph.
        initializer: the default of ``get_variable`` inside.
        regularizer: likewise.
        caching_device: accepted for the original's sake; there is one device.
        partitioner: must be None: variables are whole.
        custom_getter: the default of ``get_variable`` inside; goes around that of the outer scope.
        reuse: True, False or ``AUTO_REUSE``; None is that of the outer scope.
        dtype: the default of ``get_variable`` inside.
        use_resource: accepted for the original's sake; there is one kind of variable.
        constraint: the default of ``get_variable`` inside.
        auxiliary_name_scope: false leaves the names of ops alone.

    Raises:
        TypeError: ``name_or_scope`` is something else, or None without a default name.
        ValueError: ``reuse`` is something else, or asked for without a name.
    """
    graph = get_default_graph() if not values else next(v.graph for v in values if is_tensor_like(v))
    refuse_partitioner(partitioner)
    if reuse not in (True, False, None, AUTO_REUSE):
        raise ValueError(f"The reuse parameter must be True or False or None, got {reuse!r}.")
    context = _context()
    outer = get_variable_scope()
    counts: dict[str, int] = graph.root.extras.setdefault("variable_scopes", {})
    again: dict[str, int] | None = None
    if isinstance(name_or_scope, VariableScope):
        scope = name_or_scope
        label = scope.name.rpartition("/")[2]
        again = dict(counts)
    elif isinstance(name_or_scope, str):
        label = name_or_scope
        scope = _inside(outer, label)
    elif name_or_scope is not None:
        raise TypeError(
            f"VariableScope: name_or_scope must be a string or VariableScope, got {name_or_scope!r}."
        )
    elif default_name is None:
        raise TypeError("If default_name is None then name_or_scope is required")
    else:
        if reuse:
            raise ValueError("reuse=True cannot be used without a name_or_scope")
        label = _unique_label(counts, outer.name, default_name)
        scope = _inside(outer, label)
    if custom_getter is not None and scope.custom_getter is not None:
        custom_getter = partial(_around, custom_getter, scope.custom_getter)
    changes: dict[str, Any] = {
        "initializer": initializer,
        "regularizer": regularizer,
        "dtype": None if dtype is None else as_dtype(dtype),
        "reuse": reuse or scope.reuse,
        "custom_getter": custom_getter,
        "constraint": constraint,
    }
    scope = replace(scope, **{key: value for key, value in changes.items() if value is not None})
    counts[scope.name] = counts.get(scope.name, 0) + 1
    try:
        if auxiliary_name_scope and label:
            with graph.name_scope(label) as names:
                scope.original_name_scope = scope.original_name_scope or names
                with entered(_context().but(variable_scope=scope)):
                    yield scope
        else:
            with entered(context.but(variable_scope=scope)):
                yield scope
    finally:
        _close_subscopes(counts, scope.name, again)


def refuse_partitioner(partitioner: Any) -> None:
    """Raise ValueError unless ``partitioner`` is None."""
    if partitioner is not None:
        raise ValueError(
            f"partitioner must be None, got {partitioner!r}: variables are whole, not split in parts."
        )


def _inside(outer: VariableScope, label: str) -> VariableScope:
    name = f"{outer.name}/{label}" if outer.name else label
    return replace(outer, name=name, original_name_scope="")


def _around(outside: Any, inside: Any, getter: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a custom getter that gets, for a getter, the custom getter of the outer scope."""
    return outside(partial(inside, getter), *args, **kwargs)


def _unique_label(counts: dict[str, int], outer: str, name: str) -> str:
    label, count = name, 0
    while counts.get(f"{outer}/{label}" if outer else label, 0):
        count += 1
        label = f"{name}_{count}"
    return label


def _close_subscopes(counts: dict[str, int], name: str, again: dict[str, int] | None) -> None:
    """Count default names anew when a scope is entered again, so that its layers find theirs."""
    if again is not None:
        counts.clear()
        counts.update(again)
        return
    for opened in counts:
        if opened.startswith(f"{name}/"):
            counts[opened] = 0


def _context() -> BuildContext:
    get_default_graph()
    context = building.get()
    assert context is not None
    return context
