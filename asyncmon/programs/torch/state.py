"""Named torch objects as entries of a checkpoint, and back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from asyncmon.checkpoint.dtypes import element_named, numpy_dtype
from asyncmon.checkpoint.packing import pack_json
from asyncmon.errors import InvalidArgumentError
from asyncmon.programs.torch.sharding import is_sharded, local

Tensors = dict[str, torch.Tensor]

STRUCTURE = ".json"
"""An entry ``<name>.json`` has what of a state dict is no tensor, and where its tensors go."""

RANDOM = "__random__/"
"""Entries that begin with this are the states of torch's default generators, one for each device."""

RANK = "random@"
"""Entries ``random@<rank>/<device>`` are those of the other ranks. Below
``random@<rank>/data`` are their positions."""

KINDS = torch.optim.Optimizer, torch.optim.lr_scheduler.LRScheduler
"""Objects whose state means nothing to another class. The structure has their class by :data:`KIND`."""

KIND = "class"

NAMES = "parameters"
"""The member of an optimizer's structure with the names of the parameters of its groups: its state
has numbers for them."""

ON_META = "is on the meta device and holds no values: call to_empty(device=...) first"

TENSOR, ARRAY = "__tensor__", "__numpy__"
_FOREIGN = {
    torch.bfloat16: ("bfloat16", torch.uint16),
    torch.float8_e4m3fn: ("float8_e4m3fn", torch.uint8),
    torch.float8_e5m2: ("float8_e5m2", torch.uint8),
}


class Objects(dict[str, Any]):
    """The objects by name, which a step changes in place and cannot replace."""

    def __setitem__(self, name: str, value: Any) -> None:
        if self.get(name) is not value:  # state["x"] += 1 sets the same object again
            raise TypeError(
                f"state[{name!r}] cannot be set by a step, only changed in place, like "
                "state['x'].copy_(...). Objects are given to the program."
            )


class Flat(NamedTuple):
    """The state of one object: its tensors by entry name, and the rest as JSON, or None."""

    tensors: Tensors
    structure: Any


def check_object(name: str, obj: Any) -> None:
    """Refuse what has no state, and names that entries cannot have.

    Raises:
        TypeError: the object has no ``state_dict()`` and ``load_state_dict(state)``.
        ValueError: the name is empty, reserved or has a slash.
    """
    if not name or "/" in name or name.startswith("__"):
        raise ValueError(f"Objects have names without '/' that do not begin with '__', got {name!r}.")
    if name == "global_step":
        raise ValueError("The name 'global_step' is that of the step count, which the session keeps.")
    if isinstance(obj, torch.Tensor | torch.Generator):
        return
    if not callable(getattr(obj, "state_dict", None)) or not hasattr(obj, "load_state_dict"):
        raise TypeError(
            f"state[{name!r}] must be a module, an optimizer, a scheduler, a scaler, a generator, a "
            f"tensor, or have state_dict() and load_state_dict(state); got a {type(obj).__name__}."
        )


def entries_of(objects: Mapping[str, Any]) -> tuple[Tensors, dict[str, NDArray[Any]]]:
    """Return the tensors of all objects by entry name, not copied, and the entries that are none."""
    tensors: Tensors = {}
    others: dict[str, NDArray[Any]] = {}
    for name, obj in objects.items():
        flat = flat_state(name, obj)
        tensors |= flat.tensors
        if isinstance(obj, torch.optim.Optimizer):
            flat.structure[NAMES] = parameter_names(objects, obj)
        if flat.structure is not None:
            others[name + STRUCTURE] = np.array(json.dumps(flat.structure), object)
    return tensors, others


def flat_state(name: str, obj: Any) -> Flat:
    """Return the present state of an object. Its tensors are the object's own, not copies.

    Raises:
        TypeError: a value that checkpoints do not have; the error says where it is.
    """
    if isinstance(obj, torch.Tensor):
        return Flat({name: obj.detach()}, None)
    if isinstance(obj, torch.Generator):
        return Flat({name: obj.get_state()}, None)
    state = unwrapped(obj).state_dict()
    if isinstance(obj, torch.nn.Module):
        state = {plain_key(key): value for key, value in state.items()}
    flat = flatten(name, state)
    if isinstance(obj, KINDS) and flat.structure is not None:
        flat.structure[KIND] = type(obj).__name__
    return flat


def parameter_names(
    objects: Mapping[str, Any], optimizer: torch.optim.Optimizer
) -> list[list[str | None]]:
    """Return the names of an optimizer's parameters, group by group; None for those of no object."""
    names: dict[int, str] = {}
    for name, obj in objects.items():
        if isinstance(obj, torch.nn.Module):
            for key, parameter in unwrapped(obj).named_parameters():
                names[id(parameter)] = f"{name}/{plain_key(key)}"
        elif isinstance(obj, torch.Tensor):
            names[id(obj)] = name
    return [[names.get(id(one)) for one in group["params"]] for group in optimizer.param_groups]


