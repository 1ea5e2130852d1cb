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
    InvalidArgumentError,
    NotFoundError,
    OpError,
    PermissionDeniedError,
    ResourceExhaustedError,
    UnavailableError,
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
    errno.ENOBUFS: ResourceExhaustedError,
    errno.ENAMETOOLONG: InvalidArgumentError,
    errno.ENODEV: NotFoundError,
    errno.ESTALE: UnavailableError,
    errno.EAGAIN: UnavailableError,
    errno.EINTR: UnavailableError,
    errno.EBUSY: UnavailableError,
    errno.ETIMEDOUT: UnavailableError,
    errno.ENETDOWN: UnavailableError,
    errno.ENETUNREACH: UnavailableError,
    errno.ECONNRESET: UnavailableError,
    errno.EHOSTDOWN: UnavailableError,
    errno.EHOSTUNREACH: UnavailableError,
}

_ADVICE = {
    errno.ENAMETOOLONG: " A file name has at most 255 bytes, and those of a checkpoint are some 40"
    " bytes longer than its prefix.",
    errno.EIO: " The checkpoint may be whole: try again, or restore an older one by its path.",
}


_OF_FILES = {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EFBIG, errno.ENXIO}


def is_environment(error: OSError) -> bool:
    """Return whether the process, the system or the network caused an error, and no file did."""
    # Only a file that is missing, or in whose place is something else, is damage: a newest checkpoint
    # that cannot be read just now must not make a training resume from an older one.
    return isinstance(error, ConnectionError) or error.errno not in {None, *_OF_FILES}


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
        advice = _ADVICE.get(error.errno or 0, "")
        raise cls(f"{what} cannot be read: {_text(error)}.{advice}") from error
    except Exception as error:
        raise DataLossError(f"{what} is damaged: {error!r}.") from error


def error_class(error: OSError) -> type[OpError]:
    """Return the class for a system error."""
    if isinstance(error, ConnectionError):
        return UnavailableError
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
        advice = _ADVICE.get(error.errno or 0) if error.errno == errno.ENAMETOOLONG else None
        needs = " It needs a directory in which this process can create, rename and delete files;"
        raise error_class(error)(f"{what}: {_text(error)}.{advice or f'{needs} {found()}.'}") from error


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
