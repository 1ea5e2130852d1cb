"""Variables in parts, which may be on several devices. TF1: ``get_variable(partitioner=...)``.

A partitioner is a function ``partitioner(shape=..., dtype=...)`` that returns the number of parts for
each dimension. At most one number may be larger than 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import Any

from asyncmon.graph.core import dtypes
from asyncmon.graph.core.build import control_dependencies, name_scope
from asyncmon.graph.core.dtypes import DType
from asyncmon.graph.core.node import Operation, Tensor
from asyncmon.graph.core.shape import TensorShape
from asyncmon.graph.ops.basic import identity
from asyncmon.graph.ops.join import concat, split

Partitioner = Callable[..., Sequence[int]]


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """The place of a part in its variable, an argument of initializers. TF1: ``_PartitionInfo``.

    Attributes:
        full_shape: the shape of the whole variable.
        var_offset: the first index of the part in each dimension.
    """

    full_shape: list[int]
    var_offset: list[int]

    def single_offset(self, shape: Sequence[int]) -> int:
        """Return the offset of a part of this shape in the partitioned dimension. TF1: same name."""
        at = self.single_slice_dim(shape)
        return 0 if at is None else self.var_offset[at]

    def single_slice_dim(self, shape: Sequence[int]) -> int | None:
        """Return the partitioned dimension, or None if there is one part. TF1: same name.

        ValueError if a part of this shape does not fit.
        """
        found = None
        sizes = zip(self.full_shape, self.var_offset, shape, strict=True)
        for i, (whole, offset, size) in enumerate(sizes):
            if offset + size > whole:
                raise ValueError(
                    f"A part {list(shape)} at {self.var_offset} is not in {self.full_shape}."
                )
            if size != whole:
                if found is not None:
                    raise ValueError(f"{list(shape)} is a part of {self.full_shape} in two dimensions.")
                found = i
        return found


class PartitionedVariable:
    """A variable whose parts are variables, ``v/part_0`` and so on. TF1: same name.

    :func:`get_variable` makes it for a ``partitioner``. Iterate over it for the parts. As an input of
    an op it is the concatenation of the parts. Checkpoints have it under its name, with its shape, and
    any number of parts is restored from that.

    Args:
        name: the name of the whole variable.
        shape: its shape.
        dtype: its dtype.
        variable_list: the parts, each with a ``SaveSliceInfo``.
        partitions: the number of parts for each dimension.

    Attributes:
        name: the name of the whole variable, without ``:0``, also in checkpoints.

    Raises:
        TypeError: ``variable_list`` or ``partitions`` is no list or tuple.
        ValueError: they are empty, do not fit together, or a part has no ``SaveSliceInfo``.
    """

    def __init__(
        self,
        name: str,
        shape: Any,
        dtype: Any,
        variable_list: Sequence[Any],
        partitions: Sequence[int],
    ) -> None:
        for what, found in (("variable_list", variable_list), ("partitions", partitions)):
            if not isinstance(found, list | tuple):
                raise TypeError(f"{what} is not a list or tuple: {found!r}")
            if not found:
                raise ValueError(f"{what} may not be empty")
        if any(p < 1 for p in partitions):
            raise ValueError(f"partition values must be positive: {partitions}")
        offsets = []
        for variable in variable_list:
            info = variable._save_slice_info
            if info is None or info.full_name != name:
                raise ValueError(f"All parts must have a SaveSliceInfo of {name!r}: {variable}")
            offsets.append(info.var_offset)
        places = sorted(range(len(offsets)), key=offsets.__getitem__)
        self._variables = [variable_list[i] for i in places]
        self.name = self.save_name = name
        self.shape, self.dtype = TensorShape(shape), dtypes.as_dtype(dtype)
        self._partitions = list(partitions)
        self.graph = self._variables[0].graph

    def __iter__(self) -> Iterator[Any]:
        return iter(self._variables)

    def __len__(self) -> int:
        return len(self._variables)

    def get_shape(self) -> TensorShape:
        """Return :attr:`shape`. TF1: same name."""
        return self.shape

    def _get_variable_list(self) -> list[Any]:
        """Return the parts. TF1: same name."""
        return self._variables

    def _get_partitions(self) -> list[int]:
        """Return the number of parts for each dimension. TF1: same name."""
        return self._partitions

    def _partition_axes(self) -> list[int]:
        """Return the partitioned dimension; ``[0]`` if there is one part. TF1: same name."""
        return [i for i, parts in enumerate(self._partitions) if parts > 1] or [0]

    def as_tensor(self) -> Tensor:
        """Return the whole value, outside of current control dependencies. TF1: same name."""
        with control_dependencies(None):
            return self._as_tensor()

    def _as_tensor(self) -> Tensor:
        if len(self) == 1:
            whole: Any = self._variables[0]
        else:
            with name_scope(f"{self.name}/ConcatPartitions/"):
                whole = concat(self._variables, self._partition_axes()[0])
        with name_scope(None):
            return identity(whole, name=self.name)

    def assign(
        self, value: Any, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> list[Any]:
        """Assign a whole value, or a list of the parts' values, or another partitioned variable.

        Returns the new values of the parts, or the operations if not ``read_value``. TF1: same name.
        ``use_locking`` is without effect.
        """
        return self._apply("assign", value, name, read_value)

    def assign_add(
        self, value: Any, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> list[Any]:
        """Add a value. Arguments as :meth:`assign`. TF1: same name."""
        return self._apply("assign_add", value, name, read_value)

    def assign_sub(
        self, value: Any, use_locking: bool = False, name: str | None = None, read_value: bool = True
    ) -> list[Any]:
        """Subtract a value. Arguments as :meth:`assign`. TF1: same name."""
        return self._apply("assign_sub", value, name, read_value)

    def _apply(
        self, method: str, value: Any, name: str | None, read_value: bool
    ) -> list[Tensor | Operation]:
        if isinstance(value, list | PartitionedVariable):
            values = list(value)
            if len(values) != len(self):
                raise ValueError(f"{self.name!r} has {len(self)} parts, got {len(values)} values.")
        else:
            axis = self._partition_axes()[0]
            values = split(value, [v.shape[axis].value for v in self._variables], axis)
        pairs = zip(self._variables, values, strict=True)
        return [getattr(part, method)(new, name=name, read_value=read_value) for part, new in pairs]

    def __repr__(self) -> str:
        return (
            f"<PartitionedVariable {self.name!r} shape={self.shape} dtype={self.dtype.name} "
            f"partitions={self._partitions}>"
        )


def flat_variables(variables: Iterable[Any]) -> list[Any]:
    """Return variables with the parts in place of partitioned ones and of nested lists."""
    found: list[Any] = []
    for variable in variables:
        if isinstance(variable, list | tuple | PartitionedVariable):
            found += flat_variables(variable)
        else:
            found.append(variable)
    return found


def parts_of(shape: Sequence[int], partitions: Sequence[int]) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the offset and the shape of each part. The first parts are larger if they differ."""
    axis = next((i for i, parts in enumerate(partitions) if parts > 1), 0)
    size, larger = divmod(shape[axis], partitions[axis])
    offset = 0
    for i in range(partitions[axis]):
        length = size + (i < larger)
        yield (
            [offset if at == axis else 0 for at in range(len(shape))],
            [length if at == axis else n for at, n in enumerate(shape)],
        )
        offset += length


