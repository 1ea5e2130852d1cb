"""Load the entries of a checkpoint into named objects: all of them, or none."""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from torch.optim.lr_scheduler import LRScheduler

from asyncmon.checkpoint.packing import unpack
from asyncmon.errors import InvalidArgumentError
from asyncmon.programs.torch.sharding import Shard, as_dtensor, is_dtensor, is_sharded, own_shard
from asyncmon.programs.torch.state import (
    ARRAY,
    KIND,
    KINDS,
    NAMES,
    ON_META,
    STRUCTURE,
    TENSOR,
    Tensors,
    as_tensor,
    entries_of,
    flat_state,
    owner_of,
    parameter_names,
    plain_key,
    unwrapped,
)
from asyncmon.system.error_text import some

logger = logging.getLogger(__name__)


class Optimizers(NamedTuple):
    """How the optimizers and schedulers of a program take over those of a checkpoint."""

    load: bool = True
    """Whether another one in the checkpoint is an error; else its state is left out."""
    hyperparameters: Literal["checkpoint", "code"] | None = None
    """Whose learning rate, weight decay and so on are used where a training begins. None: those of the
    checkpoint; others than :data:`_FREE` that differ are an error."""


_NO_RULE = {"params", "foreach", "fused", "capturable", "differentiable"}  # how it is computed
_FREE = {"lr", "initial_lr", "weight_decay"}
_SCHEDULED = {"momentum", "betas", "base_momentum", "max_momentum", "min_lr", "max_lr"}  # OneCycleLR


_OPTIMIZERS = Optimizers()


class Loading:
    """Values to be loaded into named objects: checked as a whole first, then applied.

    Args:
        objects: by name.
        values: arrays by entry name; entries that are not given keep their present values. Of a sharded
            tensor, a whole array or this rank's :class:`.Shard`.
        optimizers: what to take over of theirs.
        begins: whether a training begins with the values, so that hyperparameters are compared.

    Raises:
        InvalidArgumentError: entries do not fit; the error lists all of them with the expected and the
            given shapes and dtypes.
    """

    def __init__(
        self,
        objects: Mapping[str, Any],
        values: Mapping[str, Any],
        optimizers: Optimizers = _OPTIMIZERS,
        *,
        begins: bool = False,
    ) -> None:
        self._objects = objects
        self._optimizers = optimizers
        self._begins = begins
        self._ready: dict[str, Any] = {}
        self._left_out: list[Any] = []
        owners = {key: owner_of(key) for key in values}
        problems = [
            f"{key!r} is not an entry of the state, which has the objects {list(objects)}"
            for key, name in owners.items()
            if name not in objects
        ]
        for name, obj in objects.items():
            given = {key: values[key] for key, owner in owners.items() if owner == name}
            if given:
                self._prepare(name, obj, given, problems)
        for name in [one for one in self._ready if self._begins_anew(objects[one])]:
            logger.warning("%r begins anew, as its optimizer does.", name)
            del self._ready[name]
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
            elif isinstance(obj, torch.nn.Module):
                keys = {plain_key(key): key for key in obj.state_dict()}
                obj.load_state_dict({keys.get(key, key): value for key, value in state.items()})
                obj.zero_grad(set_to_none=True)
            else:
                obj.load_state_dict(state)

    def _begins_anew(self, obj: Any) -> bool:
        """Return whether an object is a scheduler of an optimizer whose state was left out."""
        optimizer = getattr(obj, "optimizer", None) if isinstance(obj, LRScheduler) else None
        return optimizer is not None and any(optimizer is one for one in self._left_out)

    def _prepare(self, name: str, obj: Any, given: dict[str, Any], problems: list[str]) -> None:
        now = flat_state(name, obj)
        text = given.pop(name + STRUCTURE, None)
        structure = now.structure if text is None else json.loads(str(np.asarray(text).item()))
        if text is not None and isinstance(obj, torch.optim.Optimizer):
            now.structure[NAMES] = parameter_names(self._objects, obj)
        if isinstance(obj, KINDS) and (other := _another(name, structure, now.structure)):
            if self._optimizers.load:
                remedy = "pass load_optimizer=False to the program to begin with a new state"
                problems.append(f"{other} ({remedy})")
            else:
                logger.warning("The state in the checkpoint is left out: %s.", other)
                self._left_out.append(obj)
            return
        if isinstance(obj, KINDS) and structure is not None:
            structure = {key: value for key, value in structure.items() if key not in (KIND, NAMES)}
        places = list(_places(structure)) if structure is not None else list(now.tensors)
        before = len(problems)
        problems += [
            f"{entry!r} is not an entry of {name!r}, which has {some(places)}"
            for entry in given
            if entry not in places
        ]
        problems += [
            f"{place!r} is missing: expected for the state of {name!r}, found {some(given)}"
            for place in places
            if place not in given and place not in now.tensors
        ]
        for entry in filter(now.tensors.__contains__, given):
            problems += misfit(entry, given[entry], now.tensors[entry])
        like = {
            **_like_parameters(
                name, obj, {e: v for e, v in given.items() if e not in now.tensors}, problems
            ),
            **now.tensors,
        }
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
            state = _with_tensors(unpack(structure, {}), unwrapped(obj).state_dict(), tensors)
            if isinstance(obj, torch.optim.Optimizer) and self._begins:
                self._compare_hyperparameters(name, obj.param_groups, state, problems)
            by_code = self._begins and self._optimizers.hyperparameters == "code"
            if by_code and isinstance(obj, LRScheduler):
                state = _with_base_rates(state, obj.state_dict())
            self._ready[name] = state

    def _compare_hyperparameters(
        self, name: str, groups: list[dict[str, Any]], state: dict[str, Any], problems: list[str]
    ) -> None:
        """Refuse, replace or log the hyperparameters that are others in the checkpoint."""
        wanted = self._optimizers.hyperparameters
        may_differ = _NO_RULE | _FREE
        if any(isinstance(obj, LRScheduler) for obj in self._objects.values()):
            may_differ |= _SCHEDULED
        for ours, saved in zip(groups, state["param_groups"], strict=True):
            names = ours.get("param_names")
            if names and [*map(plain_key, names)] == [*map(plain_key, saved.get("param_names", ()))]:
                saved["param_names"] = names  # those of a compiled module are others
            differ = {k for k in ours.keys() & saved if k not in _NO_RULE and saved[k] != ours[k]}
            pairs = [(k, ours[k], saved[k]) for k in sorted(differ)]
            if differ and wanted == "code":
                rate = saved["lr"]
                first = saved.get("initial_lr") if "initial_lr" in ours else None
                saved.update({key: ours[key] for key in differ})
                if first:  # as far as the scheduler, which continues from the checkpoint
                    saved["lr"] = rate * ours["initial_lr"] / first
                values = ", ".join(f"{k}={here!r}, not {there!r}" for k, here, there in pairs)
                logger.info("%r keeps the hyperparameters of the code: %s.", name, values)
            elif differ - may_differ and wanted is None:
                remedy = "choose by hyperparameters='checkpoint' or 'code' of the program"
                values = ", ".join(f"{k}={here!r}, found {there!r}" for k, here, there in pairs)
                problems.append(f"{name!r}: expected {values} ({remedy})")
            elif differ:
                values = ", ".join(f"{k}={there!r}, not {here!r}" for k, here, there in pairs)
                logger.info("%r gets the hyperparameters of the checkpoint: %s.", name, values)


