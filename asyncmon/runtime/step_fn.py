"""Step functions: user code in which several runs are one step."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

import anyio

from asyncmon.runtime.protocols import Run, Session
from asyncmon.runtime.stop.stop import Cause, Stop
from asyncmon.summary.logged import Log
from asyncmon.system.functions import code_of

_RUNS = frozenset({"run", "run_with_hooks"})
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class StepContext:
    """The argument of a step function; a fresh one for each attempt. TF1: ``StepContext``.

    Args:
        session: the raw session; running something in it triggers no hooks.
        run: runs with hooks in that session.
        on_stop: called when the function requests a stop.
        check: raises an error after a hook's stop, after which no run may start.
        log: :attr:`log`.

    Example::

        async def two_runs(step_context):
            await step_context.session.run(fill_op)  # no hook sees it
            return await step_context.run_with_hooks(train_op)

        await sess.run_step_fn(two_runs)
    """

    def __init__(
        self,
        session: Session,
        run: Callable[[Run], Awaitable[Any]],
        on_stop: Callable[[Stop], None],
        check: Callable[[], None],
        log: Log,
    ) -> None:
        self.session = session
        self.log = log
        """``log(tag, value)`` or ``log({tag: value})``: see :meth:`MonitoredSession.log`."""
        self._run = run
        self._on_stop = on_stop
        self._check = check
        self._lock = anyio.Lock(fast_acquire=True)
        self._over = False

    async def run_with_hooks(
        self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None
    ) -> Any:
        """Run with all hooks, as ``MonitoredSession.run`` does, any number of times.

        Calls from several tasks of the step function run one after another.

        Raises:
            RuntimeError: a hook requested a stop in an earlier run, or the step function is over.
        """
        async with self._lock:
            if self._over:
                raise RuntimeError(
                    "The step function of this context is over. Await the tasks it starts before it "
                    "returns."
                )
            self._check()
            return await self._run((fetches, feed_dict, options, run_metadata))

    def end(self) -> None:
        """Refuse further runs: the step function has returned or failed."""
        self._over = True

    def request_stop(self) -> NoReturn:
        """Stop the training: leave the step function and the body of the session, cleanly.

        Raises:
            StopAsyncIteration: always. (``StopIteration`` cannot leave a coroutine.)
        """
        message = "step_fn has requested the iterations to stop."
        self._on_stop(Stop(Cause.REQUEST, message, "the step function"))
        raise StopAsyncIteration(message)


async def call_step_fn(step_fn: Callable[[StepContext], Any], context: StepContext) -> Any:
    """Return the result of a step function, plain or async.

    Raises:
        TypeError: it is plain, and makes a run that it can neither await nor return.
    """
    result = step_fn(context)
    if inspect.isawaitable(result):
        return await result
    code = code_of(step_fn)
    if code is not None and not _RUNS.isdisjoint(code.co_names):
        raise TypeError(
            f"The step function {code.co_qualname!r} ({code.co_filename}:{code.co_firstlineno}) is a "
            f"plain function that runs something, and it returned {result!r}, so nothing awaits that "
            f"run. Write `async def {code.co_name}` and `await` in it."
        )
    return result


def check_step_fn(step_fn: Any) -> None:
    """Refuse a function that cannot be called with a step context alone.

    Raises:
        TypeError: it is not callable.
        ValueError: it takes more or less than one argument.
    """
    if not callable(step_fn):
        raise TypeError(f"`step_fn` must be callable, got {step_fn!r}.")
    parameters = inspect.signature(step_fn).parameters.values()
    positional = [p for p in parameters if p.kind in _POSITIONAL]
    needed = [p for p in parameters if p.kind is p.KEYWORD_ONLY and p.default is p.empty]
    if len(positional) != 1 or needed:
        raise ValueError(
            "`step_fn` may either have one `step_context` argument, or `self` and `step_context` "
            f"arguments if it's an instance method. Got ({', '.join(map(str, parameters))}) instead."
        )
