"""The public test bench: virtual time, scripted sessions, recorded hooks, injected faults.

For the tests of hooks, sessions and programs, yours and ours. With pytest, mark an async test with
``virtual_time`` (:mod:`asyncmon.testing.pytest_plugin` is to be switched on); elsewhere, use
:func:`run`::

    @pytest.mark.asyncio
    @pytest.mark.virtual_time
    async def test_a_minute_of_timers_takes_no_time() -> None:
        async with assert_nothing_left_behind():
            await asyncio.sleep(60)
"""

from asyncmon.testing.faults import fail_at_step as fail_at_step
from asyncmon.testing.faults import fail_in as fail_in
from asyncmon.testing.gradients import check_gradients as check_gradients
from asyncmon.testing.leftovers import assert_nothing_left_behind as assert_nothing_left_behind
from asyncmon.testing.program_case import ProgramCase as ProgramCase
from asyncmon.testing.program_contract import PROGRAM_CASES as PROGRAM_CASES
from asyncmon.testing.program_contract import check_program as check_program
from asyncmon.testing.recording import Recorded as Recorded
from asyncmon.testing.recording import RecordingHook as RecordingHook
from asyncmon.testing.scripted import ScriptedCreator as ScriptedCreator
from asyncmon.testing.scripted import ScriptedProgram as ScriptedProgram
from asyncmon.testing.scripted import ScriptedSession as ScriptedSession
from asyncmon.testing.virtual_time import DeadlockError as DeadlockError
from asyncmon.testing.virtual_time import VirtualTimeLoop as VirtualTimeLoop
from asyncmon.testing.virtual_time import run as run
from asyncmon.testing.virtual_time import wait_all_tasks_blocked as wait_all_tasks_blocked
