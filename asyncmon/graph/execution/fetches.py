"""The structure of fetches: nested lists, tuples, dicts and classes of tensors, and back."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from asyncmon.graph.core.graph import Graph
from asyncmon.graph.core.indexed_slices import IndexedSlices, IndexedSlicesValue
from asyncmon.graph.core.node import Operation, Tensor

_LEAVES = frozenset({Tensor, Operation, str})


def fetch_key(fetches: Any) -> Hashable:
    """Return something hashable that is equal for fetches of the same structure and elements.

    Called in every run: equal fetches built in each step find the same plan.
    """
    kind = fetches.__class__
    if kind in _LEAVES:
        return fetches  # type: ignore[no-any-return]  # a leaf is hashable
    if kind is list or kind is tuple:
        if _LEAVES.issuperset(map(type, fetches)):
            return fetches if kind is tuple else (list, *fetches)
        return (kind, *[x if x.__class__ in _LEAVES else fetch_key(x) for x in fetches])
    if kind is dict:
        return (
            dict,
            *fetches,
            *[x if x.__class__ in _LEAVES else fetch_key(x) for x in fetches.values()],
        )
    structure = parts_of(fetches)
    if structure is not None:
        keys, parts, _make = structure
        return (kind, *keys, *map(fetch_key, parts))
    try:
        hash(fetches)
    except TypeError:
        raise _invalid(
            fetches, f"Can not convert a {kind.__name__} into a Tensor or Operation."
        ) from None
    return fetches  # type: ignore[no-any-return]  # hashed above


class FetchMap:
    """The distinct elements of a structure of fetches, and the way back from results.

    Attributes:
        elements: the tensors and operations.
        rebuild: makes the structure from the list of their results.

    Raises:
        TypeError: something that is neither a tensor nor a structure of them.
        ValueError: an element of another graph, or a name of the wrong form.
        KeyError: a name that is not in the graph.
    """

    def __init__(self, graph: Graph, fetches: Any) -> None:
        self._graph = graph
        self._positions: dict[Tensor | Operation, int] = {}
        self.rebuild: Callable[[list[Any]], Any] = self._builder(fetches)
        self.elements: list[Tensor | Operation] = list(self._positions)

    def _builder(self, fetches: Any) -> Callable[[list[Any]], Any]:
        if fetches is None:
            error = TypeError('Argument `fetch` = None has invalid type "NoneType". Cannot be None')
            error.add_note(
                "asyncmon: did the function that built it return it? merge_all() is None without"
                " summaries."
            )
            raise error
        structure = parts_of(fetches)
        if structure is None:
            return itemgetter(self._position(fetches))
        _keys, parts, make = structure
        builders = [self._builder(part) for part in parts]
        if len(parts) > 1 and all(isinstance(build, itemgetter) for build in builders):
            get = itemgetter(*map(self._position, parts))
            return lambda results: make(get(results))
        return lambda results: make([build(results) for build in builders])

    def _position(self, fetch: Any) -> int:
        try:
            element = self._graph.as_graph_element(fetch)
        except TypeError as error:
            raise _invalid(fetch, str(error)) from None
        except (ValueError, KeyError) as error:
            raise ValueError(
                f"Fetch argument {fetch!r} cannot be interpreted as a Tensor. ({error.args[0]})"
            ) from None
        return self._positions.setdefault(element, len(self._positions))


def _invalid(fetch: Any, why: str) -> TypeError:
    return TypeError(
        f"Fetch argument {fetch!r} has invalid type {type(fetch).__name__!r}, "
        f"must be a string or Tensor. ({why})"
    )


def parts_of(value: Any) -> tuple[tuple[Any, ...], Sequence[Any], Callable[..., Any]] | None:
    """Return the keys, the parts and a constructor of a structure; None for a leaf."""
    kind: Any = type(value)
    if kind is list or kind is tuple:
        return (), value, kind
    if isinstance(value, Mapping):
        extra = (value.default_factory,) if isinstance(value, defaultdict) else ()
        keys, parts = tuple(value), list(value.values())
        if kind is dict:
            return keys, parts, lambda items: dict(zip(keys, items, strict=True))
        return (*extra, *keys), parts, lambda items: kind(*extra, dict(zip(keys, items, strict=True)))
    if isinstance(value, IndexedSlices):
        found = [value.values, value.indices, value.dense_shape]
        return (), [x for x in found if x is not None], lambda items: IndexedSlicesValue(*items)
    names = _field_names(value)
    if names is not None:
        parts = [getattr(value, name) for name in names]
        if isinstance(value, tuple):
            make = getattr(kind, "_value_type", kind)  # of a sparse tensor
            return (), parts, lambda items: make(*items)
        return (), parts, lambda items: kind(**dict(zip(names, items, strict=True)))
    return ((), value, kind) if isinstance(value, list | tuple) else None


def _field_names(value: Any) -> tuple[str, ...] | None:
    """Return the fields of a namedtuple, a dataclass or an attrs class; None for anything else."""
    if isinstance(value, tuple):
        return getattr(value, "_fields", None)
    kind = type(value)
    if dataclasses.is_dataclass(kind):
        fields: Any = dataclasses.fields(kind)
    else:
        fields = getattr(kind, "__attrs_attrs__", None)
    return None if fields is None else tuple(field.name for field in fields if field.init)
