"""Models from and to files, without a session."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch

from asyncmon.checkpoint import load_checkpoint
from asyncmon.checkpoint.saveable_session import raw_session
from asyncmon.errors import InvalidArgumentError, NotFoundError
from asyncmon.programs.model_entries import modules_of, read_model
from asyncmon.programs.torch.loading import Loading, misfit
from asyncmon.programs.torch.state import STRUCTURE, as_array, as_tensor, entries_of, flatten
from asyncmon.system.files import in_thread

logger = logging.getLogger(__name__)

_ALONE = "model"  # the name of a module that is given without one


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


async def load(
    path: str | os.PathLike[str],
    objects: Mapping[str, torch.nn.Module] | torch.nn.Module,
    ema: bool,
    ignore_mismatched: bool,
) -> list[str]:
    """Load modules, as :func:`asyncmon.load_model` describes."""
    modules = {None: objects} if isinstance(objects, torch.nn.Module) else dict(objects)
    for name, module in modules.items():
        if not isinstance(module, torch.nn.Module):
            raise TypeError(f"objects must be a module, or modules by name; {name!r} is {module!r}.")
    named: dict[str, torch.nn.Module] = {}
    values: dict[str, Any] = {}
    async with await load_checkpoint(path) as reader:
        for name, module in modules.items():
            found = await read_model(reader, name, ema=ema)
            own = name or next(iter(modules_of(reader)), _ALONE)
            named[own] = module
            values |= {f"{own}/{key}": array for key, array in found.items()}
            if (structure := own + STRUCTURE) in reader.facts.shapes:  # it has more than tensors
                values[structure] = (await reader.get_tensors([structure]))[structure]
        where = reader.path
    return await in_thread(_set, named, values, where, ignore_mismatched)


def _set(
    modules: Mapping[str, Any], values: dict[str, Any], where: str, ignore_mismatched: bool
) -> list[str]:
    tensors, structures = entries_of(modules)
    present = {**tensors, **structures}
    left = [f"{entry!r} is not in the module" for entry in values if entry not in present]
    left += [f"{entry!r} is missing" for entry in present if entry not in values]
    for entry in values.keys() & tensors:
        left += misfit(entry, values[entry], present[entry])
    if left and not ignore_mismatched:
        raise InvalidArgumentError(f"Nothing was loaded from {where!r}: {'; '.join(sorted(left))}.")
    if left:
        logger.warning("Keeping what does not match %s: %s", where, "; ".join(sorted(left)))
    fitting = {
        entry: value
        for entry, value in values.items()
        if entry in structures or (entry in tensors and not misfit(entry, value, tensors[entry]))
    }
    Loading(modules, fitting).apply()
    return list(fitting)


def write_state_dict(path: Path, values: Mapping[str, Any]) -> None:
    """Write a state dict of arrays. Blocking."""
    torch.save({key: as_tensor(array) for key, array in values.items()}, path)
