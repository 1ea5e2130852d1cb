"""Models loaded without a session."""

from __future__ import annotations

import os
from typing import Any


async def load_model(
    ckpt_dir_or_file: str | os.PathLike[str],
    objects: Any,
    *,
    ema: bool = False,
    ignore_mismatched: bool = False,
) -> list[str]:
    """Load torch modules from a checkpoint, for inference or fine-tuning: all or none, and no session.

    Args:
        ckpt_dir_or_file: a checkpoint of a training, or a directory for its newest one that verifies;
            or what other tools wrote: a safetensors file, an index of several, a folder with these.
        objects: modules by their names in the program that was trained, ``{"model": model}``; or a
            module alone, for a file with the keys of its state dict, or a checkpoint with one module.
        ema: load the moving averages of a ``MovingAverageHook`` where there are some.
        ignore_mismatched: keep the values of parameters that are missing or of another shape, such as
            those of a new head. One warning names them, and entries that the module lacks.

    Returns:
        The names of the loaded entries.

    Raises:
        ValueError: there is no checkpoint.
        NotFoundError: the checkpoint has no such module, or no moving averages.
        InvalidArgumentError: entries do not fit; the error names all of them. Nothing was changed.
        DataLossError: the checkpoint is damaged.
        ImportError: PyTorch is not installed.

    Example::

        model = Net()
        await am.load_model("runs/1", {"model": model})
        model.eval()
    """
    from asyncmon.programs.torch.model_files import load

    return await load(ckpt_dir_or_file, objects, ema, ignore_mismatched)
