"""Where the windows of convolution and pooling lie: strides, padding, sizes of outputs."""

from __future__ import annotations

from typing import Any

from asyncmon.errors import InvalidArgumentError

__all__ = [
    "Padding",
    "Pair",
    "check_rank",
    "check_shape",
    "output_size",
    "paddings",
    "spatial",
    "window_padding",
]

Pair = tuple[int, int]
Padding = str | tuple[Pair, Pair]
"""``"SAME"``, ``"VALID"``, or what to add before and after rows, and columns."""


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


def check_data_format(data_format: str | None) -> str:
    """Return the data format, "NHWC" by default. ValueError for an unknown one."""
    if data_format is None:
        return "NHWC"
    if data_format not in ("NHWC", "NCHW"):
        raise ValueError(f"data_format must be 'NHWC' or 'NCHW', got {data_format!r}")
    return data_format


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


def output_size(size: int | None, window: int, stride: int, padding: str | Pair) -> int | None:
    """Return how many windows fit in one dimension.

    Args:
        size: of the input; None gives None.
        window: how far a window reaches, dilation included.
        stride: from one window to the next.
        padding: "SAME", "VALID", or what is added before and after.

    Raises:
        ValueError: not even one fits.
    """
    if size is None:
        return None
    if padding == "SAME":
        return -(-size // stride)
    total = size if isinstance(padding, str) else size + sum(padding)
    if total < window:
        raise ValueError(
            f"Negative dimension size caused by subtracting {window} from {total}: the window "
            "is larger than the input"
        )
    return (total - window) // stride + 1


def check_rank(what: str, shape: tuple[int, ...]) -> None:
    """Refuse, in a run, what has not four dimensions."""
    if len(shape) != 4:
        raise InvalidArgumentError(f"{what} must have 4 dimensions, got shape {list(shape)}")


def check_shape(what: str, found: tuple[int, ...], expected: tuple[int, ...]) -> None:
    """Refuse, in a run, an array of another shape than windows give it."""
    if found != expected:
        raise InvalidArgumentError(
            f"The {what} has shape {list(found)}, for these windows it must have {list(expected)}"
        )


def paddings(
    shape: tuple[int, ...], window: Pair, strides: Pair, padding: Padding
) -> tuple[Pair, tuple[Pair, Pair]]:
    """Return the numbers of windows, and what is added around, for rows and columns of an image.

    Args:
        shape: of the images, ``(n, height, width, channels)``.
        window: how far a window reaches, dilation included.
        strides: from one window to the next.
        padding: as given.
    """
    counts, around = [], []
    for i in (0, 1):
        one = padding if isinstance(padding, str) else padding[i]
        size = shape[1 + i]
        count = output_size(size, window[i], strides[i], one) or 0
        if isinstance(one, str):
            total = max((count - 1) * strides[i] + window[i] - size, 0) if one == "SAME" else 0
            one = (total // 2, total - total // 2)
        counts.append(count)
        around.append(one)
    return (counts[0], counts[1]), (around[0], around[1])
