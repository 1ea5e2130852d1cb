"""Named torch objects as entries of a checkpoint, and back."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from asyncmon.checkpoint.dtypes import element_named, numpy_dtype
from asyncmon.checkpoint.saveable_session import raw_session
from asyncmon.checkpoint.stateful import pack, unpack
from asyncmon.errors import InvalidArgumentError, NotFoundError
from asyncmon.programs.torch.sharding import Shard, as_dtensor, is_dtensor, is_sharded, local, own_shard
from asyncmon.system.files import in_thread

Tensors = dict[str, torch.Tensor]

STRUCTURE = ".json"
"""An entry ``<name>.json`` has what of a state dict is no tensor, and where its tensors go."""

RANDOM = "__random__/"
"""Entries that begin with this are the states of torch's default generators, one for each device."""

RANK = "random@"
"""Entries ``random@<rank>/<device>`` are those of the other ranks of a sharded state."""

_TENSOR, _ARRAY = "__tensor__", "__numpy__"
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
    return flatten(name, unwrapped(obj).state_dict())


def unwrapped(obj: Any) -> Any:
    """Return the module inside a wrapper for DDP; anything else as it is."""
    return obj.module if isinstance(obj, torch.nn.parallel.DistributedDataParallel) else obj


def flatten(name: str, state: Mapping[str, Any]) -> Flat:
    """Return a state dict as entries ``<name>/<key>/<key>``."""
    if all(isinstance(value, torch.Tensor) for value in state.values()):
        return Flat({f"{name}/{key}": value.detach() for key, value in state.items()}, None)
    tensors: Tensors = {}
    packed, _ = pack(name, _without_tensors(state, name, tensors))
    return Flat(tensors, packed)


def _without_tensors(value: Any, place: str, tensors: Tensors) -> Any:
    match value:
        case torch.Tensor():
            tensors[place] = value.detach()
            return {_TENSOR: place}
        case np.ndarray():
            tensors[place] = torch.from_numpy(value)
            return {_ARRAY: place}
        case np.generic():
            return value.item()
        case Mapping():
            return {k: _without_tensors(v, f"{place}/{k}", tensors) for k, v in value.items()}
        case list() | tuple():
            items = [_without_tensors(item, f"{place}/{i}", tensors) for i, item in enumerate(value)]
            return tuple(items) if isinstance(value, tuple) else items
    return value


def _places(packed: Any) -> Iterable[str]:
    """Yield the entries that a structure refers to."""
    if isinstance(packed, list):
        for item in packed:
            yield from _places(item)
    elif isinstance(packed, dict):
        for key, item in packed.items():
            if key == "__items__" and len(item) == 1 and item[0][0] in (_TENSOR, _ARRAY):
                yield item[0][1]
            else:
                yield from _places(item)


