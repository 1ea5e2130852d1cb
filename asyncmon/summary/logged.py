"""Values that a program logs by hand, and the protocol of loggers, which write them."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Mapping
from typing import Any, Protocol, SupportsIndex, TypeAlias

import numpy as np
from numpy.typing import NDArray

from asyncmon.summary.histogram import check_numbers
from asyncmon.summary.media import encode_png, to_pixels
from asyncmon.summary.values import HParam, batch_of_images, check_images, frozen_array, plain_hparam
from asyncmon.system.error_text import phrase

MOST_TEXT = 1 << 20
"""The largest number of characters of a logged string."""

_STEPS = 1 << 63  # the step of an event has 64 bits


class Image:
    """An image among logged values.

    Args:
        pixels: of shape ``[height, width]`` or ``[height, width, channels]`` with 1, 3 or 4 channels;
            uint8, or floats, which are scaled (:func:`~asyncmon.summary.media.to_pixels`). Copied
            unless it is read-only.

    Raises:
        TypeError, ValueError: the dtype or the shape is not supported.

    Example::

        sess.log("digit", am.summary.Image(batch[0].reshape(28, 28)))
    """

    def __init__(self, pixels: Any) -> None:
        self.pixels = frozen_array(pixels)
        if self.pixels.ndim not in (2, 3):
            raise ValueError(
                f"Image was given an array of shape {list(self.pixels.shape)}; expected [height, "
                "width] or [height, width, channels]."
            )
        check_images("Image", batch_of_images(self.pixels).shape, self.pixels.dtype)

    def shown(self) -> NDArray[np.uint8]:
        """Return the scaled pixels of shape ``[height, width, channels]``."""
        return to_pixels(batch_of_images(self.pixels)[0])

    def png(self) -> bytes:
        """Return the image as a PNG file."""
        return encode_png(self.shown())


LoggedValue: TypeAlias = float | str | NDArray[Any] | Image
"""A scalar, a text, an array of numbers (the samples of a histogram), or an image."""


class Logger(Protocol):
    """Writes logged values to one place. Used by :class:`~asyncmon.hooks.LoggersHook`.

    The methods are plain functions that may block: they are called one after another in a thread of the
    logger. An error is counted and logged, and drops the record. :class:`LoggerMembers` has the
    optional members.

    Example::

        class Print:
            def write(self, step, wall_time, values):
                print(step, values)

            def write_config(self, config):
                print(config)

            def flush(self): ...

            def close(self, error): ...
    """

    def write(self, step: int | None, wall_time: float, values: Mapping[str, LoggedValue]) -> None:
        """Write values by tag, which must not be changed.

        ``step`` is None if the session counts no steps; ``wall_time`` is in seconds since 1970.
        """

    def write_config(self, config: Mapping[str, HParam]) -> None:
        """Write hyperparameters: bools, numbers or strings by name. Later ones are added."""

    def flush(self) -> Awaitable[None] | None:
        """Write buffered records. Called when no record is pending."""

    def close(self, error: BaseException | None = None) -> Awaitable[None] | None:
        """Flush, and release resources. Called once, with the error that ended the session, or None."""


class Log(Protocol):
    """The function ``log`` of a session, of the context of a run or a step function, and so on."""

    def __call__(self, values: Any, value: Any = None, *, step: int | None = None) -> object:
        """Log values, see :meth:`MonitoredSession.log`."""


class LoggerMembers:
    """The optional members of a logger."""

    blocking: bool = True
    """Whether the methods may block. If not, ``write`` and ``write_config`` are called at once, in the
    thread that logs, and the others in the event loop, where they may be ``async def``."""
    write_summary: Any = None
    """``write_summary(step, wall_time, summary)``: called with a ``Summary`` or its bytes. None:
    ``write`` is called with its numbers and texts."""
    name_run: Any = None
    """``name_run(name)``: called with the name of the session, before ``start``. None: not called."""
    start: Any = None
    """``start(global_step)``: called like ``write`` for each created session. None: not called."""


Found: TypeAlias = tuple[dict[str, LoggedValue], dict[str, str]]
"""Values by tag, and why others cannot be logged, by tag."""


def logged_values(values: Any, value: Any = None, *, step: int | None = None) -> Found:
    """Return the arguments of ``log`` as values by tag, copied where they can change.

    A value that cannot be logged is left out, with a reason. It is no error of the training.

    Raises:
        TypeError: there is no tag, a tag is no string, or the step is no whole number.
    """
    if not isinstance(step, SupportsIndex | None):
        raise TypeError(f"log() was given the step {step!r}; expected a whole number or None.")
    if isinstance(values, str):
        values = {values: value}
    elif not isinstance(values, Mapping) or value is not None:
        raise TypeError(
            f"log() takes a tag and a value, or a mapping of values by tag; got {values!r:.200}"
            f"{'' if value is None else f' and {value!r:.200}'}."
        )
    found: dict[str, LoggedValue] = {}
    refused: dict[str, str] = {}
    for tag, one in values.items():
        if not isinstance(tag, str) or not tag:
            raise TypeError(f"log() was given the tag {tag!r}; expected a name, a string.")
        if step is not None and not -_STEPS <= int(step) < _STEPS:
            refused[tag] = f"it has the step {int(step)}, which has more than 64 bits"
            continue
        if not tag.isprintable():
            tag = "".join(char if char.isprintable() else " " for char in tag)
        try:
            found[tag] = _logged(one)
        except _OddValueError as error:
            refused[tag] = str(error)
        except Exception as error:  # of the value's own code: a tensor without data, for example
            refused[tag] = phrase(error)
    return found, refused


def _logged(value: Any) -> LoggedValue:
    if isinstance(value, str):
        if len(value) > MOST_TEXT:
            raise _OddValueError(
                f"it is a string of {len(value):,} characters; at most {MOST_TEXT:,} are accepted. "
                "Write it to a file, and log the path"
            )
        return value
    if isinstance(value, float | int | Image):
        return value if isinstance(value, Image) else _number(value)
    try:
        if hasattr(value, "detach"):  # a tensor of torch
            value = value.detach().cpu()
            value = value.float() if str(value.dtype) == "torch.bfloat16" else value
        array = np.asarray(value)
        if array.dtype.kind == "V":  # a float type of ml_dtypes, such as bfloat16
            array = array.astype(np.float32)
        check_numbers(array.dtype)
    except (TypeError, ValueError):
        if hasattr(value, "__float__") and not hasattr(value, "__len__"):  # a Decimal, a Fraction
            return _number(value)
        raise _OddValueError(
            f"it is {value!r:.200}, a {type(value).__name__}; expected a number, an array or list of "
            "numbers (for a histogram), a string, or am.summary.Image(pixels)"
        ) from None
    if not array.size:
        raise _OddValueError("it is an empty array; expected one number or more")
    return float(array.item()) if array.size == 1 else frozen_array(array)


class _OddValueError(Exception):
    """A value that cannot be logged; the message is a clause about it."""


def _number(value: float) -> float:
    try:
        return float(value)
    except OverflowError:  # a whole number beyond the range of floats
        return math.inf if value > 0 else -math.inf


def checked_config(config: Any) -> dict[str, HParam]:
    """Return hyperparameters by name; values that are no bool, number or string as text.

    Raises:
        TypeError: ``config`` is no mapping with strings as names.
    """
    if not isinstance(config, Mapping) or not all(isinstance(name, str) for name in config):
        raise TypeError(f"log_config() takes a mapping of values by name, got {config!r:.200}.")
    return {name: _plain_or_text(name, value) for name, value in config.items()}


def _plain_or_text(name: str, value: Any) -> HParam:
    try:
        plain = plain_hparam(name, value)
        return plain if isinstance(plain, bool | str) or abs(plain) < _STEPS else float(plain)
    except (TypeError, OverflowError):
        try:
            return f"{value!s:.1000}"
        except Exception:  # of its own __str__, or a number of too many digits
            return f"<{type(value).__name__}>"


def plain_numbers(values: Mapping[str, LoggedValue]) -> dict[str, float]:
    """Return the scalars, and of each array ``tag/min``, ``tag/max`` and ``tag/mean``."""
    numbers: dict[str, float] = {}
    for tag, value in values.items():
        if isinstance(value, float):
            numbers[tag] = value
        elif isinstance(value, np.ndarray):
            numbers.update({f"{tag}/{name}": number for name, number in extent(value).items()})
    return numbers


def extent(array: NDArray[Any]) -> dict[str, float]:
    """Return ``min``, ``max`` and ``mean`` of an array."""
    mean = array.mean(dtype=np.float64)
    return {"min": float(array.min()), "max": float(array.max()), "mean": float(mean)}
