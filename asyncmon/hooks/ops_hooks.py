"""Hooks that run fetches at the end and feed each run."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from asyncmon.errors import OutOfRangeError
from asyncmon.runtime import Session, SessionRunArgs, SessionRunContext, SessionRunHook
from asyncmon.runtime.stop.origin import is_end_of_data, mark
from asyncmon.system.functions import settled

logger = logging.getLogger(__name__)

_HAS_INPUT = (
    "An OutOfRangeError or StopIteration exception is raised by the code in FinalOpsHook. This "
    "typically means the Ops running by the FinalOpsHook have a dependency back to some input source, "
    "which should not happen. For example, for metrics, the read of the result should not depend on "
    "the update of it."
)


class FinalOpsHook(SessionRunHook):
    """Run fetches at a successful end, and keep the result. TF1: ``tf.train.FinalOpsHook``.

    Args:
        final_ops: fetches in any structure; None runs nothing.
        final_ops_feed_dict: feeds of the run.

    Example::

        final = FinalOpsHook({"accuracy": accuracy}, {images: test_images, labels: test_labels})
        async with MonitoredSession(hooks=[final]) as sess:
            ...
        print(final.final_ops_values["accuracy"])
    """

    def __init__(self, final_ops: Any, final_ops_feed_dict: Mapping[Any, Any] | None = None) -> None:
        self._final_ops = final_ops
        self._feed_dict = final_ops_feed_dict
        self.final_ops_values: Any = None
        """The values in the structure of ``final_ops``; None before a successful end."""

    async def begin(self) -> None:
        self.final_ops_values = None

    async def end(self, session: Session) -> None:
        if self._final_ops is None:
            return
        try:
            self.final_ops_values = await session.run(self._final_ops, feed_dict=self._feed_dict)
        except Exception as error:
            if is_end_of_data(error):
                logger.warning("%s (%r)", _HAS_INPUT, error)
            raise


class FeedFnHook(SessionRunHook):
    """Feed the result of a function to each run. TF1: ``tf.train.FeedFnHook``.

    When the function raises ``OutOfRangeError``, ``StopAsyncIteration`` or ``StopIteration``, training
    ends cleanly.

    Args:
        feed_fn: a plain or ``async def`` function, called before each run. Returns a feed dict, or None
            for no feeds.

    Example::

        batches = iter(dataset)
        hooks = [FeedFnHook(lambda: {images: next(batches)})]
    """

    def __init__(
        self, feed_fn: Callable[[], Mapping[Any, Any] | Awaitable[Mapping[Any, Any] | None] | None]
    ) -> None:
        if not callable(feed_fn):
            raise TypeError(f"feed_fn must be a function that returns a feed dict, got {feed_fn!r}.")
        self._feed_fn = feed_fn

    async def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Feed the result of the function.

        Raises:
            OutOfRangeError: the function raised the end of the data.
        """
        try:
            feed = await settled(self._feed_fn())
        except Exception as error:
            mark(error, "data", "feed_fn of FeedFnHook")
            if isinstance(error, OutOfRangeError) or not is_end_of_data(error):
                raise
            end = OutOfRangeError(f"feed_fn of FeedFnHook is at its end ({error!r}).")
            mark(end, "data", "feed_fn of FeedFnHook")
            raise end from error
        return SessionRunArgs(fetches=None, feed_dict=feed)
