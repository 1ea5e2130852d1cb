"""Factories of the raw session of a monitored one, at the start and at each recovery."""

from __future__ import annotations

import contextlib
import os
from abc import ABC, abstractmethod
from typing import Any, cast, final

from asyncmon.checkpoint import get_checkpoint_state
from asyncmon.checkpoint.directory import Directory
from asyncmon.checkpoint.saveable_session import SaverMembers
from asyncmon.errors import AbortedError, DeadlineExceededError, UnavailableError
from asyncmon.runtime.program import as_program
from asyncmon.runtime.protocols import Session
from asyncmon.runtime.scaffold import Scaffold
from asyncmon.runtime.session_manager import SessionManager
from asyncmon.system.clock import monotonic
from asyncmon.system.files import in_thread
from asyncmon.system.members import members_of


class SessionCreator(ABC):
    """A factory of raw sessions. TF1: ``tf.train.SessionCreator``.

    Any object with this method is one. :class:`~asyncmon.runtime.protocols.CreatorMembers` has the
    optional members.

    Example::

        class OwnCreator(SessionCreator):
            async def create_session(self):
                return await connect(...)  # anything with the session protocol
    """

    @abstractmethod
    async def create_session(self) -> Session:
        """Return a new session that is ready. Called at the start and for each recovery."""


class _Prepared(SessionCreator):
    """A creator with a scaffold, finalized once, and a session manager, made once."""

    def __init__(
        self, scaffold: Scaffold | None, master: str, config: Any, program: Any, wait_secs: float
    ) -> None:
        self.scaffold = scaffold if scaffold is not None else Scaffold()
        """Complete once it is finalized."""
        known = self.scaffold.program
        self.program = known if program is None and known is not None else as_program(program)
        """The given program, the scaffold's, or the default graph at construction."""
        self._master = master
        self._config = config
        self._wait_secs = wait_secs
        self._manager: SessionManager | None = None

    def prepare(self) -> Scaffold:
        """Finalize the scaffold and the program. Called after all hooks' ``begin``."""
        self._session_manager()
        return self.scaffold

    def _session_manager(self) -> SessionManager:
        if self._manager is not None:
            self.program.finalize()  # a session that ended has taken that back
        else:
            scaffold = self.scaffold.finalize(self.program)
            self._manager = SessionManager(
                local_init_op=scaffold.local_init_op,
                ready_op=scaffold.ready_op,
                ready_for_local_init_op=scaffold.ready_for_local_init_op,
                graph=self.program,
                recovery_wait_secs=self._wait_secs,
                local_init_feed_dict=scaffold.local_init_feed_dict,
            )
        return self._manager


