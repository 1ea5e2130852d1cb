"""Import state dicts that ``torch.save`` wrote."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from functools import partial
from typing import Any

import torch

from asyncmon.checkpoint.saveable_session import raw_session
from asyncmon.errors import NotFoundError
from asyncmon.programs.torch.state import STRUCTURE, as_array, flatten
from asyncmon.system.files import in_thread


async def import_state_dict(
    sess: Any, path: str | os.PathLike[str], into: str | Mapping[str, str]
) -> None:
    """Load a file of ``torch.save`` into objects of a session, all of them or none.

    The file is read with ``weights_only=True``: nothing in it is executed. Use it as, or in, the
    ``init_fn`` of a scaffold, which runs where no checkpoint was restored.

    Args:
        sess: a session of a :class:`TorchProgram`, or a monitored one.
        path: the file, ``.pt``.
        into: the object that the file is the state dict of; or, where the file is a dict of state
            dicts, its keys to names of objects.

    Raises:
        FileNotFoundError: there is no such file.
        NotFoundError: the file lacks a key.
        InvalidArgumentError: something does not fit; everything that does not is named.
        pickle.UnpicklingError: the file has more than tensors and plain values.

    Example::

        await import_state_dict(sess, "old.pt", {"model_state_dict": "model", "optim": "optimizer"})
    """
    await raw_session(sess).load(await in_thread(partial(_read, path, into)))


def _read(path: str | os.PathLike[str], into: str | Mapping[str, str]) -> dict[str, Any]:
    content = torch.load(path, map_location="cpu", weights_only=True)
    states = {into: content} if isinstance(into, str) else {}
    for key, name in () if isinstance(into, str) else into.items():
        if key not in content:
            raise NotFoundError(f"{path!s} has no {key!r}; expected one of its keys {list(content)}.")
        states[name] = content[key]
    values: dict[str, Any] = {}
    for name, state in states.items():
        if isinstance(state, torch.Tensor):
            values[name] = as_array(state)
            continue
        flat = flatten(name, state)
        values |= {entry: as_array(tensor.contiguous()) for entry, tensor in flat.tensors.items()}
        if flat.structure is not None:
            values[name + STRUCTURE] = json.dumps(flat.structure)
    return values
