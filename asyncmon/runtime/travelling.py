"""A source of data whose position travels in checkpoints, exact to the item."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["TravellingSource"]


class TravellingSource:
    """The position of a source that belongs to the session's state: after the last item that was used.

    An item counts as used once the global step has changed since the body got it. A save may be ordered
    before that, while the step is under way, say; the state that is saved has not seen the item then,
    and the position must not have either. Items that the body collects for one step count together.

    Costs two numbers an item where the source can go back by one (``state_dict(unread=1)``, as
    ``am.data`` can), else a ``state_dict()`` an item.

    A recovery that lost no step leaves the source where it is: the body has the next item in its hands,
    and the run that is repeated uses it. One that lost steps takes the source back with the state.

    Args:
        source: has ``state_dict()`` and ``load_state_dict(state)``.
        steps: gives the number of completed steps.
    """

    def __init__(self, source: Any, steps: Callable[[], int | None]) -> None:
        self.source = source
        self._steps = steps
        self._goes_back = "unread" in inspect.signature(source.state_dict).parameters
        self._given_at: int | None = None  # the steps done when the body got its last item
        self._before: Any = None  # the position before the items that no step has used yet, if taken
        self._fetching = False

    def fetching(self) -> None:
        """Note that the body asks for an item."""
        if self._is_unused():
            if self._before is None:  # another one for the same step
                self._before = self.source.state_dict(unread=1)
        else:
            self._before = None if self._goes_back else self.source.state_dict()
        self._fetching = True

    def fetched(self, given: bool) -> None:
        """Note that the body gets it, or none."""
        self._fetching = False
        if given:
            self._given_at = self._steps()

    def _is_unused(self) -> bool:
        return self._given_at is not None and self._steps() == self._given_at

    def state_dict(self) -> dict[str, Any]:
        """Return the position, and the step that it belongs to."""
        if self._before is not None and (self._fetching or self._is_unused()):
            position = self._before
        elif self._is_unused():
            position = self.source.state_dict(unread=1)
        else:
            position = self.source.state_dict()
        return {"step": self._steps(), "position": position}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set the position of the source."""
        if self._given_at is not None and state["step"] == self._given_at:
            return  # the item for the step after this one is in the body's hands
        self._given_at = self._before = None
        self.source.load_state_dict(state["position"])
