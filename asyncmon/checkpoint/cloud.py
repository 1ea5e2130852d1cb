"""Checkpoints in object stores, at URLs such as ``s3://``, ``gs://`` and ``az://``.

An object exists whole or not at all. One process saves into a prefix: it holds a :mod:`.lease`, and a
second one is refused.

By default obstore takes credentials from the environment. To use others, mount a store::

    cloud.mount("s3://bucket", obstore.store.S3Store("bucket", region="eu-central-1", ...))
    await saver.save(session, "s3://bucket/runs/model.ckpt", 10)
"""

from __future__ import annotations

import contextlib
import contextvars
import errno
import functools
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import TimeoutError as FutureTimeoutError
from datetime import timedelta
from itertools import chain
from typing import Any, NamedTuple, TypeVar

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

from asyncmon.checkpoint import throttle
from asyncmon.checkpoint.store import Piece
from asyncmon.system.daemon_executor import DaemonExecutor
from asyncmon.system.files import beside, in_thread
from asyncmon.system.process_local import ProcessLocal

_PART = 8 << 20  # bytes of a part in an upload; all stores accept 5 MiB or more
_CHUNK = 1 << 20
_POLL_SECS = 0.05
# A request has 30 s, obstore's default: options of ours would hide those of the environment.
_RETRY: Any = {"max_retries": 6, "retry_timeout": timedelta(seconds=45)}  # of 429 and 5xx
_CONFLICTS = (obstore.exceptions.AlreadyExistsError, obstore.exceptions.PreconditionError)
_REFUSALS = (obstore.exceptions.PermissionDeniedError, obstore.exceptions.UnauthenticatedError)

T = TypeVar("T")

_stores: dict[str, Any] = {}  # URLs to obstore stores: mounted ones, and those opened by resolve()

# Many: each save has a few requests at a time, and some may hang.
_threads: ProcessLocal[DaemonExecutor] = ProcessLocal(lambda: DaemonExecutor("object store", 32))
_readers: ProcessLocal[dict[object, str]] = ProcessLocal(dict)  # the URLs that this process has open


def mount(url: str, store: Any) -> None:
    """Use an obstore store for all URLs that begin with ``url`` (``scheme://bucket``)."""
    _stores[url.rstrip("/")] = store


class Version(NamedTuple):
    """The content of an object, and what a conditional put replaces it by."""

    data: bytes
    version: Any


