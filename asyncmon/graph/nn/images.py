"""The common arguments of ops on images, and the layouts "NHWC" and "NCHW"."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from asyncmon.graph.core.build import create_op
from asyncmon.graph.core.node import Tensor
from asyncmon.graph.numerics.windows import Padding, Pair


def check_data_format(data_format: str | None) -> str:
    """Return the data format, "NHWC" by default. ValueError for an unknown one."""
    if data_format is None:
        return "NHWC"
    if data_format not in ("NHWC", "NCHW"):
        raise ValueError(f"data_format must be 'NHWC' or 'NCHW', got {data_format!r}")
    return data_format


def spatial(value: Any, what: str, data_format: str) -> Pair:
    """Return the two spatial numbers of an int, or of a list of 1, 2 or 4, which has 1 for the rest.

    Raises:
        ValueError: a list of another length, a number for the batch or the channels that is not 1, or
            one that is not positive.
    """
    numbers = [value] if isinstance(value, int) else [int(v) for v in value]
    if len(numbers) == 4:
        at = (1, 2) if data_format == "NHWC" else (2, 3)
        if any(n != 1 for i, n in enumerate(numbers) if i not in at):
            raise ValueError(
                f"{what} must be 1 in the batch and depth dimensions, got {numbers} for {data_format}"
            )
        numbers = [numbers[i] for i in at]
    if len(numbers) not in (1, 2):
        raise ValueError(f"{what} should be of length 1, 2 or 4 but was {len(numbers)}")
    if min(numbers) < 1:
        raise ValueError(f"{what} must be positive, got {numbers}")
    return numbers[0], numbers[-1]


def window_numbers(what: str, value: Any, rank: int) -> tuple[int, ...]:
    """Return an argument of a layer over windows as ``rank`` numbers.

    Raises:
        ValueError: it is no positive number, and no tuple of ``rank`` of them.
    """
    if not isinstance(value, int) and not (isinstance(value, Iterable) and len(list(value)) == rank):
        raise ValueError(
            f"The `{what}` argument must be a tuple of {rank} integers. Received: {value!r}"
        )
    return spatial(value, what, "NHWC")[:rank]


def window_padding(padding: Any, data_format: str) -> Padding:
    """Return a padding given as "SAME" or "VALID", or as four pairs of numbers.

    Raises:
        ValueError: anything else.
    """
    if isinstance(padding, str):
        if padding not in ("SAME", "VALID"):
            raise ValueError(f"padding must be 'SAME', 'VALID' or a list of pairs, got {padding!r}")
        return padding
    pairs = [(int(a), int(b)) for a, b in padding] if padding is not None else []
    if len(pairs) != 4 or any(n < 0 for pair in pairs for n in pair):
        raise ValueError(f"padding must be 'SAME', 'VALID' or four pairs of numbers, got {padding!r}")
    at = (1, 2) if data_format == "NHWC" else (2, 3)
    if any(pair != (0, 0) for i, pair in enumerate(pairs) if i not in at):
        raise ValueError(f"Padding of the batch or depth is not supported, got {padding!r}")
    return pairs[at[0]], pairs[at[1]]


def create_image_op(
    op_type: str,
    inputs: Sequence[Any],
    padding: Any,
    data_format: str | None,
    name: str | None,
    images: int = 0,
    **pairs: Any,
) -> Tensor:
    """Add an op over windows that takes channels last; with "NCHW", between two transpositions.

    ``images`` is the index of the input to transpose; ``pairs`` are strides, sizes or dilations.
    """
    layout = check_data_format(data_format)
    attrs: dict[str, Any] = {what: spatial(value, what, layout) for what, value in pairs.items()}
    attrs["padding"] = window_padding(padding, layout)
    if layout == "NHWC":
        return create_op(op_type, inputs, attrs, name)
    turned = list(inputs)
    turned[images] = create_op("Transpose", (inputs[images],), {"perm": (0, 2, 3, 1)})
    result = create_op(op_type, turned, attrs, name)
    return create_op("Transpose", (result,), {"perm": (0, 3, 1, 2)})
