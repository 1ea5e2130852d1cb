"""Partitioned variables in snapshots: one entry for all parts, with the shape of the whole variable."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any

import numpy as np

from asyncmon.errors import InvalidArgumentError
from asyncmon.graph.core.graph import Graph
from asyncmon.graph.core.keys import GraphKeys
from asyncmon.graph.core.op import Spec
from asyncmon.system.snapshot import Holder, ShardedArray, Snapshot, assembled

Parts = Mapping[str, list[Any]]
"""The saved parts of each partitioned variable, by the name of the whole one."""


def saved_parts(graph: Graph) -> Parts:
    """Return the partitioned variables of which all parts are saved."""
    found: dict[str, list[Any]] = {}
    saved = graph.get_collection(GraphKeys.GLOBAL_VARIABLES)
    for variable in [v for v in saved if getattr(v, "_save_slice_info", None) is not None]:
        found.setdefault(variable.save_name, []).append(variable)
    return {name: parts for name, parts in found.items() if _is_whole(parts)}


def _is_whole(parts: list[Any]) -> bool:
    size = sum(np.prod(part._save_slice_info.var_shape, dtype=int) for part in parts)
    return bool(size == np.prod(parts[0]._save_slice_info.full_shape, dtype=int))


async def whole_snapshot(ordered: Awaitable[Snapshot], parts: Parts) -> Snapshot:
    """Return a snapshot with the whole variables in place of their parts."""
    return _whole(await ordered, parts)


def _whole(snapshot: Snapshot, parts: Parts) -> Snapshot:
    values: dict[str, Any] = dict(snapshot)
    for name, variables in parts.items():
        found = {v: values.pop(v.op.name, None) for v in variables}
        if any(value is None for value in found.values()):
            continue  # not initialised
        pieces = {tuple(v._save_slice_info.var_offset): value for v, value in found.items()}
        dtype, shape = variables[0].dtype.numpy, tuple(variables[0]._save_slice_info.full_shape)
        if dtype == np.object_:
            values[name] = assembled(shape, dtype, pieces)
        else:
            values[name] = ShardedArray(dtype, shape, pieces)
    holder = None if snapshot.holder is None else _WholeHolder(snapshot.holder, parts)
    return Snapshot(values, snapshot.step, snapshot.release, holder)


class _WholeHolder:
    """A :class:`~asyncmon.system.snapshot.Holder` whose snapshot has parts."""

    def __init__(self, holder: Holder, parts: Parts) -> None:
        self._holder = holder
        self._parts = parts
        self.write_file = holder.write_file

    async def pull(self) -> Snapshot:
        return _whole(await self._holder.pull(), self._parts)


def whole_spec(spec: Mapping[str, Spec], parts: Parts) -> dict[str, Spec]:
    """Return dtypes and shapes of the whole variables in place of their parts."""
    names = {part.op.name for variables in parts.values() for part in variables}
    found = {name: one for name, one in spec.items() if name not in names}
    for name, variables in parts.items():
        shape = tuple(variables[0]._save_slice_info.full_shape)
        found[name] = Spec(variables[0].dtype, shape)
    return found


def parted_values(values: Mapping[str, Any], parts: Parts) -> dict[str, Any]:
    """Return values with the parts in place of the whole variables.

    Raises:
        InvalidArgumentError: a value has another shape.
    """
    found: dict[str, Any] = {}
    for name, value in values.items():
        if name not in parts:
            found[name] = value
            continue
        whole, shape = np.asarray(value), tuple(parts[name][0]._save_slice_info.full_shape)
        if whole.shape != shape:
            raise InvalidArgumentError(
                f"Nothing was loaded: {name!r} has shape {shape}, the value {whole.shape}."
            )
        found.update((v.op.name, whole[v._save_slice_info.slices()]) for v in parts[name])
    return found
