"""What a step has changed, and the generators that it drew from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch

from asyncmon.programs.torch.state import RANDOM


class Mark(NamedTuple):
    """A moment between two steps."""

    versions: list[int]
    updates: int
    others: list[Any]
    random: dict[str, torch.Tensor]
    generators: dict[str, torch.Tensor]


class Changes:
    """Finds out whether a step has changed objects, by the counters that torch keeps anyway.

    Args:
        objects: by name.
        copies: whether these are copies, beside which another session draws random numbers: then the
            default generators are left alone.
    """

    def __init__(self, objects: Mapping[str, Any], *, copies: bool = False) -> None:
        self._objects = objects
        self.list_tensors()
        self._generators = {n: o for n, o in objects.items() if isinstance(o, torch.Generator)}
        self._others = {
            name: obj
            for name, obj in objects.items()
            if not isinstance(obj, torch.nn.Module | torch.Tensor | torch.Generator)
        }
        self._devices = None if copies else _devices(objects)
        self._updates = 0
        self._hooks = [
            obj.register_step_pre_hook(self._count)
            for obj in objects.values()
            if isinstance(obj, torch.optim.Optimizer)
        ]

    def list_tensors(self) -> None:
        """List the tensors of the objects again: modules may have got others."""
        self._tensors = list(_tensors(self._objects))
        self._plain = [tensor for _, tensor in self._tensors]

    def mark(self) -> Mark:
        """Return the present moment, which :meth:`since` compares with."""
        return Mark(
            [tensor._version for tensor in self._plain],
            self._updates,
            [_progress(obj) for obj in self._others.values()],
            self.random_states(),
            {name: generator.get_state() for name, generator in self._generators.items()},
        )

    def random_states(self) -> dict[str, torch.Tensor]:
        """Return the states of the default generators; none for copies."""
        return {} if self._devices is None else _states(self._devices)

    def since(self, mark: Mark | None) -> list[str]:
        """Return the names of entries changed since a mark, except generators."""
        if mark is None:
            return []
        pairs = zip(self._tensors, mark.versions, strict=True)
        changed = [name for (name, tensor), version in pairs if tensor._version != version]
        if self._updates != mark.updates:
            changed.append("the optimizer")
        others = zip(self._others.items(), mark.others, strict=True)
        return changed + [name for (name, obj), before in others if _progress(obj) != before]

    def replaced(self) -> list[str]:
        """Return the names of tensors that modules did not have when the tensors were last listed."""
        known = {id(tensor) for tensor in self._plain}
        return [name for name, tensor in _tensors(self._objects) if id(tensor) not in known]

    def restore_random(self, mark: Mark | None) -> None:
        """Set all generators to their states at a moment."""
        if mark is not None:
            set_random_states(mark.random)
            for name, state in mark.generators.items():
                self._generators[name].set_state(state)

    def close(self) -> None:
        """Count no updates any more."""
        for hook in self._hooks:
            hook.remove()

    def _count(self, *_args: Any) -> None:
        self._updates += 1


def random_states(objects: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Return the states of torch's default generators of the devices in use, by entry name."""
    return _states(_devices(objects))


def set_random_states(states: Mapping[str, torch.Tensor]) -> None:
    """Set them. One of a device that is not here is left out."""
    for name, state in states.items():
        device = name.removeprefix(RANDOM)
        if device == "cpu":
            torch.set_rng_state(state)
        else:
            module = torch.get_device_module(torch.device(device))
            if module.is_available() and torch.device(device).index < module.device_count():
                module.set_rng_state(state, torch.device(device))


def _states(devices: list[torch.device]) -> dict[str, torch.Tensor]:
    states = {RANDOM + "cpu": torch.get_rng_state()}
    for device in devices:
        states[RANDOM + str(device)] = torch.get_device_module(device).get_rng_state(device)
    return states


def _devices(objects: Mapping[str, Any]) -> list[torch.device]:
    found = {tensor.device for _, tensor in _tensors(objects)}
    return sorted((device for device in found if device.type not in ("cpu", "meta")), key=str)


def _tensors(objects: Mapping[str, Any]) -> Iterator[tuple[str, torch.Tensor]]:
    for name, obj in objects.items():
        if isinstance(obj, torch.Tensor):
            yield name, obj
        elif isinstance(obj, torch.nn.Module):
            for key, tensor in (*obj.named_parameters(), *obj.named_buffers()):
                yield f"{name}/{key}", tensor


def _progress(obj: Any) -> Any:
    """Return what a scheduler or a scaler changes whenever it changes."""
    return getattr(obj, "last_epoch", None), bool(getattr(obj, "_per_optimizer_states", None))
