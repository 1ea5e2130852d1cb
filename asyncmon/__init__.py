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
#   L0  errors, error_text, clock, loop_budget, cancellation, snapshot, files, fair_lock, run_options
#                   the error tree; time; cancellation; a consistent state; blocking calls; locks
#   L1  graph       the embedded engine: a numpy dataflow graph and its raw session
#       checkpoint  names -> arrays on disk; knows nothing of graphs
#       summary     event files that TensorBoard reads; its ops sit on graph
#       data        input: anything that can be iterated, with backpressure and a position
#   L2  runtime     hooks' contract, coordinator, scaffold, session creators, MonitoredSession
#   L3  hooks       the standard hooks
#       programs    other engines behind the session protocol
#   L4  training    MonitoredTrainingSession: scaffold + creator + default hooks
#   L5  testing     the public test bench
#   L6  cli         python -m asyncmon

from asyncmon import checkpoint, data, errors, graph, programs, summary
from asyncmon.checkpoint import (
    Saver,
    checkpoint_exists,
    checkpoints_iterator,
    get_checkpoint_mtimes,
    get_checkpoint_state,
    init_from_checkpoint,
    latest_checkpoint,
    list_variables,
    load_checkpoint,
    load_variable,
    remove_checkpoint,
    update_checkpoint_state,
    wait_for_new_checkpoint,
)
from asyncmon.graph import (
    GraphKeys,
    RunMetadata,
    RunOptions,
    Session,
    SessionConfig,
    assert_global_step,
    create_global_step,
    get_global_step,
    get_or_create_global_step,
    global_step,
)
from asyncmon.hooks import (
    CheckpointSaverHook,
    CheckpointSaverListener,
    EarlyStoppingHook,
    EvalHook,
    FeedFnHook,
    FinalOpsHook,
    GlobalStepWaiterHook,
    InMemoryEvaluatorHook,
    JsonlWriter,
    LoggingTensorHook,
    LoopLagHook,
    NanLossDuringTrainingError,
    NanTensorHook,
    ProfilerHook,
    ProgressHook,
    StepCounterHook,
    StopAtStepHook,
    SummarySaverHook,
    evaluate,
    evaluate_checkpoints,
    every,
    stop_if_higher,
    stop_if_lower,
    stop_if_no_decrease,
    stop_if_no_increase,
)
from asyncmon.runtime import (
    Channel,
    ChiefSessionCreator,
    Coordinator,
    LooperTask,
    MonitoredSession,
    QueueRunner,
    Recovery,
    Scaffold,
    SecondOrStepTimer,
    SessionCreator,
    SessionManager,
    SessionRunArgs,
    SessionRunContext,
    SessionRunHook,
    SessionRunValues,
    SingularMonitoredSession,
    StepContext,
    Supervisor,
    WorkerSessionCreator,
    add_queue_runner,
    basic_train_loop,
    start_queue_runners,
)
from asyncmon.training import MonitoredTrainingSession

__all__ = [
    "Channel",
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "ChiefSessionCreator",
    "Coordinator",
    "EarlyStoppingHook",
    "EvalHook",
    "FeedFnHook",
    "FinalOpsHook",
    "GlobalStepWaiterHook",
    "GraphKeys",
    "InMemoryEvaluatorHook",
    "JsonlWriter",
    "LoggingTensorHook",
    "LoopLagHook",
    "LooperTask",
    "MonitoredSession",
    "MonitoredTrainingSession",
    "NanLossDuringTrainingError",
    "NanTensorHook",
    "ProfilerHook",
    "ProgressHook",
    "QueueRunner",
    "Recovery",
    "RunMetadata",
    "RunOptions",
    "Saver",
    "Scaffold",
    "SecondOrStepTimer",
    "Session",
    "SessionConfig",
    "SessionCreator",
    "SessionManager",
    "SessionRunArgs",
    "SessionRunContext",
    "SessionRunHook",
    "SessionRunValues",
    "SingularMonitoredSession",
    "StepContext",
    "StepCounterHook",
    "StopAtStepHook",
    "SummarySaverHook",
    "Supervisor",
    "WorkerSessionCreator",
    "add_queue_runner",
    "assert_global_step",
    "basic_train_loop",
    "checkpoint",
    "checkpoint_exists",
    "checkpoints_iterator",
    "create_global_step",
    "data",
    "errors",
    "evaluate",
    "evaluate_checkpoints",
    "every",
    "get_checkpoint_mtimes",
    "get_checkpoint_state",
    "get_global_step",
    "get_or_create_global_step",
    "global_step",
    "graph",
    "init_from_checkpoint",
    "latest_checkpoint",
    "list_variables",
    "load_checkpoint",
    "load_variable",
    "programs",
    "remove_checkpoint",
    "start_queue_runners",
    "stop_if_higher",
    "stop_if_lower",
    "stop_if_no_decrease",
    "stop_if_no_increase",
    "summary",
    "update_checkpoint_state",
    "wait_for_new_checkpoint",
]

__version__ = "0.1.0"
