"""Other engines behind the session protocol.

:class:`FunctionProgram` makes a program of plain and ``async def`` functions over a declared state, for
use without a graph: a remote training API, a loop of reinforcement learning, another framework::

    program = FunctionProgram(state={"weights": np.zeros(10)})

    @program.step
    async def train(state, batch):
        ...

    async with MonitoredTrainingSession(program=program, checkpoint_dir="runs") as sess:
        await sess.run("train", {"batch": batch})

``asyncmon.programs.torch`` has ``TorchProgram``, ``asyncmon.programs.jax`` has ``JaxProgram``; each is
imported by its own name only. ``docs/programs.md`` shows them all.
"""

# fmt: off
# isort: off
from asyncmon.programs.export import export
from asyncmon.programs.named_fetches import optional
from asyncmon.programs.function import FunctionProgram
from asyncmon.programs.function_session import FunctionSession
from asyncmon.programs.models import load_model

__all__ = [
    "FunctionProgram", "FunctionSession", "export", "load_model", "optional",
]
# fmt: on
# isort: on
__dir__ = __all__.copy
