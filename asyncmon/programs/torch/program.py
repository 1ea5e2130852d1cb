"""A program of torch modules, optimizers and named steps."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal, TypeVar, final, overload

from torch.nn import Module

from asyncmon.programs.named_program import StepsProgram
from asyncmon.programs.steps import Step
from asyncmon.programs.torch.loading import Optimizers
from asyncmon.programs.torch.ranks import RanksHook, is_first_rank, ranks_hook
from asyncmon.programs.torch.session import TorchSession
from asyncmon.programs.torch.state import Objects, check_object
from asyncmon.programs.torch.training import MixedPrecision, training_step
from asyncmon.session_config import SessionConfig

F = TypeVar("F", bound=Callable[..., Any])


@final
class TorchProgram(StepsProgram):
    """Named steps over torch objects: modules, optimizers, schedulers, scalers, generators, tensors.

    ``await sess.run("train", {"batch": b})`` calls ``train(state, batch=b)``, where ``state`` has the
    objects by name, and returns its result, with tensors detached. Fetches are names, in any
    nesting, and may be a step; a key of the mapping that a step of the same run returned; an entry of
    the state, like ``"model/fc.weight"``. The latter two give numpy arrays of the host.

    Steps run one after another. A step that takes less than ``inline_ms`` of the session's config, by
    its own measured average, runs in the loop's thread, a longer one in a worker thread; an ``async
    def`` step runs in the loop. A step changes the objects in place, between two versions of the
    state: a snapshot comes before it or after it, and is a copy on the host. If a step fails after
    its first change, the session raises
    :class:`~asyncmon.errors.AbortedError` from then on, and a monitored session resumes from its last
    checkpoint. A step on a device must join streams of its own before it returns.

    Each completed run of a step that is not read-only counts as a global step. Checkpoints have the
    entries of the modules' state dicts, ``<name>/<key>``; of optimizers and the like also
    ``<name>.json``, the part that is no tensor; the generators; and the states of torch's default
    generators of the devices in use. Gradients are no state: a step begins and ends without them.

    While a session is open, others of the same program evaluate: they have copies of the modules and
    tensors, and take read-only steps only. Modules are used by name, ``state["model"]``, so that such
    a step uses the copy.

    Under ``torchrun``, once ``torch.distributed.init_process_group`` was called, rank 0 is the chief:
    it restores, saves and writes; the others begin with its state. All ranks stop before the same step,
    whichever gets the stop request. Modules may be wrapped for DDP, which does not change the names of
    entries. Ranks but the first seed torch's generator at the start by the rank and the step.

    Modules may be sharded by ``torch.distributed.fsdp.fully_shard``, and any tensor of the state may be
    a ``DTensor``. Then each rank writes the pieces that it has into the chief's checkpoint, as torch's
    save planner divides them, together with the states of its generators; all ranks must have the
    directory by the same path. A checkpoint has whole entries: it can be restored by another number of
    ranks, or without any. Without a checkpoint each rank initialises its own pieces, so all ranks need
    the same seed before they build a module. Sharded results of steps are gathered; sharded entries
    cannot be fetched.

    Args:
        state: names to objects. Each has ``state_dict()`` and ``load_state_dict(state)``, or is a
            tensor or a ``torch.Generator``.
        steps: names to functions, plain or ``async def``; see also :meth:`step`.
        read_only: names of steps that change no state: they can be peeked at and do not count. Plain
            ones run under ``torch.no_grad``. One that changes a tensor of the state fails; the default
            generators are as before after it.
        load_optimizer: whether an optimizer or scheduler of another class, or an optimizer with other
            groups of parameters, than the one in the checkpoint is an error. If not, its state is left
            out with a warning, and that of the program starts fresh, with the schedulers of such an
            optimizer. The state of the same one is always loaded, so that a restart continues.
        hyperparameters: whose learning rate, momentum and so on an optimizer has after a restore:
            those in the ``"checkpoint"``, as after ``load_state_dict``; or those of the ``"code"``,
            where a training begins, and not in a recovery. A scheduler in the state continues from the
            step of the checkpoint in both cases, by the chosen learning rate at its start. None: the
            learning rate and the weight decay of the checkpoint; it is an error if others differ. A log
            line names all that differ.

    Raises:
        TypeError: an object without state.
        ValueError: a name that entries cannot have, or another choice of hyperparameters.
    """

    def __init__(
        self,
        state: Mapping[str, Any],
        steps: Mapping[str, Callable[..., Any]] | None = None,
        *,
        read_only: Collection[str] = (),
        load_optimizer: bool = True,
        hyperparameters: Literal["checkpoint", "code"] | None = None,
    ) -> None:
        super().__init__()
        if hyperparameters not in ("checkpoint", "code", None):
            raise ValueError(
                f"hyperparameters must be 'checkpoint', 'code' or None, got {hyperparameters!r}."
            )
        self.optimizers = Optimizers(load_optimizer, hyperparameters)
        for name, obj in state.items():
            check_object(name, obj)
        self._entries = self.state = Objects(state)
        self._owner: weakref.ref[TorchSession] | None = None
        self._initial: Any = None
        self._touched = False
        self._ranks: RanksHook | None = None
        self._add_all(steps, read_only)

    @overload
    def step(self, fn: F, /, *, name: str | None = None, read_only: bool = False) -> F: ...
    @overload
    def step(
        self, fn: None = None, /, *, name: str | None = None, read_only: bool = False
    ) -> Callable[[F], F]: ...
    def step(
        self,
        fn: Callable[..., Any] | None = None,
        /,
        *,
        name: str | None = None,
        read_only: bool = False,
    ) -> Any:
        """Add a function as a step, as a decorator with or without arguments; return it unchanged.

        Args:
            fn: plain or ``async def``. Its parameter ``state``, or else its first, gets the objects.
            name: how it is fetched. Default: its own name.
            read_only: whether it changes no state.

        Raises:
            RuntimeError: the program is finalized.
            ValueError: the name is taken.
        """
        return self._added(fn, name, read_only=read_only)

    def training_step(
        self,
        fn: F | None = None,
        /,
        *,
        name: str | None = None,
        optimizer: str = "optimizer",
        scheduler: str | None = None,
        scaler: str | None = None,
        precision: MixedPrecision | None = None,
        clip_norm: float | None = None,
        accumulate: int = 1,
        metric: str | None = None,
    ) -> Any:
        """Add a function that computes the loss as a step that trains, as a decorator; return it.

        The step clears the gradients, calls the function, goes back from the loss and updates by the
        optimizer. It returns what the function returned, as a mapping with ``"loss"``.

        Args:
            fn: gets ``state`` and ``batch``; returns the loss, or a mapping with ``"loss"``.
            name: how it is fetched. Default: its own name.
            optimizer: the name of the optimizer in the state.
            scheduler: the name of a scheduler, stepped after each update.
            scaler: the name of a ``torch.amp.GradScaler``, which float16 needs.
            precision: autocast the forward pass.
            clip_norm: clip the gradients to this norm, which is returned as ``"grad_norm"``.
            accumulate: split the batch along its first axis into this many parts, and update once by
                the sum of their gradients. Numbers are averaged over the parts, by their sizes; other
                tensors are concatenated.
            metric: the number in the result by which a ``ReduceLROnPlateau`` is stepped, such as
                ``"loss"``; the mean over the ranks.

        Raises:
            TypeError: the optimizer is an LBFGS, or ``fn`` takes no batch.
            ValueError: a name that is not in the state, ``accumulate`` below 1, float16 without a
                scaler, or a ``ReduceLROnPlateau`` without a ``metric``.
        """

        def add(fn: F) -> F:
            step = training_step(
                fn, self.state, optimizer, scheduler, scaler, precision, clip_norm, accumulate, metric
            )
            self._add(name or fn.__name__, step, read_only=False)
            return fn

        return add if fn is None else add(fn)

    def _add(self, name: str, fn: Callable[..., Any], *, read_only: bool) -> None:
        self._check_addition(name)
        self.steps[name] = Step(name, fn, has_state=True, read_only=read_only)

    def create_session(self, target: str = "", config: Any = None) -> TorchSession:
        """Return a session of the objects; while there is one, a session with copies of the modules.

        Args:
            target: "".
            config: its ``inline_ms`` and ``intra_op_parallelism_threads`` are used. The latter is the
                number of torch's threads in this process until the close: sessions share it, and the
                first open one that gives a number decides.

        Raises:
            NotFoundError: a target that is not "".
        """
        self._check_target(target)
        config = config or SessionConfig()
        return TorchSession(self, config)

    @property
    def is_chief(self) -> bool:
        """Whether this process is rank 0 of ``torchrun``, or the only one."""
        return is_first_rank()

    def session_hooks(self) -> list[Any]:
        """Return the hooks that a session needs: where there are ranks, what stops them together."""
        self._ranks = ranks_hook()
        return [] if self._ranks is None else self._ranks.hooks()

    def learning_rates(self) -> dict[str, float]:
        """Return the rates that schedulers have set: ``learning_rate``, or several by name."""
        schedulers = {name: obj for name, obj in self.state.items() if hasattr(obj, "get_last_lr")}
        rates = {
            f"{name}/{i}" if len(last) > 1 else name: float(rate)
            for name, obj in schedulers.items()
            for last in [obj.get_last_lr()]
            for i, rate in enumerate(last)
        }
        if len(rates) == 1:
            return {"learning_rate": rates.popitem()[1]}
        return {f"learning_rate/{name}": rate for name, rate in rates.items()}

    def contents(self) -> str:
        """Return the steps and the objects, for errors."""
        objects = f"the objects {list(self.state)}, whose entries are like 'model/fc.weight'"
        return f"the steps {list(self.steps)}, and {objects}"

    def describe(self) -> dict[str, Any]:
        """Return the description of this program in checkpoints."""
        objects = {name: type(obj).__name__ for name, obj in self.state.items()}
        modules = [name for name, obj in self.state.items() if isinstance(obj, Module)]
        return super().describe() | {"state": objects, "modules": modules}