@final
class ChiefSessionCreator(_Prepared):
    """Restore or initialise. TF1: ``tf.train.ChiefSessionCreator``.

    Args:
        scaffold: the operations; missing ones are made by the program.
        master: the target of the session; "" is this process.
        config: for the session.
        checkpoint_dir: its newest valid checkpoint is restored, if there is one.
        checkpoint_filename_with_path: a checkpoint to restore instead; it must exist.
        program: the program. Default: the scaffold's program, or the default graph.
        resume: ``"never"`` to start without a checkpoint, or the prefix of a checkpoint to start with
            instead of the newest one. A recovery restores later checkpoints.
        keep_live_variables: see :meth:`SessionManager.prepare_session`.

    Raises:
        ValueError: both a directory and a file are given.

    Example::

        async with MonitoredSession(ChiefSessionCreator(checkpoint_dir="runs/1")) as sess:
            ...
    """

    def __init__(
        self,
        scaffold: Scaffold | None = None,
        master: str = "",
        config: Any = None,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        checkpoint_filename_with_path: str | os.PathLike[str] | None = None,
        *,
        program: Any = None,
        resume: str | os.PathLike[str] = "auto",
        keep_live_variables: bool = True,
    ) -> None:
        if checkpoint_dir and checkpoint_filename_with_path:
            raise ValueError("Can not provide both checkpoint_dir and checkpoint_filename_with_path.")
        super().__init__(scaffold, master, config, program, wait_secs=30)
        self._checkpoint_dir = None if checkpoint_dir is None else os.fspath(checkpoint_dir)
        path = checkpoint_filename_with_path
        self._checkpoint_filename_with_path = None if path is None else str(path)
        if not isinstance(cast("object", resume), str | os.PathLike) or not os.fspath(resume):
            raise TypeError(
                f"resume must be 'auto', 'never' or the path of a checkpoint, got {resume!r}."
            )
        self._resume = os.fspath(resume)
        self._keep_live_variables = keep_live_variables
        self._is_recovery = False
        self._is_bound = False
        self._state_before: list[Any] = []  # of the directory, at the first creation

    async def create_session(self) -> Session:
        """Return a session: restored, or initialised; then local initialisation, and a check."""
        manager = self._session_manager()
        if self._checkpoint_dir and not self._is_bound:
            # a chdir or another link sends no recovery elsewhere
            bound = await in_thread(Directory.bind, self._checkpoint_dir)
            self._checkpoint_dir, self._is_bound = bound.path, True
        directory, path = self._checkpoint_dir, self._checkpoint_filename_with_path
        if self._resume != "auto" and await self._is_unchanged():
            directory, path = None, None if self._resume == "never" else self._resume
        session = await manager.prepare_session(
            self._master,
            init_op=self.scaffold.init_op,
            saver=self.scaffold.saver,
            checkpoint_dir=directory,
            checkpoint_filename_with_path=path,
            config=self._config,
            init_feed_dict=self.scaffold.init_feed_dict,
            init_fn=self.scaffold.init_fn,
            keep_live_variables=self._keep_live_variables
            and (self._resume == "auto" or self._is_recovery),
        )
        self._is_recovery = True
        continue_from = members_of(SaverMembers, self.scaffold.saver).continue_from
        if self._checkpoint_dir is not None and directory is None and continue_from is not None:
            await continue_from(self._checkpoint_dir)
        return session

    async def _is_unchanged(self) -> bool:
        """Return whether no checkpoint was saved since the first creation."""
        state = None
        if self._checkpoint_dir is not None:
            with contextlib.suppress(ValueError):  # it names no checkpoint
                state = await get_checkpoint_state(self._checkpoint_dir)
        self._state_before = self._state_before or [state]
        return bool(state == self._state_before[0])


@final
class WorkerSessionCreator(_Prepared):
    """Wait until the chief has made the state ready. TF1: ``tf.train.WorkerSessionCreator``.

    Neither initialises nor restores shared state.

    Args:
        scaffold: the operations; missing ones are made by the program.
        master: the target of the session.
        config: for the session.
        max_wait_secs: the timeout, by elapsed time.
        recovery_wait_secs: the longest pause between two attempts; the first ones are short.
        program: the program. Default: the scaffold's program, or the default graph.

    Example::

        async with MonitoredSession(WorkerSessionCreator(master="grpc://chief:2222")) as sess:
            ...
    """

    is_chief = False
    """Its sessions have no state of their own to save."""

    def __init__(
        self,
        scaffold: Scaffold | None = None,
        master: str = "",
        config: Any = None,
        max_wait_secs: float = 1800,
        *,
        recovery_wait_secs: float = 30,
        program: Any = None,
    ) -> None:
        super().__init__(scaffold, master, config, program, wait_secs=recovery_wait_secs)
        self._max_wait_secs = max_wait_secs
        self._deadline: float | None = None  # of all attempts since the last session

    async def create_session(self) -> Session:
        """Return a session that is ready.

        Attempts that fail because a server cannot be reached count, too, until one succeeds.

        Raises:
            DeadlineExceededError: it was not ready in time.
        """
        now = monotonic()
        if self._deadline is None:
            self._deadline = now + self._max_wait_secs
        try:
            session = await self._session_manager().wait_for_session(
                self._master, config=self._config, max_wait_secs=max(self._deadline - now, 0.0)
            )
        except (AbortedError, UnavailableError) as error:
            if monotonic() < self._deadline:
                raise
            raise DeadlineExceededError(
                f"Session was not ready after waiting {self._max_wait_secs:g} secs: {error}"
            ) from error
        self._deadline = None
        return session
