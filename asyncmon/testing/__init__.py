"""The public test bench: virtual time, scripted sessions, recorded hooks, injected faults.

For tests of hooks, sessions and programs. With pytest, enable :mod:`asyncmon.testing.pytest_plugin`
and mark an async test with ``virtual_time``; elsewhere, use :func:`run`::

    @pytest.mark.asyncio
    @pytest.mark.virtual_time
    async def test_a_minute_of_timers_takes_no_time() -> None:
        async with assert_nothing_left_behind():
            await asyncio.sleep(60)
"""

# fmt: off
# isort: off
from asyncmon.testing.faults import fail_at_step, fail_in
from asyncmon.testing.gradients import check_gradients
from asyncmon.testing.leftovers import assert_nothing_left_behind
from asyncmon.testing.program_case import ProgramCase
from asyncmon.testing.program_contract import PROGRAM_CASES, check_program
from asyncmon.testing.recording import Recorded, RecordingHook
from asyncmon.testing.scripted import ScriptedCreator, ScriptedProgram, ScriptedSession
from asyncmon.testing.virtual_time import (
    DeadlockError, VirtualTimeLoop, run, wait_all_tasks_blocked,
)

__all__ = [
    "PROGRAM_CASES", "DeadlockError", "ProgramCase", "Recorded", "RecordingHook", "ScriptedCreator",
    "ScriptedProgram", "ScriptedSession", "VirtualTimeLoop", "assert_nothing_left_behind",
    "check_gradients", "check_program", "fail_at_step", "fail_in", "run", "wait_all_tasks_blocked",
]
# fmt: on
# isort: on
__dir__ = __all__.copy
