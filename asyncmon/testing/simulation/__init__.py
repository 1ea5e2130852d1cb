"""Simulate the processes of a cluster in one event loop, in virtual time, from a seed.

:func:`simulate` runs programs unchanged: servers, sessions, checkpoints. A schedule of actions, such as
``at(2.0, kill("ps/0", restart_secs=1.0))``, does to them what machines and networks do.
"""

# fmt: off
# isort: off
from asyncmon.testing.simulation.actions import (
    Action, Event, at, crash, jump_clock, kill, partition, start, suspend,
)
from asyncmon.testing.simulation.run import Report, SimulationError, inject, simulate

__all__ = [
    "Action", "Event", "Report", "SimulationError", "at", "crash", "inject", "jump_clock", "kill",
    "partition", "simulate", "start", "suspend",
]
# fmt: on
# isort: on


def __dir__() -> list[str]:
    return __all__
