"""The standard hooks: what happens around the steps, one family a file.

Each is a :class:`~asyncmon.runtime.SessionRunHook`. What is due by steps is done on the step path,
exactly at its step; what is due by seconds is done by a task beside the steps::

    hooks = [
        StopAtStepHook(last_step=10_000),
        NanTensorHook(loss),
        LoggingTensorHook({"loss": loss}, every_n_secs=10),
        CheckpointSaverHook("runs/digits", save_secs=60, scaffold=scaffold),
    ]
    async with MonitoredSession(ChiefSessionCreator(scaffold), hooks) as sess:
        while not sess.should_stop():
            await sess.run(train_op)

Guards (NaN) stand before all others and savers behind them, whatever the order of the list.
"""

from asyncmon.hooks.checkpoint_hooks import CheckpointSaverHook
from asyncmon.hooks.checkpoint_listener import CheckpointSaverListener
from asyncmon.hooks.early_stopping import (
    EarlyStoppingHook,
    StopRule,
    stop_if_higher,
    stop_if_lower,
    stop_if_no_decrease,
    stop_if_no_increase,
)
from asyncmon.hooks.eval_hook import EvalHook, Evaluations, InMemoryEvaluatorHook
from asyncmon.hooks.evaluation import evaluate, evaluate_checkpoints
from asyncmon.hooks.every import EveryHook, every
from asyncmon.hooks.jsonl import JsonlWriter
from asyncmon.hooks.logging_hooks import LoggingTensorHook
from asyncmon.hooks.loop_lag import LoopLagHook
from asyncmon.hooks.moments import veto_saving
from asyncmon.hooks.nan_hooks import NanLossDuringTrainingError, NanTensorHook
from asyncmon.hooks.ops_hooks import FeedFnHook, FinalOpsHook
from asyncmon.hooks.profiler_hook import ProfilerHook
from asyncmon.hooks.progress import ProgressHook
from asyncmon.hooks.step_counter import StepCounterHook
from asyncmon.hooks.stop_hooks import StopAtStepHook
from asyncmon.hooks.summary_hooks import SummarySaverHook
from asyncmon.hooks.waiter import GlobalStepWaiterHook

__all__ = [
    "CheckpointSaverHook",
    "CheckpointSaverListener",
    "EarlyStoppingHook",
    "EvalHook",
    "Evaluations",
    "EveryHook",
    "FeedFnHook",
    "FinalOpsHook",
    "GlobalStepWaiterHook",
    "InMemoryEvaluatorHook",
    "JsonlWriter",
    "LoggingTensorHook",
    "LoopLagHook",
    "NanLossDuringTrainingError",
    "NanTensorHook",
    "ProfilerHook",
    "ProgressHook",
    "StepCounterHook",
    "StopAtStepHook",
    "StopRule",
    "SummarySaverHook",
    "evaluate",
    "evaluate_checkpoints",
    "every",
    "stop_if_higher",
    "stop_if_lower",
    "stop_if_no_decrease",
    "stop_if_no_increase",
    "veto_saving",
]
