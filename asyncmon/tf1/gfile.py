"""TF1: ``tf.gfile``: local files and directories.

The calls block, as in TF1: use them before the event loop runs, or in a thread
(``await asyncio.to_thread(tf.gfile.Glob, pattern)``). They raise the errors of ``tf.errors``.
"""

from __future__ import annotations

import glob as _glob
import os
import shutil
import stat as _stat
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import IO, Any, NamedTuple, Self

from asyncmon.errors import (
    AlreadyExistsError,
    FailedPreconditionError,
    InvalidArgumentError,
    NotFoundError,
    PermissionDeniedError,
    UnimplementedError,
)
from asyncmon.system.urls import is_url
from asyncmon.tf1.file_ops import file_errors

__all__ = [
    "Copy", "DeleteRecursively", "Exists", "FastGFile", "FileStatistics", "GFile", "Glob",
    "IsDirectory", "ListDirectory", "MakeDirs", "MkDir", "Open", "Remove", "Rename", "Stat", "Walk",
]  # fmt: skip

PathLike = str | bytes | os.PathLike[str]

_MODES = ("r", "w", "a", "r+", "w+", "a+")


class FileStatistics(NamedTuple):
    """The result of :func:`Stat`: bytes, nanoseconds since 1970, and whether it is a directory."""

    length: int
    mtime_nsec: int
    is_directory: bool


class GFile:
    """A file that is opened at its first read or write. TF1: ``tf.gfile.GFile``, ``Open``.

    Text is UTF-8 and line ends are not converted; positions and the ``n`` of :meth:`read` count bytes.
    With a "b" in the mode reads return bytes. Methods raise OpError if the file does not exist, or is
    not open for the operation.
    """

    def __init__(self, name: PathLike, mode: str = "r") -> None:
        if mode.replace("b", "") not in _MODES:
            raise InvalidArgumentError(
                f"mode must be one of {_MODES}, with or without 'b', got {mode!r}."
            )
        self.name, self.mode = _local(name), mode
        self._file: IO[bytes] | None = None

    def read(self, n: int = -1) -> Any:
        """Return the next ``n`` bytes, or the rest, as text unless the mode has a "b"."""
        return self._decoded(self._open(reads=True).read(n))

    def readline(self) -> Any:
        """Return the next line with its end; empty at the end of the file."""
        return self._decoded(self._open(reads=True).readline())

    def readlines(self) -> list[Any]:
        """Return the remaining lines."""
        return list(self)

    def write(self, file_content: str | bytes) -> None:
        """Write text or bytes."""
        data = file_content.encode() if isinstance(file_content, str) else file_content
        self._open(writes=True).write(data)

    def seek(self, offset: int | None = None, whence: int = 0, position: int | None = None) -> None:
        """Move to a byte position; ``position`` is an old name of ``offset``."""
        where = position if offset is None else offset
        if where is None:
            raise TypeError("seek(): offset argument required")
        self._open().seek(where, whence)

    def tell(self) -> int:
        return self._open().tell()

    def size(self) -> int:
        """Return the size of the file in bytes."""
        self.flush()
        return Stat(self.name).length

    def seekable(self) -> bool:
        return True

    def flush(self) -> None:
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        """Close the file; the next read or write opens it again."""
        file, self._file = self._file, None
        if file is not None:
            file.close()

    def __next__(self) -> Any:
        if not (line := self.readline()):
            raise StopIteration
        return line

    next = __next__

    def __iter__(self) -> Self:
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_file", None) is not None:
            self.close()

    def _open(self, *, reads: bool = False, writes: bool = False) -> IO[bytes]:
        kind = self.mode.replace("b", "")
        if (reads and kind in ("w", "a")) or (writes and kind == "r"):
            use = "reading" if reads else "writing"
            raise PermissionDeniedError(f"{self.name!r} has the mode {self.mode!r}, not for {use}.")
        if self._file is None:
            with file_errors(self.name):
                if writes and kind == "r+" and not os.path.exists(self.name):
                    kind = "w+"  # TF1's first write creates the file
                self._file = open(self.name, kind + "b")  # noqa: SIM115 - close() does
        return self._file

    def _decoded(self, data: bytes) -> Any:
        return data if "b" in self.mode else data.decode()


