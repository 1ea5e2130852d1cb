"""A state inside of objects of the user's, behind two functions."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

from asyncmon.errors import FailedPreconditionError
from asyncmon.programs.state_tree import Tree, adopt, unwritable
from asyncmon.programs.workers import Workers
from asyncmon.system.cancellation import shielded
from asyncmon.system.cost import CostModel
from asyncmon.system.functions import is_coroutine_function


class OutsideState:
    """The functions that get and set a state, and the session that it belongs to at the moment.

    Args:
        get_state: returns a tree, plain or ``async def``.
        set_state: takes one, likewise.
    """

    def __init__(self, get_state: Callable[[], Any], set_state: Callable[[Any], Any]) -> None:
        self._get, self._set = get_state, set_state
        self._costs = CostModel(), CostModel()
        self._owner: weakref.ref[Any] | None = None

    def first(self) -> Any:
        """Return the state that the objects have at the start.

        Raises:
            TypeError: ``get_state`` is ``async def``.
        """
        if is_coroutine_function(self._get):
            raise TypeError(
                "get_state must be a plain function: it is called when the program is made. Where the "
                "state is at a remote service, declare what names it there, and save it by a step."
            )
        return self._get()

    async def get(self, form: Tree, workers: Workers) -> Tree:
        """Return a copy of the state.

        Raises:
            TypeError: it has another form than at the start.
        """
        problems: list[str] = []
        tree = await workers.call(lambda: adopt(self._get(), form, {}, problems), self._costs[0])
        if problems:
            raise TypeError(
                "get_state returned a state of another form than at the start, and the step is undone: "
                f"{'; '.join(problems)}. Where a first call makes the form, make it before the program."
            )
        return tree

    def owner_beside(self, session: Any) -> Any:
        """Return another open session whose state the objects have, or None."""
        owner = None if self._owner is None else self._owner()
        return None if owner is None or owner is session or owner.closed else owner

    async def set(self, tree: Tree, workers: Workers, session: Any) -> None:
        """Set the state, for a session that trains.

        Raises:
            FailedPreconditionError: another session is open.
        """
        if self.owner_beside(session) is not None:
            raise FailedPreconditionError(
                "Another session of this program is open, and trains: this one evaluates, as its state "
                "is in the same objects. Close that one first, or make a program with objects of its "
                "own."
            )
        self._owner = weakref.ref(session)
        await self._put(tree, workers)

    async def _put(self, tree: Tree, workers: Workers) -> None:
        result = await workers.call(partial(self._set, unwritable(tree)), self._costs[1])
        if isinstance(result, Awaitable):
            await result

    @contextlib.asynccontextmanager
    async def borrowed(self, tree: Tree, workers: Workers, session: Any) -> AsyncIterator[None]:
        """Set a state inside the block, between two steps of the session whose state this is not.

        Raises:
            RuntimeError: a step of that session asks for it, and would wait for itself.
        """
        owner = self.owner_beside(session)
        if owner is None:
            await self.own(tree, workers, session)
            yield
            return
        async with owner.between_steps():
            try:
                await self._put(tree, workers)
                yield
            finally:
                await shielded(self._put, owner.tree, workers, name="setting the state back")

    async def own(self, tree: Tree, workers: Workers, session: Any) -> None:
        """Set the state where it is not that of this session yet."""
        if self._owner is None or self._owner() is not session:
            await self.set(tree, workers, session)
