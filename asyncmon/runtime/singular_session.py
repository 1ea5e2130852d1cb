"""The monitored session that never recovers."""

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
    """A monitored session that never recovers: a preemption is raised like any error. TF1: same name.

    It is always the chief, and adds no hooks.

    Args:
        hooks, stop_grace_period_secs: see :class:`MonitoredSession`.
        scaffold, master, config, checkpoint_dir, checkpoint_filename_with_path, program: see
            :class:`ChiefSessionCreator`.

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
