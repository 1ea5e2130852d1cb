"""A hook that was added to a session while it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

__all__ = ["AttachedHook"]


class AttachedHook:
    """What ``MonitoredSession.attach`` returns. Leaving ``async with`` detaches the hook.

    Example::

        async with await sess.attach(PrintLoss()):
            ...  # these steps are printed
    """

    def __init__(self, hook: Any, detach: Callable[[Any], Awaitable[None]]) -> None:
        self.hook = hook
        self._detach = detach

    async def detach(self) -> None:
        """Take the hook out after the run that is under way: ``end``, then ``cleanup``.

        Does nothing a second time, nor after the session was closed, which did it.
        """
        await self._detach(self.hook)

    async def __aenter__(self) -> AttachedHook:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.detach()
