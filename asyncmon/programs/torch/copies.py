"""Copies of modules and tensors, for a session that evaluates, and of all entries, on the host."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch

from asyncmon.errors import FailedPreconditionError
from asyncmon.programs.torch.changes import random_states
from asyncmon.programs.torch.sharding import Shard, is_dtensor, is_sharded, local
from asyncmon.programs.torch.state import copy_to_host, entries_of, flat_state, unwrapped


def evaluation_copies(objects: Mapping[str, Any]) -> dict[str, Any]:
    """Return copies of the modules, tensors and generators among the objects, without gradients."""
    copies = {}
    memo: dict[int, Any] = {}
    for name, obj in objects.items():
        if isinstance(obj, torch.Generator):
            copies[name] = torch.Generator(obj.device)
            copies[name].set_state(obj.get_state())
        elif isinstance(obj, torch.nn.Module | torch.Tensor):
            if any(is_sharded(tensor) for tensor in flat_state(name, obj).tensors.values()):
                raise FailedPreconditionError(
                    f"{name!r} is sharded over ranks, and has no copy that one rank evaluates by "
                    "itself. Run a read_only step on all ranks, in the session that trains."
                )
            copies[name] = copy.deepcopy(unwrapped(obj), memo)
    return copies


def detached(value: Any) -> Any:
    """Return a result with its tensors detached from the graph of gradients, and gathered."""
    if isinstance(value, torch.Tensor):
        return value.detach().full_tensor() if is_dtensor(value) else value.detach()
    if isinstance(value, dict):
        return {key: detached(item) for key, item in value.items()}
    return value


def copied(objects: Mapping[str, Any], random: bool = True) -> tuple[dict[str, Any], list[Any]]:
    """Return all entries, copied to the host, and the events after which the copies are there.

    Of sharded tensors there are :class:`.Shard` values.
    """
    tensors, others = entries_of(objects)
    copies, events = copy_to_host({name: local(tensor) for name, tensor in tensors.items()})
    values: dict[str, Any] = {
        name: Shard(copies[name], tuple(tensor.shape)) if is_sharded(tensor) else copies[name]
        for name, tensor in tensors.items()
    }
    values |= others
    if random:
        values |= {name: state.numpy() for name, state in random_states(objects).items()}
    return values, events


def wait_for(events: list[Any]) -> None:
    """Block until the events of devices have come, after which copies have their values."""
    for event in events:
        event.synchronize()
