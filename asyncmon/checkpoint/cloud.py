"""Checkpoints in an object store: ``s3://``, ``gs://``, ``az://``, ``memory://`` and what else obstore
knows.

An object is there whole or not at all, so the commit is the manifest, put after the data; the state
file follows. A journal object (``.asyncmon-...``) goes before the data and names it (as ``files``), and
has the state file's text (as ``program``): the next start takes away what a save left before its
commit, and completes what it left after it. There are no locks: a prefix is for one saving process; a
second one that starts there takes the first one's unfinished save away, and the first is told so.

Credentials come from the environment, as obstore finds them; a store with others is mounted::

    cloud.mount("s3://bucket", obstore.store.S3Store("bucket", region="eu-central-1", ...))
    await saver.save(session, "s3://bucket/runs/model.ckpt", 10)
"""

from __future__ import annotations

import contextlib
import errno
import secrets
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
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

from asyncmon.checkpoint import tensor_file
from asyncmon.checkpoint.dtypes import byte_chunks
from asyncmon.checkpoint.manifest import Manifest, TensorFile
from asyncmon.checkpoint.os_errors import op_errors
from asyncmon.checkpoint.store import BESIDE, Draft, Piece, StateFile
from asyncmon.errors import DataLossError, FailedPreconditionError
from asyncmon.files import in_thread

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

__all__ = ["ObjectFile", "ObjectStore", "mount"]

_CHUNK = 8 << 20  # the least size of a part that all stores accept is 5 MiB

_mounted: dict[str, Any] = {}
_claims: Counter[str] = Counter()
"""URLs to how many savers of this process save there."""
_open: Counter[str] = Counter()
"""URLs of objects to how many readers of this process have them open."""


def mount(url: str, store: Any) -> None:
    """Use this obstore store for all URLs that begin with ``url`` (``scheme://bucket``)."""
    _mounted[url.rstrip("/")] = store


