"""The standard hooks.

Each is a :class:`~asyncmon.runtime.SessionRunHook`. By steps, a hook acts in the run that reaches the
step; by seconds, it acts in a background task::

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

from asyncmon.hooks.checkpoint_listeners import CheckpointSaverListener as CheckpointSaverListener
from asyncmon.hooks.checkpoint_saver import CheckpointSaverHook as CheckpointSaverHook
from asyncmon.hooks.cluster import ClusterHook as ClusterHook
from asyncmon.hooks.early_stopping import EarlyStoppingHook as EarlyStoppingHook
from asyncmon.hooks.early_stopping import StopRule as StopRule
from asyncmon.hooks.early_stopping import stop_if_higher as stop_if_higher
from asyncmon.hooks.early_stopping import stop_if_lower as stop_if_lower
from asyncmon.hooks.early_stopping import stop_if_no_decrease as stop_if_no_decrease
from asyncmon.hooks.early_stopping import stop_if_no_increase as stop_if_no_increase
from asyncmon.hooks.eval_hook import EvalHook as EvalHook
from asyncmon.hooks.eval_hook import Evaluations as Evaluations
from asyncmon.hooks.eval_hook import InMemoryEvaluatorHook as InMemoryEvaluatorHook
from asyncmon.hooks.evaluation import evaluate as evaluate
from asyncmon.hooks.evaluation import evaluate_checkpoints as evaluate_checkpoints
from asyncmon.hooks.every import EveryHook as EveryHook
from asyncmon.hooks.every import every as every
from asyncmon.hooks.global_step_waiter import GlobalStepWaiterHook as GlobalStepWaiterHook
from asyncmon.hooks.hook_support import veto_saving as veto_saving
from asyncmon.hooks.jsonl_writer import JsonlWriter as JsonlWriter
from asyncmon.hooks.logging_tensor import LoggingTensorHook as LoggingTensorHook
from asyncmon.hooks.loop_lag import LoopLagHook as LoopLagHook
from asyncmon.hooks.nan_tensor import NanLossDuringTrainingError as NanLossDuringTrainingError
from asyncmon.hooks.nan_tensor import NanTensorHook as NanTensorHook
from asyncmon.hooks.ops_hooks import FeedFnHook as FeedFnHook
from asyncmon.hooks.ops_hooks import FinalOpsHook as FinalOpsHook
from asyncmon.hooks.profiler import ProfilerHook as ProfilerHook
from asyncmon.hooks.progress import ProgressHook as ProgressHook
from asyncmon.hooks.step_counter import StepCounterHook as StepCounterHook
from asyncmon.hooks.stop_at_step import StopAtStepHook as StopAtStepHook
from asyncmon.hooks.summary_saver import SummarySaverHook as SummarySaverHook
