"""The method ``produce`` of monitored sessions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from asyncmon.data.sources import AnyIterable
from asyncmon.runtime.pipelines.options import Keep, OnError, OnStale, Options
from asyncmon.runtime.pipelines.pipeline import Pipeline
from asyncmon.runtime.pipelines.workers import Executor


def produce(
    self: Any,
    source: AnyIterable,
    fn: Callable[..., Awaitable[Any]] | Executor | None,
    *,
    workers: int = 8,
    depth: int | None = None,
    max_age: int | None = None,
    group: int | None = None,
    ordered: bool = False,
    on_stale: OnStale = "pace",
    on_error: OnError = "raise",
    retries: int = 0,
    weights: Any = None,
    keep: Keep | None = None,
    name: str | None = None,
) -> Pipeline:
    """Return the results of an async function for each element of a source, made beside the steps.

    Each element counts once in the surviving training: what no committed step has consumed is in
    the checkpoint, and is made again by a resumed session, with any other options. docs/rollouts.md
    has the whole.

    Args:
        source: what :meth:`iterate` takes, or a list. A source that can be read only once, such as
            a generator, keeps its outstanding elements in checkpoints. They must be packable.
        fn: ``async def fn(element)`` or ``fn(element, policy)``, see :class:`Policy`. Or other
            workers: an :class:`Executor`, such as those of ``asyncmon.executors``. None: workers
            outside of the loop call ``Pipeline.lease``, or lease over HTTP from ``Pipeline.app``.
        workers: the most concurrent calls. None begins before the first request.
        depth: the most elements that are read and not with the body. Default: twice the workers.
        max_age: the most committed steps between the oldest version that had a part in a result
            and the run that consumes it. None: no limit.
        group: the calls for each element, whose results are delivered together as a list.
        ordered: whether items come in the order of the source, else as they are finished.
        on_stale: ``"pace"`` starts no call whose result would be too old, and waits for slow ones;
            ``"drop"`` makes a result again that is too old; a function of the item returns whether
            to refuse its element for ever, else it is made again.
        on_error: after the retries of a call: ``"raise"`` stops the session with its error;
            ``"drop"`` leaves the element out, with a warning; ``"item"`` delivers the item, whose
            :meth:`Item.result` raises the error in the run.
        retries: of each call, at once.
        weights: the fetches of ``policy.weights()``.
        keep: ``"results"`` saves finished results, too, so that they are not made again.
        name: in checkpoints. Default: the name of the function, numbered.

    Raises:
        ValueError: an option has a wrong value; another iterator or pipeline reads the source; the
            checkpoint has the position of other data.
        TypeError: the source cannot be iterated, or ``fn`` is no async function.
        RuntimeError: the session is not open.

    Example::

        rollouts = sess.produce(prompts, generate, workers=32, max_age=2, weights="policy")
        async for batch in rollouts.batches(16):
            await sess.run("train", {"batch": [item.value for item in batch]})
    """
    self._gate.check_open()
    depth = 2 * workers if depth is None else depth
    options = Options(workers, depth, max_age, group, ordered, on_stale, on_error, retries, keep)
    pipeline = Pipeline(self._frontiers.parts, self.should_stop, source, fn, options, weights)
    self._frontiers.add_pipeline(pipeline, name)
    return pipeline
