"""Snapshots: consistent states by name, taken without copying."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import prod
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True)
class HeldArray:
    """An array of a snapshot in another process.

    Attributes:
        name: the name in the snapshot.
        dtype, shape: those of the array.
        rank: the number of the process. Arrays of one process are written together.
    """

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    rank: int = 0

    @property
    def itemsize(self) -> int:
        """The size of an element in bytes."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """The size of the array in bytes."""
        return prod(self.shape) * self.itemsize

    def __array__(self, *_args: object, **_options: object) -> NoReturn:
        raise TypeError(f"{self!r} is in another process. Order a snapshot by snapshot().")


@dataclass(frozen=True, slots=True)
class ShardedArray:
    """An array of a snapshot in pieces, which may be in several processes.

    ``np.asarray`` assembles it if all of them are in this one.

    Attributes:
        dtype, shape: those of the whole array.
        pieces: maps the offset of a piece to an array of this process or a :class:`HeldArray`. They
            cover the array without overlap.
    """

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    pieces: Mapping[tuple[int, ...], Any]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        if any(isinstance(piece, HeldArray) for piece in self.pieces.values()):
            raise TypeError(f"{self!r} is in several processes. Order a snapshot by snapshot().")
        return assembled(self.shape, np.dtype(dtype or self.dtype), self.pieces)


def assembled(
    shape: tuple[int, ...], dtype: np.dtype[Any], pieces: Mapping[tuple[int, ...], NDArray[Any]]
) -> NDArray[Any]:
    """Assemble an array from its pieces by offset."""
    whole = np.empty(shape, dtype)
    for offset, piece in pieces.items():
        ends = zip(offset, piece.shape, strict=True)
        whole[tuple(slice(start, start + length) for start, length in ends)] = piece
    return whole


class Holder(Protocol):
    """A process that holds arrays of a snapshot, and can write the files of this process."""

    def write_file(
        self, path: str, header: bytes, arrays: Mapping[str, Any], control: Any
    ) -> dict[str, int]:
        """Write a tensor file in that process, durably except for its directory entry. Blocking.

        Args:
            path: the path of the file, which does not exist.
            header: the first bytes of the file.
            arrays: the arrays that follow, in order: arrays and :class:`HeldArray`.
            control: stops or unthrottles the write, a :class:`~asyncmon.checkpoint.throttle.Control`.

        Returns:
            The CRC-32C of each array.

        Raises:
            OpError: the file was not written. Nothing of it is left unless the process has ended.
        """

    async def pull(self) -> Snapshot:
        """Return the snapshot with all arrays in this process."""


class Snapshot(Mapping[str, "NDArray[Any]"]):
    """The state of a session between two steps: names to read-only arrays.

    The arrays are shared with the session, not copied. While a snapshot lives, a step that writes one
    of them writes to a fresh array instead. :meth:`release` (or leaving ``with``, or the collection
    of the object) ends the sharing; the arrays must not be read afterwards.

    Args:
        values: maps names to arrays. The snapshot returns read-only views of them.
        step: the global step of the state; None if the program counts no steps.
        on_release: called once, when the sharing ends. Must not refer to the snapshot.
        holder: the process with the values that are :class:`HeldArray`, or pieces of them. Only a
            snapshot that is to be written has one.
    """

    __slots__ = ("__weakref__", "_finalizer", "_values", "holder", "step")

    def __init__(
        self,
        values: Mapping[str, NDArray[Any]],
        step: int | None = None,
        on_release: Callable[[], None] | None = None,
        holder: Holder | None = None,
    ) -> None:
        self.step = step
        self.holder = holder
        self._values: dict[str, Any] = {name: _read_only(array) for name, array in values.items()}
        self._finalizer = weakref.finalize(self, on_release) if on_release is not None else None
        if self._finalizer is not None:
            self._finalizer.atexit = False

    def release(self) -> None:
        """End the sharing. A second call does nothing."""
        self._values = {}
        if self._finalizer is not None:
            self._finalizer()

    def __getitem__(self, name: str) -> NDArray[Any]:
        found: NDArray[Any] = self._values[name]
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __enter__(self) -> Snapshot:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.release()


def _read_only(array: Any) -> Any:
    if isinstance(array, HeldArray | ShardedArray):
        return array
    view: NDArray[Any] = np.asarray(array).view()
    view.flags.writeable = False
    return view


class FixedArray:
    """An array of a state that is written once for several checkpoints of a directory.

    A stateful object returns it in ``state_dict()`` in place of an array. Nothing is copied before the
    array is read, which is only done where no earlier checkpoint of the directory has it.

    Args:
        part: the id of the content, which no other content ever has: ``uuid.uuid4().hex``. Arrays of
            one part are written into one file.
        dtype, shape: those of the array.
        read: returns the array's content when this object was made. Called in threads, possibly after
            the owner has changed its own array.
    """

    __slots__ = ("__weakref__", "_read", "dtype", "part", "shape")

    def __init__(
        self,
        part: str,
        dtype: np.dtype[Any],
        shape: tuple[int, ...],
        read: Callable[[], NDArray[Any]],
    ) -> None:
        self.part, self.dtype, self.shape, self._read = part, dtype, shape, read

    def __repr__(self) -> str:
        return f"<FixedArray {self.dtype} {list(self.shape)} of {self.part}>"

    @property
    def itemsize(self) -> int:
        """The size of an element in bytes."""
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """The size of the array in bytes."""
        return prod(self.shape) * self.itemsize

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        return self._read() if dtype is None else self._read().astype(dtype)
