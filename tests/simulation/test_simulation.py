"""Programs as simulated processes: they run, are killed, suspended and cut off, and repeat exactly."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

import asyncmon as am
from asyncmon import graph as g
from asyncmon.system import clock
from tests.simulation import (
    Faults,
    Report,
    SimulationError,
    at,
    disturb,
    inject,
    jump_clock,
    kill,
    partition,
    simulate,
    start,
    suspend,
)

KINDS = ["suspend", "partition", "disturb", "jump_clock", "slow_disk", "fill_disk"]
CLUSTER = {"ps": ["ps0:2222"], "worker": ["worker0:2222"]}


async def ticks(count: int = 5) -> list[float]:
    found = []
    for _ in range(count):
        await asyncio.sleep(1)
        found.append(round(clock.monotonic(), 3))
    return found


def config() -> am.SessionConfig:
    made = am.SessionConfig()
    made.rpc_options.token = "secret"
    made.rpc_options.timeout_secs = 6
    return made


async def serve() -> None:
    async with am.Server(CLUSTER, "ps", 0, config=config()) as server:
        await server.join()


async def count_to(last: int) -> int:
    """Count in a variable of the server, and return the number of errors on the way."""
    with g.device("/job:ps/task:0"):
        v = g.get_variable("v", initializer=0)
        add = v.assign_add(1)
    errors = 0
    async with am.Session("grpc://ps0:2222", config=config()) as sess:
        await sess.run(v.initializer)
        while True:
            await asyncio.sleep(0.1)
            try:
                if await sess.run(add) >= last:
                    return errors
            except am.errors.UnavailableError:
                errors += 1


def test_programs_run_side_by_side_and_return_their_results() -> None:
    report = simulate({"a": lambda: ticks(2), "b": lambda: ticks(3)})
    assert report.results == {"a": [1, 2], "b": [1, 2, 3]}
    assert report.ends == {"a": 2, "b": 3}


def test_a_program_talks_to_a_server_over_the_simulated_network() -> None:
    report = simulate({"worker": lambda: count_to(20)}, services={"ps": serve})
    assert report.results == {"worker": 0}
    assert report.messages > 40


def test_the_same_seed_repeats_a_run_exactly_and_another_seed_does_not() -> None:
    def once(seed: int) -> tuple[list[str], float, int]:
        events = [at(0.5, suspend("ps", 0.3))]
        report = simulate({"worker": lambda: count_to(9)}, events, seed=seed, services={"ps": serve})
        return report.log, report.secs, report.messages

    assert once(3) == once(3)
    assert once(3) != once(4)


def test_a_killed_process_executes_nothing_more_and_starts_again() -> None:
    lives: list[list[str]] = []

    async def main() -> int:
        life: list[str] = []
        lives.append(life)
        try:
            for step in range(4):
                await asyncio.sleep(1)
                life.append(f"{step}")
        except asyncio.CancelledError:
            life.append("cancelled")
            raise
        return len(lives)

    report = simulate({"a": main}, [at(2.5, kill("a")), at(4, start("a"))])
    assert lives == [["0", "1"], ["0", "1", "2", "3"]]
    assert report.results == {"a": 2}
    assert [line.split("  ")[-1] for line in report.log] == ["kill a", "start a", "a ended"]


def test_a_program_may_kill_itself_at_a_step_of_its_own() -> None:
    seen: list[int] = []

    async def main() -> None:
        for step in range(3):
            seen.append(step)
            if len(seen) == 2:
                inject(kill("a", restart_secs=1))
            await asyncio.sleep(0)

    simulate({"a": main})
    assert seen == [0, 1, 0, 1, 2]


def test_a_suspended_process_finds_all_its_timers_due_afterwards() -> None:
    report = simulate({"a": lambda: ticks(3), "b": lambda: ticks(3)}, [at(1.5, suspend("a", 10))])
    assert report.results == {"a": [1, 11.5, 12.5], "b": [1, 2, 3]}


def test_calls_over_a_cut_network_fail_by_their_timeout() -> None:
    report = simulate(
        {"worker": lambda: count_to(20)}, [at(1, partition("ps", 4))], services={"ps": serve}
    )
    assert report.results == {"worker": 1}
    assert report.ends["worker"] > 1 + 6


def test_the_wall_clock_of_one_process_jumps() -> None:
    async def wall() -> float:
        before = clock.wall()
        await asyncio.sleep(2)
        return round(clock.wall() - before, 3)

    report = simulate({"a": wall, "b": wall}, [at(1, jump_clock("a", -3600))])
    assert report.results == {"a": 2 - 3600, "b": 2}


def test_a_program_that_does_not_end_is_reported_with_the_seed_and_the_log() -> None:
    with pytest.raises(SimulationError, match="a did not end within 9 s") as caught:
        simulate({"a": asyncio.Event().wait}, [at(1, suspend("a", 1))], seed=5, deadline_secs=9)
    (note,) = caught.value.__notes__
    assert "seed 5" in note
    assert "suspend a for 1 s" in note


def test_an_error_of_a_program_is_raised() -> None:
    async def fail() -> None:
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        simulate({"a": fail})


def test_a_task_that_is_left_behind_is_an_error() -> None:
    kept: list[Any] = []

    async def main() -> None:
        kept.append(asyncio.create_task(asyncio.sleep(1e6), name="forgotten"))

    with pytest.raises(SimulationError, match="forgotten"):
        simulate({"a": main})


@pytest.mark.asyncio
async def test_a_simulation_inside_a_running_loop_is_rejected() -> None:
    with pytest.raises(RuntimeError, match="from a plain function"):
        simulate({"a": ticks})


def test_an_action_outside_of_a_simulation_is_rejected() -> None:
    with pytest.raises(RuntimeError, match="for programs of"):
        inject(kill("a"))


def test_a_kind_of_fault_that_there_is_not_is_rejected() -> None:
    with pytest.raises(ValueError, match="no kind of fault 'flood'"):
        Faults(kinds=["flood"])


def test_random_faults_are_those_of_the_seed() -> None:
    def once(seed: int) -> Report:
        programs = {"a": lambda: ticks(20), "b": lambda: count_to(100)}
        return simulate(programs, seed=seed, services={"ps": serve}, faults=Faults(kinds=KINDS))

    first, again, other = once(1), once(1), once(2)
    assert first == again
    assert first.digest == again.digest
    assert first.log != other.log


def test_connections_that_break_fail_all_of_their_calls() -> None:
    report = simulate(
        {"worker": lambda: count_to(50)}, [at(0, disturb(9, broken=0.3))], services={"ps": serve}
    )
    assert report.results["worker"] > 0
    assert any("the connection of worker to ps breaks" in line for line in report.log)


def test_a_request_that_arrives_twice_is_executed_once() -> None:
    report = simulate(
        {"worker": lambda: count_to(50)}, [at(0, disturb(9, repeated=1.0))], services={"ps": serve}
    )
    assert report.results == {"worker": 0}
