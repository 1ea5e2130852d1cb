"""Moving averages of the weights of any program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from asyncmon.checkpoint.saveable_session import RESERVED
from asyncmon.checkpoint.variable_selection import name_of
from asyncmon.graph import GraphKeys
from asyncmon.hooks.hook_support import current_graph, whole_number
from asyncmon.hooks.step_schedule import (
    global_step_of,
    idle_until,
    let_idle,
    require_global_step,
    step_after,
)
from asyncmon.runtime import (
    GUARD,
    Coordinator,
    Session,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from asyncmon.system.files import in_thread

T = TypeVar("T")

_INLINE_BYTES = 1 << 18


class MovingAverageHook(SessionRunHook):
    """Keep exponential moving averages of the weights. Checkpoints have them.

    ``average += (1 - decay) * (value - average)`` after each step, on the host, in a thread where the
    weights are large: the next step waits for it. Averages start at the first weights, and the first
    ones move faster: the decay is at most ``(1 + updates) / (10 + updates)``, as in
    :class:`~asyncmon.graph.train.ExponentialMovingAverage`, which is faster for a graph.

    Evaluate with them by ``EvalHook(..., averages=hook)``. Set them as the weights of a session by
    ``await session.load(hook.applied(await session.snapshot()))``, of the raw session.

    Args:
        decay: the weight of the old average in each step.
        every_steps: the interval of updates in global steps; one of n steps has the decay of n.
        names: selects entries of the state by name, such as ``lambda name: name.startswith("model/")``.
            Default: the trainable variables of a graph; all floating entries of other programs, those
            of their optimizers, too.

    Raises:
        ValueError: the decay is not between 0 and 1, or ``every_steps`` is not positive.

    Example::

        averages = MovingAverageHook(0.999)
        hooks = [averages, EvalHook({"loss": loss}, lambda: feeds, every_steps=500, averages=averages)]
    """

    priority = GUARD + 1  # before the hooks that evaluate
    revision = 0  # only steps change the averages

    def __init__(
        self,
        decay: float = 0.999,
        *,
        every_steps: int = 1,
        names: Callable[[str], bool] | None = None,
    ) -> None:
        if not 0 < decay < 1:
            raise ValueError(f"invalid decay={decay!r}: it must be between 0 and 1.")
        self._decay = decay
        self._every_steps = whole_number("every_steps", every_steps, least=1)
        self._names = names
        self.averages: Mapping[str, Any] = {}
        """The averages by name, read-only, a new mapping after each update; float16 and the like are
        float32."""
        let_idle(self, MovingAverageHook)

    async def begin(self) -> None:
        require_global_step(self)
        graph = current_graph()
        trained = [] if graph is None else graph.get_collection(GraphKeys.TRAINABLE_VARIABLES)
        self._trained = {*map(name_of, trained)}
        self._updates, self._step, self.averages = 0, -1, {}

    async def after_create_session(self, session: Session, coord: Coordinator) -> None:
        """Begin at the weights of the session, unless a checkpoint has restored the averages."""
        step = global_step_of(self, session)
        if not 0 <= self._step <= step:
            with await session.snapshot() as state:
                chosen = {name: x for name, x in state.items() if self._has(name, x)}

                def copied() -> dict[str, Any]:
                    return {name: _constant(np.array(_float(x))) for name, x in chosen.items()}

                self.averages = await _beside_steps(copied, chosen)
            self._updates, self._step = 0, step
        idle_until(self, self._step + self._every_steps)

    async def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Update the averages, if an update is due."""
        step = step_after(run_values)
        if step < self._step + self._every_steps:
            return
        warm = (1 + self._updates) / (10 + self._updates)
        decay = min(self._decay, warm) ** (step - self._step)

        def updated() -> dict[str, Any]:
            return {
                name: _constant(a + (1 - decay) * (_float(state[name]) - a))
                for name, a in self.averages.items()
            }

        with await run_context.session.snapshot() as state:
            averages = await _beside_steps(updated, self.averages)
        self.averages, self._step, self._updates = averages, step, self._updates + 1
        idle_until(self, step + self._every_steps)

    def applied(
        self, state: Mapping[str, Any], averages: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Return a state with averages in place of the entries that are averaged, in their dtypes."""
        found = self.averages if averages is None else averages
        return {**state, **{name: a.astype(state[name].dtype) for name, a in found.items()}}

    def state_dict(self) -> dict[str, Any]:
        """Return the averages, and the step that they belong to."""
        return {"step": self._step, "updates": self._updates, "averages": dict(self.averages)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load averages of an earlier session."""
        self._step, self._updates = state["step"], state["updates"]
        self.averages = {name: _constant(array) for name, array in state["averages"].items()}

    def _has(self, name: str, array: Any) -> bool:
        if self._names is None and self._trained:
            return name in self._trained
        floats = array.dtype.kind == "f" or array.dtype.name == "bfloat16"
        is_chosen = self._names is None or self._names(name)
        return floats and is_chosen and not name.startswith(RESERVED)


async def _beside_steps(work: Callable[[], T], arrays: Mapping[str, Any]) -> T:
    """Return the result of work on arrays, in a thread unless they are small."""
    is_small = sum(array.nbytes for array in arrays.values()) <= _INLINE_BYTES
    return work() if is_small else await in_thread(work)


def _constant(array: Any) -> Any:
    """Return an array as a read-only one, which a save writes without a copy on the loop."""
    array = np.asarray(array)  # the average of a number is a scalar
    array.flags.writeable = False
    return array


def _float(array: Any) -> Any:
    """Return an array as float64 if it is of that type, else as float32."""
    return array.astype(np.float64 if array.dtype == np.float64 else np.float32, copy=False)