Open = FastGFile = GFile


def Exists(filename: PathLike) -> bool:
    """Return whether a file or directory exists."""
    return os.path.exists(_local(filename))


def IsDirectory(dirname: PathLike) -> bool:
    """Return whether a path is a directory."""
    return os.path.isdir(_local(dirname))


def ListDirectory(dirname: PathLike) -> list[str]:
    """Return the names in a directory, in arbitrary order."""
    path = _local(dirname)
    if not os.path.isdir(path):
        raise NotFoundError(f"Could not find directory {path}")
    return os.listdir(path)


def Glob(filename: PathLike | Iterable[PathLike]) -> list[str]:
    """Return the paths that match one of the patterns. A "*" matches hidden files, too."""
    patterns = [filename] if isinstance(filename, str | bytes | os.PathLike) else filename
    return [path for one in patterns for path in _glob.glob(_local(one), include_hidden=True)]


def MkDir(dirname: PathLike) -> None:
    """Create a directory, whose parent exists; do nothing if it exists."""
    with _checked(dirname) as path:
        if not os.path.isdir(path):
            os.mkdir(path)


def MakeDirs(dirname: PathLike) -> None:
    """Create a directory and its missing parents."""
    with _checked(dirname) as path:
        os.makedirs(path, exist_ok=True)


def Remove(filename: PathLike) -> None:
    """Delete a file."""
    with _checked(filename) as path:
        if _is_tree(path):
            raise FailedPreconditionError(f"{path}; Is a directory")
        os.remove(path)


def DeleteRecursively(dirname: PathLike) -> None:
    """Delete a file, or a directory with its contents."""
    with _checked(dirname) as path:
        shutil.rmtree(path) if _is_tree(path) else os.remove(path)


def Copy(oldpath: PathLike, newpath: PathLike, overwrite: bool = False) -> None:
    """Copy a file. AlreadyExistsError if the target exists and ``overwrite`` is false."""
    target = _target(newpath, overwrite=overwrite)
    with _checked(oldpath) as source:
        if os.path.isdir(source):
            raise InvalidArgumentError(f"{source} is a directory; Copy copies files.")
        shutil.copyfile(source, target)


def Rename(oldname: PathLike, newname: PathLike, overwrite: bool = False) -> None:
    """Rename a file or directory. Errors as in :func:`Copy`."""
    target = _target(newname, overwrite=overwrite)
    with _checked(oldname) as source:
        os.replace(source, target)


def Stat(filename: PathLike) -> FileStatistics:
    """Return the size, modification time and kind of a file or directory."""
    with _checked(filename) as path:
        found = os.stat(path)
    return FileStatistics(found.st_size, found.st_mtime_ns, _stat.S_ISDIR(found.st_mode))


def Walk(top: PathLike, in_order: bool = True) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield (directory, subdirectories, files), parents first if ``in_order``, else last."""
    return os.walk(_local(top), topdown=in_order)


def _local(path: PathLike) -> str:
    text = os.fsdecode(path)
    if is_url(text):
        raise UnimplementedError(
            f"tf.gfile has the files of this machine only, got {text!r}. Savers and sessions take URLs"
            " with asyncmon[cloud]; for other objects use obstore or fsspec."
        )
    return text


def _is_tree(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)


def _target(path: PathLike, *, overwrite: bool) -> str:
    target = _local(path)
    if not overwrite and os.path.exists(target):
        raise AlreadyExistsError(f"{target}: file already exists; overwrite=True replaces it.")
    return target


@contextmanager
def _checked(path: PathLike) -> Iterator[str]:
    local = _local(path)
    with file_errors(local):
        yield local
