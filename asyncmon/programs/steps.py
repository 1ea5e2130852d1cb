"""A named step: a function and its parameters."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from asyncmon.errors import InvalidArgumentError
from asyncmon.system.cost import CostModel
from asyncmon.system.functions import is_coroutine_function

_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class Step:
    """One step of a function program.

    Args:
        name: how it is fetched.
        fn: plain or ``async def``.
        has_state: whether the program declares a state, which then goes to the parameter named
            ``state``, or else to the first one.
        read_only: whether it changes no state: it may be peeked at, and counts no global step.
        thread: whether a plain function is called in a worker thread; None measures it.

    Raises:
        TypeError: it is no function that can be called by keywords.
    """

    def __init__(
        self,
        name: str,
        fn: Callable[..., Any],
        *,
        has_state: bool,
        read_only: bool,
        thread: bool | None = None,
    ) -> None:
        if not callable(fn):
            raise TypeError(f"The step {name!r} must be a function, got {fn!r}.")
        if inspect.isasyncgenfunction(fn) or inspect.isgeneratorfunction(fn):
            raise TypeError(f"The step {name!r} is a generator; a step returns its result.")
        self.name = name
        self.fn = fn
        self.is_async = is_coroutine_function(fn)
        if self.is_async and thread:
            raise TypeError(
                f"The step {name!r} is async def and runs in the loop: leave out thread=True."
            )
        self.thread = thread
        self.cost = CostModel()
        self.read_only = read_only
        parameters = list(inspect.signature(fn).parameters.values())
        self.state_name = self._state_name(parameters, has_state)
        feeds = [p for p in parameters if p.kind in _BY_NAME and p.name != self.state_name]
        self.takes = frozenset(p.name for p in feeds)
        self.needs = tuple(p.name for p in feeds if p.default is p.empty)
        self.takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)

    def _state_name(self, parameters: list[inspect.Parameter], has_state: bool) -> str | None:
        if any(p.kind is p.POSITIONAL_ONLY and p.default is p.empty for p in parameters):
            raise TypeError(f"The step {self.name!r} has parameters that cannot be given by name.")
        named = [p.name for p in parameters if p.kind in _BY_NAME]
        if "state" in named:
            return "state"
        return named[0] if has_state and named else None

    def __call__(self, state: Any, feeds: Mapping[Any, Any] | None) -> Any:
        """Call the function with the state and the feeds it takes. See :meth:`waits` for the result.

        Raises:
            InvalidArgumentError: a feed that it needs is missing.
        """
        arguments: dict[str, Any] = {}
        if feeds:
            arguments = {k: v for k, v in feeds.items() if self.takes_all or k in self.takes}
        for name in self.needs:
            if name not in arguments:
                raise InvalidArgumentError(
                    f"You must feed a value for {name!r} of the step {self.name!r}: "
                    f"run({self.name!r}, {{{name!r}: ...}})."
                )
        if self.state_name is not None:
            arguments[self.state_name] = state
        return self.fn(**arguments)

    def waits(self, result: Any) -> bool:
        """Return whether the result of a call is to be awaited."""
        return self.is_async or isinstance(result, Awaitable)
