"""The structure of fetches: nested lists, tuples, dicts and classes of tensors, and back."""

from __future__ import annotations

import dataclasses
from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from asyncmon.graph.core.indexed_slices import IndexedSlices, IndexedSlicesValue
from asyncmon.graph.core.node import Operation, Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable

    from asyncmon.graph.core.graph import Graph

_LEAVES = frozenset({Tensor, Operation, str})


def fetch_key(fetches: Any) -> Hashable:
    """Return something hashable that is equal for fetches of the same structure and elements.

    Called in every run: fetches that are built anew each time find their plan, too.
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
    if isinstance(fetches, Mapping):
        extra = fetches.default_factory if isinstance(fetches, defaultdict) else None
        return (kind, extra, *fetches, *[fetch_key(x) for x in fetches.values()])
    names = _field_names(fetches)
    if names is not None:
        return (kind, *[fetch_key(getattr(fetches, name)) for name in names])
    if isinstance(fetches, list | tuple):
        return (kind, *map(fetch_key, fetches))
    try:
        hash(fetches)
    except TypeError:
        raise _invalid(
            fetches, f"Can not convert a {kind.__name__} into a Tensor or Operation."
        ) from None
    return fetches  # type: ignore[no-any-return]


class FetchMap:
    """Which elements a structure of fetches asks for, each once, and how results fill it.

    Attributes:
        elements: the tensors and operations.
        rebuild: turns the list of their results into the structure.

    Raises:
        TypeError: something that is neither a tensor nor a structure of them.
        ValueError: an element of another graph, or a name of the wrong form.
        KeyError: a name that is not in the graph.
    """

    __slots__ = ("_graph", "_positions", "elements", "rebuild")

    def __init__(self, graph: Graph, fetches: Any) -> None:
        self._graph = graph
        self._positions: dict[Tensor | Operation, int] = {}
        self.rebuild: Callable[[list[Any]], Any] = self._builder(fetches)
        self.elements: list[Tensor | Operation] = list(self._positions)

    def _builder(self, fetches: Any) -> Callable[[list[Any]], Any]:
        kind = type(fetches)
        if fetches is None:
            raise TypeError('Argument `fetch` = None has invalid type "NoneType". Cannot be None')
        if isinstance(fetches, Mapping):
            keys = list(fetches)
            values = self._sequence(list(fetches.values()))
            make: Any = kind
            if isinstance(fetches, defaultdict):
                make = partial(defaultdict, fetches.default_factory)
            return lambda results: make(zip(keys, values(results), strict=True))
        if isinstance(fetches, IndexedSlices):
            parts = [fetches.values, fetches.indices, fetches.dense_shape]
            values = self._sequence([part for part in parts if part is not None])
            return lambda results: IndexedSlicesValue(*values(results))
        names = _field_names(fetches)
        if names is not None:
            values = self._sequence([getattr(fetches, name) for name in names])
            if isinstance(fetches, tuple):
                return lambda results: kind(*values(results))
            return lambda results: kind(**dict(zip(names, values(results), strict=True)))
        if isinstance(fetches, list | tuple):
            values = self._sequence(list(fetches))
            if kind is list:
                return values
            if kind is tuple and len(fetches) > 1 and _LEAVES.issuperset(map(type, fetches)):
                get = itemgetter(*[self._position(fetch) for fetch in fetches])
                return lambda results: get(results)
            return lambda results: kind(values(results))
        return itemgetter(self._position(fetches))

    def _sequence(self, items: list[Any]) -> Callable[[list[Any]], list[Any]]:
        builders = [self._builder(item) for item in items]
        if builders and all(isinstance(build, itemgetter) for build in builders):
            positions = [self._position(item) for item in items]
            if len(positions) == 1:
                only = positions[0]
                return lambda results: [results[only]]
            get = itemgetter(*positions)
            return lambda results: list(get(results))
        return lambda results: [build(results) for build in builders]

    def _position(self, fetch: Any) -> int:
        try:
            element = self._graph.as_graph_element(fetch)
        except TypeError as error:
            raise _invalid(fetch, str(error)) from None
        except ValueError as error:
            raise ValueError(
                f"Fetch argument {fetch!r} cannot be interpreted as a Tensor. ({error})"
            ) from None
        except KeyError as error:
            raise ValueError(
                f"Fetch argument {fetch!r} cannot be interpreted as a Tensor. ({error.args[0]})"
            ) from None
        return self._positions.setdefault(element, len(self._positions))


def _invalid(fetch: Any, why: str) -> TypeError:
    return TypeError(
        f"Fetch argument {fetch!r} has invalid type {type(fetch).__name__!r}, "
        f"must be a string or Tensor. ({why})"
    )


def _field_names(value: Any) -> tuple[str, ...] | None:
    """Return the fields of a namedtuple, a dataclass or an attrs class; None for anything else."""
    if isinstance(value, tuple):
        return getattr(value, "_fields", None)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return tuple(field.name for field in dataclasses.fields(value) if field.init)
    fields = getattr(type(value), "__attrs_attrs__", None)
    if fields is None:
        return None
    return tuple(field.name for field in fields if field.init)
