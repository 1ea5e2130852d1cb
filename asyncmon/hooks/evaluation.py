"""Evaluate a state: metrics averaged over batches."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from typing import Any

from asyncmon.checkpoint import CheckpointReader, checkpoints_iterator
from asyncmon.checkpoint.saveable_session import state_spec
from asyncmon.checkpoint.variable_selection import name_of
from asyncmon.errors import NotFoundError
from asyncmon.graph import GraphKeys
from asyncmon.graph.execution.fetches import parts_of
from asyncmon.hooks.hook_support import named_tensor, whole_number
from asyncmon.hooks.metric import BatchMetric, Metric, is_collected, number
from asyncmon.runtime import Session, as_program
from asyncmon.runtime.program import program_scope
from asyncmon.runtime.protocols import ProgramMembers
from asyncmon.runtime.stop.origin import is_end_of_data
from asyncmon.system.functions import settled
from asyncmon.system.members import members_of

Feeds = AsyncIterable[Mapping[Any, Any]] | Iterable[Mapping[Any, Any]] | Mapping[Any, Any]
Source = Feeds | Callable[[], Feeds | Awaitable[Feeds]] | None

logger = logging.getLogger(__name__)


async def evaluate(
    session: Session,
    metrics: Any,
    feeds: Source = None,
    *,
    batches: int | None = None,
    weight: Any = None,
) -> dict[str, float]:
    """Return metrics of a session's state, averaged over batches.

    Args:
        session: a raw session. Its state should not change during the evaluation.
        metrics: fetches of one number per batch, by name; or a single fetch of a mapping from names to
            numbers, such as the step function of an evaluation. A metric that is no mean of batches is
            a pair of fetches and a :class:`~asyncmon.hooks.Metric`.
        feeds: a feed dict, an iterable or async iterable of them, or a plain or async function that
            returns one of these. None computes the metrics once, without feeds. A run may also raise
            the end of the data.
        batches: the largest number of batches; None for all.
        weight: a fetch of the weight of a batch in the average, such as its size; None for equal
            weights.

    Raises:
        ValueError: there is no batch, the weights sum to zero, or a metric is not a single number.
        TypeError: ``metrics`` is a fetch of something other than a mapping.

    Example::

        test = await evaluate(sess.raw_session(), {"accuracy": accuracy}, lambda: test_feeds)
    """
    _check_batches(batches)
    averaged, collected = _divided(metrics)
    totals: dict[str, float] = {}
    weights = 0.0
    count = 0
    fetches = [averaged, [fetch for fetch, _ in collected], *([] if weight is None else [weight])]
    for _, metric in collected:
        await metric.reset()
    async with aclosing(_each_feed(feeds)) as each_feed:
        async for feed in each_feed:
            if feed is not None and not isinstance(feed, Mapping):
                raise TypeError(
                    f"feeds must give dicts, as run() takes them, got {type(feed).__name__}: for the "
                    "batches of a loader, {'batch': batch}."
                )
            try:
                values, outputs, *weighed = await session.run(fetches, feed_dict=feed)
            except Exception as error:
                if is_end_of_data(error):
                    break
                raise
            count += 1
            if batches is not None and (count % max(1, batches // 10) == 0 or count == batches):
                logger.info("Evaluation [%d/%d]", count, batches)
            share = 1.0 if weight is None else number("weight", weighed[0])
            weights += share
            if not isinstance(values, Mapping):
                raise TypeError(f"metrics must give numbers by name, {metrics!r} gave {values!r}.")
            for name, value in values.items():
                totals[name] = totals.get(name, 0.0) + share * number(name, value)
            for (_, metric), output in zip(collected, outputs, strict=True):
                await metric.update(output)
            if count == batches:
                break
    if not weights:
        raise ValueError(
            f"An evaluation needs data, got {count} batches of weight {weights:g} in all. An iterator "
            "is empty the second time: pass a function that returns a new one."
        )
    result = {name: total / weights for name, total in totals.items()}
    for _, metric in collected:
        result.update(await metric.compute())
    return result


def _divided(metrics: Any) -> tuple[Any, list[tuple[Any, BatchMetric]]]:
    """Return the fetches of averages, and the fetches and objects of other metrics."""
    if not isinstance(metrics, Mapping):
        return metrics, []
    for name, one in metrics.items():
        if isinstance(one, Metric):
            raise TypeError(
                f"The metric {name!r} is {one!r} without the fetches to update it by: pass a pair, "
                f"{{{name!r}: (fetches, metric)}}."
            )
    pairs = {name: one for name, one in metrics.items() if is_collected(one)}
    averaged = {name: one for name, one in metrics.items() if name not in pairs}
    return averaged, [(fetch, BatchMetric(name, metric)) for name, (fetch, metric) in pairs.items()]


class Evaluator:
    """Evaluate states in a separate session, concurrently with training.

    The session runs the program that is trained, or another one with the same names, such as a graph
    without dropout. The first evaluation opens it.

    Args:
        program: a graph or another program.
        metrics: see :func:`evaluate`.
        **how: its ``feeds``, ``batches`` and ``weight``.
    """

    def __init__(self, program: Any, metrics: Any, **how: Any) -> None:
        _check_batches(how.get("batches"))
        self._program = program
        self._prepared = False
        self._metrics = metrics
        self._how = how
        self._session: Session | None = None
        self._local_init_op: Any = None

    def prepare(self) -> None:
        """Add operations for evaluations to the program, which must not be finalized yet."""
        program = self._program = as_program(self._program)
        if self._prepared:
            return
        self._prepared = True
        steps = members_of(ProgramMembers, program).steps
        if steps is not None and isinstance(self._metrics, str) and self._metrics not in steps:
            raise NotFoundError(
                f"There is no step {self._metrics!r} to evaluate; the program has {list(steps)}."
            )
        self._local_init_op = program.local_init_op()
        if isinstance(self._metrics, Mapping):
            with program_scope(program):
                self._metrics = {tag: _named(fetch) for tag, fetch in self._metrics.items()}

    async def evaluate(self, state: Mapping[str, Any]) -> dict[str, float]:
        """Return the averaged metrics of a state, which may have names that the program lacks."""
        session = self._session or await self._open()
        wanted = await self._names(session, state)
        missing = sorted(wanted - set(state))
        if missing:
            raise NotFoundError(
                f"The evaluated program has state that the training session lacks: {missing}. "
                "It goes by name: build both with the same names."
            )
        await session.load({name: state[name] for name in wanted})
        return await evaluate(session, self._metrics, **self._how)

    async def close(self) -> None:
        """Close the session. A second call does nothing."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _names(self, session: Session, state: Mapping[str, Any]) -> set[str]:
        # The names of the program, or of the state if the program does not list its names.
        graph = members_of(ProgramMembers, self._program).graph
        if graph is not None:
            return {*map(name_of, graph.get_collection(GraphKeys.GLOBAL_VARIABLES))}
        return (await state_spec(session)).chosen(state)

    async def _open(self) -> Session:
        self.prepare()
        session: Session = self._program.create_session()
        self._session = session
        if self._local_init_op is not None:
            await session.run(self._local_init_op)
        return session


