"""Other engines behind the session protocol.

:class:`FunctionProgram` makes a program of plain and ``async def`` functions over a declared state, for
whatever has no graph: a remote training API, a loop of reinforcement learning, another framework::

    program = FunctionProgram(state={"weights": np.zeros(10)})

    @program.step
    async def train(state, batch):
        ...

    async with MonitoredTrainingSession(program=program, checkpoint_dir="runs") as sess:
        await sess.run("train", {"batch": batch})

``asyncmon.programs.torch`` has ``TorchProgram``, ``asyncmon.programs.jax`` has ``JaxProgram``; each is
imported by its own name only. ``docs/programs.md`` shows them all.
"""

from asyncmon.programs.fetches import optional as optional
from asyncmon.programs.function import FunctionProgram as FunctionProgram
from asyncmon.programs.function_session import FunctionSession as FunctionSession
from asyncmon.programs.in_flight import Reply as Reply
from asyncmon.programs.in_flight import Submitted as Submitted
from asyncmon.programs.in_flight import submitted as submitted
