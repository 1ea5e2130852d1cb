"""Synchronous replicas: one update from the gradients of several workers.

TF1: ``tf.train.SyncReplicasOptimizer``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from asyncmon import graph
from asyncmon.errors import CancelledError, OutOfRangeError
from asyncmon.graph import Operation, Tensor, Variable
from asyncmon.runtime import (
    Coordinator,
    QueueRunner,
    Session,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from asyncmon.runtime.protocols import SessionMembers
from asyncmon.runtime.queue_runner import ProducerTask
from asyncmon.system.clock import monotonic
from asyncmon.system.members import members_of

logger = logging.getLogger(__name__)


class SyncReplicasOptimizer(graph.train.Optimizer):
    """Update variables by the mean of the gradients of several workers. TF1: same name.

    A step begins with a token, which holds the global step. The worker's gradients go to an accumulator
    beside each variable, and are dropped if another update came first. When there are enough gradients,
    the chief applies their means at once, adds 1 to the global step and replaces the remaining tokens
    by tokens of the new step. If a worker dies after it took its token, the others would wait for its
    gradients. So the chief checks the progress every second: where no gradient arrives and no token is
    left, it adds a token for each session that the run of the cluster has lost, and after
    ``token_timeout_secs`` in any case.

    The hook initializes, runs the chief's part, and takes tokens: a step ends when the token of the
    next one is available, which is after its update, so a ``StopAtStepHook`` stops at its step. Without
    the hook the training operation takes its token itself. Then workers are in step only if all
    variables are on one server, because only there a run waits for its token before it reads them.

    Args:
        opt: applies the means, and keeps the slots.
        replicas_to_aggregate: the number of gradients of an update.
        total_num_replicas: the number of workers, by default the same. More of them are backups:
            each update drops the slowest. Fewer compute several gradients for an update.
        variable_averages: an ``ExponentialMovingAverage`` that each update advances.
        variables_to_average: the variables to average.
        use_locking: without effect, as for all optimizers.
        name: of the scope of the operations.
        token_timeout_secs: after how many seconds without a gradient the chief adds a token. By default
            five times the time of a step, at least 1; until a step is done, 30.

    Raises:
        ValueError: a number that is not positive.

    Example::

        opt = SyncReplicasOptimizer(GradientDescentOptimizer(0.1), replicas_to_aggregate=4)
        train_op = opt.minimize(loss, global_step=step)
        hooks = [opt.make_session_run_hook(is_chief), StopAtStepHook(last_step=1000)]
        async with MonitoredTrainingSession(server.target, is_chief, hooks=hooks) as sess:
            while not sess.should_stop():
                await sess.run(train_op)
    """

    def __init__(
        self,
        opt: graph.train.Optimizer,
        replicas_to_aggregate: int,
        total_num_replicas: int | None = None,
        variable_averages: graph.train.ExponentialMovingAverage | None = None,
        variables_to_average: Sequence[Variable] | None = None,
        use_locking: bool = False,
        name: str = "sync_replicas",
        *,
        token_timeout_secs: float | None = None,
    ) -> None:
        total = replicas_to_aggregate if total_num_replicas is None else total_num_replicas
        timeout = 1 if token_timeout_secs is None else token_timeout_secs
        if min(replicas_to_aggregate, total, timeout) <= 0:
            raise ValueError(
                "replicas_to_aggregate, total_num_replicas and token_timeout_secs must be positive, "
                f"got {replicas_to_aggregate}, {total_num_replicas} and {token_timeout_secs}."
            )
        super().__init__(use_locking, name)
        self._opt = opt
        self._required, self._total = replicas_to_aggregate, total
        self._tokens_per_step = max(total, replicas_to_aggregate)
        self._averages, self._averaged = variable_averages, variables_to_average
        self._timeout = token_timeout_secs
        self._runner: _ChiefQueueRunner | None = None
        self.local_step_init_op: Operation
        self.chief_init_op: Operation
        self.add_token_op: Operation
        self.ready_for_local_init_op: Tensor

    def compute_gradients(self, *args: Any, **kwargs: Any) -> list[tuple[Any, Variable]]:
        """Return what the wrapped optimizer does: gradients of this worker, possibly to be clipped."""
        return self._opt.compute_gradients(*args, **kwargs)

    def apply_gradients(
        self,
        grads_and_vars: Iterable[tuple[Any, Variable]],
        global_step: Any = None,
        name: str | None = None,
    ) -> Operation:
        """Return the operation of a worker's step. It waits for a token, then adds its gradients.

        Args:
            grads_and_vars: what :meth:`compute_gradients` returned, possibly with gradients changed.
            global_step: the variable that each update adds 1 to.
            name: of the operation.

        Raises:
            ValueError: there are no variables, or no global step.
        """
        pairs = list(grads_and_vars)
        if not pairs:
            raise ValueError("Must supply at least one variable")
        if global_step is None:
            raise ValueError("Global step is required to check staleness")
        self._global_step = global_step
        self._local_step = graph.Variable(
            0, trainable=False, collections=[graph.GraphKeys.LOCAL_VARIABLES],
            dtype=global_step.dtype, name="sync_rep_local_step",
        )  # fmt: skip
        with graph.device(global_step.device), graph.name_scope(None):
            self.tokens = graph.FIFOQueue(
                -1, global_step.dtype, shapes=(), name="sync_token_q", shared_name="sync_token_q"
            )
            """The queue of tokens; its size is the number of workers that may start a step."""
            self.token = self.tokens.dequeue()
        with graph.name_scope(self._name):
            applied, means = self._accumulate(pairs, self.token)
            with graph.control_dependencies(applied):
                train_op = graph.assign_add(self._local_step, 1, name=name).op
        with graph.device(global_step.device), graph.name_scope(None):
            update_op = self._opt.apply_gradients(means, global_step)
            with graph.control_dependencies([update_op]):
                averages = self._averages
                sync_op = update_op if averages is None else averages.apply(self._averaged)
            tokens_op = self._put_tokens(self._tokens_per_step)
            self.add_token_op = self._put_tokens(1, add=True)
            progress = [self.tokens.size(), global_step.read_value()]
            progress += [sums.num_accumulated() for sums in self.accumulators]
            self._runner = _ChiefQueueRunner(
                self.tokens, [sync_op, tokens_op], progress, self.add_token_op, self._timeout
            )
        self.local_step_init_op = graph.assign(self._local_step, global_step).op
        set_steps = [sums.set_global_step(global_step) for sums in self.accumulators]
        self.chief_init_op = graph.group(self.local_step_init_op, *set_steps)
        self.ready_for_local_init_op = graph.report_uninitialized_variables(graph.global_variables())
        return train_op

    def _accumulate(self, pairs: list[Any], token: Tensor) -> tuple[list[Operation], list[Any]]:
        """Return what adds each gradient, and the means with their variables."""
        applied, means = [], []
        self.accumulators: list[Any] = []
        for grad, var in pairs:
            mean: Any = None
            shared = f"{var.name}/grad_accum"
            with graph.device(var.device):
                if isinstance(grad, graph.IndexedSlices):
                    rows = graph.SparseConditionalAccumulator(grad.dtype, (), shared)
                    applied.append(rows.apply_indexed_slices_grad(grad, token))
                    mean = rows.take_indexed_slices_grad(self._required)
                    self.accumulators.append(rows)
                elif grad is not None:
                    sums = graph.ConditionalAccumulator(grad.dtype, var.shape, shared)
                    applied.append(sums.apply_grad(grad, token))
                    mean = sums.take_grad(self._required)
                    self.accumulators.append(sums)
            means.append((mean, var))
        return applied, means

    def _put_tokens(self, count: int, add: bool = False) -> Operation:
        """Return an operation that puts tokens of the global step, with ``add`` beside the others."""
        with graph.control_dependencies([] if add else [self.tokens.clear()]):
            step = self._global_step.read_value()
            return self.tokens.enqueue_many((graph.fill([count], step),))

    def get_chief_queue_runner(self) -> QueueRunner:
        """Return the queue runner that the chief starts: it updates, and puts tokens.

        Raises:
            ValueError: :meth:`apply_gradients` was not called yet.
        """
        if self._runner is None:
            raise ValueError("Should be called after apply_gradients().")
        return self._runner

    def get_init_tokens_op(self, num_tokens: int = -1) -> Operation:
        """Return the operation that the chief runs first: it puts the tokens of the first step.

        Args:
            num_tokens: how many beside one for each replica; -1 for as many as the first step needs.

        Raises:
            ValueError: :meth:`apply_gradients` was not called yet, or they are too few.
        """
        if self._runner is None:
            raise ValueError("get_init_tokens_op() should be called after apply_gradients().")
        needed = self._required - self._total
        if num_tokens != -1 and num_tokens < needed:
            raise ValueError(
                f"Too few tokens to finish the first step: {num_tokens} (given) vs {needed} (needed)"
            )
        count = self._tokens_per_step if num_tokens == -1 else self._total + num_tokens
        with graph.device(self._global_step.device), graph.name_scope(None):
            return self._put_tokens(count)

    def get_slot(self, *args: Any, **kwargs: Any) -> Variable | None:
        """Return a slot of the wrapped optimizer."""
        return self._opt.get_slot(*args, **kwargs)

    def get_slot_names(self) -> list[str]:
        """Return the names of the slots of the wrapped optimizer."""
        return self._opt.get_slot_names()

    def variables(self) -> list[Variable]:
        """Return the variables of the wrapped optimizer; the local step is none of them."""
        return self._opt.variables()

    def make_session_run_hook(self, is_chief: bool, num_tokens: int = -1) -> SessionRunHook:
        """Return the hook of a worker; see :meth:`get_init_tokens_op` for ``num_tokens``."""
        return _SyncReplicasHook(self, is_chief, num_tokens)


class _ChiefQueueRunner(QueueRunner):
    """Apply updates, and put a token where a worker took one and never came back.

    Args:
        queue: of the tokens.
        sync_ops: do an update; put its tokens.
        progress: the number of tokens, the step, and the numbers of gradients.
        add_token: puts one.
        timeout: see ``token_timeout_secs``.
    """

    def __init__(
        self,
        queue: graph.FIFOQueue,
        sync_ops: list[Operation],
        progress: list[Tensor],
        add_token: Operation,
        timeout: float | None,
    ) -> None:
        super().__init__(queue, sync_ops[:1])
        self._sync_ops = sync_ops
        self._progress, self._add_token, self._timeout = progress, add_token, timeout
        self._warned = False

    def create_tasks(
        self, sess: Any, coord: Coordinator | None = None, start: bool = False
    ) -> list[ProducerTask]:
        """Create the tasks of a session, among them the one that watches the others' progress."""
        tasks = super().create_tasks(sess, coord)
        if tasks:
            register = coord.register_task if coord is not None else lambda task: None
            watch = partial(self._watch, sess, tasks[0])
            tasks.append(ProducerTask(watch, f"QueueRunnerTask-{self.name}-watch", register))
        for task in tasks if start else ():
            task.start()
        return tasks

    async def _repeat(self, sess: Any, enqueue_op: Any, until: Callable[[], bool]) -> None:
        while not until():
            for op in self._sync_ops:  # in order: no tokens before all servers are up to date
                await sess.run(op)

    async def _watch(self, sess: Any, producer: ProducerTask) -> None:
        run = members_of(SessionMembers, sess).cluster_run
        timeout = self._timeout or 30.0
        seen: list[int] = []
        changed = monotonic()
        updated: float | None = None
        counted = 0 if run is None else await run.lost()
        lost = 0  # sessions that may have had a token of this step
        while True:
            await asyncio.wait([producer], timeout=min(timeout / 4, 1.0))
            if producer.done():
                return
            found = [int(value) for value in await sess.run(self._progress)]
            before, counted = counted, 0 if run is None else await run.lost()
            now, (left, step, *_) = monotonic(), found
            if seen and step > seen[1]:
                if self._timeout is None and updated is not None:
                    timeout = max(5 * (now - updated) / (step - seen[1]), 1.0)
                updated = now
                lost = 0
            lost += max(counted - before, 0)
            if left or found != seen:
                seen, changed = found, now
            elif lost or now - changed >= timeout:
                try:
                    await sess.run(self._add_token)
                except CancelledError:
                    return  # the queue was closed
                level = logging.DEBUG if self._warned else logging.WARNING
                why = "a replica was lost" if lost else "a replica has died or is slow"
                lost = max(lost - 1, 0)
                logger.log(
                    level,
                    "No gradient of step %d for %.1f s, and no token is left: %s. Another one gets a "
                    "token.", step, now - changed, why,
                )  # fmt: skip
                self._warned, changed, updated = True, now, None  # this step's time says nothing


