"""The state of a JAX program: a pytree on devices, and names and host arrays for its leaves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from asyncmon.checkpoint.dtypes import element_of
from asyncmon.errors import UnimplementedError


class Leaf(NamedTuple):
    """One declared leaf: its name, its value on the host, and where it lives."""

    name: str
    value: np.ndarray[Any, Any]
    sharding: Any
    """None for the default device."""
    key_impl: str | None
    """Of a random key, whose ``value`` is its data."""

    def put(self, value: Any = None) -> Any:
        """Return a new array on the device, of the declared value or another one of its form."""
        host = self.value if value is None else np.asarray(value, self.value.dtype)
        if self.sharding is None:
            array = jnp.array(host)
        elif self.sharding.is_fully_addressable:
            array = jax.device_put(host.copy(), self.sharding)
        else:  # device_put would wait for the other processes, which may load nothing now
            host = host.copy()
            array = jax.make_array_from_callback(host.shape, self.sharding, host.__getitem__)
        return array if self.key_impl is None else jax.random.wrap_key_data(array, impl=self.key_impl)

    @property
    def form(self) -> np.ndarray[Any, Any]:
        """An array of this shape and dtype, of no size in memory."""
        return np.broadcast_to(np.empty((), self.value.dtype), self.value.shape)


def declared(state: Any) -> tuple[list[Leaf], Any]:
    """Return the leaves of a pytree, copied to the host, and its structure.

    Raises:
        TypeError: a leaf is neither array nor number.
        ValueError: two leaves have the same name.
    """
    flat, structure = jax.tree_util.tree_flatten_with_path(state)
    leaves = [_leaf("/".join(map(_part, path)) or "state", value) for path, value in flat]
    names = [leaf.name for leaf in leaves]
    if twice := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"Two leaves of the state have the name {sorted(twice)[0]!r}; rename a key.")
    return leaves, structure


def _part(key: Any) -> str:
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


def _leaf(name: str, value: Any) -> Leaf:
    sharding = value.sharding if isinstance(value, jax.Array) and value.committed else None
    impl = None
    if is_key(value):
        impl = str(jax.random.key_impl(value))
        sharding = None
    elif not isinstance(value, jax.Array | np.ndarray | np.generic | bool | int | float | complex):
        raise TypeError(
            f"The entry {name!r} of the state is {value!r}; a pytree of arrays and numbers is needed."
        )
    host = np.array(to_host(jnp.asarray(value)))
    if element_of(host.dtype) is None:
        raise TypeError(
            f"The entry {name!r} has the dtype {host.dtype}, which checkpoints do not have."
        )
    return Leaf(name, host, sharding, impl)


def is_key(value: Any) -> bool:
    """Return whether a value is an array of random keys."""
    return isinstance(value, jax.Array) and bool(jnp.issubdtype(value.dtype, jax.dtypes.prng_key))


def to_host(value: Any) -> Any:
    """Return an array on the host, without a copy where it is there already. Waits for it.

    Raises:
        UnimplementedError: parts of it are at other processes only.
    """
    if not isinstance(value, jax.Array):
        return value
    if is_key(value):
        value = jax.random.key_data(value)
    if not value.is_fully_addressable:
        if not value.is_fully_replicated:
            raise UnimplementedError(
                f"An array of shape {value.shape} is spread over processes; one process cannot save or "
                "fetch it. Replicate it, or gather it in the step "
                "(jax.lax.with_sharding_constraint with an empty PartitionSpec)."
            )
        value = value.addressable_data(0)
    array = np.asarray(value)
    return array[()] if array.ndim == 0 else array


def copied(arrays: Sequence[Any]) -> list[Any]:
    """Return copies on the device, which a later donation leaves alone."""
    return [jnp.copy(array) for array in arrays]


def host_entries(leaves: Sequence[Leaf], arrays: Sequence[Any]) -> dict[str, Any]:
    """Return names to arrays on the host."""
    return {leaf.name: np.asarray(to_host(array)) for leaf, array in zip(leaves, arrays, strict=True)}


def is_deleted(tree: Any) -> bool:
    """Return whether a buffer of a pytree was donated to a step."""
    return any(leaf.is_deleted() for leaf in jax.tree_util.tree_leaves(tree))
