"""A program of jitted steps over a pytree."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar, final, overload

import jax
import numpy as np

from asyncmon.programs.jax.session import JaxSession
from asyncmon.programs.jax.state import declared
from asyncmon.programs.named_program import StepsProgram
from asyncmon.programs.process_group import (
    DifferentRunsError,
    ProcessGroupHook,
    load_own_states,
    restored_states_of,
)
from asyncmon.programs.steps import Step
from asyncmon.system.files import in_thread

F = TypeVar("F", bound=Callable[..., Any])


@final
class JaxProgram(StepsProgram):
    """Named, jitted steps over a pytree of arrays.

    ``await sess.run("train", {"batch": b})`` calls ``train(state, batch=b)``, which returns the next
    state, of the same structure, shapes and dtypes, and outputs. The result of the run is the outputs.
    Fetches are names, in any nesting, and may be a step, a key of the mapping that a step returned, or
    an entry of the state, like ``"params/w"``. The latter two give numpy values of the host.

    A run returns when the step is computed. One that takes less than ``inline_ms`` of the session's
    config, by the measured average for feeds of these shapes, runs in the loop's thread, a longer one
    in a worker thread, where each first one, which compiles, runs too. So the loop never waits for a
    device longer than that.

    A step is a transaction. Its state is donated by default: the arrays of the previous state are used
    for the next one. A snapshot is a copy on the device then, taken between two steps, or the arrays
    themselves if no step donates. A run that is cancelled while it computes is completed. If a step
    fails after its state was donated, runs raise :class:`~asyncmon.errors.AbortedError`, and a
    monitored session resumes from its last checkpoint. An unknown fetch is an error
    before the step is computed.

    Each completed run of a step that is not read-only counts as a global step. Random keys are state:
    ``jax.random.key`` and raw ones. Arrays that are committed to devices or sharded keep their
    sharding. With several processes (``jax.distributed``) each has its program. The first is the chief:
    it restores and saves, and the others begin with its state.

    Args:
        state: a pytree of arrays and numbers, such as parameters and an optax state. It is copied.
        steps: names to functions; see also :meth:`step`.
        read_only: names of steps that return outputs only, such as an evaluation.

    Raises:
        TypeError: a leaf is no array and no number; or a step is no plain function.
        ValueError: a name is taken twice.
    """

    def __init__(
        self,
        state: Any,
        steps: Mapping[str, Callable[..., Any]] | None = None,
        *,
        read_only: Collection[str] = (),
    ) -> None:
        super().__init__()
        self.leaves, self.structure = declared(state)
        self._entries = [leaf.name for leaf in self.leaves]
        self.donates = False
        """Whether a step takes the arrays of the state."""
        self._add_all(steps, read_only)

    @property
    def is_chief(self) -> bool:
        """Whether this is the process that initialises and writes: ``jax.process_index() == 0``."""
        return bool(jax.process_index() == 0)

    def session_hooks(self) -> list[Any]:
        """Return the hooks that a session needs: of several processes, what gives them one state."""
        return ProcessesHook().hooks() if jax.process_count() > 1 else []

    @overload
    def step(
        self, fn: F, /, *, name: str | None = None, read_only: bool = False, donate: bool = True
    ) -> F: ...
    @overload
    def step(
        self,
        fn: None = None,
        /,
        *,
        name: str | None = None,
        read_only: bool = False,
        donate: bool = True,
    ) -> Callable[[F], F]: ...
    def step(
        self,
        fn: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        read_only: bool = False,
        donate: bool = True,
    ) -> Any:
        """Add a function as a step, as a decorator with or without arguments; return it unchanged.

        Args:
            fn: gets the state as its parameter ``state``, or else as its first, and the feeds by name;
                returns ``(state, outputs)``, or ``outputs`` if it is read-only. It is jitted, unless it
                comes from ``jax.jit``; that one may donate the state itself.
            name: how it is fetched. Default: its own name.
            read_only: whether it returns outputs only.
            donate: whether the arrays of the state before are used for those after.

        Raises:
            RuntimeError: the program is finalized.
            TypeError: it is no plain function.
            ValueError: the name is taken.
        """
        return self._added(fn, name, read_only=read_only, donate=donate)

    def _add(self, name: str, fn: Callable[..., Any], *, read_only: bool, donate: bool = True) -> None:
        self._check_addition(name)
        step = Step(name, fn, has_state=True, read_only=read_only)
        if step.is_async or step.state_name is None:
            raise TypeError(
                f"The step {name!r} must be a plain function with a parameter for the state, got "
                f"{fn!r}."
            )
        if not hasattr(fn, "lower"):
            donated = step.state_name if donate and not read_only else ()
            step.fn = jax.jit(fn, donate_argnames=donated)
        self.donates = self.donates or (donate and not read_only)
        self.steps[name] = step

    def create_session(self, target: str = "", config: Any = None) -> JaxSession:
        """Return a session with a state of its own, as declared.

        Args:
            target: "".
            config: its ``inline_ms`` is used.

        Raises:
            NotFoundError: a target that is not "".
        """
        self._check_target(target)
        return JaxSession(self, config)


class ProcessesHook(ProcessGroupHook):
    """Join the processes of ``jax.distributed``, by collectives of their devices.

    A :class:`JaxProgram` has :func:`~asyncmon.training.MonitoredTrainingSession` add one.
    """

    async def share_state(self, session: Any) -> None:
        with await session.snapshot() as snapshot:
            sent = dict(snapshot), await restored_states_of(session)
            state, first = await in_thread(_broadcast, sent)
        if jax.process_index():
            await session.load(state)
            await load_own_states(session, first, first)

    async def gather_stops(self, own: dict[str, Any] | None, run: int) -> list[dict[str, Any] | None]:
        return await in_thread(_gathered, own, run)


def _broadcast(state: Any) -> Any:
    """Return what the first process gives."""
    from jax.experimental.multihost_utils import broadcast_one_to_all

    data = np.frombuffer(pickle.dumps(state), np.uint8)
    high, low = broadcast_one_to_all(np.array(divmod(len(data), 1 << 30), np.int32)).tolist()
    sent = data if jax.process_index() == 0 else np.zeros((high << 30) + low, np.uint8)
    # The processes of one job trust each other.
    return pickle.loads(np.asarray(broadcast_one_to_all(sent), np.uint8).tobytes())


def _gathered(own: Any, run: int) -> list[Any]:
    """Return what each process gives, or an empty list if all give None. Blocks until all call it.

    Raises:
        DifferentRunsError: all give None, and not the same run.
    """
    from jax.experimental.multihost_utils import process_allgather

    data = b"" if own is None else pickle.dumps(own)
    sizes, runs = np.asarray(process_allgather(np.array([len(data), run], np.int32))).T
    if not sizes.any():
        if len(set(runs.tolist())) > 1:
            raise DifferentRunsError
        return []
    sent = np.frombuffer(data.ljust(int(sizes.max()), b"\0"), np.uint8)
    rows = zip(np.asarray(process_allgather(sent)), sizes, strict=True)
    return [pickle.loads(row.tobytes()) if size else None for row, size in rows]
