"""The product: monitored sessions over any program.

A session is built in layers, each with one job, around the raw session of a program::

    MonitoredSession        a turn for each caller, an orderly start and end
      Recoverable           preemption errors: a new session, the run again
        Coordinated         errors of tasks beside the steps: they interrupt the run
          Hooked            hooks' fetches and feeds join the run
            raw session     the step itself

Hooks are checked by ``hook_check``; a ``Coordinator`` owns the tasks that run beside the steps.
"""

from asyncmon.runtime.coordinator import Coordinator
from asyncmon.runtime.hook import (
    GUARD,
    SAVER,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from asyncmon.runtime.looper import LooperTask
from asyncmon.runtime.program import Program, current_program
from asyncmon.runtime.protocol import Session
from asyncmon.runtime.timer import NeverTriggerTimer, SecondOrStepTimer

__all__ = [
    "GUARD",
    "SAVER",
    "Coordinator",
    "LooperTask",
    "NeverTriggerTimer",
    "Program",
    "SecondOrStepTimer",
    "Session",
    "SessionRunArgs",
    "SessionRunContext",
    "SessionRunHook",
    "SessionRunValues",
    "current_program",
]