class ObjectStore:
    """A prefix of an object store as a :class:`~asyncmon.checkpoint.store.Store`."""

    def __init__(self, directory: str) -> None:
        self.directory = directory.rstrip("/")
        self._store, self._prefix = _resolve(self.directory)
        self._claimed = False

    async def claim(self) -> None:
        if self._claimed:
            return
        if not _claims[self.directory]:
            with op_errors(f"Checkpoints cannot be saved into {self.directory!r}", self._describe):
                await self._clean_up()
        self._claimed = True
        _claims[self.directory] += 1

    def release_nowait(self) -> None:
        if self._claimed:
            self._claimed = False
            _claims[self.directory] -= 1

    async def names(self) -> list[str]:
        with _os_errors():
            found = await obstore.list_with_delimiter_async(self._store, self._prefix or None)
        return sorted(one["path"].rpartition("/")[2] for one in found["objects"])

    async def mtime(self, name: str) -> float:
        return float((await self._head(name))["last_modified"].timestamp())

    async def read(self, name: str) -> bytes:
        with _os_errors():
            answer = await obstore.get_async(self._store, self._at(name))
            return bytes(await answer.bytes_async())

    async def replace(self, name: str, data: bytes) -> None:
        with op_errors(f"{self._url(name)!r} was not written", self._describe):
            await self._put(name, data)

    async def write(self, draft: Draft) -> Manifest:
        token = secrets.token_hex(4)
        journal = f"{BESIDE}{token}-{draft.basename}.json"
        names: list[str] = []
        with op_errors(f"Checkpoint {self._url(draft.basename)!r} was not saved", self._describe):
            try:
                parts = await in_thread(
                    tensor_file.plan, draft.arrays, draft.basename, draft.shard_bytes
                )
                names = tensor_file.file_names(draft.basename, len(parts), await self.names())
                await self._put(journal, _journal(names, draft.state))
                checksums = [
                    await self._put_part(name, part) for name, part in zip(names, parts, strict=True)
                ]
                return await self._commit(draft, journal, parts, checksums, names)
            except BaseException:
                with anyio.CancelScope(shield=True), contextlib.suppress(OSError):
                    for name in (*names, journal):
                        await self.delete(name)
                raise

    async def open(self, name: str) -> ObjectFile:
        size = (await self._head(name))["size"]
        return ObjectFile(self._store, self._at(name), name, size, self._url(name))

    async def delete(self, name: str) -> None:
        with _os_errors(), contextlib.suppress(FileNotFoundError, obstore.exceptions.NotFoundError):
            await obstore.delete_async(self._store, self._at(name))

    async def remove(self, basename: str) -> bool:
        manifest = await self._manifest(f"{basename}.json")
        names = [] if manifest is None else [file.name for file in manifest.files]
        if any(_open[self._url(name)] for name in names):
            return False
        journal = f"{BESIDE}{secrets.token_hex(4)}-{basename}.json"
        await self._put(journal, _journal(names, None))
        for name in (f"{basename}.json", *names, journal):
            await self.delete(name)
        return True

    async def fingerprint(self, names: Sequence[str]) -> Any:
        try:
            found = [await self._head(name) for name in names]
        except OSError:
            return None
        return tuple((one["e_tag"], one["size"], one["last_modified"]) for one in found)

    def _at(self, name: str) -> str:
        return f"{self._prefix}/{name}" if self._prefix else name

    def _url(self, name: str) -> str:
        return f"{self.directory}/{name}"

    def _describe(self) -> str:
        return f"{self.directory!r} is in an object store ({self._store})"

    async def _head(self, name: str) -> Any:
        with _os_errors():
            return await obstore.head_async(self._store, self._at(name))

    async def _put(self, name: str, data: bytes) -> None:
        with _os_errors():
            await obstore.put_async(self._store, self._at(name), data)

    async def _put_part(self, name: str, part: tensor_file.Part) -> dict[str, int]:
        checksums: dict[str, int] = {}
        with _os_errors():
            pieces = _pieces(part, checksums)
            await obstore.put_async(self._store, self._at(name), pieces, chunk_size=_CHUNK)
        return checksums

    async def _commit(
        self,
        draft: Draft,
        journal: str,
        parts: list[tensor_file.Part],
        checksums: list[dict[str, int]],
        names: list[str],
    ) -> Manifest:
        name = f"{draft.basename}.json"
        old = await self._manifest(name)
        manifest = draft.complete(parts, checksums, names, old)
        encoded = await in_thread(manifest.encode)
        try:
            await self._head(journal)
        except FileNotFoundError as error:
            raise FailedPreconditionError(
                f"Another process began to save into {self.directory!r}, and took this save away: save"
                " into another place, or stop that process."
            ) from error
        try:
            await self._put(name, encoded)
            if draft.state is not None:
                await self._put(draft.state.name, draft.state.data)
        except BaseException:
            await self._take_back(name, old)
            raise
        with contextlib.suppress(OSError):  # committed: what stays behind goes at the next start
            for left in (*manifest.replaces, journal):
                if not _open[self._url(left)]:
                    await self.delete(left)
        return manifest

    async def _take_back(self, name: str, old: Manifest | None) -> None:
        with anyio.CancelScope(shield=True), contextlib.suppress(OSError):
            if old is None:
                await self.delete(name)
            else:
                await self._put(name, old.encode())

    async def _manifest(self, name: str) -> Manifest | None:
        try:
            return await in_thread(Manifest.decode, await self.read(name), self._url(name))
        except (FileNotFoundError, DataLossError):  # where the network fails it may well be there
            return None

    async def _clean_up(self) -> None:
        names = await self.names()
        journals = [name for name in names if name.startswith(BESIDE)]
        if not journals:
            return
        manifests = [name for name in names if name.endswith(".json") and name not in journals]
        in_use = set()
        for name in manifests:
            manifest = await self._manifest(name)
            in_use |= {file.name for file in manifest.files} if manifest is not None else set()
        for name in journals:
            journal = await self._manifest(name)
            files = {file.name for file in journal.files} if journal is not None else set()
            for file in files - in_use:
                await self.delete(file)
            committed = name.removeprefix(BESIDE).partition("-")[2] in manifests and files <= in_use
            if journal is not None and journal.program is not None and committed:
                state = StateFile(journal.program["name"], journal.program["text"].encode())
                await self._complete_commit(name, state)
            await self.delete(name)

    async def _complete_commit(self, journal: str, state: StateFile) -> None:
        """Put the state file that a save died before, unless somebody changed it since."""
        with contextlib.suppress(FileNotFoundError):
            if await self.mtime(journal) < await self.mtime(state.name):
                return
        await self._put(state.name, state.data)


