"""Producers that fill a queue in the background."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from asyncmon.checkpoint.saveable_session import FetchMembers, WrapperMembers
from asyncmon.errors import CancelledError, OpError, OutOfRangeError
from asyncmon.runtime.coordinator import Coordinator
from asyncmon.runtime.graph_program import (
    GraphKeys,
    add_to_collection,
    closing_error,
    get_collection,
    get_default_session,
)
from asyncmon.runtime.protocols import SessionMembers
from asyncmon.system.cancellation import shielded
from asyncmon.system.error_groups import is_only
from asyncmon.system.error_text import text_of
from asyncmon.system.members import members_of

logger = logging.getLogger(__name__)


class ProducerTask(asyncio.Task[None]):
    """A task of a queue runner. With ``start=False`` it waits for :meth:`start`."""

    def __init__(
        self,
        work: Callable[[], Coroutine[Any, Any, None]],
        name: str,
        register: Callable[[ProducerTask], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        self._gate = loop.create_future()
        self._register = register
        super().__init__(self._begin(work), loop=loop, name=name)

    def start(self) -> None:
        """Let the task begin. A second call does nothing."""
        if not self._gate.done():
            self._gate.set_result(None)
            self._register(self)

    def is_alive(self) -> bool:
        """Return whether it was started and has not ended. TF1: as threads have."""
        return self._gate.done() and not self.done()

    async def join(self, timeout: float | None = None) -> None:
        """Wait for the end of a task that was started, or for ``timeout`` seconds."""
        if self._gate.done():
            await asyncio.wait([self], timeout=timeout)

    async def _begin(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        await self._gate
        await work()


class QueueRunner:
    """Keep a queue filled by running enqueue operations repeatedly. TF1: ``tf.train.QueueRunner``.

    Each operation has a task. A queue-closed error in it means the end of its data. After the last end
    of data the queue is closed: consumers get its elements, then ``OutOfRangeError``. Any other error
    closes the queue at once, stops the coordinator, and is raised in consumers; if the last task is
    cancelled, they raise ``CancelledError``. When the coordinator stops, pending producers end at once.
    Arguments are attributes of the same names.

    Args:
        queue: the queue.
        enqueue_ops: operations that enqueue; one operation can occur several times for more producers.
        close_op: run at the end of the data. Default: ``queue.close()``.
        cancel_op: run when the coordinator stops. Default: one that also cancels pending enqueues.
        queue_closed_exception_types: errors that mean the end of the data. Default:
            ``(OutOfRangeError,)``.
        queue_runner_def, import_scope: must be None: there are no protocol buffers to make one from.

    Raises:
        ValueError: no queue or no operations.
        TypeError: the types are not a tuple of error types.

    Example::

        queue = graph.FIFOQueue(100, [graph.float32], shapes=[[784]])
        add_queue_runner(QueueRunner(queue, [queue.enqueue(image)] * 4))
        images = queue.dequeue_many(64)
    """

    def __init__(
        self,
        queue: Any = None,
        enqueue_ops: Sequence[Any] | None = None,
        close_op: Any = None,
        cancel_op: Any = None,
        queue_closed_exception_types: tuple[type[Exception], ...] | None = None,
        queue_runner_def: Any = None,
        import_scope: Any = None,
    ) -> None:
        if queue_runner_def is not None or import_scope is not None:
            raise ValueError(
                "queue_runner_def and import_scope must be None: give queue and enqueue_ops."
            )
        if queue is None or not enqueue_ops:
            raise ValueError("Must provide queue and enqueue_ops.")
        self.queue_closed_exception_types = _checked_types(queue_closed_exception_types)
        self.queue = queue
        self.enqueue_ops = list(enqueue_ops)
        self.close_op = queue.close() if close_op is None else close_op
        self.cancel_op = queue.close(cancel_pending_enqueues=True) if cancel_op is None else cancel_op
        self.exceptions_raised: list[Exception] = []
        """Other errors of producers without a coordinator, since their tasks were created."""
        # A queue of another program may have no way to raise an error in consumers.
        self._fail_op = queue.fail() if hasattr(queue, "fail") else self.cancel_op
        self._producers: dict[int, set[ProducerTask]] = {}  # that have not ended, by the session's id
        self._with_data: dict[int, int] = {}  # how many of them are not at the end of their data

    @property
    def name(self) -> str:
        """The name of the queue."""
        return str(self.queue.name)

    def create_tasks(
        self, sess: Any, coord: Coordinator | None = None, start: bool = False
    ) -> list[ProducerTask]:
        """Create the producers of a session. TF1: ``create_threads``.

        Args:
            sess: a raw session of the queue's graph.
            coord: registers the tasks when they are started; its stop ends them.
            start: whether to start the tasks; else call ``start()`` of each.

        Returns:
            A task for each operation and, with a coordinator, one that closes the queue at its stop. An
            empty list while tasks of the session are still running.
        """
        if self._producers.get(id(sess)):
            return []
        self.exceptions_raised = []
        register = coord.register_task if coord is not None else lambda task: None
        prefix = f"QueueRunnerTask-{self.name}"
        tasks = []
        for op in self.enqueue_ops:
            name = f"{prefix}-{members_of(FetchMembers, op).name or op}"
            tasks.append(ProducerTask(partial(self._produce, sess, op, coord), name, register))
        self._producers[id(sess)] = set(tasks)
        self._with_data[id(sess)] = len(tasks)
        for producer in tasks:
            producer.add_done_callback(partial(self._forget, id(sess)))
        if coord is not None:
            closing = partial(self._close_on_stop, sess, coord, tuple(tasks))
            tasks.append(ProducerTask(closing, f"{prefix}-close_on_stop", register))
        if start:
            for task in tasks:
                task.start()
        return tasks

    def create_threads(
        self, sess: Any, coord: Coordinator | None = None, daemon: bool = False, start: bool = False
    ) -> list[ProducerTask]:
        """Call :meth:`create_tasks` by its TF1 name; ``daemon`` has no effect."""
        return self.create_tasks(sess, coord, start)

    def _forget(self, key: int, producer: ProducerTask) -> None:
        self._producers[key].discard(producer)
        if not self._producers[key]:
            del self._producers[key], self._with_data[key]
        if not producer.cancelled():
            producer.exception()  # retrieved: it was logged, or reported to the coordinator

    async def _produce(self, sess: Any, enqueue_op: Any, coord: Coordinator | None) -> None:
        try:
            until = coord.should_stop if coord is not None else lambda: False
            await self._repeat(sess, enqueue_op, until)
        except asyncio.CancelledError:
            self._with_data[id(sess)] -= 1
            if not self._with_data[id(sess)] and not (coord is not None and coord.should_stop()):
                # Nothing else closes the queue, and for consumers it must not look like the data's end.
                error = CancelledError(f"The producers of queue {self.name!r} were cancelled.")
                await shielded(self._fail, sess, error, name=f"closing queue {self.name!r}")
            raise
        except Exception as error:
            if is_only(error, self.queue_closed_exception_types):  # also the end of a py_func's data
                self._with_data[id(sess)] -= 1
                if not self._with_data[id(sess)]:
                    await sess.run(self.close_op)
                return
            if coord is not None and coord.should_stop() and is_only(error, (CancelledError,)):
                return  # the queue was closed for the stop
            if coord is None:
                logger.error("Exception in QueueRunner: %s", text_of(error))
                self.exceptions_raised.append(error)
            await self._fail(sess, error)
            raise

    async def _repeat(self, sess: Any, enqueue_op: Any, until: Callable[[], bool]) -> None:
        """Run an operation until the stop."""
        repeat = members_of(SessionMembers, sess).repeat
        if repeat is not None:
            await repeat(enqueue_op, until)
        while not until():
            await sess.run(enqueue_op)

    async def _fail(self, sess: Any, error: Exception) -> None:
        """Raise the error in consumers, which would wait without end."""
        closing_error.set(error)
        try:
            await sess.run(self._fail_op)
        except Exception as failure:
            logger.warning("The queue %r could not be closed: %s", self.name, text_of(failure))

    async def _close_on_stop(
        self, sess: Any, coord: Coordinator, producers: tuple[ProducerTask, ...]
    ) -> None:
        await coord._stop.wait_while(lambda: {one for one in producers if not one.done()})
        if not coord.should_stop():
            return
        try:
            await sess.run(self.cancel_op)
        except Exception as error:
            logger.debug("The queue %r could not be closed at the stop: %s", self.name, text_of(error))
        for producer in producers:
            producer.cancel()


def add_queue_runner(qr: QueueRunner, collection: str = GraphKeys.QUEUE_RUNNERS) -> None:
    """Add a queue runner to a collection of the default graph. TF1: same name."""
    add_to_collection(collection, qr)


def start_queue_runners(
    sess: Any = None,
    coord: Coordinator | None = None,
    daemon: bool = True,
    start: bool = True,
    collection: str = GraphKeys.QUEUE_RUNNERS,
) -> list[ProducerTask]:
    """Start the queue runners of a collection, and return their tasks. TF1: same name.

    A monitored session and a supervisor do this themselves.

    Args:
        sess: a raw session, whose graph has the collection. Default: the default session. A monitored
            session has started them already.
        coord: registers the tasks.
        daemon: no effect: no task outlives its loop.
        start: see :meth:`QueueRunner.create_tasks`.
        collection: the key.

    Raises:
        ValueError: no session is given, and there is no default one.
        TypeError: something that is not a session.
    """
    sess = get_default_session() if sess is None else sess
    if sess is None:
        raise ValueError(
            "Cannot start queue runners: No default session is registered. Use "
            "`with sess.as_default()` or pass an explicit session: start_queue_runners(sess, coord)."
        )
    if members_of(WrapperMembers, sess).raw_session is not None:
        return []
    if not hasattr(sess, "run"):  # the least that a session needs
        raise TypeError(f"sess must be a `Session` object. Given class: {type(sess)}")
    graph = members_of(SessionMembers, sess).graph
    # Without a graph, as in a session of another program, this is the collection of the default one.
    runners = getattr(graph, "get_collection", get_collection)(collection)
    if not runners:
        logger.warning(
            "`start_queue_runners()` was called when no queue runners were defined. You can safely "
            "remove the call to this function."
        )
    return [task for runner in runners for task in runner.create_tasks(sess, coord, start)]


def _checked_types(types: Any) -> tuple[type[Exception], ...]:
    if types is None:
        return (OutOfRangeError,)
    if (
        not isinstance(types, tuple)
        or not types
        or not all(isinstance(kind, type) and issubclass(kind, OpError) for kind in types)
    ):
        raise TypeError(
            "queue_closed_exception_types, when provided, must be a tuple of am.errors types, but saw: "
            f"{types!r}"
        )
    return types
