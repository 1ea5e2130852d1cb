"""Data loaders of torch as sources: the generators that they draw from are a part of the position.

Nothing here imports torch. A loader is an object of the form of ``torch.utils.data.DataLoader``; one
with ``state_dict()`` has that of torchdata's ``StatefulDataLoader``.
"""

from __future__ import annotations

import contextlib
import math
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import Any

from asyncmon.data.stage import Chunk, Mark, State, too_short

# A position within a pass of a plain loader has the states of its generators before the pass: the pass
# is read again in the same order, up to the position. With a sampler that splits a pass over ranks, it
# also has the number of ranks and the batch size: others continue after the same elements of the pass.
# One of a stateful loader has the loader's own state, and the present states of its generators, for the
# order of the next passes, which that state lacks.
_MEMBERS = "loader", "generators", "default", "reused"


def is_loader(source: Any) -> bool:
    """Return whether an object has the form of torch's ``DataLoader``."""
    return (
        isinstance(source, Iterable)
        and not isinstance(source, Iterator)
        and all(hasattr(source, name) for name in ("dataset", "sampler", "num_workers", "generator"))
    )


def is_stateful_loader(source: Any) -> bool:
    """Return whether an object has the form of torchdata's ``StatefulDataLoader``."""
    return is_loader(source) and hasattr(source, "state_dict") and hasattr(source, "load_state_dict")


def is_shuffled(loader: Any) -> bool:
    """Return whether a loader has another order in each pass."""
    return "Random" in type(loader.sampler).__name__


class LoaderPosition:
    """The position of the next element of a loader.

    Args:
        loader: of which one iterator is made at a time.
        state: the position to continue from, or None.
        live: the position at which the loader is already, or None.
    """

    def __init__(self, loader: Any, state: State | None, live: State | None) -> None:
        self._loader = loader
        self._resumed = state
        self._split = split_of(loader)
        if state is not None and state.get("split", self._split) != self._split:
            raise ValueError("Pass the loader itself, no function: the number of ranks has changed.")
        self.start = 0 if state is None else int(state["next"])
        # What a position before the first element has, until the thread has begun the pass.
        self._begun = _members(state or live or fresh_state(loader, own=False))
        self._following: deque[State] = deque()  # of elements that are read, in the thread
        self._state: State | None = None  # of a stateful loader, once an element was taken
        if self.start and "loader" in self._begun:
            self._state = self._begun

    def begin(self) -> Iterator[Any]:
        """Return the iterator of the elements. Called in the thread that reads."""
        # An iterator also draws from torch's default generator, which the steps may use, too. A resumed
        # pass does not change it.
        loader, resumed, default = self._loader, self._resumed or {}, _default_generator()
        before: Any = None if default is None else default.get_state()
        goes_on = self.start > 0 or "default" in resumed
        if goes_on and not self.start and default is not None:
            # A state from before the pass, where a saver has taken it after the last step: draw again.
            goes_on = not before.equal(_like(resumed["default"], before))
        items: Iterator[Any] | None = None
        if "loader" in resumed:
            loader.load_state_dict(resumed["loader"])
            items = iter(loader)  # without an element yet: of the pass before
        elif resumed.get("reused") and not _is_reused(loader):
            iter(loader)  # draws the seed of the workers, which later passes with them do not
        if resumed and default is not None:
            default.set_state(before)
        if resumed:
            set_generators(loader, resumed["generators"])
        if default is not None and "default" in resumed:
            default.set_state(_like(resumed["default"], before))
        if items is None or not self.start:
            if default is not None and not goes_on:
                self._begun = {**self._begun, "default": before}
            items = iter(loader)
            passed = sum(1 for _ in islice(items, self.start))
            if passed < self.start:
                raise too_short(f"at element {passed} instead of {self.start}")
        if goes_on and not self.start:
            # The sampler draws its seed for the first element, which was read before the position.
            items = chain(list(islice(items, 1)), items)
        if default is not None and goes_on:
            default.set_state(before)
        return self._with_states(items) if is_stateful_loader(loader) else items

    def _with_states(self, items: Iterator[Any]) -> Iterator[Any]:
        for item in items:
            self._following.append(_members(fresh_state(self._loader)))
            yield item

    def took(self, chunk: Chunk) -> None:
        """Record that elements were taken."""
        for _ in chunk if self._following else ():
            self._state = self._following.popleft()

    def mark(self, number: int) -> Mark:
        """Return the position before an element."""
        state = self._state
        split = {} if self._split is None else {"split": self._split}
        return lambda: {"stage": "source", "next": number, **split, **(state or self._begun)}


