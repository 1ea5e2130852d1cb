"""Translate system errors to those of :mod:`asyncmon.errors`."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from asyncmon.errors import (
    DataLossError,
    FailedPreconditionError,
    NotFoundError,
    OpError,
    PermissionDeniedError,
    ResourceExhaustedError,
    UnknownError,
)
from asyncmon.system import portable

_CLASSES: dict[int, type[OpError]] = {
    errno.EACCES: PermissionDeniedError,
    errno.EPERM: PermissionDeniedError,
    errno.EROFS: PermissionDeniedError,
    errno.ENOENT: NotFoundError,
    errno.ENOTDIR: FailedPreconditionError,
    errno.EISDIR: FailedPreconditionError,
    errno.EEXIST: FailedPreconditionError,
    errno.ELOOP: FailedPreconditionError,
    errno.ENOSPC: ResourceExhaustedError,
    errno.EDQUOT: ResourceExhaustedError,
    errno.EMFILE: ResourceExhaustedError,
    errno.ENFILE: ResourceExhaustedError,
    errno.ENOMEM: ResourceExhaustedError,
}


_ENVIRONMENT = {
    errno.EACCES, errno.EPERM, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOBUFS, errno.ETIMEDOUT,
}  # fmt: skip


def is_environment(error: OSError) -> bool:
    """Return whether the process, the system or the network caused an error, and no file did."""
    return isinstance(error, ConnectionError) or error.errno in _ENVIRONMENT


@contextlib.contextmanager
def read_errors(what: str) -> Iterator[None]:
    """Raise any error of the block, which reads a checkpoint, as an :class:`OpError`.

    An error of the environment has its class of :mod:`asyncmon.errors`. Any other one is a
    ``DataLossError``: the content of the files has caused it.

    Args:
        what: the beginning of the message, as in "Checkpoint 'a/model.ckpt-10'".
    """
    try:
        yield
    except (OpError, ImportError):
        raise
    except MemoryError as error:
        raise ResourceExhaustedError(f"{what} cannot be read: there is not enough memory.") from error
    except OSError as error:
        cls = error_class(error) if is_environment(error) else DataLossError
        raise cls(f"{what} cannot be read: {_text(error)}.") from error
    except Exception as error:
        raise DataLossError(f"{what} is damaged: {error!r}.") from error


def error_class(error: OSError) -> type[OpError]:
    """Return the class for a system error."""
    return _CLASSES.get(error.errno or 0, UnknownError)


@contextlib.contextmanager
def op_errors(what: str, found: Callable[[], str]) -> Iterator[None]:
    """Raise system errors of the block as :class:`OpError`.

    Args:
        what: the beginning of the message, as in "Checkpoint 'a/model.ckpt-10' was not saved".
        found: returns a description of the directory.
    """
    try:
        yield
    except OSError as error:
        raise error_class(error)(
            f"{what}: {_text(error)}. It needs a directory in which this process can create, rename and"
            f" delete files; {found()}."
        ) from error


def _text(error: OSError) -> str:
    name = errno.errorcode.get(error.errno or 0, type(error).__name__)
    at = f" at {os.fspath(error.filename)!r}" if error.filename is not None else ""
    return f"{error.strerror or error} ({name}){at}"


def describe(path: Path) -> str:
    """Describe the file or directory at a path, for an error message."""
    try:
        found = path.stat()
    except OSError as error:
        parent = next((p for p in path.parents if p.exists()), None)
        reason = os.strerror(error.errno) if error.errno is not None else str(error)
        return f"{str(path)!r} cannot be inspected ({reason}; there is {str(parent)!r})"
    if not stat.S_ISDIR(found.st_mode):
        return f"{str(path)!r} is not a directory but a file of {found.st_size} bytes"
    free = ""
    with contextlib.suppress(OSError):
        free = f", {portable.disk_of(path)}"
    return (
        f"{str(path)!r} is a directory of user {found.st_uid}, mode {stat.S_IMODE(found.st_mode):04o}"
        f"{free}; this process is user {portable.user_id()}"
    )
