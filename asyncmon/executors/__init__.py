"""Workers of pipelines in other processes, in the place of the function of ``sess.produce``.

::

    games = sess.produce(seeds, am.executors.ProcessExecutor(play, processes=4), workers=4)

``docs/pipeline_workers.md`` shows them, and how to write another one over ``Pipeline.lease``.
"""

from asyncmon.executors.pool import WorkerDiedError, WorkerPolicy
from asyncmon.executors.process_executor import ProcessExecutor
from asyncmon.executors.ray import RayExecutor

__all__ = ["ProcessExecutor", "RayExecutor", "WorkerDiedError", "WorkerPolicy"]
__dir__ = __all__.copy
