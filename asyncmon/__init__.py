"""Monitored training sessions for the event loop.

You own the ``while`` loop; a monitored session does the rest around each awaited step: initialise or
restore, hooks, checkpoints, summaries, recovery, an orderly stop. TF1's ``tf.train.X`` is ``am.X``,
``tf.X`` is ``am.graph.X``, ``tf.summary.X`` is ``am.summary.X`` and ``tf.errors.X`` is ``am.errors.X``.

::

    import asyncmon as am

    async with am.MonitoredTrainingSession(checkpoint_dir="runs/1", hooks=hooks) as sess:
        while not sess.should_stop():
            await sess.run(train_op)
"""

# The house, from the ground up. Imports go down only; tests/test_layers.py holds this.
#
#   L0  errors, session_config
#       system      time, cancellation, threads, locks, snapshots, blocking calls, and what differs
#                   between systems
#       protobuf    the wire format and messages of TF's files, TFRecords, numbers of types
#   L1  graph       the embedded engine: a numpy dataflow graph and its raw session
#       checkpoint  names -> arrays on disk; knows nothing of graphs
#       summary     event files that TensorBoard reads; its ops sit on graph
#       data        input: anything that can be iterated, with backpressure and a position
#   L2  runtime     hooks' contract, coordinator, scaffold, session creators, MonitoredSession
#   L3  hooks       the standard hooks
#       programs    other engines behind the session protocol
#       distributed clusters, and sessions that other processes run
#   L4  training    MonitoredTrainingSession: scaffold + creator + default hooks
#   L5  tf1         TF1's own layout of names; advice on its names; the tool that ports a program
#       monitor     a live page for runs and its API; imported at its first use
#       testing     the public test bench
#   L6  cli         the command line, one module a command

import importlib as _importlib
import types as _types
import typing as _typing

