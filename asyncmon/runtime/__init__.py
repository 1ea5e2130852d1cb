"""The product: monitored sessions over any program.

A session is built in layers, each with one job, around the raw session of a program::

    MonitoredSession        one run at a time, an orderly start and end
      Recoverable           preemption errors: a new session, the run again
        Coordinated         errors of background tasks: they interrupt the run
          Hooked            hooks' fetches and feeds join the run
            raw session     the step itself

``protocols`` is the contract of programs and their sessions. A ``Coordinator`` owns the background
tasks.
"""

# fmt: off
# isort: off
from asyncmon.runtime.channel import Channel, ChannelStatistics
from asyncmon.runtime.coordinator import Coordinator
from asyncmon.runtime.frontier import Frontier
from asyncmon.runtime.epochs import Epoch
from asyncmon.runtime.hook import (
    GUARD, SAVER, SessionRunArgs, SessionRunContext, SessionRunHook, SessionRunValues,
)
from asyncmon.runtime.hook_set import AttachedHook
from asyncmon.runtime.session_state import SessionState
from asyncmon.runtime.looper import LooperTask
from asyncmon.runtime.monitored_session import MonitoredSession, SingularMonitoredSession
from asyncmon.runtime.observation import Observer, Span
from asyncmon.runtime.pipeline_statistics import PipelineStatistics
from asyncmon.runtime.pipelines import Executor, Item, Lease, Pipeline, Policy
from asyncmon.runtime.session_statistics import SessionStatistics
from asyncmon.runtime.stop.process_end import run
from asyncmon.runtime.program import as_program, current_program
from asyncmon.runtime.protocols import Program, Session
from asyncmon.runtime.queue_runner import QueueRunner, add_queue_runner, start_queue_runners
from asyncmon.runtime.recovery import Recovery
from asyncmon.runtime.run_names import RunFormatter, logging_handler
from asyncmon.runtime.run_record import RunRecord
from asyncmon.runtime.scaffold import Scaffold
from asyncmon.runtime.session_creators import (
    ChiefSessionCreator, SessionCreator, WorkerSessionCreator,
)
from asyncmon.runtime.session_manager import SessionManager
from asyncmon.runtime.step_fn import StepContext
from asyncmon.runtime.supervisor import Supervisor
from asyncmon.runtime.timer import SecondOrStepTimer
from asyncmon.runtime.supervisor import basic_train_loop

__all__ = [
    "GUARD", "SAVER", "AttachedHook", "Channel", "ChannelStatistics", "ChiefSessionCreator",
    "Coordinator", "Epoch", "Executor", "Frontier", "Item", "Lease", "LooperTask", "MonitoredSession",
    "Observer", "Pipeline", "PipelineStatistics", "Policy", "Program",
    "QueueRunner", "Recovery", "RunFormatter", "RunRecord", "Scaffold", "SecondOrStepTimer", "Session",
    "SessionCreator", "SessionManager", "SessionRunArgs", "SessionRunContext", "SessionRunHook",
    "SessionRunValues", "SessionState", "SessionStatistics", "SingularMonitoredSession", "Span",
    "StepContext", "Supervisor", "WorkerSessionCreator", "add_queue_runner", "as_program",
    "basic_train_loop", "current_program", "logging_handler", "run", "start_queue_runners",
]
# fmt: on
# isort: on
__dir__ = __all__.copy
