"""Variable scopes, and variables by name.

TF1: ``tf.variable_scope``, ``tf.get_variable``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from typing import Any, Final

from asyncmon.graph.core.build import get_default_graph
from asyncmon.graph.core.convert import is_tensor_like
from asyncmon.graph.core.dtypes import DType, as_dtype, float32
from asyncmon.graph.core.graph import BuildContext, building, entered
from asyncmon.graph.core.keys import GraphKeys


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
    partitioner: Any = None
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

    def set_partitioner(self, partitioner: Any) -> None:
        """Set the default of ``get_variable``. TF1: same name."""
        self.partitioner = partitioner

    def set_custom_getter(self, custom_getter: Any) -> None:
        """Set the default of ``get_variable``. TF1: same name."""
        self.custom_getter = custom_getter

    def get_collection(self, name: Any) -> list[Any]:
        """Return the members of a collection in this scope. TF1: same name."""
        return get_default_graph().get_collection(name, f"{self.name}/" if self.name else "")

    def global_variables(self) -> list[Any]:
        """Return the global variables of this scope. TF1: same name."""
        return self.get_collection(GraphKeys.GLOBAL_VARIABLES)

    def local_variables(self) -> list[Any]:
        """Return the local variables of this scope. TF1: same name."""
        return self.get_collection(GraphKeys.LOCAL_VARIABLES)

    def trainable_variables(self) -> list[Any]:
        """Return the variables of this scope that optimizers update. TF1: same name."""
        return self.get_collection(GraphKeys.TRAINABLE_VARIABLES)


def get_variable_scope() -> VariableScope:
    """Return the current scope. TF1: same name."""
    graph, scope = get_default_graph().root, build_context().variable_scope
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
    outer scope), ``constraint`` and ``partitioner``. ``caching_device`` and ``use_resource`` are
    without effect.

    Args:
        name_or_scope: a name inside the current scope, or a scope to enter again.
        default_name: used if ``name_or_scope`` is None; made unique among the scopes opened since the
            entry of the outer scope.
        values: tensors of the graph to use; by default the default graph.
        reuse: True, False or ``AUTO_REUSE``; None is that of the outer scope.
        auxiliary_name_scope: false leaves the names of ops alone.

    Raises:
        RuntimeError: the exit of the scope precedes that of an inner scope.
    """
    graph = get_default_graph() if not values else next(v.graph for v in values if is_tensor_like(v))
    if partitioner is not None and not callable(partitioner):
        raise ValueError(f"Partitioner must be callable, but received: {partitioner!r}")
    if reuse not in (True, False, None, AUTO_REUSE):
        raise ValueError(f"The reuse parameter must be True or False or None, got {reuse!r}.")
    if not isinstance(auxiliary_name_scope, bool):
        raise TypeError(f"auxiliary_name_scope must be True or False, got {auxiliary_name_scope!r}.")
    outer = get_variable_scope()
    opened: dict[str, int] = graph.root.extras.setdefault("variable_scopes", {})
    before = dict(opened)
    if isinstance(name_or_scope, VariableScope):
        scope, label = name_or_scope, name_or_scope.name.rpartition("/")[2]
    else:
        label = _label(name_or_scope, default_name, opened, outer.name, reuse)
        scope = replace(outer, name=joined(outer.name, label), original_name_scope="")
    if custom_getter is not None and scope.custom_getter is not None:
        custom_getter = partial(_nested_getter, custom_getter, scope.custom_getter)
    changes: dict[str, Any] = {
        "initializer": initializer,
        "regularizer": regularizer,
        "dtype": None if dtype is None else as_dtype(dtype),
        "reuse": reuse or scope.reuse,
        "custom_getter": custom_getter,
        "constraint": constraint,
        "partitioner": partitioner,
    }
    changes = {key: value for key, value in changes.items() if value is not None}
    scope = replace(scope, **changes, _outer=outer)
    opened[scope.name] = opened.get(scope.name, 0) + 1
    if name_or_scope is None:
        label = default_name or ""  # the name scope is made unique
    names = graph.name_scope(label) if auxiliary_name_scope and label else nullcontext("")
    try:
        with names as prefix, entered(build_context()._replace(variable_scope=scope)):
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
    inner = build_context().variable_scope
    while inner is not None and inner is not scope:
        inner = inner._outer
        if inner is scope:
            raise RuntimeError(
                f"Improper nesting of variable_scope: {scope.name!r} is left before "
                f"{build_context().variable_scope.name!r}, which was entered inside."
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
    while opened.get(joined(outer, label), 0):
        count += 1
        label = f"{default_name}_{count}"
    return label


def joined(outer: str, label: str) -> str:
    return f"{outer}/{label}" if outer else label


def _nested_getter(outside: Any, inside: Any, getter: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a custom getter; its ``getter`` is the custom getter of the outer scope."""
    return outside(partial(inside, getter), *args, **kwargs)


def build_context() -> BuildContext:
    get_default_graph()
    context = building.get()
    assert context is not None, "set in get_default_graph"
    return context