def _with_base_rates(state: dict[str, Any], now: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state of a scheduler with the learning rates that its present one begins from."""
    rates = {"base_lrs": now["base_lrs"]} if "base_lrs" in state and "base_lrs" in now else {}
    if "_schedulers" in state:
        pairs = zip(state["_schedulers"], now["_schedulers"], strict=False)
        rates["_schedulers"] = [_with_base_rates(one, ours) for one, ours in pairs]
    return state | rates


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


def misfit(entry: str, value: Any, now: torch.Tensor) -> list[str]:
    """Return how a value does not fit a tensor: a sentence, or none."""
    array = value if isinstance(value, Shard) else np.asarray(value)
    shape, dtype = tuple(now.shape), str(now.dtype).removeprefix("torch.")
    if array.shape != shape:
        return [f"{entry!r}: expected shape {shape}, found {array.shape}"]
    if array.dtype.name != dtype:
        return [f"{entry!r}: expected dtype {dtype}, found {array.dtype.name}"]
    if now.is_meta:
        return [f"{entry!r} {ON_META}"]
    return []


def _another(name: str, saved: Any, now: Any) -> str | None:
    """Return how an optimizer or scheduler differs from the one whose state was saved, or None."""
    if now is None or now is saved:
        return None
    ours, theirs = now[KIND], saved.get(KIND)
    if theirs is not None and theirs != ours:
        return f"{name!r}: expected the state of the class {ours}, found that of {theirs}"
    if "param_groups" not in now or "param_groups" not in saved:
        return None
    counts = [[len(group["params"]) for group in one["param_groups"]] for one in (now, saved)]
    if counts[0] != counts[1]:
        text = f"{name!r}: expected groups of {counts[0]} parameters, found {counts[1]}"
        is_begin = counts[0] == counts[1][: len(counts[0])]  # groups that a step has added
        return text + "; add the later groups before the session begins" if is_begin else text
    for ours, theirs in zip(now.get(NAMES, ()), saved.get(NAMES, ()), strict=False):
        if None not in ours and ours != theirs and set(ours) == set(theirs):
            here, there = next(pair for pair in zip(ours, theirs, strict=True) if pair[0] != pair[1])
            return f"{name!r}: expected the order of parameters with {here!r} in the place of {there!r}"
    return None


def _places(packed: Any) -> Iterable[str]:
    """Yield the entries that a structure refers to."""
    if isinstance(packed, list):
        for item in packed:
            yield from _places(item)
    elif isinstance(packed, dict):
        for key, item in packed.items():
            if key == "__items__" and len(item) == 1 and item[0][0] in (TENSOR, ARRAY):
                yield item[0][1]
            else:
                yield from _places(item)


def _with_tensors(value: Any, now: Any, tensors: Tensors) -> Any:
    """Return a state dict with the tensors in their places, its counters as in the present one."""
    if isinstance(value, dict) and len(value) == 1 and (key := next(iter(value))) in (TENSOR, ARRAY):
        tensor = tensors[value[key]]
        return tensor if key == TENSOR else tensor.numpy()
    if isinstance(value, dict):
        inside = now if isinstance(now, Mapping) else {}
        made = {key: _with_tensors(item, inside.get(key), tensors) for key, item in value.items()}
        return Counter(made) if isinstance(now, Counter) else made
    if isinstance(value, list | tuple):
        inner = now if isinstance(now, list | tuple) and len(now) == len(value) else [None] * len(value)
        items = [_with_tensors(item, was, tensors) for item, was in zip(value, inner, strict=True)]
        return tuple(items) if isinstance(value, tuple) else items
    return value
