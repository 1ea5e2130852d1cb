"""A step that trains: autocast, accumulation, scaling, clipping, the update."""

from __future__ import annotations

import contextlib
import functools
import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import distributed
from torch.optim.lr_scheduler import ReduceLROnPlateau

from asyncmon.errors import InvalidArgumentError
from asyncmon.programs.steps import Step

_NOTHING = contextlib.nullcontext()


@dataclass(frozen=True)
class MixedPrecision:
    """The element type of the forward pass, where torch's autocast finds it safe.

    Attributes:
        dtype: ``"bfloat16"`` or ``"float16"``, which needs a scaler.
    """

    dtype: str = "bfloat16"

    def __post_init__(self) -> None:
        if self.dtype not in ("bfloat16", "float16"):
            raise ValueError(f"precision is 'bfloat16' or 'float16', got {self.dtype!r}.")

    def autocast(self, device_type: str) -> Any:
        """Return the context of the forward pass on a kind of device."""
        return torch.autocast(device_type, dtype=getattr(torch, self.dtype))


def training_step(
    fn: Callable[..., Any],
    objects: Mapping[str, Any],
    optimizer: str,
    scheduler: str | None,
    scaler: str | None,
    precision: MixedPrecision | None,
    clip_norm: float | None,
    accumulate: int,
    metric: str | None = None,
) -> Callable[..., Any]:
    """Return a function that trains by the loss of ``fn``. See :meth:`TorchProgram.training_step`."""
    wanted = {"optimizer": optimizer, "scheduler": scheduler, "scaler": scaler}
    for role, name in wanted.items():
        if name is not None and name not in objects:
            raise ValueError(f"{role}={name!r} is not in the state, which has {list(objects)}.")
    if isinstance(objects[optimizer], torch.optim.LBFGS):
        raise TypeError(
            f"{optimizer!r} is an LBFGS, which computes the loss several times in an update: write a "
            "@program.step that calls step(closure) of it."
        )
    by_metric = isinstance(objects.get(scheduler or ""), ReduceLROnPlateau)
    if by_metric and metric is None:
        raise ValueError(
            f"{scheduler!r} is a ReduceLROnPlateau: give metric='loss', or another number that "
            "the step returns."
        )
    if metric is not None and not by_metric:
        raise ValueError(f"metric={metric!r} is for a scheduler= that is a ReduceLROnPlateau.")
    if accumulate < 1:
        raise ValueError(f"accumulate must be 1 or more, got {accumulate!r}.")
    if precision is not None and precision.dtype == "float16" and scaler is None:
        raise ValueError("float16 gradients underflow: give scaler=, or MixedPrecision('bfloat16').")
    inner = Step(getattr(fn, "__name__", "train"), fn, has_state=True, read_only=False)
    state_name = inner.state_name
    if inner.is_async or state_name is None or "batch" not in inner.takes:
        raise TypeError(f"A training step is a plain function of state and batch, got {fn!r}.")

    @functools.wraps(fn)
    def train(**arguments: Any) -> dict[str, Any]:
        state = arguments[state_name]
        update = state[optimizer]
        scale = None if scaler is None else state[scaler]
        parameters = [p for group in update.param_groups for p in group["params"]]
        device = parameters[0].device.type
        update.zero_grad(set_to_none=True)
        parts = list(_parts(arguments["batch"], accumulate))
        outputs = []
        for i, (share, part) in enumerate(parts):
            with _syncing(state, i == len(parts) - 1) if accumulate > 1 else _NOTHING:
                with _NOTHING if precision is None else precision.autocast(device):
                    output = fn(**{**arguments, "batch": part})
                output = output if isinstance(output, dict) else {"loss": output}
                if not isinstance(output.get("loss"), torch.Tensor):
                    raise InvalidArgumentError(
                        f"The training step {inner.name!r} must return the loss, a tensor, or a "
                        f"dict with it as 'loss', got {_kinds(output)}."
                    )
                loss = output["loss"] * share if accumulate > 1 else output["loss"]
                (loss if scale is None else scale.scale(loss)).backward()
            outputs.append(output)
        result = outputs[0] if len(outputs) == 1 else _joined(outputs, [share for share, _ in parts])
        if clip_norm is not None:
            if scale is not None:
                scale.unscale_(update)
            result["grad_norm"] = torch.nn.utils.clip_grad_norm_(parameters, clip_norm)
        if metric is not None and metric not in result:
            raise InvalidArgumentError(
                f"metric={metric!r} is not in the result of {inner.name!r}, which has {list(result)}."
            )
        if scale is None:
            update.step()
        else:
            scale.step(update)
            scale.update()
        update.zero_grad(set_to_none=True)
        if metric is not None:
            state[scheduler].step(_mean_of_ranks(result[metric], device))
        elif scheduler is not None:
            state[scheduler].step()
        return result

    return train


