"""The frontiers of a session, and their names in checkpoints."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Protocol, cast

from asyncmon.checkpoint.stateful import has_state
from asyncmon.data import Dataset, from_iterable
from asyncmon.data.loaders import is_loader, is_shuffled, is_stateful_loader
from asyncmon.runtime.channel import Channel
from asyncmon.runtime.channel_state import ChannelState
from asyncmon.runtime.data_iterator import DataIterator
from asyncmon.runtime.data_parts import DataParts
from asyncmon.runtime.frontier import Frontier
from asyncmon.runtime.frontier_batch import Task

logger = logging.getLogger(__name__)

_MOST_ENDED = 8  # sources of different kinds that have ended, do not exist any more and keep a name

_WAYS_OUT = (
    " To begin other data, give it a name of its own: iterate(source, name=...). A dataset that is "
    "made anew for each pass keeps its place by its name=, or is read by sess.epochs(...)."
)


class Piped(Protocol):
    """The part of a pipeline that its session uses."""

    name: str
    frontier: Frontier
    reads: Any
    """The object that it reads."""

    def run_ended(self) -> None: ...
    def reopened(self) -> None: ...
    def stop(self) -> None: ...
    def close(self) -> None: ...
    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: Any) -> None: ...


class Frontiers:
    """The frontiers of a session, over recoveries, and their names in checkpoints."""

    def __init__(self, parts: DataParts) -> None:
        self._stateful = parts.stateful
        self.parts = parts
        self.pipelines: list[Piped] = []
        """Called after each run."""
        self._channels: dict[str, ChannelState] = {}
        self._loaders: dict[int, tuple[Any, Dataset | None]] = {}  # of torch, with their datasets
        self._unnamed: dict[str, Frontier] = {}
        self._named: dict[str, Frontier] = {}
        self.all: list[Frontier] = []
        """Read in each run."""

    def release(self) -> None:
        """Let the sources go: the session is closed."""
        for pipeline in self.pipelines:
            pipeline.close()
        for channel in self._channels.values():
            channel.close()
        self.pipelines.clear()
        self._channels.clear()
        self._unnamed.clear()
        self._named.clear()
        self._loaders.clear()
        self.all.clear()

    def add_pipeline(self, pipeline: Piped, name: str | None) -> None:
        """Register a pipeline: its state in checkpoints, its frontier, and its ends.

        Args:
            pipeline: is not begun yet.
            name: in checkpoints, ``pipelines/<name>``. Default: that of the pipeline, numbered.

        Raises:
            ValueError: another iterator or pipeline reads its source; another one has the name; the
                checkpoint has a position of other data.
        """
        source = pipeline.reads
        others = [*(one.source for one in self.all), *(one.reads for one in self.pipelines)]
        if any(other is source for other in others):
            raise ValueError(
                f"{source!r} is read by another pipeline or iterator of this session. Each needs a "
                "source of its own."
            )
        if name is not None and not (isinstance(cast("object", name), str) and name):
            raise ValueError(f"produce(name=...) must be a text, got {name!r}.")
        default = f"pipelines/{name or pipeline.name}"
        pending = [one for one in self._stateful.pending if one.startswith("pipelines/")]
        saved = [one.removeprefix("pipelines/") for one in pending]
        key = default
        try:
            if name is None:
                key = self._stateful.add_numbered(default, pipeline)
            else:
                self._stateful.add(default, pipeline)
        except ValueError as error:
            raise ValueError(f"The pipeline cannot be saved as {default!r}. {error}") from error
        pipeline.name = key.removeprefix("pipelines/")
        if pipeline.name not in saved and saved:
            logger.warning(
                "The checkpoint has no place of the pipeline %r, but of %s: this one begins at the "
                "start. A pipeline keeps its place by its name=, by default that of its function.",
                pipeline.name, ", ".join(map(repr, saved)),
            )  # fmt: skip
        self.pipelines.append(pipeline)
        self.all.append(pipeline.frontier)
        self.parts.stops.event.when_set(pipeline.stop)

    def add_channel(self, channel: Channel[Any]) -> None:
        """Register a channel: its items in checkpoints. It may be made again after a recovery."""
        for name, state in list(self._channels.items()):
            if state.channel.is_over:
                del self._channels[name]
                self._stateful.discard(state)
                state.close()
        key, before = f"channels/{channel.name}", self._channels.get(channel.name)
        self._stateful.remove(key)
        self._channels[channel.name] = state = ChannelState(channel, self.parts)
        self._stateful.add(key, state)
        if before is not None:
            state.take_over(before)

    def run_ended(self) -> None:
        """Follow the end of a run."""
        for pipeline in self.pipelines:
            pipeline.run_ended()

    def stop(self) -> None:
        """End the work of the pipelines: the session closes."""
        for pipeline in self.pipelines:
            pipeline.stop()

    def reopened(self) -> None:
        """Continue in a new raw session."""
        for pipeline in self.pipelines:
            pipeline.reopened()

    def iterate(
        self,
        source: Any,
        name: str | None,
        should_stop: Callable[[], bool],
        counts_passes: bool = False,
    ) -> DataIterator[Any]:
        """Return the iterator of a source. The arguments are those of :meth:`of`."""
        if isinstance(source, Channel):
            state = self._channels.get(source.name)
            if state is not None and state.channel is source:
                of_items, items = state.iterate(should_stop)
                if of_items not in self.all:
                    self.all.append(of_items)
                return items
        if is_loader(source):
            source = self._read(source)
        frontier = self.of(source, name, counts_passes=counts_passes)
        return DataIterator(source, should_stop, self.parts.stops, self.parts.sources, frontier)

    def _read(self, loader: Any) -> Any:
        """Return the dataset of a stateful loader; any other loader as it is, with one warning."""
        if id(loader) not in self._loaders:
            dataset = from_iterable(loader) if is_stateful_loader(loader) else None
            self._loaders[id(loader)] = loader, dataset
            if dataset is None and is_shuffled(loader) and self.parts.saves():
                logger.warning(
                    "iterate(%s) keeps no place in checkpoints, and the loader shuffles: after a "
                    "restart a new pass begins, so that elements count twice or never. Read it by "
                    "sess.epochs(loader, count), or by sess.iterate(am.data.from_iterable(loader)).",
                    type(loader).__name__,
                )
        return self._loaders[id(loader)][1] or loader

    def run_begins(self, task: Task | None) -> None:
        """Record that a task begins a run."""
        assert task is not None, "it holds the lock"
        for frontier in self.all:
            frontier.run_begins(task)

    def of(self, source: Any, name: str | None, *, counts_passes: bool = False) -> Frontier | None:
        """Return the frontier of a source; None for a source without a state.

        Args:
            source: that is to be read.
            name: in checkpoints. Default: ``data``, ``data_1`` and so on.
            counts_passes: whether the number of passes has a meaning, so that it stays saved.

        Raises:
            ValueError: another source has this name, or the checkpoint the position of other data.
        """
        if not has_state(source):
            return None
        frontier = next((one for one in self.all if one.source is source), None)
        if frontier is not None and frontier.reads_ahead:
            raise ValueError(f"{source!r} is read by a pipeline of this session, which needs its own.")
        # A source keeps its place by its identity: the object while it exists; its name; without one
        # its description, such as "from_iterable(range of 6 elements).shuffle(6)".
        if frontier is None:
            frontier = self._unnamed_place(source) if name is None else self._place(source, name)
        frontier.counts_passes = frontier.counts_passes or counts_passes
        return frontier

    def _place(self, source: Any, name: str) -> Frontier:
        frontier = self._named.get(name)
        if frontier is not None and frontier.is_free():
            return _continued(frontier, source, name)
        new = Frontier(source, self.parts.recoveries.step_of_data, self.parts.recoveries)
        return self._add(new, name, self._named)

    def _unnamed_place(self, source: Any) -> Frontier:
        new = Frontier(source, self.parts.recoveries.step_of_data, self.parts.recoveries)
        # A body may make a new dataset for each pass. It takes the place of the earlier one.
        for name, frontier in self._unnamed.items():
            if frontier.description == new.description and frontier.is_free():
                return _continued(frontier, source, name)
        saved = self._stateful.pending
        numbered = [name for name, state in saved.items() if _is_place(name, state)]
        alike = [name for name in numbered if saved[name].get("source") == new.description]
        failure: ValueError | None = None
        for name in [*alike, *sorted(numbered, key=_number)]:  # else the order of the calls decides
            try:
                return self._add(new, name, self._unnamed)
            except ValueError as error:
                failure = failure or error
        if failure is not None:
            raise failure
        taken = self._stateful.objects
        number = next(n for n in range(len(taken) + 1) if _name(n) not in taken)
        frontier = self._add(new, _name(number), self._unnamed)
        self._forget_ended()
        return frontier

    def _add(self, frontier: Frontier, name: str, places: dict[str, Frontier]) -> Frontier:
        if name in self._stateful.pending:
            try:
                self._stateful.add(name, frontier)
            except ValueError as error:
                raise _refused(name, error) from error
        else:
            self._stateful.add(name, frontier)
        places[name] = frontier
        self.all.append(frontier)
        return frontier

    def _forget_ended(self) -> None:
        ended = [name for name, one in self._unnamed.items() if one.has_ended and one.is_free()]
        for name in ended[:-_MOST_ENDED]:
            frontier = self._unnamed.pop(name)
            self._stateful.remove(name)
            self.all.remove(frontier)


def _continued(frontier: Frontier, source: Any, name: str) -> Frontier:
    try:
        frontier.continue_with(source)
    except ValueError as error:
        raise _refused(name, error) from error
    return frontier


def _refused(name: str, error: ValueError) -> ValueError:
    return ValueError(
        f"The position that is saved as {name!r} is one of other data. {error}{_WAYS_OUT}"
    )


def _name(number: int) -> str:
    return f"data_{number}" if number else "data"


def _is_place(name: str, state: Any) -> bool:
    is_numbered = name == "data" or (name.startswith("data_") and name[5:].isdecimal())
    return is_numbered and isinstance(state, dict) and "outstanding" in state


def _number(name: str) -> int:
    return int(name[5:] or 0)
