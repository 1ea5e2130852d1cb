"""One evaluation: metrics of a state, averaged over batches."""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import AsyncGenerator, AsyncIterable, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from typing import Any

import numpy as np

from asyncmon.checkpoint import CheckpointReader, checkpoints_iterator
from asyncmon.checkpoint.saveable_session import state_spec
from asyncmon.errors import END_OF_DATA, NotFoundError
from asyncmon.graph import GraphKeys
from asyncmon.hooks.hook_support import named_tensor, whole_number
from asyncmon.runtime import Session, as_program
from asyncmon.runtime.program import program_scope
from asyncmon.runtime.protocols import ProgramMembers
from asyncmon.system.members import members_of

Batches = AsyncIterable[Mapping[Any, Any]] | Iterable[Mapping[Any, Any]]
Source = Batches | Callable[[], Batches | Awaitable[Batches]] | None

logger = logging.getLogger(__name__)


async def evaluate(
    session: Session,
    metrics: Any,
    batches: Source = None,
    *,
    steps: int | None = None,
    weight: Any = None,
) -> dict[str, float]:
    """Return metrics of a session's state, averaged over batches.

    Args:
        session: a raw session. Its state should not change meanwhile.
        metrics: fetches by name, each giving one number a batch; or a single fetch that gives a mapping
            of names to numbers, such as the step function of an evaluation.
        batches: feed dicts, from an iterable, an async iterable, or a function, plain or async, that
            returns one; None computes the metrics once, without feeds. The end of the data may also be
            raised by a run.
        steps: how many batches at most; None for all.
        weight: a fetch that gives the weight of a batch in the average, such as its size; None
            weighs all alike.

    Raises:
        ValueError: there was no batch, the weights sum up to nothing, or a metric is no single number.
        TypeError: ``metrics`` gives no numbers by name.

    Example::

        test = await evaluate(sess.raw_session(), {"accuracy": accuracy}, lambda: test_feeds)
    """
    _check_steps(steps)
    totals: dict[str, float] = {}
    weights = 0.0
    count = 0
    fetches = [metrics] if weight is None else [metrics, weight]
    async with aclosing(_feeds(batches)) as feeds:
        async for feed in feeds:
            try:
                values, *weighed = await session.run(fetches, feed_dict=feed)
            except END_OF_DATA:
                break
            count += 1
            if steps is not None and (count % max(1, steps // 10) == 0 or count == steps):
                logger.info("Evaluation [%d/%d]", count, steps)
            share = 1.0 if weight is None else _number("weight", weighed[0])
            weights += share
            if not isinstance(values, Mapping):
                raise TypeError(f"metrics must give numbers by name, {metrics!r} gave {values!r}.")
            for name, value in values.items():
                totals[name] = totals.get(name, 0.0) + share * _number(name, value)
            if count == steps:
                break
    if not weights:
        raise ValueError(
            f"An evaluation needs data, got {count} batches of weight {weights:g} in all. An iterator "
            "is empty the second time: pass a function that returns a new one."
        )
    return {name: total / weights for name, total in totals.items()}


class Evaluator:
    """Evaluate states in a session of its own, while training goes on.

    The session is of the same program as that of training, or of another one whose variables have the
    same names, such as a graph without dropout. The first evaluation opens it.

    Args:
        program: a graph or any other program.
        metrics: see :func:`evaluate`.
        **how: its ``batches``, ``steps`` and ``weight``.
    """

    def __init__(self, program: Any, metrics: Any, **how: Any) -> None:
        _check_steps(how.get("steps"))
        self._program = program
        self._prepared = False
        self._metrics = metrics
        self._how = how
        self._session: Session | None = None
        self._local_init_op: Any = None

    def prepare(self) -> None:
        """Add what evaluations need to the program, which must not be finalized yet.

        Called by the first evaluation if it was not called before.
        """
        program = self._program = as_program(self._program)
        if self._prepared:
            return
        self._prepared = True
        self._local_init_op = program.local_init_op()
        if isinstance(self._metrics, Mapping):
            with program_scope(program):
                self._metrics = {tag: named_tensor(fetch) for tag, fetch in self._metrics.items()}

    async def evaluate(self, state: Mapping[str, Any]) -> dict[str, float]:
        """Return the metrics of a state, averaged.

        Args:
            state: names to arrays; more than the program has is fine.

        Raises:
            NotFoundError: the program has variables that the state lacks; all are named.
        """
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
        """Return the names to load: those of the program, or of the state where it has no list."""
        graph = members_of(ProgramMembers, self._program).graph
        if graph is not None:
            return {variable.op.name for variable in graph.get_collection(GraphKeys.GLOBAL_VARIABLES)}
        spec = await state_spec(session)
        return set(spec.known) if spec.complete or spec.known else set(state)

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
    batches: Source = None,
    *,
    steps: int | None = None,
    weight: Any = None,
    min_interval_secs: float = 0,
    timeout: float | None = None,
    timeout_fn: Callable[[], bool | Awaitable[bool]] | None = None,
) -> AsyncGenerator[tuple[int | None, dict[str, float]]]:
    """Evaluate each new latest checkpoint of a directory, as another process writes them.

    TF1: ``tf.contrib.training.evaluate_repeatedly``.

    Args:
        checkpoint_dir: where checkpoints are saved.
        program: a graph or any other program with the names of the checkpoints.
        metrics: see :func:`evaluate`; likewise ``batches``, ``steps`` and ``weight``.
        min_interval_secs: the least time between two evaluations.
        timeout: how long to wait for a checkpoint, in seconds; None waits for ever.
        timeout_fn: called after a timeout and after each evaluation; true ends the iteration.

    Yields:
        The global step and the averaged metrics of each checkpoint.

    Example::

        async for step, result in evaluate_checkpoints("runs/1", graph, {"loss": loss}, lambda: feeds):
            print(step, result["loss"])
    """
    evaluator = Evaluator(program, metrics, batches=batches, steps=steps, weight=weight)
    paths = checkpoints_iterator(checkpoint_dir, min_interval_secs, timeout, timeout_fn)
    try:
        async for path in paths:
            logger.info("Starting evaluation of %s", path)
            async with await CheckpointReader.open(path) as reader:
                result = await evaluator.evaluate(await reader.get_tensors())
                step = reader.facts.step
            logger.info("Finished evaluation of %s", path)
            yield step, result
    finally:
        await evaluator.close()


async def _feeds(batches: Source) -> AsyncGenerator[Mapping[Any, Any] | None]:
    if batches is None:
        yield None
        return
    made: Any = batches() if callable(batches) else batches
    source: Batches = await made if inspect.isawaitable(made) else made
    try:
        if isinstance(source, AsyncIterable):
            async for feed in source:
                yield feed
        else:
            for feed in source:
                yield feed
    finally:
        if callable(batches) and isinstance(source, AsyncGenerator):
            await source.aclose()  # made here, and the evaluation may have ended first


def _check_steps(steps: int | None) -> None:
    if steps is not None:
        whole_number("steps", steps, least=1)


def _number(name: str, value: Any) -> float:
    array = np.asarray(value)
    if array.size != 1:
        raise ValueError(
            f"The metric {name!r} of a batch has the shape {list(array.shape)}; expected one number. "
            "Reduce it first."
        )
    return float(array.item())
