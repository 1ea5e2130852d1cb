"""Create a session that is ready: restore or initialise, check, wait."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from typing import Any

import numpy as np

from asyncmon.checkpoint.locations import absolute
from asyncmon.checkpoint.management import is_kept, restore_newest
from asyncmon.checkpoint.saveable_session import FetchMembers, SaverMembers
from asyncmon.errors import DeadlineExceededError, FailedPreconditionError
from asyncmon.runtime.observation import restore
from asyncmon.runtime.program import as_program, global_step_fetch
from asyncmon.runtime.protocols import ClusterRun, Session, SessionMembers, close_raw
from asyncmon.system import clock
from asyncmon.system.cancellation import shielded
from asyncmon.system.forgotten_await import called_once
from asyncmon.system.members import members_of
from asyncmon.system.notebook import explained

logger = logging.getLogger(__name__)

FIRST_WAIT_SECS = 0.05
"""The first pause between two attempts; each further one is twice as long, up to a limit."""


class SessionManager:
    """Create sessions that are ready to be used. TF1: ``tf.train.SessionManager``.

    A session that cannot be made ready is closed before the error is raised. Every wait can be
    cancelled, begins with short pauses and keeps its deadline by elapsed time.

    Args:
        local_init_op: fetched, also after a restore, once ``ready_for_local_init_op`` allows it.
        ready_op: returns the names of uninitialised variables; None: always ready.
        ready_for_local_init_op: the same for ``local_init_op``.
        graph: the program, a ``Graph`` or another. Default: the default graph.
        recovery_wait_secs: the longest pause between two attempts.
        local_init_run_options: ``RunOptions`` for ``local_init_op``.
        local_init_feed_dict: fed to ``local_init_op``.

    Raises:
        ValueError: ``ready_for_local_init_op`` without ``local_init_op``.

    Example::

        manager = SessionManager()
        session = await manager.prepare_session(init_op=init_op, saver=saver, checkpoint_dir="runs")
        ...
        await session.close()
    """

    def __init__(
        self,
        local_init_op: Any = None,
        ready_op: Any = None,
        ready_for_local_init_op: Any = None,
        graph: Any = None,
        recovery_wait_secs: float = 30,
        local_init_run_options: Any = None,
        local_init_feed_dict: Mapping[Any, Any] | None = None,
    ) -> None:
        if ready_for_local_init_op is not None and local_init_op is None:
            raise ValueError(
                "If you pass a ready_for_local_init_op you must also pass a local_init_op , "
                f"ready_for_local_init_op [{ready_for_local_init_op!r}]"
            )
        self._local_init_op = local_init_op
        self._ready_op = ready_op
        self._ready_for_local_init_op = ready_for_local_init_op
        self._program = as_program(graph)
        self._recovery_wait_secs = recovery_wait_secs
        self._local_init_run_options = local_init_run_options
        self._local_init_feed_dict = local_init_feed_dict
        self._run: ClusterRun | None = None  # of the last session
        self._is_recovery = False

    async def prepare_session(
        self,
        master: str = "",
        init_op: Any = None,
        saver: Any = None,
        checkpoint_dir: str | None = None,
        checkpoint_filename_with_path: str | None = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200,
        config: Any = None,
        init_feed_dict: Mapping[Any, Any] | None = None,
        init_fn: Callable[[Session], Awaitable[Any] | Any] | None = None,
        *,
        keep_live_variables: bool = True,
    ) -> Session:
        """Return a session, restored from a checkpoint or else initialised. TF1: same name.

        Without a checkpoint, ``init_op`` is run, then ``init_fn(session)``, plain or async. In both
        cases ``local_init_op`` follows, and a check that the session is ready. An initialisation that
        discards steps of other sessions is logged as a warning.

        In a cluster that already trains, as when a chief is started again, the variables on the
        servers are kept if all are initialised and not older than the checkpoint. Only the states of
        hooks and data are then restored from it.

        Args:
            master: the target of the session; "" is this process.
            init_op: initialises the state, with ``init_feed_dict``.
            saver: restores the session.
            checkpoint_dir: its newest valid checkpoint is restored.
            checkpoint_filename_with_path: a checkpoint to restore instead.
            wait_for_checkpoint: whether to wait for one, at most ``max_wait_secs``.
            config: for the session.
            keep_live_variables: False restores or initialises also in a run that has begun, as TF1
                does; the steps since the checkpoint are then lost for all sessions.

        Raises:
            RuntimeError: there is no operation to initialise with, or the session is not ready after
            it.
            ValueError: there are checkpoints, but none can be restored.
        """
        async with self._new_session(master, config) as session:
            before = await _step(session)
            live = None
            run = self._run
            if run is not None:
                directory = checkpoint_dir or os.path.dirname(checkpoint_filename_with_path or "")
                is_live = await run.begin(directory and absolute(directory)) and keep_live_variables
                live = before if is_live and await self._is_initialised(session) else None
                if live is None:
                    await run.restore()
            restored = await self._restore(
                session, saver, checkpoint_dir, checkpoint_filename_with_path,
                wait_for_checkpoint, max_wait_secs, live,
            )  # fmt: skip
            if restored is None and live is None:
                if init_op is None and init_fn is None and self._local_init_op is None:
                    raise RuntimeError(
                        "Model is not initialized and no init_op or init_fn or local_init_op was given"
                    )
                if init_op is not None:
                    await session.run(init_op, init_feed_dict)
                if init_fn is not None:
                    await called_once(init_fn, session)
            if live is None:
                await self._was_set(session, restored, before)
            error = await self._try_local_init(session)
            if error is not None:
                unready = RuntimeError(
                    "Init operations did not make model ready for local_init.  Init op: "
                    f"{_name(init_op)}, init fn: {init_fn}, error: {error}"
                )
                raise explained(unready, error)
            error = await _not_ready_reason(self._ready_op, session)
            if error is not None:
                unready = RuntimeError(
                    f"Init operations did not make model ready.  Init op: {_name(init_op)}, init fn: "
                    f"{init_fn}, local_init_op: {_name(self._local_init_op)}, error: {error}"
                )
                raise explained(unready, error)
            self._is_recovery = True
            return session

    async def recover_session(
        self,
        master: str = "",
        saver: Any = None,
        checkpoint_dir: str | None = None,
        checkpoint_filename_with_path: str | None = None,
        wait_for_checkpoint: bool = False,
        max_wait_secs: float = 7200,
        config: Any = None,
    ) -> tuple[Session, bool]:
        """Return a session, and whether it was restored and is ready. TF1: same name.

        ``local_init_op`` is run in either case, if possible. Arguments as in :meth:`prepare_session`.
        """
        async with self._new_session(master, config) as session:
            restored = await self._restore(
                session, saver, checkpoint_dir, checkpoint_filename_with_path,
                wait_for_checkpoint, max_wait_secs,
            )  # fmt: skip
            not_local = await self._try_local_init(session)
            if restored is None:
                return session, False
            if not_local is not None:
                logger.info(
                    "Restoring model from %s did not make model ready for local init: %s",
                    restored, not_local,
                )  # fmt: skip
                return session, False
            not_ready = await _not_ready_reason(self._ready_op, session)
            if not_ready is not None:
                logger.info("Restoring model from %s did not make model ready: %s", restored, not_ready)
                return session, False
            logger.info("Restored model from %s", restored)
            return session, True

    async def wait_for_session(
        self, master: str = "", config: Any = None, max_wait_secs: float = float("inf")
    ) -> Session:
        """Return a session once another process has made its state ready. TF1: same name.

        Each attempt opens a session, which is closed again if it is not ready.

        Raises:
            DeadlineExceededError: it was not ready in time.
            FailedPreconditionError: the run has another cluster or other variables.
        """
        for pause in self._pauses(max_wait_secs):
            await asyncio.sleep(pause)
            async with self._new_session(master, config) as session:
                if self._run is not None:  # refuses a program with uninitialised variables
                    await self._run.ready()
                not_local = await self._try_local_init(session)
                not_ready = None
                if not_local is None:
                    not_ready = await _not_ready_reason(self._ready_op, session)
                    if not_ready is None and (self._run is None or await self._run.ready()):
                        return session
                    not_ready = not_ready or "the chief sets the variables"
            logger.info(
                "Waiting for model to be ready.  Ready_for_local_init_op:  %s, ready: %s",
                not_local, not_ready,
            )  # fmt: skip
            await _close_quietly(session)
        raise DeadlineExceededError(f"Session was not ready after waiting {max_wait_secs:g} secs.")

    @contextlib.asynccontextmanager
    async def _new_session(self, master: str, config: Any) -> AsyncIterator[Session]:
        """Create a session, and close it if the block fails."""
        session = self._program.create_session(master, config)
        run, before = members_of(SessionMembers, session).cluster_run, self._run
        if run is not None and before is not None:
            run.continue_from(before)
        self._run = run
        try:
            yield session
        except BaseException:
            await _close_quietly(session)
            raise

    def _pauses(self, max_wait_secs: float) -> Iterator[float]:
        """Yield the pause before each attempt: none, then longer ones, up to the deadline."""
        deadline, pause = clock.monotonic() + max_wait_secs, FIRST_WAIT_SECS
        yield 0.0
        while (left := deadline - clock.monotonic()) > 0:
            yield min(pause, self._recovery_wait_secs, left)
            pause *= 2

    async def _restore(
        self,
        session: Session,
        saver: Any,
        directory: str | None,
        filename: str | None,
        wait: bool,
        max_wait_secs: float,
        live: int | None = None,
    ) -> str | None:
        """Restore a checkpoint if there is one, and return its path."""
        if saver is None or (not directory and not filename):
            return None
        if filename:
            if await is_kept(live, filename):  # the variables are live, at a step not before it
                return None
            with restore(filename):
                await saver.restore(session, filename)
            return filename
        assert directory is not None, "one of the two is given"
        await _drain_saves(saver)
        for pause in self._pauses(max_wait_secs if wait else 0):
            await asyncio.sleep(pause)
            with restore(directory) as span:
                restored = await restore_newest(saver, session, directory, live)
                if span is not None and restored is not None:
                    span.name = restored
            if restored is not None:
                return restored
            if wait:
                logger.info("Waiting for checkpoint to be available.")
        return None

    async def _was_set(self, session: Session, restored: str | None, before: int | None) -> None:
        """Notify the other sessions of the cluster that the variables were restored or initialised."""
        after = None if before is None and self._run is None else await _step(session)
        if self._run is not None:
            await self._run.restored(before, after)
        if self._is_recovery or not before or after is None or after >= before:
            return  # a recovery logs the steps that it has lost
        if restored is None:
            logger.warning("There is no checkpoint: %d steps are lost by an initialisation.", before)
        else:
            logger.warning(
                "The variables of all sessions were set back from step %d to step %d of %s: %d steps "
                "are lost.",
                before, after, restored, before - after,
            )  # fmt: skip

    async def _try_local_init(self, session: Session) -> str | None:
        """Run ``local_init_op`` if the session is ready for it, else return the reason."""
        reason = await _not_ready_reason(
            self._ready_for_local_init_op, session, "Model not ready for local init"
        )
        if reason is None and self._local_init_op is not None:
            logger.info("Running local_init_op.")
            await session.run(
                self._local_init_op, self._local_init_feed_dict, self._local_init_run_options
            )
            logger.info("Done running local_init_op.")
        return reason

    async def _is_initialised(self, session: Session) -> bool:
        """Return whether all variables but local ones have a value. False: it cannot be known."""
        op = self._ready_op if self._ready_for_local_init_op is None else self._ready_for_local_init_op
        return op is not None and await _not_ready_reason(op, session) is None


async def _not_ready_reason(
    ready_op: Any, session: Session, what: str = "Model not ready"
) -> str | None:
    """Return why a session is not ready, or None if it is. ``what`` begins the log of an error."""
    if ready_op is None:
        return None
    try:
        value = await session.run(ready_op)
    except Exception as error:
        # The op itself may read a variable without a value.
        if isinstance(error, FailedPreconditionError) and "uninitialized" in str(error):
            return str(error)
        logger.warning("%s: ready_op failed: %s", what, error)
        raise
    if value is None:
        return None
    names = np.asarray(value)
    if names.size == 0 or names.dtype == np.int32:
        return None
    if names.ndim != 1 or names.dtype.kind not in "OSU":
        raise TypeError(
            "A ready_op must return the names of uninitialised variables as a list of strings; "
            f"{ready_op!r} returned {value!r}."
        )
    texts = [name.decode() if isinstance(name, bytes) else str(name) for name in names.tolist()]
    return f"Variables not initialized: {', '.join(texts)}"


async def _close_quietly(session: Session) -> None:
    await shielded(close_raw, session, name="closing a session that is not ready")


async def _drain_saves(saver: Any) -> None:
    """Wait for saves of the previous session: one of them may be the checkpoint to restore."""
    drain = members_of(SaverMembers, saver).drain
    if drain is not None:
        try:
            await drain()
        except Exception:
            logger.warning("A save failed before the session was created again.", exc_info=True)


async def _step(session: Session) -> int | None:
    """Return the global step of the state, or None if it has no value yet."""
    fetch = global_step_fetch(session)
    if fetch is None:
        return None
    try:
        return int(np.asarray(await session.run(fetch)).item())
    except FailedPreconditionError:
        return None


def _name(op: Any) -> Any:
    return members_of(FetchMembers, op).name or op
