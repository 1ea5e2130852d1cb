"""The product: monitored sessions over any program.

A session is built in layers, each with one job, around the raw session of a program::

    MonitoredSession        one run at a time, an orderly start and end
      Recoverable           preemption errors: a new session, the run again
        Coordinated         errors of background tasks: they interrupt the run
          Hooked            hooks' fetches and feeds join the run
            raw session     the step itself

``protocols`` is the seam to programs and their sessions; a ``Coordinator`` owns the background tasks.
"""

from asyncmon.runtime.channel import Channel as Channel
from asyncmon.runtime.channel import ChannelStatistics as ChannelStatistics
from asyncmon.runtime.coordinator import Coordinator as Coordinator
from asyncmon.runtime.data_iterator import ResumableSource as ResumableSource
from asyncmon.runtime.hook import GUARD as GUARD
from asyncmon.runtime.hook import SAVER as SAVER
from asyncmon.runtime.hook import SessionRunArgs as SessionRunArgs
from asyncmon.runtime.hook import SessionRunContext as SessionRunContext
from asyncmon.runtime.hook import SessionRunHook as SessionRunHook
from asyncmon.runtime.hook import SessionRunValues as SessionRunValues
from asyncmon.runtime.hook_set import AttachedHook as AttachedHook
from asyncmon.runtime.lifecycle import SessionState as SessionState
from asyncmon.runtime.looper import LooperTask as LooperTask
from asyncmon.runtime.monitored_session import MonitoredSession as MonitoredSession
from asyncmon.runtime.observation import Observer as Observer
from asyncmon.runtime.observation import Span as Span
from asyncmon.runtime.operating import SessionStatistics as SessionStatistics
from asyncmon.runtime.process import run as run
from asyncmon.runtime.program import as_program as as_program
from asyncmon.runtime.program import current_program as current_program
from asyncmon.runtime.protocols import Program as Program
from asyncmon.runtime.protocols import Session as Session
from asyncmon.runtime.queue_runner import QueueRunner as QueueRunner
from asyncmon.runtime.queue_runner import add_queue_runner as add_queue_runner
from asyncmon.runtime.queue_runner import start_queue_runners as start_queue_runners
from asyncmon.runtime.recoverable import Recovery as Recovery
from asyncmon.runtime.scaffold import Scaffold as Scaffold
from asyncmon.runtime.session_creators import ChiefSessionCreator as ChiefSessionCreator
from asyncmon.runtime.session_creators import SessionCreator as SessionCreator
from asyncmon.runtime.session_creators import WorkerSessionCreator as WorkerSessionCreator
from asyncmon.runtime.session_manager import SessionManager as SessionManager
from asyncmon.runtime.singular_session import SingularMonitoredSession as SingularMonitoredSession
from asyncmon.runtime.step_fn import StepContext as StepContext
from asyncmon.runtime.supervisor import Supervisor as Supervisor
from asyncmon.runtime.timer import NeverTriggerTimer as NeverTriggerTimer
from asyncmon.runtime.timer import SecondOrStepTimer as SecondOrStepTimer
from asyncmon.runtime.train_loop import basic_train_loop as basic_train_loop
