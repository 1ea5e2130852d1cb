"""Sweeps: rungs, verdicts, and the same verdicts after an interruption."""

from __future__ import annotations

import asyncio
import math
from pathlib import Path
from typing import Any

import pytest

import asyncmon as am
from tests.jobs.kinds import counting

pytestmark = [pytest.mark.asyncio]
RUNGS = [2, 4, 8]


def queue_of(root: Path, steps: list[tuple[str, int]], every: int = 1) -> am.jobs.JobQueue:
    queue = am.jobs.JobQueue(root, max_running=3)

    @queue.kind("trial")
    async def trial(job: Any) -> None:
        async with counting(job, RUNGS[-1]) as sess:
            while not sess.should_stop():
                await sess.run("count")
                steps.append((job.name, sess.global_step or 0))
                if (sess.global_step or 0) % every == 0:
                    job.report(sess.global_step, loss=job.params["loss"])
                await asyncio.sleep(job.params.get("pause", 0))

    return queue


def sweep(queue: am.jobs.JobQueue, losses: list[Any], **options: Any) -> Any:
    trials = [{"loss": loss} if not isinstance(loss, dict) else loss for loss in losses]
    given: dict[str, Any] = {"metric": "loss", "rungs": RUNGS, "name": "s", "eta": 3, **options}
    return am.jobs.halving(queue, "trial", trials, **given)


def verdicts(outcomes: list[am.jobs.Outcome]) -> list[tuple[str, int | None, list[int]]]:
    return [(one.state, one.step, sorted(one.rungs)) for one in outcomes]


async def test_the_best_third_continues_at_each_rung_and_the_rest_are_cancelled(root: Path) -> None:
    steps: list[tuple[str, int]] = []
    async with queue_of(root, steps) as queue:
        outcomes = await sweep(queue, [9, 8, 7, 6, 5, 1, 2, 3, 4])
        lost, second, best = ("cancelled", 2, [2]), ("cancelled", 4, [2, 4]), ("completed", 8, RUNGS)
        assert verdicts(outcomes) == [lost] * 5 + [best] + [second] * 2 + [lost]
        assert len(steps) == 9 * 2 + 3 * 2 + 1 * 4
        assert [one.rungs[2]["loss"] for one in outcomes] == [9, 8, 7, 6, 5, 1, 2, 3, 4]
        assert await sweep(queue, [9, 8, 7, 6, 5, 1, 2, 3, 4]) == outcomes
    assert len(steps) == 28  # the second call reads


async def test_the_largest_value_can_be_the_best(root: Path) -> None:
    async with queue_of(root, []) as queue:
        outcomes = await sweep(queue, [1, 3, 2], mode="max")
    assert [one.state for one in outcomes] == ["cancelled", "completed", "cancelled"]


async def test_a_trial_with_nan_or_with_an_error_is_the_worst(root: Path) -> None:
    queue = am.jobs.JobQueue(root, max_running=3)

    @queue.kind("trial")
    async def trial(job: Any) -> None:
        if job.params["loss"] == "error":
            raise ZeroDivisionError
        async with counting(job, RUNGS[-1]) as sess:
            while not sess.should_stop():
                await sess.run("count")
                job.report(sess.global_step, loss=math.nan if job.params["loss"] == "nan" else 1.0)

    async with queue:
        outcomes = await sweep(queue, ["nan", 1, "error"], eta=2)
    assert [one.state for one in outcomes] == ["cancelled", "completed", "failed"]


async def test_a_report_beyond_a_rung_counts_for_it(root: Path) -> None:
    async with queue_of(root, [], every=3) as queue:
        outcomes = await sweep(queue, [1, 2, 3])
    assert verdicts(outcomes) == [
        ("completed", 8, [2, 4]),
        ("cancelled", 3, [2]),
        ("cancelled", 3, [2]),
    ]


async def test_a_trial_that_is_paused_beyond_the_last_rung_is_resumed_to_end(root: Path) -> None:
    queue = am.jobs.JobQueue(root, max_running=3)

    @queue.kind("trial")
    async def trial(job: Any) -> None:
        async with counting(job, RUNGS[-1] + 1) as sess:
            while (sess.global_step or 0) < RUNGS[-1]:  # it ignores the pause
                await sess.run("count")
                job.report(sess.global_step, loss=job.params["loss"])

    async with queue:
        outcomes = await sweep(queue, [2, 1, 3])
    assert [one.state for one in outcomes] == ["cancelled", "completed", "cancelled"]


