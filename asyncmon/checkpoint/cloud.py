"""Checkpoints in object stores, at URLs such as ``s3://``, ``gs://`` and ``az://``.

An object exists whole or not at all. There are no locks between processes: only one process may save
into a prefix. If a second one starts, it deletes the incomplete save of the first, and that save fails.

By default obstore takes credentials from the environment. To use others, mount a store::

    cloud.mount("s3://bucket", obstore.store.S3Store("bucket", region="eu-central-1", ...))
    await saver.save(session, "s3://bucket/runs/model.ckpt", 10)
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import google_crc32c
import numpy as np

try:
    import obstore
    import obstore.exceptions
    import obstore.store
except ImportError as error:
    raise ImportError(
        "Checkpoints in an object store need the package obstore: pip install 'asyncmon[cloud]'"
    ) from error

from asyncmon.checkpoint.store import Piece
from asyncmon.system.files import in_thread
from asyncmon.system.process import ProcessLocal

_PART = 8 << 20  # bytes of a part in an upload; all stores accept 5 MiB or more

_stores: dict[str, Any] = {}  # URLs to obstore stores: mounted ones, and those opened by resolve()

_readers: ProcessLocal[dict[object, str]] = ProcessLocal(dict)  # the URLs that this process has open


def mount(url: str, store: Any) -> None:
    """Use an obstore store for all URLs that begin with ``url`` (``scheme://bucket``)."""
    _stores[url.rstrip("/")] = store


class ObjectStore:
    """A prefix of an object store as a :class:`~asyncmon.checkpoint.store.Store`."""

    def __init__(self, directory: str) -> None:
        self.directory = directory.rstrip("/")
        self._store, self._prefix = resolve(self.directory)

    def content(self, name: str, begins: bytes = b"") -> bytes:
        with _os_errors():
            return bytes(obstore.get(self._store, self._at(name)).bytes())

    def names(self) -> list[str]:
        with _os_errors():
            found = obstore.list_with_delimiter(self._store, self._prefix or None)
        return sorted(one["path"].rpartition("/")[2] for one in found["objects"])

    def mtime(self, name: str) -> float:
        return float(self._head(name)["last_modified"].timestamp())

    def fingerprint(self, names: Sequence[str]) -> Any:
        try:
            found = [self._head(name) for name in names]
        except OSError:
            return None
        return tuple((one["e_tag"], one["size"], one["last_modified"]) for one in found)

    def describe(self) -> str:
        return f"{self.directory!r} is in an object store ({self._store})"

    def open(self, name: str) -> ObjectFile:
        size = self._head(name)["size"]
        return ObjectFile(self._store, self._at(name), size, f"{self.directory}/{name}")

    def is_read(self, name: str) -> bool:
        return f"{self.directory}/{name}" in list(_readers.get().values())

    def make(self) -> None:
        """Do nothing: a prefix comes into being with its first object."""

    def write(self, name: str, data: bytes | Iterable[bytes | memoryview]) -> None:
        try:
            with _os_errors():
                obstore.put(self._store, self._at(name), data, chunk_size=_PART)
        except BaseException:  # the store may have the object even so
            with contextlib.suppress(OSError):
                self.delete(name)
            raise

    def put(self, files: Mapping[str, bytes]) -> None:
        for name, data in files.items():
            with _os_errors():
                obstore.put(self._store, self._at(name), data)

    def rename(self, name: str, new: str) -> None:
        with _os_errors():
            obstore.rename(self._store, self._at(name), self._at(new))

    def delete(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError), _os_errors():
            obstore.delete(self._store, self._at(name))

    def _at(self, name: str) -> str:
        return f"{self._prefix}/{name}" if self._prefix else name

    def _head(self, name: str) -> Any:
        with _os_errors():
            return obstore.head(self._store, self._at(name))


class ObjectFile:
    """A tensor file in an object store, read by byte ranges into memory."""

    def __init__(self, store: Any, path: str, size: int, url: str) -> None:
        self.name = path.rpartition("/")[2]
        self.size = size
        self._store = store
        self._path = path
        self._key = object()
        _readers.get()[self._key] = url

    async def read(self, ranges: Sequence[tuple[int, int]]) -> list[Piece]:
        return await in_thread(self._read, ranges)

    def _read(self, ranges: Sequence[tuple[int, int]]) -> list[Piece]:
        # Not get_ranges_async: its runtime completes the future from a thread that Python does not
        # join, and the process aborts if the interpreter ends while that thread waits for the GIL.
        wanted = [(start, end) for start, end in ranges if start < end]
        found: dict[tuple[int, int], Any] = {}
        if wanted:
            starts, ends = zip(*wanted, strict=True)
            with _os_errors():
                answers = obstore.get_ranges(self._store, self._path, starts=starts, ends=ends)
            found = dict(zip(wanted, answers, strict=True))
        return [_piece(found.get(one, b"")) for one in ranges]

    def close(self) -> None:
        _readers.get().pop(self._key, None)


def resolve(url: str) -> tuple[Any, str]:
    """Return the obstore store of a URL, and the path within it."""
    for root in sorted(_stores, key=len, reverse=True):
        if url == root or url.startswith(f"{root}/"):
            return _stores[root], url[len(root) :].strip("/")
    scheme, _, rest = url.partition("://")
    authority, _, path = rest.partition("/")
    root = f"{scheme}://{authority}"
    in_memory = scheme == "memory"
    _stores[root] = obstore.store.MemoryStore() if in_memory else obstore.store.from_url(root)
    return _stores[root], path


def _piece(data: Any) -> Piece:
    array = np.frombuffer(data, np.uint8)
    return Piece(array, f"{google_crc32c.value(array):08x}")


@contextlib.contextmanager
def _os_errors() -> Iterator[None]:
    """Raise obstore's errors as system errors."""
    try:
        yield
    except obstore.exceptions.NotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, str(error).splitlines()[0]) from error
    except (obstore.exceptions.PermissionDeniedError, obstore.exceptions.UnauthenticatedError) as error:
        raise PermissionError(errno.EACCES, str(error).splitlines()[0]) from error
    except obstore.exceptions.BaseError as error:
        raise ConnectionError(errno.EIO, str(error).splitlines()[0]) from error