from asyncmon import checkpoint as checkpoint
from asyncmon import data as data
from asyncmon import distributed as distributed
from asyncmon import errors as errors
from asyncmon import graph as graph
from asyncmon import programs as programs
from asyncmon import summary as summary
from asyncmon.checkpoint import Saver as Saver
from asyncmon.checkpoint import checkpoint_exists as checkpoint_exists
from asyncmon.checkpoint import checkpoints_iterator as checkpoints_iterator
from asyncmon.checkpoint import get_checkpoint_mtimes as get_checkpoint_mtimes
from asyncmon.checkpoint import get_checkpoint_state as get_checkpoint_state
from asyncmon.checkpoint import init_from_checkpoint as init_from_checkpoint
from asyncmon.checkpoint import latest_checkpoint as latest_checkpoint
from asyncmon.checkpoint import list_variables as list_variables
from asyncmon.checkpoint import load_checkpoint as load_checkpoint
from asyncmon.checkpoint import load_variable as load_variable
from asyncmon.checkpoint import remove_checkpoint as remove_checkpoint
from asyncmon.checkpoint import update_checkpoint_state as update_checkpoint_state
from asyncmon.checkpoint import wait_for_new_checkpoint as wait_for_new_checkpoint
from asyncmon.distributed import ClusterSpec as ClusterSpec
from asyncmon.distributed import Server as Server
from asyncmon.distributed import SyncReplicasOptimizer as SyncReplicasOptimizer
from asyncmon.distributed import replica_device_setter as replica_device_setter
from asyncmon.graph import GraphKeys as GraphKeys
from asyncmon.graph import RunMetadata as RunMetadata
from asyncmon.graph import RunOptions as RunOptions
from asyncmon.graph import Session as Session
from asyncmon.graph import SessionConfig as SessionConfig
from asyncmon.graph import assert_global_step as assert_global_step
from asyncmon.graph import create_global_step as create_global_step
from asyncmon.graph import get_global_step as get_global_step
from asyncmon.graph import get_or_create_global_step as get_or_create_global_step
from asyncmon.graph import global_step as global_step
from asyncmon.hooks import CheckpointSaverHook as CheckpointSaverHook
from asyncmon.hooks import CheckpointSaverListener as CheckpointSaverListener
from asyncmon.hooks import ClusterHook as ClusterHook
from asyncmon.hooks import EarlyStoppingHook as EarlyStoppingHook
from asyncmon.hooks import EvalHook as EvalHook
from asyncmon.hooks import FeedFnHook as FeedFnHook
from asyncmon.hooks import FinalOpsHook as FinalOpsHook
from asyncmon.hooks import GlobalStepWaiterHook as GlobalStepWaiterHook
from asyncmon.hooks import InMemoryEvaluatorHook as InMemoryEvaluatorHook
from asyncmon.hooks import JsonlWriter as JsonlWriter
from asyncmon.hooks import LoggingTensorHook as LoggingTensorHook
from asyncmon.hooks import LoopLagHook as LoopLagHook
from asyncmon.hooks import NanLossDuringTrainingError as NanLossDuringTrainingError
from asyncmon.hooks import NanTensorHook as NanTensorHook
from asyncmon.hooks import ProfilerHook as ProfilerHook
from asyncmon.hooks import ProgressHook as ProgressHook
from asyncmon.hooks import StepCounterHook as StepCounterHook
from asyncmon.hooks import StopAtStepHook as StopAtStepHook
from asyncmon.hooks import SummarySaverHook as SummarySaverHook
from asyncmon.hooks import evaluate as evaluate
from asyncmon.hooks import evaluate_checkpoints as evaluate_checkpoints
from asyncmon.hooks import every as every
from asyncmon.hooks import stop_if_higher as stop_if_higher
from asyncmon.hooks import stop_if_lower as stop_if_lower
from asyncmon.hooks import stop_if_no_decrease as stop_if_no_decrease
from asyncmon.hooks import stop_if_no_increase as stop_if_no_increase
from asyncmon.runtime import Channel as Channel
from asyncmon.runtime import ChiefSessionCreator as ChiefSessionCreator
from asyncmon.runtime import Coordinator as Coordinator
from asyncmon.runtime import LooperTask as LooperTask
from asyncmon.runtime import MonitoredSession as MonitoredSession
from asyncmon.runtime import QueueRunner as QueueRunner
from asyncmon.runtime import Recovery as Recovery
from asyncmon.runtime import Scaffold as Scaffold
from asyncmon.runtime import SecondOrStepTimer as SecondOrStepTimer
from asyncmon.runtime import SessionCreator as SessionCreator
from asyncmon.runtime import SessionManager as SessionManager
from asyncmon.runtime import SessionRunArgs as SessionRunArgs
from asyncmon.runtime import SessionRunContext as SessionRunContext
from asyncmon.runtime import SessionRunHook as SessionRunHook
from asyncmon.runtime import SessionRunValues as SessionRunValues
from asyncmon.runtime import SingularMonitoredSession as SingularMonitoredSession
from asyncmon.runtime import StepContext as StepContext
from asyncmon.runtime import Supervisor as Supervisor
from asyncmon.runtime import WorkerSessionCreator as WorkerSessionCreator
from asyncmon.runtime import add_queue_runner as add_queue_runner
from asyncmon.runtime import basic_train_loop as basic_train_loop
from asyncmon.runtime import run as run
from asyncmon.runtime import start_queue_runners as start_queue_runners
from asyncmon.system.missing_names import missing_name as _missing_name
from asyncmon.system.missing_names import register_missing_names as _register_missing_names
from asyncmon.training import MonitoredTrainingSession as MonitoredTrainingSession

__version__ = "0.1.0"

_ROOMS = {
    "checkpoint", "data", "distributed", "errors", "graph", "hooks", "monitor", "programs", "runtime",
    "summary", "testing", "tf1",
}  # fmt: skip


def _load_adviser() -> _types.ModuleType:
    from asyncmon.tf1.names import advice

    return advice


_register_missing_names(_load_adviser)

if _typing.TYPE_CHECKING:
    from asyncmon import monitor as monitor
else:  # else a type checker would find every name here

    def __getattr__(name: str) -> _typing.Any:
        if name == "monitor":
            return _importlib.import_module("asyncmon.monitor")
        raise _missing_name(__name__, name, ["train.", ""], globals())


def __dir__() -> list[str]:
    """List the public names, and ``monitor`` before its first use; not the modules inside."""
    modules = {name for name, value in globals().items() if isinstance(value, _types.ModuleType)}
    return sorted(globals().keys() - (modules - _ROOMS) | {"monitor"})