def _kinds(output: Mapping[str, Any]) -> str:
    return ", ".join(f"{name!r}: {type(value).__name__}" for name, value in output.items()) or "{}"


def _mean_of_ranks(value: Any, device: str) -> float:
    """Return a number of this step: of ranks the mean, as all need the same learning rate."""
    mean = torch.as_tensor(value).detach()
    if distributed.is_available() and distributed.is_initialized():
        mean = mean.to(device, torch.float64)
        distributed.all_reduce(mean)
        mean /= distributed.get_world_size()
    return float(mean)


def _parts(batch: Any, count: int) -> Iterator[tuple[float, Any]]:
    """Yield parts of a batch, each with its share of the whole."""
    if count == 1:
        yield 1.0, batch
        return
    sizes = {len(leaf) for leaf in _leaves(batch)}
    if len(sizes) != 1 or min(sizes) < count:
        raise InvalidArgumentError(
            f"accumulate={count} splits a batch along its first axis: expected arrays of one length of "
            f"at least {count}, found lengths {sorted(sizes)}."
        )
    total = sizes.pop()
    ends = np.linspace(0, total, count + 1).round().astype(int).tolist()
    for start, end in itertools.pairwise(ends):
        yield (end - start) / total, _mapped(batch, start, end, total)


def _leaves(batch: Any) -> Iterator[Any]:
    if isinstance(batch, dict | list | tuple):
        for item in batch.values() if isinstance(batch, dict) else batch:
            yield from _leaves(item)
    elif isinstance(batch, torch.Tensor | np.ndarray) and batch.ndim:
        yield batch


def _mapped(batch: Any, start: int, end: int, total: int) -> Any:
    if isinstance(batch, dict):
        return {key: _mapped(item, start, end, total) for key, item in batch.items()}
    if isinstance(batch, tuple) and hasattr(batch, "_fields"):
        return type(batch)(*(_mapped(item, start, end, total) for item in batch))
    if isinstance(batch, list | tuple):
        if len(batch) == total and all(isinstance(item, str | bytes) for item in batch):
            return batch[start:end]  # a loader collates texts so, one of each element
        return type(batch)(_mapped(item, start, end, total) for item in batch)
    sliced = isinstance(batch, torch.Tensor | np.ndarray) and batch.ndim
    return batch[start:end] if sliced else batch


def _joined(outputs: list[dict[str, Any]], shares: list[float]) -> dict[str, Any]:
    joined = {}
    for key, last in outputs[-1].items():
        values = [output[key] for output in outputs]
        if isinstance(last, torch.Tensor) and last.ndim:
            joined[key] = torch.cat([value.detach() for value in values])
        elif isinstance(last, torch.Tensor | float | int) and not isinstance(last, bool):
            joined[key] = sum(
                (value.detach() if isinstance(value, torch.Tensor) else value) * share
                for value, share in zip(values, shares, strict=True)
            )
        else:
            joined[key] = last
    return joined


@contextlib.contextmanager
def _syncing(state: Mapping[str, Any], sync: bool) -> Iterator[None]:
    """Exchange gradients between ranks for the last part only."""
    with contextlib.ExitStack() as stack:
        for module in state.values():
            if isinstance(module, torch.nn.parallel.DistributedDataParallel) and not sync:
                stack.enter_context(module.no_sync())
            elif hasattr(module, "set_requires_gradient_sync"):
                module.set_requires_gradient_sync(sync)
        yield