def partitions_of(partitioner: Any, shape: TensorShape, dtype: DType) -> list[int]:
    """Call a partitioner.

    ValueError if it cannot be called, the shape is not known, or it returns no partitioning of it.
    """
    if not callable(partitioner):
        raise ValueError(f"Partitioner must be callable, but received: {partitioner!r}")
    if not shape.is_fully_defined():
        raise ValueError(
            f"Shape of a new partitioned variable must be fully defined, but instead was {shape}."
        )
    if not shape.ndims:
        raise ValueError(f"A partitioned Variable must have rank at least 1, shape: {shape}")
    found = partitioner(shape=shape, dtype=dtype)
    if not isinstance(found, Sequence):
        raise ValueError(f"Partitioner must return a sequence, but saw: {found!r}")
    partitions = [int(parts) for parts in found]
    if len(partitions) != shape.ndims:
        raise ValueError(
            "Partitioner returned a partition list that does not match the Variable's rank: "
            f"{partitions} vs. {shape}"
        )
    if any(parts < 1 for parts in partitions):
        raise ValueError(f"Partitioner returned zero partitions for some axes: {partitions}")
    if sum(parts > 1 for parts in partitions) > 1:
        raise ValueError(
            f"Can only slice a variable along one dimension: shape: {shape}, partitioning: {partitions}"
        )
    if any(parts > max(size or 0, 1) for parts, size in zip(partitions, shape.as_list(), strict=True)):
        raise ValueError(f"Partitioner returned more parts than rows: {partitions} for {shape}")
    return partitions


