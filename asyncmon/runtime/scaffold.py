"""The operations that initialise, check, save and summarise a session."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from asyncmon.checkpoint import Saver
from asyncmon.checkpoint.saveable_session import SaverMembers
from asyncmon.runtime.graph_program import default_local_init_op, get_or_default
from asyncmon.runtime.program import as_program, default_saver, program_scope
from asyncmon.runtime.protocols import Program, ProgramMembers, Session
from asyncmon.system.members import members_of, warn_of_misspelled

logger = logging.getLogger(__name__)

_ROLES = ("init_op", "ready_op", "ready_for_local_init_op", "local_init_op", "summary_op")


class Scaffold:
    """The operations of a session's life, given or made by the program. TF1: ``tf.train.Scaffold``.

    They are attributes with the names of the arguments. A missing one is None until :meth:`finalize`,
    which takes the program's own. A scaffold can be used for several sessions, one after another.

    Args:
        init_op: fetched to initialise the state if no checkpoint is restored.
        init_feed_dict: fed to it.
        init_fn: ``init_fn(scaffold, session)``, plain or async, called after ``init_op``.
        ready_op: returns the names of uninitialised variables; none means ready.
        ready_for_local_init_op: the same for ``local_init_op``, fetched before it.
        local_init_op: fetched to initialise state that is not saved, after a restore, too.
        summary_op: returns all summaries.
        saver: restores the session, and saves in the default checkpoint hook.
        copy_from_scaffold: the source of arguments that are not given.
        local_init_feed_dict: fed to ``local_init_op``.
        program: the program of the scaffold. Default: that of the session creator.

    Example::

        scaffold = Scaffold(init_fn=lambda scaffold, sess: warm_start(sess), saver=Saver(max_to_keep=3))
        session = MonitoredTrainingSession(checkpoint_dir="runs", scaffold=scaffold)
    """

    get_or_default = staticmethod(get_or_default)
    default_local_init_op = staticmethod(default_local_init_op)

    def __init__(
        self,
        init_op: Any = None,
        init_feed_dict: Mapping[Any, Any] | None = None,
        init_fn: Callable[[Scaffold, Session], Awaitable[Any] | Any] | None = None,
        ready_op: Any = None,
        ready_for_local_init_op: Any = None,
        local_init_op: Any = None,
        summary_op: Any = None,
        saver: Any = None,
        copy_from_scaffold: Scaffold | None = None,
        local_init_feed_dict: Mapping[Any, Any] | None = None,
        *,
        program: Any = None,
    ) -> None:
        other = copy_from_scaffold
        if other is not None and not isinstance(other, Scaffold):
            raise TypeError("copy_from_scaffold is not a Scaffold instance.")

        def given(mine: Any, name: str) -> Any:
            return mine if mine is not None or other is None else getattr(other, name)

        self.init_op = given(init_op, "init_op")
        self.init_feed_dict: Mapping[Any, Any] | None = given(init_feed_dict, "init_feed_dict")
        self.ready_op = given(ready_op, "ready_op")
        self.ready_for_local_init_op = given(ready_for_local_init_op, "ready_for_local_init_op")
        self.local_init_op = given(local_init_op, "local_init_op")
        self.local_init_feed_dict: Mapping[Any, Any] | None = given(
            local_init_feed_dict, "local_init_feed_dict"
        )
        self.summary_op = given(summary_op, "summary_op")
        self.saver = given(saver, "saver")
        own = None if program is None else as_program(program)
        self.program: Program | None = given(own, "program")
        """The program of the scaffold, once it is known."""
        self._user_init_fn = given(init_fn, "_user_init_fn")
        self._filled = False

    @property
    def init_fn(self) -> Callable[[Session], Awaitable[Any] | Any] | None:
        """The given ``init_fn`` as a function of the session only."""
        fn = self._user_init_fn
        return None if fn is None else lambda session: fn(self, session)

    def finalize(self, program: Any = None) -> Scaffold:
        """Fill in missing operations from the program, then finalize the program.

        Called by session creators after all hooks' ``begin``, so that it covers their additions. A
        second call changes nothing.

        Args:
            program: becomes the program of a scaffold without one. Default: the default graph.

        Raises:
            RuntimeError: an operation is missing and the graph is finalized already, or the graph has
                several for one role.
            ValueError: the scaffold belongs to another program.
        """
        mine = self._bind(program)
        if not self._filled:
            with program_scope(mine):
                self._fill(mine)
            self._filled = True
        mine.finalize()
        if members_of(ProgramMembers, mine).graph is not None:
            logger.info("Graph was finalized.")
        return self

    def _bind(self, program: Any) -> Program:
        if self.program is None:
            self.program = as_program(program)
        elif program is not None and not _same(self.program, as_program(program)):
            raise ValueError(
                "The Scaffold belongs to another program than the session. Make one Scaffold for each."
            )
        return self.program

    def _fill(self, program: Program) -> None:
        for role in _ROLES:
            if getattr(self, role) is None:
                setattr(self, role, getattr(program, role)())
        if self.saver is None:
            self.saver = default_saver(program)
        warn_of_misspelled("saver", self.saver, Saver, SaverMembers)
        build = members_of(SaverMembers, self.saver).build
        if build is not None:
            build()


def _same(one: Any, other: Any) -> bool:
    graph = members_of(ProgramMembers, one).graph
    return one is other or (graph is not None and graph is members_of(ProgramMembers, other).graph)
