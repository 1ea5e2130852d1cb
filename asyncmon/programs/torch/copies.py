"""Copies of modules and tensors, for a session that evaluates."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import torch

from asyncmon.programs.torch.state import unwrapped

if TYPE_CHECKING:
    from collections.abc import Mapping


def evaluation_copies(objects: Mapping[str, Any]) -> dict[str, Any]:
    """Return copies of the modules, tensors and generators among the objects, without gradients."""
    copies = {}
    memo: dict[int, Any] = {}
    for name, obj in objects.items():
        if isinstance(obj, torch.Generator):
            copies[name] = torch.Generator(obj.device)
            copies[name].set_state(obj.get_state())
        elif isinstance(obj, torch.nn.Module | torch.Tensor):
            copies[name] = copy.deepcopy(unwrapped(obj), memo)
    return copies