def fresh_state(loader: Any, own: bool = True) -> State:
    """Return the position at the start of the pass that the loader makes next.

    Args:
        loader: which has ended a pass, or is left in one.
        own: whether to have the loader's own state, if it has any.
    """
    states = [generator.get_state() for generator in generators_of(loader)]
    state: State = {"stage": "source", "next": 0, "generators": states, "reused": _is_reused(loader)}
    if own and is_stateful_loader(loader):
        state["loader"] = loader.state_dict()
    return state


def split_of(loader: Any) -> list[int] | None:
    """Return the number of ranks that a loader's sampler splits a pass over, and the batch size."""
    ranks, size = getattr(loader.sampler, "num_replicas", None), getattr(loader, "batch_size", None)
    return None if ranks is None or size is None else [int(ranks), int(size)]


def of_this_split(loader: Any, state: State, skip: int) -> State:
    """Return the position a number of batches after one of other ranks or batches.

    Raises:
        ValueError: it is inside a batch here.
    """
    before, split = state["split"], split_of(loader)
    if split is None or "loader" in state:
        raise ValueError(
            f"The position is that of {_words(before)}, and this is {_words(split)}: only a DataLoader "
            "with a DistributedSampler continues with another number of ranks."
        )
    passed, size = (state["next"] + skip) * math.prod(before), math.prod(split)
    if passed % size:
        raise ValueError(
            f"The position is after {passed} elements of the pass, read by {_words(before)}, inside a "
            f"batch of {_words(split)}. Keep the number of elements of all ranks together: on half as "
            "many ranks a batch is twice as large."
        )
    return {**state, "next": passed // size, "split": split}


def generators_of(loader: Any) -> list[Any]:
    """Return the generators that a loader and its samplers draw from, except for the default one."""
    batches = getattr(loader, "batch_sampler", None)
    holders = loader, loader.sampler, batches, getattr(batches, "sampler", None)
    found = {id(g): g for one in holders if hasattr(g := getattr(one, "generator", None), "set_state")}
    return list(found.values())


def set_generators(loader: Any, states: list[Any]) -> None:
    """Set the states of the loader's generators.

    Raises:
        ValueError: the loader has another number of them.
    """
    generators = generators_of(loader)
    if len(generators) != len(states):
        raise ValueError(
            f"The position has the states of {len(states)} generators, and {loader!r} draws from "
            f"{len(generators)}: give it the generator= that it had."
        )
    for generator, state in zip(generators, states, strict=True):
        generator.set_state(_like(state, generator.get_state()))


@contextlib.contextmanager
def default_generator_kept() -> Iterator[None]:
    """Restore the state of torch's default generator after ``with``."""
    default = _default_generator()
    state = None if default is None else default.get_state()
    yield
    if default is not None:
        default.set_state(state)


def _words(split: list[int] | None) -> str:
    return "a loader of one rank" if split is None else f"{split[0]} ranks in batches of {split[1]}"


def _members(state: State) -> State:
    return {name: state[name] for name in _MEMBERS if name in state}


def _is_reused(loader: Any) -> bool:
    """Return whether the next pass has the workers of the previous one."""
    is_persistent = getattr(loader, "persistent_workers", False)
    return bool(is_persistent and getattr(loader, "_iterator", None) is not None)


def _like(state: Any, tensor: Any) -> Any:
    """Return the state of a generator as the tensor that it takes."""
    return state if isinstance(state, type(tensor)) else tensor.new_tensor(state)


def _default_generator() -> Any:
    return getattr(sys.modules.get("torch"), "default_generator", None)