def _with_tensors(value: Any, now: Any, tensors: Tensors) -> Any:
    """Return a state dict with the tensors in their places, its counters as in the present one."""
    if isinstance(value, dict) and len(value) == 1 and (key := next(iter(value))) in (_TENSOR, _ARRAY):
        tensor = tensors[value[key]]
        return tensor if key == _TENSOR else tensor.numpy()
    if isinstance(value, dict):
        inside = now if isinstance(now, Mapping) else {}
        made = {key: _with_tensors(item, inside.get(key), tensors) for key, item in value.items()}
        return Counter(made) if isinstance(now, Counter) else made
    if isinstance(value, list | tuple):
        inner = now if isinstance(now, list | tuple) and len(now) == len(value) else [None] * len(value)
        items = [_with_tensors(item, was, tensors) for item, was in zip(value, inner, strict=True)]
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

    Work that is queued on the device afterwards waits for the copies.

    Returns:
        The arrays, and the events after which they have their values.
    """
    copies: dict[str, torch.Tensor] = {}
    streams: dict[torch.device, Any] = {}
    for name, tensor in tensors.items():
        if tensor.layout is not torch.strided or tensor.is_quantized:
            raise TypeError(f"{name!r} is sparse or quantised, which entries of checkpoints are not.")
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
        torch.get_device_module(device).current_stream(device).wait_event(events[-1])
    return {name: as_array(tensor) for name, tensor in copies.items()}, events


# -- loading


class Loading:
    """Values to be loaded into named objects: checked as a whole first, then applied.

    Args:
        objects: by name.
        values: arrays by entry name; entries that are not given keep their present values. Of a sharded
            tensor, a whole array or this rank's :class:`.Shard`.

    Raises:
        InvalidArgumentError: entries do not fit; the error lists all of them with the expected and the
            given shapes and dtypes.
    """

    def __init__(self, objects: Mapping[str, Any], values: Mapping[str, Any]) -> None:
        self._objects = objects
        self._ready: dict[str, Any] = {}
        owners = {key: key.partition("/")[0].removesuffix(STRUCTURE) for key in values}
        problems = [
            f"{key!r} is not an entry of the state, which has the objects {list(objects)}"
            for key, name in owners.items()
            if name not in objects
        ]
        for name, obj in objects.items():
            given = {key: values[key] for key, owner in owners.items() if owner == name}
            if given:
                self._prepare(name, obj, given, problems)
        if problems:
            raise InvalidArgumentError(f"Nothing was loaded: {'; '.join(problems)}.")

    def apply(self) -> None:
        """Set the states. Gradients are dropped."""
        for name, state in self._ready.items():
            obj = unwrapped(self._objects[name])
            if isinstance(obj, torch.Generator):
                obj.set_state(state)
            elif isinstance(obj, torch.Tensor):
                with torch.no_grad():
                    obj.copy_(state)
            else:
                obj.load_state_dict(state)
            if isinstance(obj, torch.nn.Module):
                obj.zero_grad(set_to_none=True)

    def _prepare(self, name: str, obj: Any, given: dict[str, Any], problems: list[str]) -> None:
        now = flat_state(name, obj)
        text = given.pop(name + STRUCTURE, None)
        structure = now.structure if text is None else json.loads(str(np.asarray(text).item()))
        places = list(_places(structure)) if structure is not None else list(now.tensors)
        before = len(problems)
        problems += [
            f"{entry!r} is not an entry of {name!r}, which has {_some(places)}"
            for entry in given
            if entry not in places
        ]
        problems += [
            f"{place!r} is missing: expected for the state of {name!r}, found {_some(given)}"
            for place in places
            if place not in given and place not in now.tensors
        ]
        for entry in filter(now.tensors.__contains__, given):
            problems += _misfit(entry, given[entry], now.tensors[entry])
        like = {
            **_like_parameters(
                name, obj, {e: v for e, v in given.items() if e not in now.tensors}, problems
            ),
            **now.tensors,
        }
        if text is not None:
            problems += _other_groups(name, structure, now.structure)
        if len(problems) > before:
            return
        tensors = {
            place: _as_loaded(given[place], like.get(place)) if place in given else now.tensors[place]
            for place in places
        }
        if isinstance(obj, torch.Tensor | torch.Generator):
            self._ready[name] = tensors[name]
        elif structure is None:
            self._ready[name] = {key[len(name) + 1 :]: tensor for key, tensor in tensors.items()}
        else:
            self._ready[name] = _with_tensors(unpack(structure, {}), obj.state_dict(), tensors)


def own_pieces(objects: Mapping[str, Any]) -> Callable[[str, Any], Any]:
    """Return a function of an entry and its whole value that copies this rank's piece of it.

    Values that are not sharded here, or have another shape, are returned unchanged.
    """
    tensors, _ = entries_of(objects)

    def own_piece(entry: str, value: Any) -> Any:
        name, like = entry.partition("/")[0], tensors.get(entry)
        if like is None and name in objects:
            like = _like_parameters(name, objects[name], {entry: value}, []).get(entry)
        if like is None or not is_sharded(like) or np.shape(value) != tuple(like.shape):
            return value
        shard = own_shard(value, like)
        return Shard(shard.array.copy(), shard.shape)

    return own_piece


def _like_parameters(
    name: str, obj: Any, given: Mapping[str, Any], problems: list[str]
) -> dict[str, Any]:
    """Return the sharded parameters of an optimizer by the entries that are sharded as they are."""
    if not isinstance(obj, torch.optim.Optimizer):
        return {}
    parameters = [one for group in obj.param_groups for one in group["params"]]
    found = {}
    for entry, value in given.items():
        number = entry.removeprefix(f"{name}/state/").partition("/")[0]
        if not number.isdigit() or int(number) >= len(parameters):
            continue
        parameter = parameters[int(number)]
        if not np.ndim(value) or not is_dtensor(parameter):
            continue
        found[entry] = parameter
        if np.shape(value) != tuple(parameter.shape):
            problems.append(
                f"{entry!r}: expected shape {tuple(parameter.shape)}, that of its sharded parameter, "
                f"found {np.shape(value)}"
            )
    return found


def _as_loaded(value: Any, like: torch.Tensor | None) -> torch.Tensor:
    if like is None or not is_dtensor(like):
        return as_tensor(value)
    return as_dtensor(value, like, as_tensor)


def _misfit(entry: str, value: Any, now: torch.Tensor) -> list[str]:
    array = value if isinstance(value, Shard) else np.asarray(value)
    shape, dtype = tuple(now.shape), str(now.dtype).removeprefix("torch.")
    if array.shape != shape:
        return [f"{entry!r}: expected shape {shape}, found {array.shape}"]
    if array.dtype.name != dtype:
        return [f"{entry!r}: expected dtype {dtype}, found {array.dtype.name}"]
    return []


def _other_groups(name: str, structure: Any, now: Any) -> list[str]:
    """Compare the numbers of parameters in each group, of an optimizer."""
    found, expected = (
        [len(group["params"]) for group in one["param_groups"]]
        if isinstance(one, dict) and "param_groups" in one
        else None
        for one in (structure, now)
    )
    if found == expected:
        return []
    return [f"{name!r}: expected groups of {expected} parameters, found {found}"]


def _some(names: Iterable[str]) -> str:
    names = list(names)
    return f"{names[:8]}" + (f" and {len(names) - 8} more" if len(names) > 8 else "")


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
