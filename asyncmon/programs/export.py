"""Write the entries of a checkpoint for other tools."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import save_file

from asyncmon.checkpoint.dtypes import Array, element_of
from asyncmon.checkpoint.finding import load_checkpoint
from asyncmon.checkpoint.os_errors import describe, op_errors
from asyncmon.programs.model_entries import read_model
from asyncmon.system.files import beside, in_thread, system_calls


async def export(
    ckpt_dir_or_file: str | os.PathLike[str],
    path: str | os.PathLike[str],
    name: str | None = None,
    *,
    ema: bool = False,
) -> list[str]:
    """Write a model of a checkpoint into a file that other tools read, and return the names in it.

    The file has the keys of the module's state dict, ``fc.weight`` for the entry ``model/fc.weight``.
    It replaces an older one as a whole, or not at all.

    Args:
        ckpt_dir_or_file: a checkpoint, or a directory for its newest one.
        path: the file. A ``.safetensors`` file is one as Hugging Face has them; ``.pt`` or ``.pth`` is
            a state dict of ``torch.save``, and needs PyTorch.
        name: the name of the module in the program. Default: the only one; of a program without
            modules, such as a graph, all entries with their whole names.
        ema: write the moving averages of a ``MovingAverageHook`` where there are some.

    Raises:
        ValueError: there is no checkpoint, several modules and no name, or another kind of file.
        NotFoundError: there is no such module, or no moving average.
        PermissionDeniedError, ResourceExhaustedError: the file cannot be written.

    Example::

        await am.export("runs/1", "model.safetensors")
    """
    target = Path(path)
    if target.suffix not in (".safetensors", ".pt", ".pth"):
        raise ValueError(f"The file must end with .safetensors, .pt or .pth, got {os.fspath(path)!r}.")
    async with await load_checkpoint(ckpt_dir_or_file) as reader:
        values = await read_model(reader, name, ema=ema)
    with op_errors(f"The file {os.fspath(path)!r} was not written", lambda: describe(target.parent)):
        await in_thread(_write, target, values)
    return list(values)


def _write(target: Path, values: Mapping[str, Array]) -> None:
    calls = system_calls.get()
    calls.make_dirs_nowait(target.parent)
    with _replacing(target) as new:
        if target.suffix == ".safetensors":
            plain = {key: _plain(key, array) for key, array in values.items()}
            try:
                save_file(plain, new, {"format": "pt"})  # which transformers asks for
            except SafetensorError as error:  # its texts have the number of the error only
                raise OSError(str(error)) from error
        else:
            from asyncmon.programs.torch.model_files import write_state_dict

            write_state_dict(new, values)


def _plain(key: str, array: Array) -> Array:
    element = element_of(array.dtype)
    if element is None or element.name == "complex128":
        raise ValueError(f"The entry {key!r} is of dtype {array.dtype}, which such files do not have.")
    return np.asarray(array, order="C")  # np.ascontiguousarray() makes a scalar an array of one


@contextlib.contextmanager
def _replacing(target: Path) -> Iterator[Path]:
    """Let the block write a new file, and replace the target durably."""
    calls = system_calls.get()
    new = target.parent / f"{beside(target.name)}.new{target.suffix}"
    try:
        yield new
        descriptor = calls.open_patiently(new, os.O_RDONLY)
        try:
            calls.fsync(descriptor)
        finally:
            calls.close(descriptor)
        calls.replace(new, target)
        calls.sync_directory(target.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            calls.unlink(new)
        raise
