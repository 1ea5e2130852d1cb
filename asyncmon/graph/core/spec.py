"""What is known of a tensor without its value."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from asyncmon.graph.core.dtypes import DType

Shape = tuple[int | None, ...] | None
"""``None``: rank unknown. A ``None`` inside: that dimension is unknown."""


@dataclass(slots=True, unsafe_hash=True)  # never changed; frozen, it takes four times as long to make
class Spec:
    """What is known of a tensor before it is computed.

    Attributes:
        dtype: the element type.
        shape: as far as it is known.
        value: the array, of a constant.
        dims: the elements of an integer scalar (as a 1-tuple) or vector, None for an unknown one. The
            rules of ops on shapes give them, so that a shape that is taken apart and packed again keeps
            its known dimensions.
    """

    dtype: DType
    shape: Shape
    value: NDArray[Any] | None = field(default=None, compare=False, repr=False)
    dims: tuple[int | None, ...] | None = field(default=None, compare=False, repr=False)

    def known_dims(self) -> tuple[int | None, ...] | None:
        """Return the integers this tensor holds, as far as they are known; None if nothing is."""
        if self.value is not None and self.value.ndim <= 1 and self.dtype.is_integer:
            return tuple(int(d) for d in np.atleast_1d(self.value))
        return self.dims


def constant_of(spec: Spec) -> NDArray[Any] | None:
    """Return the value where all of it is known."""
    known = spec.known_dims()
    if spec.value is not None or known is None or None in known:
        return spec.value
    return np.array(known).reshape(spec.shape or ())  # type: ignore[arg-type]  # no None left