def unwrapped(obj: Any) -> Any:
    """Return the module inside wrappers for DDP and of ``torch.compile``; anything else as it is."""
    while isinstance(obj, torch.nn.Module):
        inner = obj.module if isinstance(obj, torch.nn.parallel.DistributedDataParallel) else None
        inner = getattr(obj, "_orig_mod", inner)  # of a compiled one
        if inner is None:
            break
        obj = inner
    return obj


def plain_key(key: str) -> str:
    """Return a key of a module's state dict as it is without ``torch.compile`` of inner modules."""
    return key.replace("_orig_mod.", "")


def owner_of(entry: str) -> str:
    """Return the name of the object that an entry belongs to."""
    return entry.partition("/")[0].removesuffix(STRUCTURE)


def flatten(name: str, state: Mapping[str, Any]) -> Flat:
    """Return a state dict as entries ``<name>/<key>/<key>``."""
    if all(isinstance(value, torch.Tensor) for value in state.values()):
        return Flat({f"{name}/{key}": value.detach() for key, value in state.items()}, None)
    tensors: Tensors = {}
    return Flat(tensors, pack_json(name, _without_tensors(state, name, tensors)))


def _without_tensors(value: Any, place: str, tensors: Tensors) -> Any:
    match value:
        case torch.Tensor():
            tensors[place] = value.detach()
            return {TENSOR: place}
        case np.ndarray():
            tensors[place] = torch.from_numpy(value)
            return {ARRAY: place}
        case np.generic():
            return value.item()
        case Mapping():
            return {k: _without_tensors(v, f"{place}/{k}", tensors) for k, v in value.items()}
        case list() | tuple():
            items = [_without_tensors(item, f"{place}/{i}", tensors) for i, item in enumerate(value)]
            return tuple(items) if isinstance(value, tuple) else items
    return value


# -- tensors and arrays


def as_array(tensor: torch.Tensor) -> NDArray[Any]:
    """Return a tensor of the host as an array that shares its memory.

    Raises:
        TypeError: numpy and checkpoints have no such elements, or the tensor is sparse or quantised.
        ImportError: a bfloat16 or float8 tensor, and ``ml_dtypes`` is not installed.
    """
    foreign = _FOREIGN.get(tensor.dtype)
    if foreign is None:
        plain: NDArray[Any] = tensor.resolve_conj().resolve_neg().numpy()
        return plain
    name, raw = foreign
    dtype = numpy_dtype(element_named(name))
    if dtype.itemsize != tensor.element_size():
        raise ImportError(f"Arrays of {name} need ml-dtypes: pip install 'asyncmon[torch]'")
    array: NDArray[Any] = tensor.contiguous().view(raw).numpy().view(dtype)
    return array


def as_tensor(array: Any) -> torch.Tensor:
    """Return a copy of an array as a tensor of the host."""
    array = np.asarray(array)
    array = np.array(array, array.dtype.newbyteorder("="), order="C")
    for dtype, (name, raw) in _FOREIGN.items():
        if array.dtype.name == name:
            return torch.from_numpy(array.view(f"u{array.itemsize}")).view(raw).view(dtype)
    return torch.from_numpy(array)


def host_value(value: Any) -> Any:
    """Return a tensor as an array of the host that shares nothing with it; anything else as it is."""
    if not isinstance(value, torch.Tensor):
        return value
    if is_sharded(value):
        raise InvalidArgumentError(
            f"An entry of shape {tuple(value.shape)} is sharded over ranks, and one rank cannot fetch "
            "it: return it from a step, which all ranks run."
        )
    array = as_array(local(value).detach().cpu())
    return array.copy() if value.device.type == "cpu" else array


def copy_to_host(tensors: Mapping[str, torch.Tensor]) -> tuple[dict[str, NDArray[Any]], list[Any]]:
    """Copy tensors to the host, those of a device into pinned memory on a stream of its own.

    Returns:
        The arrays, and the events after which they have their values.
    """
    copies: dict[str, torch.Tensor] = {}
    streams: dict[torch.device, Any] = {}
    for name, tensor in tensors.items():
        if tensor.layout is not torch.strided or tensor.is_quantized:
            raise TypeError(f"{name!r} is sparse or quantised, which entries of checkpoints are not.")
        if tensor.is_meta:
            raise InvalidArgumentError(f"{name!r} {ON_META}.")
        if tensor.device.type == "cpu":
            copies[name] = tensor.clone(memory_format=torch.contiguous_format)
            continue
        module = torch.get_device_module(tensor.device)
        if tensor.device not in streams:
            streams[tensor.device] = module.Stream(tensor.device)
            streams[tensor.device].wait_stream(module.current_stream(tensor.device))
        with module.stream(streams[tensor.device]):
            copies[name] = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
            copies[name].copy_(tensor, non_blocking=True)
    events = []
    for device, stream in streams.items():
        events.append(stream.record_event())
        # Work that is queued on the device afterwards waits for the copies.
        torch.get_device_module(device).current_stream(device).wait_event(events[-1])
    return {name: _named_array(name, tensor) for name, tensor in copies.items()}, events


def _named_array(name: str, tensor: torch.Tensor) -> NDArray[Any]:
    try:
        return as_array(tensor)
    except TypeError as error:
        raise TypeError(
            f"{name!r} has elements of {tensor.dtype}, which entries of checkpoints do not have."
        ) from error