class ObjectStore:
    """A prefix of an object store as a :class:`~asyncmon.checkpoint.store.Store`."""

    def __init__(self, directory: str) -> None:
        self.directory = directory.rstrip("/")
        self._store, self._prefix = resolve(self.directory)

    def content(self, name: str, begins: bytes = b"") -> bytes:
        return request(lambda: bytes(obstore.get(self._store, self._at(name)).bytes()))

    def names(self) -> list[str]:
        found = request(lambda: obstore.list_with_delimiter(self._store, self._prefix or None))
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
        chunks = iter([data] if isinstance(data, bytes) else data)
        first = b"".join(_up_to(_PART, chunks))
        whole: Any = first if len(first) < _PART else chain([first], chunks)
        try:
            # A small object is one request; a large one is not held in memory.
            several = not isinstance(whole, bytes)
            request(
                lambda: obstore.put(
                    self._store, self._at(name), whole, use_multipart=several, chunk_size=_PART
                )
            )
        except BaseException:  # the store may have the object even so
            with contextlib.suppress(OSError):
                self.delete(name)
            raise

    def put(self, files: Mapping[str, bytes], *, durable: bool = True) -> None:
        for name, data in files.items():
            self._put(name, data)

    def rename(self, name: str, new: str) -> None:
        request(lambda: obstore.rename(self._store, self._at(name), self._at(new)))

    def delete(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            request(lambda: obstore.delete(self._store, self._at(name)))

    def _at(self, name: str) -> str:
        return f"{self._prefix}/{name}" if self._prefix else name

    def _head(self, name: str) -> Any:
        return request(lambda: obstore.head(self._store, self._at(name)))

    def _put(self, name: str, data: bytes, mode: Any = "overwrite") -> Any:
        put = functools.partial(obstore.put, self._store, self._at(name), data, use_multipart=False)
        return request(lambda: put(mode=mode))

    # --- the lease of the prefix

    def read_version(self, name: str) -> Version | None:
        """Return the content and the version of an object, or None if there is none."""
        try:
            found = request(lambda: obstore.get(self._store, self._at(name)))
        except FileNotFoundError:
            return None
        version = {key: found.meta[key] for key in ("e_tag", "version") if found.meta.get(key)}
        return Version(request(lambda: bytes(found.bytes())), version)

    def put_version(self, name: str, data: bytes, before: Any) -> Any:
        """Replace a version of an object, or make it if that is None. Return the new version.

        Raises:
            FileExistsError: there is another version.
        """
        try:
            put = self._put(name, data, "create" if before is None else dict(before))
        except NotImplementedError:  # a directory of obstore has no conditional put
            found = self.read_version(name)
            if found is None or found.version != before:
                raise FileExistsError(errno.EEXIST, f"{name!r} was replaced") from None
            put = self._put(name, data)
        return {key: put[key] for key in ("e_tag", "version") if put.get(key)}

    def age(self, name: str) -> float:
        """Return the age of an object in seconds by the clock of the store. 0 for none."""
        probe = beside("now")
        self._put(probe, b"")
        try:
            return self.mtime(probe) - self.mtime(name)
        except FileNotFoundError:
            return 0.0
        finally:
            self.delete(probe)


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
            answers = request(
                lambda: obstore.get_ranges(self._store, self._path, starts=starts, ends=ends)
            )
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
    if scheme == "memory":
        _stores[root] = obstore.store.MemoryStore()
    else:
        _stores[root] = obstore.store.from_url(root, retry_config=_RETRY)
    return _stores[root], path


def _piece(data: Any) -> Piece:
    array = np.frombuffer(data, np.uint8)
    checksum = 0
    for start in range(0, array.size, _CHUNK):  # each call holds the GIL, and so the event loop
        checksum = google_crc32c.extend(checksum, array[start : start + _CHUNK])
    return Piece(array, f"{checksum:08x}")


def _up_to(count: int, chunks: Iterator[bytes | memoryview]) -> Iterator[bytes | memoryview]:
    """Yield chunks until they have this many bytes."""
    while count > 0 and (chunk := next(chunks, None)) is not None:
        count -= len(chunk)
        yield chunk


def request(call: Callable[[], T]) -> T:
    """Make a request to a store. Blocking.

    Raises:
        OSError: with the status and the code of the store's answer.
    """
    control = throttle.current.get()
    if control is None:
        with _os_errors():
            return call()
    # obstore cannot interrupt one. The request of a save that was stopped, to a store that does not
    # answer, is abandoned in its thread, where it ends by its time-outs.
    job = _threads.get().submit(contextvars.copy_context().run, call)
    while True:
        with contextlib.suppress(FutureTimeoutError), _os_errors():
            return job.result(_POLL_SECS)
        if job.done():  # it raised a TimeoutError of its own, or ended just now
            continue
        if time.perf_counter() > control.ends:
            job.cancel()
            raise ConnectionError(errno.ETIMEDOUT, "the store does not answer")


@contextlib.contextmanager
def _os_errors() -> Iterator[None]:
    """Raise obstore's errors as system errors."""
    try:
        yield
    except obstore.exceptions.BaseError as error:
        if "not implemented" in str(error) or "NotImplemented" in str(error):
            raise NotImplementedError(str(error).splitlines()[0]) from error
        raise _os_error(error) from error
    except FileNotFoundError as error:  # some of obstore's are the system's, without a number
        raise _os_error(error) if error.errno is None else error from error


def _os_error(error: Exception) -> OSError:
    lines = str(error)
    status = re.search(r"(?i)status(?: code)?:? (\d{3})", lines)
    code = re.search(r"<Code>(\w+)</Code>", lines)
    found = " ".join(one[1] for one in (status, code) if one is not None)
    text = f"{lines.splitlines()[0]:.300}" + (f" [{found}]" if found else "")
    name = "" if code is None else code[1]
    if name == "NoSuchBucket":
        return OSError(errno.ENODEV, f"{text}: there is no such bucket")
    if name in {"ExpiredToken", "RequestExpired", "TokenRefreshRequired"}:
        return PermissionError(errno.EACCES, f"{text}: the credentials have expired")
    if isinstance(error, obstore.exceptions.NotFoundError | FileNotFoundError):
        return FileNotFoundError(errno.ENOENT, text)
    if isinstance(error, _CONFLICTS):
        return FileExistsError(errno.EEXIST, text)
    is_refused = isinstance(error, _REFUSALS) or (status is not None and status[1] in {"401", "403"})
    if is_refused:
        return PermissionError(errno.EACCES, text)
    return ConnectionError(errno.EIO, text)
