"""The monitored session that does not recover."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, final

from asyncmon.runtime.monitored_session import _MonitoredSession
from asyncmon.runtime.recoverable import Recovery
from asyncmon.runtime.scaffold import Scaffold
from asyncmon.runtime.session_creators import ChiefSessionCreator


@final
class SingularMonitoredSession(_MonitoredSession):
    """A monitored session that never recovers: preemption leaves like any error. TF1: same name.

    Always the chief. Restores from the directory where it has a checkpoint; adds no hooks.

    Args:
        hooks: copied and checked.
        scaffold: the pieces; made from the program where they are not given.
        master: where the session runs; "" is here.
        config: for the session.
        checkpoint_dir: whose newest valid checkpoint is restored.
        stop_grace_period_secs: how long tasks and runs have to end by themselves after a stop, see
            :class:`MonitoredSession`.
        checkpoint_filename_with_path: the one checkpoint to restore instead.
        program: what to run. Default: the scaffold's program, or the default graph.

    Example::

        async with SingularMonitoredSession(checkpoint_dir="runs") as sess:
            print(await sess.run(accuracy))
    """

    def __init__(
        self,
        hooks: Iterable[Any] | None = None,
        scaffold: Scaffold | None = None,
        master: str = "",
        config: Any = None,
        checkpoint_dir: str | os.PathLike[str] | None = None,
        stop_grace_period_secs: float = 120,
        checkpoint_filename_with_path: str | os.PathLike[str] | None = None,
        *,
        program: Any = None,
    ) -> None:
        creator = ChiefSessionCreator(
            scaffold, master, config, checkpoint_dir, checkpoint_filename_with_path, program=program
        )
        super().__init__(creator, hooks, stop_grace_period_secs, Recovery(errors=()), None, True)
