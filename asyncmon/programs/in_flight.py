"""Calls of a remote service, several in flight, with replies in the order of the calls."""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
from collections import deque
from collections.abc import AsyncGenerator, Callable, Generator
from typing import Any

from asyncmon.data import from_iterable
from asyncmon.data.stage import Mark


class Reply:
    """The reply to one call: ``await`` it for the result or the error.

    A cancelled ``await`` leaves the call in flight. An ``await`` after an error calls the service
    again, as the run that a recovery repeats does.
    """

    def __init__(self, submit: Callable[[Any], Any], item: Any) -> None:
        self.item = item
        """The element that was submitted."""
        self._submit = submit
        self._raised = False
        self._future = _called(submit, item)

    def __await__(self) -> Generator[Any, None, Any]:
        if self._raised:
            self._raised, self._future = False, _called(self._submit, self.item)
        future = self._future
        try:
            return (yield from asyncio.shield(future).__await__())
        finally:
            self._raised = future.done() and (future.cancelled() or future.exception() is not None)

    def cancel(self) -> None:
        """Cancel the call, if it is in flight."""
        self._future.cancel()


class Submitted:
    """The replies to calls of a service with each element of a source, made by :func:`submitted`."""

    def __init__(self, source: Any, submit: Callable[[Any], Any], in_flight: int) -> None:
        self._source = from_iterable(source)
        self._submit = submit
        self._in_flight = in_flight
        self._pending: deque[tuple[Mark, Reply]] = deque()  # with the positions before the elements
        self._loads = 0

    def __aiter__(self) -> AsyncGenerator[Reply]:
        return self._walk()

    async def _walk(self) -> AsyncGenerator[Reply]:
        loads, walk = self._loads, aiter(self._source)
        ended = False
        try:
            while True:
                if loads != self._loads:
                    loads, walk, ended = self._loads, aiter(self._source), False
                while not ended and len(self._pending) < self._in_flight:
                    position = self._source.mark()
                    try:
                        item = await anext(walk)
                    except StopAsyncIteration:
                        ended = True
                    else:
                        self._pending.append((position, Reply(self._submit, item)))
                if not self._pending:
                    return
                yield self._pending.popleft()[1]
        finally:
            self._withdraw()

    def mark(self) -> Mark:
        """Return the position after the last returned reply, as a function that returns its state."""
        return self._pending[0][0] if self._pending else self._source.mark()

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last returned reply."""
        return self.mark()()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set the position. Calls in flight are cancelled."""
        self._cancel()
        self._loads += 1
        self._source.load_state_dict(state)

    def _withdraw(self) -> None:
        """Cancel the calls in flight, and go back to the first of them."""
        if self._pending:
            position = self._pending[0][0]
            self._cancel()
            self._source.load_state_dict(position())

    def _cancel(self) -> None:
        for _, reply in self._pending:
            reply.cancel()
        self._pending.clear()


def submitted(source: Any, submit: Callable[[Any], Any], *, in_flight: int) -> Submitted:
    """Return the replies of a remote service to its calls with each element, in their order.

    ``in_flight`` calls are submitted before the oldest is awaited, in order. A step awaits its reply,
    so that an error is raised in that run and a recovery repeats it::

        @program.step
        async def train(state, reply):
            result = await reply
            state["path"] = result["path"]
            return {"loss": result["loss"]}

        async for reply in sess.iterate(submitted(batches, service.train, in_flight=4)):
            await sess.run("train", {"reply": reply})

    So hooks see the results in order, each with its step, and the state in a checkpoint is that after
    the steps whose replies were awaited. The position that ``iterate`` saves is likewise behind the
    last of these: calls in flight are submitted again when a session resumes. A service that
    keeps the model itself should save it within its sequence of calls (a call saves after it has
    trained, and its reply has the path, which becomes part of the state): a session that resumes has
    the service restore that path, and no call counts twice.

    The end of the iteration, as by a stop, cancels the calls in flight. Before a stop by the number of
    steps up to ``in_flight - 1`` further calls are submitted: end the source there instead.

    Args:
        source: an ``am.data`` dataset, or what ``am.data.from_iterable`` takes.
        submit: called with an element in the loop; returns an awaitable or a
            ``concurrent.futures.Future``, or is ``async def``.
        in_flight: the number of concurrent calls.

    Raises:
        ValueError: ``in_flight`` is less than 1.
        TypeError: ``submit`` cannot be called; by a reply: it did not return an awaitable.
    """
    if not callable(submit):
        raise TypeError(f"submit must be a function, got {submit!r}.")
    if in_flight < 1:
        raise ValueError(f"in_flight must be 1 or more, got {in_flight!r}.")
    return Submitted(source, submit, in_flight)


def _called(submit: Callable[[Any], Any], item: Any) -> asyncio.Future[Any]:
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any]
    try:
        result = submit(item)
        if isinstance(result, concurrent.futures.Future):
            future = asyncio.wrap_future(result, loop=loop)
        elif inspect.isawaitable(result):
            future = asyncio.ensure_future(result)
        else:
            raise TypeError(f"submit must return an awaitable, {submit!r} returned {result!r}.")
    except Exception as error:
        future = loop.create_future()
        future.set_exception(error)
    future.add_done_callback(_look_at)
    return future


def _look_at(future: asyncio.Future[Any]) -> None:
    """Mark the error as seen: it is raised where the reply is awaited, if it is."""
    if not future.cancelled():
        future.exception()
