"""The copy of a trained state that peeks read, so that they neither wait for a step nor delay one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from asyncmon.programs.torch.copies import evaluation_copies
from asyncmon.programs.torch.state import Tensors, flat_state
from asyncmon.system import clock

# A copy is brought up to date after a step if that took 5 % of the time since then, the last time.
_SHARE = 20

_IDLE_SECS = 60.0  # without a peek for so long the copy is dropped


class PeekCopy:
    """Copies of the modules and tensors among the objects of a session, and the others themselves.

    Args:
        objects: of the session, in a thread that may block, between two steps.
    """

    def __init__(self, objects: Mapping[str, Any]) -> None:
        began = clock.monotonic()
        copies = evaluation_copies(objects)
        self.objects: dict[str, Any] = {**objects, **copies}
        """By name. Parts without a copy, such as optimizers, are read while they may change."""
        self.copied = copies.keys()
        self._sources = {name: objects[name] for name in copies}
        self.commits = -1
        """The number of changes that the session had made when the copies were taken."""
        self.was_missed = False
        """Whether a peek read the copies when they should have been brought up to date."""
        self._took(began)
        self.last_peek = self._taken

    def is_due(self, commits: int) -> bool:
        """Return whether to bring the copies up to date after a step."""
        return self.commits != commits and clock.monotonic() - self._taken >= _SHARE * self._secs

    @property
    def is_idle(self) -> bool:
        """Whether there was no peek for long."""
        return clock.monotonic() - self.last_peek > _IDLE_SECS

    def update(self, commits: int) -> None:
        """Copy the present state. Blocking, between two steps."""
        began = clock.monotonic()
        with torch.no_grad():
            for name in self.copied:
                source, copy = self._sources[name], self.objects[name]
                if isinstance(source, torch.Generator):
                    copy.set_state(source.get_state())
                    continue
                now, before = _tensors(name, source), _tensors(name, copy)
                for entry, tensor in before.items():
                    tensor.copy_(now[entry])
        self.commits, self.was_missed = commits, False
        self._took(began)

    def _took(self, began: float) -> None:
        self._taken = clock.monotonic()
        self._secs = self._taken - began


def _tensors(name: str, obj: Any) -> Tensors:
    return flat_state(name, obj).tensors