async def test_a_metric_that_no_trial_reports_is_refused_with_those_that_they_do(root: Path) -> None:
    async with queue_of(root, []) as queue:
        with pytest.raises(LookupError, match=r"the metric 'los' at step 2; there are \['loss'\]"):
            await sweep(queue, [2, 1, 3], metric="los")
        outcomes = await sweep(queue, [2, 1, 3])  # nothing is lost
    assert [one.state for one in outcomes] == ["cancelled", "completed", "cancelled"]


async def test_an_interrupted_sweep_decides_the_same(root: Path) -> None:
    steps: list[tuple[str, int]] = []
    losses = [{"loss": loss, "pause": 0.01} for loss in (3, 1, 2, 6, 5, 4)]
    for number in range(4):
        async with queue_of(root, steps) as queue:
            running = asyncio.create_task(sweep(queue, losses, eta=2))
            await asyncio.sleep(0.12 * number)
            running.cancel()
            await asyncio.wait([running])
    async with queue_of(root, steps) as queue:
        outcomes = await sweep(queue, losses, eta=2)
        again = await sweep(queue, losses, eta=2)
    assert again == outcomes
    states = [one.state for one in outcomes]
    assert (states[1], states[3:]) == ("completed", ["cancelled"] * 3)
    assert states.count(am.jobs.State.COMPLETED) == 1
    assert sorted(outcomes[1].rungs) == RUNGS


async def test_a_rung_in_the_checkpoint_only_is_judged_after_a_kill(root: Path) -> None:
    """Killed between the save at the rung and its record in the table."""
    steps: list[tuple[str, int]] = []
    async with queue_of(root, steps) as queue:
        first = asyncio.create_task(sweep(queue, [1, 2, 3]))
        job = None
        while job is None:  # the pause itself may be over before the next look
            await asyncio.sleep(0.02)
            job = next((one for one in await queue.list() if (one.step or 0) >= 2), None)
        first.cancel()
        await asyncio.wait([first])
    async with queue_of(root, steps) as queue:
        await queue._store.write(
            lambda db: db.execute(
                "UPDATE jobs SET state = 'lost', judged = '{}', passed = -1, metrics = '{}'"
            )
        )
        outcomes = await sweep(queue, [1, 2, 3])
    assert verdicts(outcomes) == [("completed", 8, RUNGS)] + [("cancelled", 2, [2])] * 2
    assert [name for name, step in steps].count(job.name) in (2, 8)  # no step of the rung again


@pytest.mark.parametrize(
    "options",
    [{"rungs": []}, {"rungs": [4, 2]}, {"rungs": [0, 2]}, {"eta": 1}, {"mode": "best"}],
)
async def test_a_wrong_sweep_is_refused(root: Path, options: Any) -> None:
    async with queue_of(root, []) as queue:
        with pytest.raises(ValueError, match="halving needs"):
            await sweep(queue, [1], **options)
        with pytest.raises(ValueError, match="halving needs"):
            await sweep(queue, [])


async def test_other_rungs_under_the_same_name_are_refused(root: Path) -> None:
    async with queue_of(root, []) as queue:
        await sweep(queue, [1, 2, 3])
        with pytest.raises(FileExistsError, match="There is a job 's-0' already"):
            await sweep(queue, [1, 2, 3], rungs=[2, 8])


async def test_a_close_cuts_the_pause_of_a_trial_short(root: Path) -> None:
    queue = am.jobs.JobQueue(root, grace=0.2)

    @queue.kind("trial")
    async def trial(job: Any) -> None:
        async with counting(job, RUNGS[-1]) as sess:
            await sess.run("count")
            await sess.run("count")
            job.report(2, loss=1.0)
            await asyncio.sleep(1_000)  # it ignores stops

    async with queue:
        running = asyncio.create_task(sweep(queue, [1]))
        job = None
        while job is None or not job._row["judged"]:
            await asyncio.sleep(0.02)
            job = next(iter(await queue.list()), None)
        start = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - start < 5.0  # without it the grace period is 120 s
    with pytest.raises(RuntimeError, match="closed"):
        await running
    async with am.jobs.JobQueue(root) as reader:
        assert (await reader.get("s-0")).state == "paused"
