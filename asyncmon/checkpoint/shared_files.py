"""Tensor files that several checkpoints of a directory have.

Each has the arrays of one part, see :class:`~asyncmon.system.snapshot.FixedArray`. Its name is
``shared-<id of the part>.safetensors``. A save refers to such a file if a manifest of the directory
does, and writes one otherwise. It is deleted with the last checkpoint that refers to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from asyncmon.checkpoint.manifest import SHARED, Manifest, TensorEntry, TensorFile
from asyncmon.checkpoint.store import DataFile, Store
from asyncmon.checkpoint.tensor_file import Part
from asyncmon.system.files import BESIDE


class SharedFile(NamedTuple):
    """A shared file: its member ``files`` of a manifest, and its entries by name."""

    file: TensorFile
    entries: Mapping[str, TensorEntry]

    def has(self, part: Part) -> bool:
        """Return whether the file has exactly the arrays of a part, under the same names."""
        return self.entries.keys() == part.arrays.keys() and all(
            (self.entries[name].dtype, self.entries[name].shape) == (array.dtype.name, array.shape)
            for name, array in part.arrays.items()
        )


class SharedFiles:
    """The shared files of one directory. Manifests are read again only after they have changed.

    Methods block, and are called with the mutex of the directory.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[Any, dict[str, SharedFile]]] = {}

    def in_use(
        self, store: Store, read: Callable[[Store, str], Manifest | None], without: str = ""
    ) -> dict[str, SharedFile]:
        """Return the shared files of all checkpoints but one, by name.

        Args:
            store: the directory.
            read: returns the manifest of a file name; None for another file.
            without: the file name of a manifest that does not count.
        """
        names = [
            name for name in store.names() if name.endswith(".json") and not name.startswith(BESIDE)
        ]
        before, self._known = self._known, {}
        for name in names:
            fingerprint = store.fingerprint([name])
            known = before.get(name)
            if known is None or fingerprint is None or known[0] != fingerprint:
                known = fingerprint, _shared(read(store, name))
            self._known[name] = known
        found: dict[str, SharedFile] = {}
        for name, (_, files) in self._known.items():
            if name != without:
                found |= files
        return found


def _shared(manifest: Manifest | None) -> dict[str, SharedFile]:
    files = () if manifest is None else manifest.files
    numbers = {n: file for n, file in enumerate(files) if file.name.startswith(SHARED)}
    if manifest is None or not numbers:
        return {}
    entries: dict[int, dict[str, TensorEntry]] = {number: {} for number in numbers}
    for name, entry in manifest.tensors.items():
        if entry.file in entries:
            entries[entry.file][name] = entry
    return {file.name: SharedFile(file, entries[number]) for number, file in numbers.items()}


class Adopted(NamedTuple):
    """Shared files that a save refers to. They are open until it is done, so that none is deleted."""

    files: Mapping[str, SharedFile]
    """By the id of the part."""
    open_files: Sequence[DataFile]

    def close(self) -> None:
        """Let the files be deleted. A second call does nothing."""
        for file in self.open_files:
            file.close()


def adopt(store: Store, found: Mapping[str, SharedFile], parts: Iterable[Part]) -> Adopted:
    """Return the files that have parts of a save. Blocking."""
    by_part: dict[str, list[SharedFile]] = {}
    for name, shared in found.items():
        by_part.setdefault(name.removeprefix(SHARED).partition(".")[0], []).append(shared)
    files: dict[str, SharedFile] = {}
    open_files: list[DataFile] = []
    try:
        for part in parts:
            for shared in by_part.get(part.shared, ()) if part.shared else ():
                if not shared.has(part):
                    continue
                try:
                    file = store.open(shared.file.name)
                except FileNotFoundError:
                    continue  # it is written again, under another name
                open_files.append(file)
                if file.size == shared.file.bytes:
                    files[part.shared] = shared
                    break
    except BaseException:
        for file in open_files:
            file.close()
        raise
    return Adopted(files, open_files)
