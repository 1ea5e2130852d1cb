"""Read the entries of a checkpoint by name."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from typing import Any, Self

import numpy as np

from asyncmon.checkpoint import locations
from asyncmon.checkpoint.contents import Contents, Facts
from asyncmon.checkpoint.dtypes import Array
from asyncmon.checkpoint.manifest import Manifest
from asyncmon.checkpoint.manifest_reader import ManifestContents
from asyncmon.checkpoint.os_errors import read_errors
from asyncmon.checkpoint.safetensors_file import PlainFiles, is_plain
from asyncmon.checkpoint.tf_checkpoint import BundleContents, index_name, refuse_v1
from asyncmon.errors import NotFoundError
from asyncmon.system.files import in_thread


class CheckpointReader:
    """An open checkpoint. TF1: ``tf.train.NewCheckpointReader``, with the same method names.

    Reading an entry compares it with its checksum. Entries of local files are memory-mapped. No saver
    deletes the files while the reader is open. Arrays stay valid after it is closed.

    Example::

        async with await load_checkpoint("runs/digits") as reader:
            shapes = reader.get_variable_to_shape_map()
            kernel = await reader.get_tensor("dense/kernel")
    """

    def __init__(self, path: str, contents: Contents) -> None:
        self.path = path
        self._contents = contents

    @classmethod
    async def open(cls, path: str | os.PathLike[str]) -> CheckpointReader:
        """Open a checkpoint by its prefix, ``dir/model.ckpt-10``; asyncmon's or TensorFlow's.

        The path of any safetensors file works, too, and that of an index of several.

        Raises:
            NotFoundError: there is no such checkpoint.
            DataLossError: its manifest is damaged, or a file is missing or of another size.
            InvalidArgumentError: it is in TensorFlow's V1 format.
            PermissionDeniedError, ResourceExhaustedError: it cannot be read in this environment.
        """
        path = os.fspath(path)
        directory, basename = locations.split(path)
        store = locations.open_store(directory)
        with read_errors(f"Checkpoint {path!r}"):
            try:
                return cls(path, await ManifestContents.open(store, basename, path))
            except NotFoundError:
                names = await in_thread(store.names)
                if index_name(basename) in names:
                    return cls(path, await BundleContents.open(store, basename, path))
                if is_plain(basename) and basename in names:
                    return cls(path, await PlainFiles.open(store, basename, path))
                await refuse_v1(store, basename, path)
                raise

    @property
    def facts(self) -> Facts:
        """The properties of the checkpoint, such as its step and the shapes of its entries."""
        return self._contents.facts

    @property
    def manifest(self) -> Manifest | None:
        """The manifest; None in other formats."""
        return self._contents.manifest

    def get_variable_to_shape_map(self) -> dict[str, list[int]]:
        """Return a dict from names to shapes. TF1: same name."""
        return {name: list(shape) for name, shape in self.facts.shapes.items()}

    def get_variable_to_dtype_map(self) -> dict[str, np.dtype[Any]]:
        """Return a dict from names to numpy dtypes. TF1: same name, with TensorFlow's types."""
        return dict(self.facts.dtypes)

    def has_tensor(self, name: str) -> bool:
        """Return whether there is an entry of this name. TF1: same name."""
        return name in self.facts.shapes

    async def get_tensor(self, name: str) -> Array:
        """Return one entry, read-only. TF1: same name, but blocking.

        Raises:
            NotFoundError: there is no entry of this name.
            DataLossError: the checksum does not match.
            InvalidArgumentError: TensorFlow has saved a part of the variable only.
        """
        return (await self.get_tensors([name]))[name]

    async def get_tensors(self, names: Iterable[str] | None = None) -> dict[str, Array]:
        """Return several entries, or all of them, like :meth:`get_tensor`.

        One error names all missing or damaged entries.
        """
        wanted = list(self.facts.shapes) if names is None else list(names)
        self._require(wanted)
        with read_errors(f"Checkpoint {self.path!r}"):
            return await self._contents.read(wanted)

    async def states(self) -> dict[str, Any]:
        """Return the states of hooks, data sources and other stateful objects, by name."""
        with read_errors(f"Checkpoint {self.path!r}"):
            return await self._contents.states()

    async def verify(self) -> None:
        """Read the whole checkpoint and compare it with its checksums.

        Raises:
            DataLossError: checksums do not match; the error names all entries.
        """
        with read_errors(f"Checkpoint {self.path!r}"):
            await self._contents.verify()

    def debug_string(self) -> str:
        """Return one line for each entry: name, dtype and shape. TF1: same name."""
        return "\n".join(
            f"{name} ({self.facts.dtypes[name].name}) {list(shape)}"
            for name, shape in sorted(self.facts.shapes.items())
        )

    async def close(self) -> None:
        """Close the files. Arrays stay valid. A second call does nothing."""
        self._contents.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    def _require(self, names: Collection[str]) -> None:
        missing = sorted(name for name in names if name not in self.facts.shapes)
        if missing:
            known = sorted(self.facts.shapes)
            listed = ", ".join(map(repr, known[:20])) + (", ..." if len(known) > 20 else "")
            absent = ", ".join(map(repr, missing))
            raise NotFoundError(f"Checkpoint {self.path!r} has no entry {absent}; it has: {listed}.")
