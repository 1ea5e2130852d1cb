"""A program of plain and async functions over a declared state."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, TypeVar, final, overload

import numpy as np

from asyncmon.programs.function_session import FunctionSession
from asyncmon.programs.named_fetches import GLOBAL_STEP
from asyncmon.programs.named_program import StepsProgram
from asyncmon.programs.outside_state import OutsideState
from asyncmon.programs.state_tree import Tree, declare, flatten
from asyncmon.programs.steps import Step

F = TypeVar("F", bound=Callable[..., Any])


@final
class FunctionProgram(StepsProgram):
    """Named steps over a declared state.

    ``await sess.run("train", {"batch": b})`` calls ``train(state, batch=b)`` and returns its
    result. Fetches are names, in any nesting, and may be

    * a step, which is run: its result,
    * a key of the mapping that a step of the same run returned,
    * an entry of the state, like ``"weights"`` or ``"layers/0/bias"``: its value after the run.

    A step is a transaction: it works on a copy of the state, which becomes the state when the step has
    returned; one that fails or is cancelled changes nothing. An entry of the state is copied when the
    step reads it: ``state["w"]`` copies ``w``, and nothing else. An array that the step keeps or
    returns, or a view of it, is not shared with the state any more. Steps that change state run one
    after another.

    An ``async def`` step runs in the loop. A plain one does if it takes less than ``inline_ms`` of
    the session's config, 1 ms by default, by its own measured average; a longer one runs in a worker
    thread, and a caller that is cancelled waits for its end. One that returns an awaitable, such as the
    future of a remote service, stays in the loop, and its result is awaited. To keep several calls of
    a service in flight, see :func:`submitted`.

    If the state has an entry ``"global_step"``, it is the global step, and steps count it themselves;
    otherwise each run of a step that is not read-only counts.

    Args:
        state: arrays, numbers, strings, and nested dicts and lists of these. Its structure, shapes
            and dtypes are fixed, the lengths of strings are not. The functions get it as their
            parameter ``state``, or else as their first. Whole numbers are of 64 bits; a
            ``global_step`` is one of them.
        steps: names to functions, plain or ``async def``; see also :meth:`step`.
        read_only: names of steps that change no state, such as an evaluation: they run beside other
            steps, on no copy, can be peeked at, and do not count. One that writes to the state fails.
        get_state: for objects that have the state inside, such as a model of another library: returns
            it, of the form of ``state``. Called here and after each step; its result is
            copied. Such steps get no parameter for the state. One session trains. Others that are open
            beside it evaluate: each of their steps has the objects between two steps of the other one,
            with its own state set into them, unless there is a ``copy``.
        set_state: takes such a state, whose arrays are read-only. Called before the first step, after
            ``init_op`` and ``load``, and with the previous state when a step failed or was cancelled.
            Both are called as a plain step is; ``set_state`` may be ``async def``.
        copy: returns a program with the same steps over objects of its own, for evaluations and peeks
            beside the training, which neither wait for its steps nor delay them. Called for each
            session while another one is open, and at the first peek, in the event loop's thread.

    Raises:
        ValueError: ``state`` is given beside ``get_state``, or one of the two functions without the
            other, or ``copy`` without them.

    Example::

        program = FunctionProgram(state={"w": np.zeros(3)})

        @program.step
        async def train(state, batch):
            gradient = await remote_gradient(state["w"], batch)
            state["w"] -= 0.1 * gradient
            return {"norm": float(np.linalg.norm(gradient))}
    """

    def __init__(
        self,
        state: Mapping[str, Any] | None = None,
        steps: Mapping[str, Callable[..., Any]] | None = None,
        *,
        read_only: Collection[str] = (),
        get_state: Callable[[], Any] | None = None,
        set_state: Callable[[Any], Any] | None = None,
        copy: Callable[[], FunctionProgram] | None = None,
    ) -> None:
        super().__init__()
        self._outside: OutsideState | None = None
        self._copy = copy
        if get_state is not None and set_state is not None and state is None:
            self._outside = OutsideState(get_state, set_state)
            state = self._outside.first()
        elif get_state is not None or set_state is not None:
            raise ValueError("Give the state, or get_state and set_state, which go together.")
        elif copy is not None:
            raise ValueError("copy is for objects with get_state and set_state; a state is copied.")
        self.state: Tree = declare(state or {})
        self._entries = flatten(self.state)
        _check_global_step(self.state.get(GLOBAL_STEP, 0))
        self._add_all(steps, read_only)

    @overload
    def step(
        self, fn: F, /, *, name: str | None = None, read_only: bool = False, thread: bool | None = None
    ) -> F: ...
    @overload
    def step(
        self,
        fn: None = None,
        /,
        *,
        name: str | None = None,
        read_only: bool = False,
        thread: bool | None = None,
    ) -> Callable[[F], F]: ...
    def step(
        self,
        fn: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        read_only: bool = False,
        thread: bool | None = None,
    ) -> Any:
        """Add a function as a step, as a decorator with or without arguments; return it unchanged.

        Args:
            fn: plain or ``async def``.
            name: the name of the fetch. Default: that of the function.
            read_only: whether it changes no state.
            thread: whether a plain function is called in a worker thread, for one whose first call
                would hold the loop already, or is never. Default: by measurement.

        Raises:
            RuntimeError: the program is finalized.
            TypeError: it is not a function, or its signature does not fit.
            ValueError: the name is taken.
        """
        return self._added(fn, name, read_only=read_only, thread=thread)

    def _add(
        self, name: str, fn: Callable[..., Any], *, read_only: bool, thread: bool | None = None
    ) -> None:
        self._check_addition(name)
        has_state = bool(self.state) and self._outside is None
        step = Step(name, fn, has_state=has_state, read_only=read_only, thread=thread)
        if self._outside is not None and step.state_name is not None:
            raise TypeError(
                f"The step {name!r} has the parameter 'state', and the state of this program is in "
                "the objects of get_state: use these."
            )
        self.steps[name] = step

    def create_session(self, target: str = "", config: Any = None) -> FunctionSession:
        """Return a session whose state is as declared.

        Args:
            target: "".
            config: its ``inline_ms`` and ``workers`` are used.

        Raises:
            NotFoundError: a target that is not "".
        """
        self._check_target(target)
        if self._copy is not None and self._outside is not None and self._outside.owner_beside(None):
            return self._copy().create_session(target, config)
        return FunctionSession(self, self.state, self.steps, config, self._outside, self._copy)


def _check_global_step(step: Tree) -> None:
    if isinstance(step, dict | list) or np.ndim(step) or np.asarray(step).dtype.kind not in "iu":
        raise TypeError(f"state['global_step'] counts steps: it must be a whole number, got {step!r}.")
