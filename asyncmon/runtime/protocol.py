"""What the runtime asks of a raw session: whatever executes the work of one step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from asyncmon.snapshot import Snapshot

__all__ = ["Session"]


@runtime_checkable
class Session(Protocol):
    """One running instance of a program, holding its state.

    Structural: any object with these members is one, whichever program it comes from. Session
    creators may return any; hooks receive that very object. ``peek`` and ``global_step`` may be
    missing on a hand-made one: then nothing can be peeked at and steps are counted by nobody.
    """

    @property
    def graph(self) -> Any:
        """The program this session runs."""

    @property
    def global_step(self) -> int | None:
        """The committed global step, or None where the program counts none. Never waits."""

    async def run(
        self, fetches: Any, feed_dict: Any = None, options: Any = None, run_metadata: Any = None
    ) -> Any:
        """Run one step, a transaction: compute what is asked and return it in the shape asked."""

    def snapshot(self) -> Awaitable[Snapshot]:
        """Order a snapshot now; the awaitable gives it, after at most one step's apply phase."""

    async def load(self, values: Mapping[str, Any]) -> None:
        """Set state by name. Every problem is reported, all at once, before anything changes."""

    async def peek(self, fetches: Any, feed_dict: Any = None) -> Any:
        """Compute fetches that change no state on one consistent version, delaying no step."""

    async def close(self) -> None:
        """Give everything back. Idempotent; closes even when it is cancelled."""
