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
#       executors   workers of pipelines in child processes and Ray actors
#   L4  training    MonitoredTrainingSession: scaffold + creator + default hooks
#   L5  monitor     a live page for runs and its API; imported at its first use
#       testing     the public test bench
#       jobs        a queue of many runs in one service, on the monitor's access control; likewise
#   L6  cli         the command line, one module a command
#
# Beside the house stands a wing, which nothing here imports and which can be deleted with its folder;
# system/wings.py says how it registers:
#
#       tf1         TF1's own layout of names and its less common ops; hints on its names; the tool that
#                   ports a program

import importlib as _importlib
import typing as _typing

# fmt: off
# isort: off
from asyncmon import checkpoint, data, distributed, errors, executors, graph, hooks, programs, runtime
from asyncmon import summary
from asyncmon.checkpoint import (
    KeepBest, SaveHandle, Saver, checkpoints_iterator, get_checkpoint_state, latest_checkpoint,
    list_variables, load_checkpoint,
)
from asyncmon.distributed import ClusterSpec, Server, replica_device_setter
from asyncmon.graph import Session, SessionConfig, get_global_step, get_or_create_global_step
from asyncmon.hooks import (
    CheckpointSaverHook, CheckpointSaverListener, ClusterHook, CsvLogger, CurvesHook,
    EarlyStoppingHook, EvalHook, FeedFnHook, FinalOpsHook, GlobalStepWaiterHook, JsonlWriter,
    LoggersHook, LoggingTensorHook, LoopLagHook, MlflowLogger, ModelSummaryHook, MovingAverageHook,
    NanLossDuringTrainingError, NanTensorHook, ProfilerHook, ProgressHook, RestoreBestHook,
    StepCounterHook, StopAtStepHook, SummarySaverHook, TensorBoardLogger, TrainingMetricsHook,
    WandbLogger, evaluate, evaluate_checkpoints, every, stop_if,
)
from asyncmon.runtime import (
    Channel, ChiefSessionCreator, Coordinator, LooperTask, MonitoredSession, QueueRunner, Recovery,
    Scaffold, SessionManager, SessionRunArgs, SessionRunContext, SessionRunHook, SessionRunValues,
    StepContext, Supervisor, WorkerSessionCreator, add_queue_runner, logging_handler, run,
    start_queue_runners,
)
from asyncmon.programs import export, load_model
from asyncmon.runtime.run_record import run_record, runs
from asyncmon.training import MonitoredTrainingSession

# Names of TF1 that few programs need: not in __all__, and documented as those of tf.train.
from asyncmon.checkpoint import (
    checkpoint_exists as checkpoint_exists, get_checkpoint_mtimes as get_checkpoint_mtimes,
    init_from_checkpoint as init_from_checkpoint, load_variable as load_variable,
    remove_checkpoint as remove_checkpoint, update_checkpoint_state as update_checkpoint_state,
    wait_for_new_checkpoint as wait_for_new_checkpoint,
)
from asyncmon.graph import (
    GraphKeys as GraphKeys, RunMetadata as RunMetadata, RunOptions as RunOptions,
    assert_global_step as assert_global_step, create_global_step as create_global_step,
    global_step as global_step,
)
from asyncmon.runtime.run_record import RunRecord as RunRecord
from asyncmon.runtime import (
    SecondOrStepTimer as SecondOrStepTimer, SessionCreator as SessionCreator,
    SingularMonitoredSession as SingularMonitoredSession, basic_train_loop as basic_train_loop,
)
# isort: on
from asyncmon.system.missing_names import missing_name as _missing_name
from asyncmon.system.missing_names import search_rooms as _search_rooms
from asyncmon.system.wings import wings as _wings

__all__ = [
    "Channel", "CheckpointSaverHook", "CheckpointSaverListener", "ChiefSessionCreator", "ClusterHook",
    "ClusterSpec", "Coordinator", "CsvLogger", "CurvesHook", "EarlyStoppingHook", "EvalHook",
    "FeedFnHook", "FinalOpsHook", "GlobalStepWaiterHook", "JsonlWriter", "KeepBest", "LoggersHook",
    "LoggingTensorHook", "LoopLagHook", "LooperTask", "MlflowLogger", "ModelSummaryHook",
    "MonitoredSession", "MonitoredTrainingSession", "MovingAverageHook", "NanLossDuringTrainingError",
    "NanTensorHook", "ProfilerHook", "ProgressHook", "QueueRunner", "Recovery", "RestoreBestHook",
    "SaveHandle", "Saver", "Scaffold", "Server", "Session", "SessionConfig", "SessionManager",
    "SessionRunArgs", "SessionRunContext", "SessionRunHook", "SessionRunValues", "StepContext",
    "StepCounterHook", "StopAtStepHook", "SummarySaverHook", "Supervisor", "TensorBoardLogger",
    "TrainingMetricsHook", "WandbLogger", "WorkerSessionCreator", "add_queue_runner", "checkpoint",
    "checkpoints_iterator", "data", "distributed", "errors", "evaluate", "evaluate_checkpoints",
    "every", "executors", "export", "get_checkpoint_state", "get_global_step",
    "get_or_create_global_step", "graph", "hooks", "jobs", "latest_checkpoint", "list_variables",
    "load_checkpoint", "load_model", "logging_handler", "monitor", "programs",
    "replica_device_setter", "run", "run_record", "runs", "runtime", "start_queue_runners", "stop_if",
    "summary", "testing",
]
# fmt: on

__version__ = "0.1.0"

_search_rooms(
    "asyncmon", "asyncmon.graph", "asyncmon.graph.train", "asyncmon.graph.nn", "asyncmon.graph.layers",
    "asyncmon.summary", "asyncmon.errors", "asyncmon.data", "asyncmon.checkpoint", "asyncmon.runtime",
    "asyncmon.hooks", "asyncmon.programs",
)  # fmt: skip

if _typing.TYPE_CHECKING:
    from asyncmon import jobs, monitor, testing
else:  # else a type checker would find every name here

    def __getattr__(name: str) -> _typing.Any:
        if name in (
            "jobs",
            "monitor",
            "testing",
            *[wing.name for wing in _wings()],
        ):  # at their first use
            return _importlib.import_module(f"asyncmon.{name}")
        raise _missing_name(__name__, name, ["train.", ""], __all__)


__dir__ = __all__.copy
