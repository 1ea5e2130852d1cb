"""Tensors that are sharded over ranks, and the piece of one that a rank has."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Shard:
    """A copy of this rank's piece of a sharded tensor, and the shape of the whole."""

    array: NDArray[Any]
    shape: tuple[int, ...]

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The type of the elements."""
        return self.array.dtype


def is_dtensor(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is a ``DTensor``, sharded or not."""
    module = sys.modules.get("torch.distributed.tensor")  # its import takes a second
    return module is not None and isinstance(tensor, module.DTensor)


def local(tensor: Any) -> torch.Tensor:
    """Return what this rank has of a tensor."""
    found: torch.Tensor = tensor.to_local() if is_dtensor(tensor) else tensor
    return found


def is_sharded(tensor: Any) -> bool:
    """Return whether a tensor is in pieces, which several ranks have."""
    return (
        is_dtensor(tensor)
        and tensor.device_mesh.size() > 1
        and not all(placement.is_replicate() for placement in tensor.placements)
    )


def own_shard(value: Any, like: Any) -> Shard:
    """Return this rank's piece, not copied, of a whole array that is sharded like a tensor."""
    (chunk,) = like.__create_chunk_list__()
    ends = zip(chunk.offsets, chunk.sizes, strict=True)
    return Shard(value[tuple(slice(start, start + length) for start, length in ends)], like.shape)


def as_dtensor(value: Any, like: Any, as_tensor: Callable[[Any], torch.Tensor]) -> torch.Tensor:
    """Return a tensor that is sharded like another one, of a whole array or of this rank's piece."""
    from torch.distributed.tensor import DTensor

    shard = value if isinstance(value, Shard) else own_shard(value, like)
    return DTensor.from_local(
        as_tensor(shard.array),
        like.device_mesh,
        like.placements,
        run_check=False,
        shape=like.shape,
        stride=like.stride(),
    )