class _SyncReplicasHook(SessionRunHook):
    """Initialize a replica, and take tokens for it. Before hooks that count steps."""

    priority = -10

    def __init__(self, optimizer: SyncReplicasOptimizer, is_chief: bool, num_tokens: int) -> None:
        self._optimizer = optimizer
        self._is_chief = is_chief
        self._num_tokens = num_tokens
        self._init_ops: list[Operation] = []
        self._steps: list[Any] = []  # before a run and after it
        self._held: Any = None  # the token of the next step

    async def begin(self) -> None:
        """Build the operations of the chief.

        Raises:
            ValueError: ``apply_gradients`` was not called.
        """
        optimizer = self._optimizer
        if optimizer._runner is None:
            raise ValueError(
                "SyncReplicasOptimizer.apply_gradient should be called before using the hook."
            )
        local_step = optimizer._local_step
        self._steps = [local_step.read_value(), local_step]
        self._init_ops = [optimizer.local_step_init_op]
        if self._is_chief:
            self._init_ops = [optimizer.chief_init_op, optimizer.get_init_tokens_op(self._num_tokens)]

    async def after_create_session(self, session: Session, coord: Coordinator) -> None:
        """Initialize; the chief puts the first tokens and starts to update.

        Raises:
            RuntimeError: variables are not initialized.
        """
        self._held = None
        missing = await session.run(self._optimizer.ready_for_local_init_op)
        if len(missing):
            names = ", ".join(name.decode() for name in missing)
            raise RuntimeError(
                "Init operations did not make model ready for SyncReplicasOptimizer local_init. "
                f"Init op: {self._init_ops[0].name}, error: Variables not initialized: {names}"
            )
        for init_op in self._init_ops:
            await session.run(init_op)
        if self._is_chief:
            self._optimizer.get_chief_queue_runner().create_tasks(session, coord, start=True)

    async def before_run(self, run_context: SessionRunContext) -> SessionRunArgs:
        """Feed the token, so that the variables are read after it was there, on all servers."""
        if self._held is None:
            self._held = await run_context.session.run(self._optimizer.token)
        return SessionRunArgs(self._steps, {self._optimizer.token: self._held})

    async def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        """Where the run was a step, wait for the next token: of the update, or one that is left."""
        before, after = run_values.results
        if before == after or run_context.stop_requested:
            return
        self._held = None
        try:
            self._held = await run_context.session.run(self._optimizer.token)
        except OutOfRangeError:
            return  # the chief has stopped, and so does the next step

    async def end(self, session: Session) -> None:
        """Put the token back that is not used."""
        if self._held is not None and not self._is_chief:
            with suppress(CancelledError):  # the chief has stopped
                await session.run(self._optimizer.add_token_op)
