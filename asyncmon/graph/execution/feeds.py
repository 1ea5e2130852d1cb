"""Feeds: which tensors may be fed, and checks of the values before a run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core import dtypes
from asyncmon.graph.core.convert import is_tensor_like
from asyncmon.graph.core.graph import Graph
from asyncmon.graph.core.node import Tensor
from asyncmon.graph.core.shape import Shape, is_compatible


def feed_tensor(graph: Graph, key: Any) -> Tensor:
    """Return the tensor of a key of a feed_dict.

    Raises:
        TypeError: the key is no tensor of this graph.
    """
    try:
        tensor: Tensor = graph.as_graph_element(key, allow_operation=False)
    except (KeyError, ValueError, TypeError) as error:
        text = error.args[0] if error.args else error
        raise TypeError(f"Cannot interpret feed_dict key as Tensor: {text}") from None
    return tensor


def flat_keys(feeds: Iterable[Any]) -> list[Any]:
    """Return the keys of a feed_dict; those of a tuple, nested or not, one by one."""
    return [leaf for key in feeds for leaf in _leaves(key, key)]


def flat_values(feeds: Mapping[Any, Any]) -> list[Any]:
    """Return the values of a feed_dict in the order of :func:`flat_keys`.

    Raises:
        ValueError: the key is a tuple, and the value is not a tuple of this length.
    """
    return [leaf for key, value in feeds.items() for leaf in _leaves(key, value)]


def _leaves(key: Any, value: Any) -> list[Any]:
    if not isinstance(key, tuple):
        return [value]
    if not isinstance(value, list | tuple) or len(value) != len(key):
        raise ValueError(
            f"Could not flatten dictionary. Key had {len(key)} elements, the value is {value!r}."
        )
    return [leaf for inner, part in zip(key, value, strict=True) for leaf in _leaves(inner, part)]


class Feed:
    """The check of values fed for one tensor."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        is_text = tensor.spec.dtype is dtypes.string  # elements are checked: no array is used unchanged
        self._dtype = np.dtype(np.void) if is_text else tensor.spec.dtype.numpy
        self._shape: Shape = tensor.spec.shape
        self._known: Shape = None  # the shape that fitted last

    def accept(self, value: Any) -> Any:
        """Return a fed value as an array of the tensor's dtype.

        Raises:
            TypeError: a tensor, or a value that the dtype cannot hold.
            ValueError: it does not have the tensor's shape.
        """
        if type(value) is not np.ndarray or value.dtype != self._dtype:
            value = self._converted(value)
        actual = value.shape
        if actual == self._known:
            return value
        if not is_compatible(self._shape, actual):
            raise ValueError(
                f"Cannot feed value of shape {actual!r} for Tensor {self.tensor.name}, "
                f"which has shape {self.tensor.shape}"
            )
        self._known = actual
        return value

    def _converted(self, value: Any) -> Any:
        tensor = self.tensor
        if is_tensor_like(value):
            raise TypeError(
                f"The value of a feed cannot be a tensor, got {value!r} for {tensor!r}. "
                "Acceptable feed values are Python scalars, strings, lists and numpy arrays."
            )
        if tensor.dtype is dtypes.string:
            try:
                return dtypes.as_strings(value)
            except TypeError:
                raise self._wrong_dtype(value, "values that are not all str or bytes") from None
        try:
            array = np.asarray(value)
        except ValueError as error:
            raise ValueError(f"Cannot feed {value!r} for Tensor {tensor.name}: {error}") from None
        given, wanted = array.dtype, self._dtype
        if given == wanted:
            return array
        if np.can_cast(given, wanted) or (
            wanted.kind in "fc" and np.can_cast(given, wanted, "same_kind")
        ):
            return array.astype(wanted)
        if given.kind not in "biuf" or wanted.kind not in "biu":
            raise self._wrong_dtype(value, f"dtype {given}")
        with np.errstate(all="ignore"):
            cast = array.astype(wanted)
        if not (cast == array).all():  # the original truncates them silently in arrays
            raise self._wrong_dtype(
                value, f"dtype {given} and values that {tensor.dtype.name} cannot hold"
            )
        return cast

    def _wrong_dtype(self, value: Any, found: str) -> TypeError:
        tensor = self.tensor
        return TypeError(
            f"Cannot feed a {type(value).__name__} with {found} for Tensor {tensor.name}, "
            f"which has dtype {tensor.dtype.name}. Cast it first where that is meant."
        )


def missing_feed(tensor: Tensor) -> InvalidArgumentError:
    """Return the error for a placeholder that a run needs and that is not fed."""
    return InvalidArgumentError(
        f"You must feed a value for placeholder tensor {tensor.op.name!r} "
        f"with dtype {tensor.dtype.name} and shape {tensor.shape}.",
        op=tensor.op,
    )
