"""The options of a pipeline, and its counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from asyncmon.runtime.pipelines.item import Item

OnStale = Literal["pace", "drop"] | Callable[[Item], bool]
OnError = Literal["raise", "drop", "item"]
Keep = Literal["results"]


@dataclass(frozen=True, slots=True)
class Options:
    """The options of ``sess.produce``, checked."""

    workers: int
    depth: int
    max_age: int | None
    group: int | None
    ordered: bool
    on_stale: OnStale
    on_error: OnError
    retries: int
    keep: Keep | None

    def __post_init__(self) -> None:
        for name, least in (("workers", 1), ("depth", 1), ("group", 1), ("max_age", 0), ("retries", 0)):
            value: object = getattr(self, name)
            is_none = value is None and name in ("group", "max_age")
            if not is_none and not (type(value) is int and value >= least):
                raise ValueError(f"produce({name}=...) must be {least} or more, got {value!r}.")
        allowed: Mapping[str, tuple[Any, ...]] = {
            "on_stale": ("pace", "drop"),
            "on_error": ("raise", "drop", "item"),
            "keep": (None, "results"),
            "ordered": (False, True),
        }
        for name, values in allowed.items():
            value = getattr(self, name)
            if value not in values and not (name == "on_stale" and callable(value)):
                raise ValueError(f"produce({name}=...) must be one of {values}, got {value!r}.")

    @property
    def members(self) -> int:
        """The number of calls for an element."""
        return self.group or 1

    @property
    def paces(self) -> bool:
        """Whether no call is started whose result would be too old."""
        return self.max_age is not None and self.on_stale == "pace"


@dataclass(slots=True)
class Counts:
    """What has happened in a pipeline so far, in this process."""

    made: int = 0
    delivered: int = 0
    kept: int = 0
    failures: int = 0
    dropped: int = 0
    stale: int = 0
    again: int = 0
    lost: int = 0
    busy_secs: float = 0.0
    learner_secs: float = 0.0
    ages: dict[int, int] = field(default_factory=dict)