async def evaluate_checkpoints(
    checkpoint_dir: str | os.PathLike[str],
    program: Any,
    metrics: Any,
    feeds: Source = None,
    *,
    batches: int | None = None,
    weight: Any = None,
    min_interval_secs: float = 0,
    timeout: float | None = None,
    timeout_fn: Callable[[], bool | Awaitable[bool]] | None = None,
) -> AsyncGenerator[tuple[int | None, dict[str, float]]]:
    """Evaluate each new latest checkpoint of a directory, which another process may write.

    TF1: ``tf.contrib.training.evaluate_repeatedly``.

    Args:
        checkpoint_dir: the directory of the checkpoints.
        program: a graph or another program with the names of the checkpoints.
        metrics: see :func:`evaluate`; likewise ``feeds``, ``batches`` and ``weight``.
        min_interval_secs: the shortest time between two evaluations, in seconds.
        timeout: the longest wait for a checkpoint, in seconds; None waits forever.
        timeout_fn: called after a timeout and after each evaluation. True ends the iteration.

    Yields:
        The global step and the averaged metrics of each checkpoint.

    Example::

        async for step, result in evaluate_checkpoints("runs/1", graph, {"loss": loss}, lambda: feeds):
            print(step, result["loss"])
    """
    evaluator = Evaluator(program, metrics, feeds=feeds, batches=batches, weight=weight)
    paths = checkpoints_iterator(checkpoint_dir, min_interval_secs, timeout, timeout_fn)
    try:
        async for path in paths:
            logger.info("Starting evaluation of %s", path)
            async with await CheckpointReader.open(path) as reader:
                names = reader.facts.shapes.keys() - reader.facts.averages.keys()
                result = await evaluator.evaluate(await reader.get_tensors(names))
                step = reader.facts.step
            logger.info("Finished evaluation of %s", path)
            yield step, result
    finally:
        await evaluator.close()


async def _each_feed(feeds: Source) -> AsyncGenerator[Mapping[Any, Any] | None]:
    if feeds is None:
        yield None
        return
    source: Any = await settled(feeds() if callable(feeds) else feeds)
    try:
        if isinstance(source, Mapping):
            source = [source]
        if isinstance(source, AsyncIterable):
            async for feed in source:
                yield feed
        else:
            for feed in source:
                yield feed
    finally:
        if callable(feeds) and isinstance(source, AsyncGenerator):
            await source.aclose()  # the evaluation may have stopped before its end


def _check_batches(batches: int | None) -> None:
    if batches is not None:
        whole_number("batches", batches, least=1)


def _named(fetch: Any) -> Any:
    if is_collected(fetch):
        return _named(fetch[0]), fetch[1]
    parts = None if isinstance(fetch, str) else parts_of(fetch)
    if parts is None:
        return named_tensor(fetch)
    _, leaves, make = parts
    return make([_named(leaf) for leaf in leaves])