# --- partitioners -----------------------------------------------------------------------------------
def fixed_size_partitioner(num_shards: int, axis: int = 0) -> Partitioner:
    """Return a partitioner into a number of parts, fewer for a smaller dimension. TF1: same name."""

    def partitioner(shape: TensorShape, **_: Any) -> list[int]:
        return _along(shape, axis, min(num_shards, shape.as_list()[axis] or 0))

    return partitioner


def variable_axis_size_partitioner(
    max_shard_bytes: int,
    axis: int = 0,
    bytes_per_string_element: int = 16,
    max_shards: int | None = None,
) -> Partitioner:
    """Return a partitioner into parts of a maximum size. TF1: same name.

    Args:
        max_shard_bytes: the size of a part in bytes, unless a single row is larger.
        axis: the dimension.
        bytes_per_string_element: the assumed size of a string.
        max_shards: the maximum number of parts, which may make them larger.

    Raises:
        ValueError: a number is not positive.
    """
    if max_shard_bytes < 1 or bytes_per_string_element < 1:
        raise ValueError(
            "Both max_shard_bytes and bytes_per_string_element must be positive. Currently, "
            f"max_shard_bytes is {max_shard_bytes} and bytes_per_string_element is "
            f"{bytes_per_string_element}"
        )
    if max_shards is not None and max_shards < 1:
        raise ValueError(f"max_shards must be positive, got {max_shards}.")

    def partitioner(shape: TensorShape, dtype: DType) -> list[int]:
        size = _checked_bytes(shape, dtype, bytes_per_string_element)
        rows = shape.as_list()[axis] or 0
        in_shard = max(1, floor(max_shard_bytes / max(1, size / max(1, rows))))
        parts = ceil(rows / in_shard)
        return _along(shape, axis, parts if max_shards is None else min(parts, max_shards))

    return partitioner


def min_max_variable_partitioner(
    max_partitions: int = 1,
    axis: int = 0,
    min_slice_size: int = 256 << 10,
    bytes_per_string_element: int = 16,
) -> Partitioner:
    """Return a partitioner into as many parts of a minimum size as possible. TF1: same name.

    ``min_slice_size`` is in bytes; others as for :func:`variable_axis_size_partitioner`.
    """

    def partitioner(shape: TensorShape, dtype: DType) -> list[int]:
        size = _checked_bytes(shape, dtype, bytes_per_string_element)
        if axis >= (shape.ndims or 0):
            raise ValueError(f"Cannot partition variable along axis {axis} when shape is only {shape}")
        most = min(shape.as_list()[axis] or 0, max_partitions, ceil(size / min_slice_size))
        return _along(shape, axis, max(1, most))

    return partitioner


def _along(shape: TensorShape, axis: int, parts: int) -> list[int]:
    partitions = [1] * (shape.ndims or 0)
    partitions[axis] = parts
    return partitions


def _checked_bytes(shape: Any, dtype: Any, of_string: int) -> int:
    """Return the size of a variable in bytes."""
    if not isinstance(shape, TensorShape):
        raise ValueError(f"shape is not a TensorShape: {shape!r}")
    count = shape.num_elements()
    if count is None:
        raise ValueError(f"shape is not fully defined: {shape}")
    if not isinstance(dtype, DType):
        raise ValueError(f"dtype is not a DType: {dtype!r}")
    return count * (of_string if dtype is dtypes.string else dtype.size)