class ObjectFile:
    """A tensor object that is read by ranges; each is checked and handed out from memory."""

    def __init__(self, store: Any, path: str, name: str, size: int, url: str) -> None:
        self.name = name
        self.size = size
        self._store = store
        self._path = path
        self._url = url
        self._closed = False
        _open[url] += 1

    async def read(self, ranges: Sequence[tuple[int, int]]) -> list[Piece]:
        wanted = [(start, end) for start, end in ranges if start < end]
        found: dict[tuple[int, int], Any] = {}
        if wanted:
            with _os_errors():
                answers = await obstore.get_ranges_async(
                    self._store,
                    self._path,
                    starts=[start for start, _ in wanted],
                    ends=[end for _, end in wanted],
                )
            found = dict(zip(wanted, answers, strict=True))
        return await in_thread(lambda: [_piece(found.get(one, b"")) for one in ranges])

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            _open[self._url] -= 1


async def _pieces(part: tensor_file.Part, checksums: dict[str, int]) -> AsyncIterator[Any]:
    yield part.header
    chunks = _checked(part, checksums)
    while (chunk := await in_thread(partial(next, chunks, None))) is not None:
        yield chunk


def _checked(part: tensor_file.Part, checksums: dict[str, int]) -> Iterator[memoryview]:
    for name, array in part.arrays.items():
        checksums[name] = 0
        for chunk in byte_chunks(array, _CHUNK):
            checksums[name] = google_crc32c.extend(checksums[name], chunk)
            yield chunk.data


def _piece(data: Any) -> Piece:
    array = np.frombuffer(data, np.uint8)
    return Piece(array, f"{google_crc32c.value(array):08x}")


def _journal(names: Sequence[str], state: StateFile | None) -> bytes:
    files = tuple(TensorFile(name, 0, "") for name in names)
    text = None if state is None else {"name": state.name, "text": state.data.decode()}
    return Manifest(files=files, program=text).encode()


def _resolve(url: str) -> tuple[Any, str]:
    """Return the obstore store of a URL, and the path in it."""
    for root in sorted(_mounted, key=len, reverse=True):
        if url == root or url.startswith(f"{root}/"):
            return _mounted[root], url[len(root) :].strip("/")
    scheme, _, rest = url.partition("://")
    authority, _, path = rest.partition("/")
    root = f"{scheme}://{authority}"
    if scheme == "memory":
        _mounted[root] = obstore.store.MemoryStore()
    else:
        _mounted[root] = obstore.store.from_url(root)
    return _mounted[root], path


@contextlib.contextmanager
def _os_errors() -> Iterator[None]:
    """Raise obstore's errors as the system's, which the rest of the room knows."""
    try:
        yield
    except obstore.exceptions.NotFoundError as error:
        raise FileNotFoundError(errno.ENOENT, str(error).splitlines()[0]) from error
    except (
        obstore.exceptions.PermissionDeniedError,
        obstore.exceptions.UnauthenticatedError,
    ) as error:
        raise PermissionError(errno.EACCES, str(error).splitlines()[0]) from error
    except obstore.exceptions.BaseError as error:
        raise OSError(errno.EIO, str(error).splitlines()[0]) from error
