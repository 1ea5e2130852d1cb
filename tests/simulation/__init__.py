"""Simulate the processes of a cluster in one event loop, in virtual time, from a seed.

:func:`simulate` runs programs unchanged: servers, sessions, checkpoints. A schedule of actions, such as
``at(2.0, kill("ps/0", restart_secs=1.0))``, does to them what machines and networks do.

Each process has a context with its own :data:`~asyncmon.system.process_local.process_values`: a
transport, file calls, a clock and calls in threads of the simulation. A function in a thread is one
event. The target ``"local"``, gRPC itself, subprocesses, sockets and files that a program opens itself
are real.
"""

# fmt: off
# isort: off
from tests.simulation.actions import (
    Action, Event, Faults, at, crash, crash_at_write, disturb, fill_disk, jump_clock, kill,
    partition, slow_disk, start, suspend, terminate,
)
from tests.simulation.disk import Disk
from tests.simulation.run import Report, SimulationError, inject, simulate

__all__ = [
    "Action", "Disk", "Event", "Faults", "Report", "SimulationError", "at", "crash", "crash_at_write",
    "disturb", "fill_disk", "inject", "jump_clock", "kill", "partition", "simulate", "slow_disk",
    "start", "suspend", "terminate",
]
# fmt: on
# isort: on
__dir__ = __all__.copy
