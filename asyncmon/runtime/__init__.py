"""The product: monitored sessions over any program.

A session is built in layers, each with one job, around the raw session of a program::

    MonitoredSession        a turn for each caller, an orderly start and end
      Recoverable           preemption errors: a new session, the run again
        Coordinated         errors of tasks beside the steps: they interrupt the run
          Hooked            hooks' fetches and feeds join the run
            raw session     the step itself

Hooks are checked by ``hook_check``; a ``Coordinator`` owns the tasks that run beside the steps.
"""

from asyncmon.runtime.attached import AttachedHook
from asyncmon.runtime.channel import Channel, ChannelStatistics
from asyncmon.runtime.coordinator import Coordinator
from asyncmon.runtime.creators import ChiefSessionCreator, SessionCreator, WorkerSessionCreator
from asyncmon.runtime.hook import (
    GUARD,
    SAVER,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
)
from asyncmon.runtime.looper import LooperTask
from asyncmon.runtime.program import Program, as_program, current_program
from asyncmon.runtime.protocol import Session
from asyncmon.runtime.queue_runner import QueueRunner, add_queue_runner, start_queue_runners
from asyncmon.runtime.recovery import Recovery
from asyncmon.runtime.scaffold import Scaffold
from asyncmon.runtime.session_manager import SessionManager
from asyncmon.runtime.sessions import MonitoredSession, SingularMonitoredSession
from asyncmon.runtime.step_fn import StepContext
from asyncmon.runtime.supervisor import Supervisor
from asyncmon.runtime.timer import NeverTriggerTimer, SecondOrStepTimer
from asyncmon.runtime.train_loop import basic_train_loop
from asyncmon.runtime.travelling import TravellingSource

__all__ = [
    "GUARD",
    "SAVER",
    "AttachedHook",
    "Channel",
    "ChannelStatistics",
    "ChiefSessionCreator",
    "Coordinator",
    "LooperTask",
    "MonitoredSession",
    "NeverTriggerTimer",
    "Program",
    "QueueRunner",
    "Recovery",
    "Scaffold",
    "SecondOrStepTimer",
    "Session",
    "SessionCreator",
    "SessionManager",
    "SessionRunArgs",
    "SessionRunContext",
    "SessionRunHook",
    "SessionRunValues",
    "SingularMonitoredSession",
    "StepContext",
    "Supervisor",
    "TravellingSource",
    "WorkerSessionCreator",
    "add_queue_runner",
    "as_program",
    "basic_train_loop",
    "current_program",
    "start_queue_runners",
]
