"""The queue in one process: submission, order, limits, requests, ends and retention."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import pytest

import asyncmon as am
from asyncmon.jobs.directories import check_file_system
from asyncmon.jobs.lease import Lease
from asyncmon.system import portable
from asyncmon.testing import assert_nothing_left_behind
from tests.jobs.conftest import Steered
from tests.jobs.kinds import counting

pytestmark = [pytest.mark.asyncio]


def queue_of(root: Path, steered: Steered, **options: Any) -> am.jobs.JobQueue:
    queue = am.jobs.JobQueue(root, **options)
    steered.register(queue)
    return queue


async def messages_of(job: am.jobs.Job) -> list[str]:
    return [event.message async for event in job.events()]


@pytest.mark.virtual_time
async def test_a_job_ends_once_with_an_outcome_and_its_events(root: Path, steered: Steered) -> None:
    async with assert_nothing_left_behind(), queue_of(root, steered) as queue:
        job = await queue.submit("steered", {"rate": 0.1}, name="first")
        assert (job.state, job.outcome, job.params) == ("queued", None, {"rate": 0.1})
        steered.end("first")
        assert (await job.wait()).state is am.jobs.State.COMPLETED
        outcome = job.outcome
        assert outcome is not None
        assert (outcome.name, outcome.step, outcome.cause, outcome.error) == (
            "first", None, "returned", None,
        )  # fmt: skip
        messages = [(event.type, event.message) async for event in job.events()]
        assert messages == [
            ("state", "queued"),
            ("state", "opening, attempt 1"),
            ("state", "completed: returned"),
        ]
        assert steered.started == ["first"]


@pytest.mark.virtual_time
async def test_beginnings_and_ends_of_jobs_are_logged(
    root: Path, steered: Steered, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="asyncmon.jobs.worker")
    async with queue_of(root, steered) as queue:
        job = await queue.submit("steered", name="x")
        await steered.wait_started("x")
        steered.end("x")
        await job.wait()
    assert [one for one in caplog.messages if "The job" in one] == [
        "The job 'x' begins, attempt 1.",
        "The job 'x' is completed: returned.",
    ]


@pytest.mark.virtual_time
async def test_the_same_name_kind_and_params_are_the_same_job(root: Path, steered: Steered) -> None:
    async with queue_of(root, steered) as queue:
        first = await queue.submit("steered", {"a": 1, "b": [2]}, name="x")
        again = await queue.submit("steered", {"b": [2], "a": 1}, name="x")
        assert again.id == first.id
        with pytest.raises(FileExistsError, match="There is a job 'x' already, of the kind 'steered'"):
            await queue.submit("steered", {"a": 2}, name="x")
        steered.end("x")
        await first.wait()
        assert (await queue.submit("steered", {"a": 1, "b": [2]}, name="x")).state == "completed"
        assert steered.started == ["x"]


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        (("nothing",), LookupError, "There is no kind 'nothing'; there are: 'steered'"),
        (("steered", {"rate": float("nan")}), ValueError, "values of JSON, got .* not JSON compliant"),
        (("steered", {"rate": object()}), TypeError, "values of JSON, got .* not JSON serializable"),
        (("steered", [1]), TypeError, "values by name"),
        (("steered", {}, "../x"), ValueError, "A name has up to 80"),
        (("steered", {}, ".x"), ValueError, "begins with a letter"),
        (("steered", {}, "x", 0.5), TypeError, "priority must be a whole number"),
    ],
)
async def test_a_wrong_job_is_refused(
    root: Path, steered: Steered, arguments: Any, error: type[Exception], text: str
) -> None:
    kind, params, name, priority = (*arguments, *(None, None, 0)[len(arguments) - 1 :])
    async with queue_of(root, steered) as queue:
        with pytest.raises(error, match=text):
            await queue.submit(kind, params, name=name, priority=priority)
        assert await queue.list() == []


@pytest.mark.virtual_time
async def test_jobs_run_by_priority_and_no_more_than_the_limit(root: Path, steered: Steered) -> None:
    async with queue_of(root, steered, max_running=2) as queue:
        for n in range(2):
            await queue.submit("steered", name=f"first-{n}")
        await steered.wait_started("first-0", "first-1")
        jobs = [await queue.submit("steered", name=f"low-{n}") for n in range(2)]
        jobs.append(await queue.submit("steered", name="high", priority=1))
        await asyncio.sleep(5)
        assert sorted(steered.started) == ["first-0", "first-1"]  # they start side by side
        steered.end("first-0")
        await steered.wait_started("high")
        steered.end("first-1", "low-0", "low-1", "high")
        await asyncio.gather(*[job.wait() for job in jobs])
        assert (steered.started[2], steered.most) == ("high", 2)


@pytest.mark.virtual_time
async def test_the_limit_holds_for_all_processes(root: Path, steered: Steered) -> None:
    async with (
        queue_of(root, steered, max_running=2) as one,
        queue_of(root, steered, max_running=2) as other,
    ):
        jobs = await one.submit_many("steered", [{}] * 20)
        await asyncio.sleep(5)
        assert len(steered.running) == 2
        steered.end(*[job.name for job in jobs])
        await asyncio.gather(*[(await other.get(job.id)).wait() for job in jobs])
        assert (len(steered.started), steered.most) == (20, 2)
        assert len(set(steered.started)) == 20


@pytest.mark.virtual_time
async def test_a_failed_job_says_why(root: Path) -> None:
    queue = am.jobs.JobQueue(root)

    @queue.kind("fails")
    async def fails(job: Any) -> None:
        raise ZeroDivisionError("by 0")

    @queue.kind("exits")
    async def exits(job: Any) -> None:
        raise SystemExit(3)

    @queue.kind("cancels")
    async def cancels(job: Any) -> None:
        raise asyncio.CancelledError

    async with queue:
        jobs = [await queue.submit(kind) for kind in ("fails", "exits", "cancels")]
        outcomes = [(await job.wait()).outcome for job in jobs]
        assert [(one.state, one.error) for one in outcomes if one] == [
            ("failed", "ZeroDivisionError: by 0"),
            ("failed", "SystemExit: 3"),
            ("failed", "It raised CancelledError: it awaited a task or a future that was cancelled."),
        ]


@pytest.mark.virtual_time
async def test_a_waiting_job_is_paused_and_cancelled_at_once(root: Path, steered: Steered) -> None:
    async with queue_of(root, steered) as queue:
        running = await queue.submit("steered", name="running")
        await running.wait("opening")
        job = await queue.submit("steered", name="waiting")
        assert (await job.pause()).state == "paused"
        with pytest.raises(am.jobs.StateError, match="'running' is opening, not paused"):
            await running.resume()
        assert (await job.resume()).state == "queued"
        assert (await job.cancel()).state == "cancelled"
        for call in (job.cancel, job.pause, job.resume):
            with pytest.raises(am.jobs.StateError, match="'waiting' is cancelled"):
                await call()
        with pytest.raises(am.jobs.StateError, match="is cancelled and waits for no other state"):
            await job.wait("running")


@pytest.mark.virtual_time
async def test_a_running_job_is_cancelled_and_a_cancel_outranks_a_pause(
    root: Path, steered: Steered
) -> None:
    async with queue_of(root, steered) as queue:
        job = await queue.submit("steered", name="x")
        await steered.wait_started("x")
        assert f":{os.getpid()}:" in ((await job.refresh()).owner or "")
        assert (await job.pause()).state == "opening"  # requested
        await job.cancel()
        await job.wait()
        assert (job.state, job.owner, steered.running) == ("cancelled", None, [])


@pytest.mark.virtual_time
async def test_a_request_of_another_process_is_received(root: Path, steered: Steered) -> None:
    async with queue_of(root, steered) as queue:
        job = await queue.submit("steered")
        await job.wait("opening")
        async with am.jobs.JobQueue(root) as other:
            start = asyncio.get_running_loop().time()
            await (await (await other.get(job.name)).pause()).wait("paused")
        assert asyncio.get_running_loop().time() - start <= 0.5


@pytest.mark.virtual_time
async def test_a_close_preempts_and_the_next_opening_continues(root: Path, steered: Steered) -> None:
    async with queue_of(root, steered) as queue:
        job = await queue.submit("steered", name="x")
        await steered.wait_started("x")
    with pytest.raises(RuntimeError, match="is closed"):
        await job.refresh()
    async with queue_of(root, steered) as queue:
        steered.end("x")
        job = await (await queue.get("x")).wait()
        assert (job.state, job.attempt, steered.started) == ("completed", 2, ["x", "x"])
        states = [event.data["state"] async for event in job.events()]
        assert states == ["queued", "opening", "preempted", "opening", "completed"]


@pytest.mark.virtual_time
async def test_an_error_during_a_shutdown_is_no_failure(root: Path) -> None:
    queue, started = am.jobs.JobQueue(root), asyncio.Event()

    @queue.kind("needs")
    async def needs(job: Any) -> None:
        if job.attempt == 1:
            started.set()
            try:
                await asyncio.sleep(100)
            finally:
                raise OSError("the database is closed")

    async with queue:
        await queue.submit("needs", name="x")
        await started.wait()
    async with queue:
        job = await (await queue.get("x")).wait()
        assert (job.state, job.attempt) == ("completed", 2)
        events = [event.message async for event in job.events()]
        assert "lost: an error during the shutdown, OSError: the database is closed" in events


@pytest.mark.virtual_time
async def test_a_job_that_ignores_its_cancellation_does_not_hold_up_the_close(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    queue, ends = am.jobs.JobQueue(root, grace=1.0), asyncio.Event()
    started = asyncio.Event()

    @queue.kind("stubborn")
    async def stubborn(job: Any) -> None:
        started.set()
        while not ends.is_set():
            try:
                await ends.wait()
            except asyncio.CancelledError:
                continue

    async with queue:
        await queue.submit("stubborn", name="x")
        await started.wait()
        start = asyncio.get_running_loop().time()
    assert asyncio.get_running_loop().time() - start <= 1.0 + 5.0 + 0.3
    assert "ignores its stop. It is lost when this process ends." in caplog.text
    ends.set()
    await asyncio.sleep(1)


@pytest.mark.virtual_time
async def test_an_end_on_a_full_disk_is_recorded_when_there_is_room(
    root: Path, steered: Steered, caplog: pytest.LogCaptureFixture
) -> None:
    async with queue_of(root, steered) as queue, am.jobs.JobQueue(root) as other:
        job = await queue.submit("steered", name="x")
        await steered.wait_started("x")
        # The room is in the connection of this process only.
        await queue._store.write(
            lambda db: db.execute("CREATE TEMP TRIGGER full BEFORE UPDATE ON jobs"
                                  " BEGIN SELECT RAISE(ROLLBACK, 'the disk is full'); END")
        )  # fmt: skip
        steered.end("x")
        await asyncio.sleep(30)
        assert "The end of the job 'x' is not recorded: IntegrityError: the disk is full" in caplog.text
        assert (await (await other.get("x")).refresh()).state == "opening"  # the lease is held
        await queue._store.write(lambda db: db.execute("DROP TRIGGER full"))
        await job.wait()
        assert (job.state, job.attempt, steered.started) == ("completed", 1, ["x"])


@pytest.mark.virtual_time
async def test_event_that_cannot_be_written_is_named_and_ends_no_job(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    queue = am.jobs.JobQueue(root)

    @queue.kind("reports")
    async def reports(job: am.jobs.RunningJob) -> None:
        job.report(1, loss=0.5)

    async with queue:
        await queue._store.write(
            lambda db: db.execute("CREATE TEMP TRIGGER full BEFORE INSERT ON events"
                                  " WHEN NEW.type = 'metrics'"
                                  " BEGIN SELECT RAISE(ABORT, 'the disk is full'); END")
        )  # fmt: skip
        job = await (await queue.submit("reports", name="x")).wait()
    assert job.state == "completed"
    assert "An event of a job is not recorded: IntegrityError: the disk is full." in caplog.text


@pytest.mark.virtual_time
async def test_claims_that_are_not_committed_hold_no_lease(root: Path, steered: Steered) -> None:
    async with queue_of(root, steered, max_running=2) as queue:
        await queue._store.write(
            lambda db: db.execute("CREATE TEMP TRIGGER full BEFORE UPDATE ON jobs WHEN NEW.name = 'b'"
                                  " BEGIN SELECT RAISE(ROLLBACK, 'the disk is full'); END")
        )  # fmt: skip
        jobs = [await queue.submit("steered", name=name) for name in "ab"]
        await asyncio.sleep(20)
        for job in jobs:
            if (await job.refresh()).state == "queued":
                lease = Lease.take(root / "leases" / job.id)
                assert lease is not None
                lease.release()
        assert jobs[1].state == "queued"
        await queue._store.write(lambda db: db.execute("DROP TRIGGER full"))
        steered.end("a", "b")
        await asyncio.gather(*[job.wait() for job in jobs])
        assert sorted(steered.started) == ["a", "b"]


@pytest.mark.virtual_time
async def test_waiters_end_when_the_queue_is_closed(root: Path, steered: Steered) -> None:
    queue = queue_of(root, steered)
    async with queue:
        job = await queue.submit("steered")
        await job.wait("opening")
        waiting = asyncio.create_task(job.wait("completed"))
        events = asyncio.create_task(messages_of(job))
        await asyncio.sleep(1)
    with pytest.raises(RuntimeError, match="closed"):
        await waiting
    assert (await events)[:2] == ["queued", "opening, attempt 1"]  # and it ends
    with pytest.raises(RuntimeError, match="is closed"):
        await anext(job.events())


@pytest.mark.virtual_time
async def test_pages_of_a_list_follow_each_other(root: Path, steered: Steered) -> None:
    async with queue_of(root, steered) as queue:
        await queue.submit_many("steered", [{"n": n} for n in range(7)])
        found, after = [], 0
        while page := await queue.list(kind="steered", limit=3, after=after):
            found += [job.params["n"] for job in page]
            after = page[-1].number
        assert found == list(range(7))
        assert len(await queue.list("queued")) in (6, 7)
        assert await queue.list("failed") == []
        with pytest.raises(KeyError, match="There is no job 'nothing'"):
            await queue.get("nothing")


@pytest.mark.virtual_time
async def test_submit_many_queues_all_or_none(root: Path, steered: Steered) -> None:
    async with queue_of(root, steered) as queue:
        with pytest.raises(TypeError):
            await queue.submit_many("steered", [{}, {"x": object()}])
        assert await queue.list() == []


async def test_a_queue_is_open_in_its_block_only(root: Path, steered: Steered) -> None:
    queue = queue_of(root, steered)
    with pytest.raises(RuntimeError, match="is not open: use it in `async with`"):
        await queue.submit("steered")
    async with queue:
        with pytest.raises(RuntimeError, match="is open"):
            await queue.__aenter__()
    with pytest.raises(RuntimeError, match="is closed"):
        await queue.list()


@pytest.mark.parametrize(
    "options",
    [{"max_running": 0}, {"executor": "ray"}, {"grace": -1}, {"keep": -1}, {"keep_days": float("nan")}],
)
async def test_wrong_arguments_are_refused(root: Path, options: Any) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        am.jobs.JobQueue(root, **options)


async def test_a_network_file_system_is_refused_with_a_sentence(root: Path) -> None:
    with pytest.raises(OSError, match=r"is on a network file system \(nfs4\), whose locks are not"):
        check_file_system("nfs4", root)
    for kind in (None, "ext4", "overlay", "tmpfs"):
        check_file_system(kind, root)


async def test_the_file_system_of_the_innermost_mount_counts(root: Path) -> None:
    mounts = (
        "21 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        "36 21 0:33 / /home/a\\040b rw,relatime shared:1 - nfs4 server:/x rw\n"
    )
    found = [portable._file_system_in(mounts, type(root)(path)) for path in ("/home/a b/c", "/home/a")]
    assert found == ["nfs4", "ext4"]


class Strange(BaseException):
    """An error outside of ``Exception``, as those of test frameworks."""


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    "error", [Strange("bad"), SystemExit("bad"), BaseExceptionGroup("bad", [Strange()])]
)
async def test_any_error_of_a_kind_fails_its_job_at_once(root: Path, error: BaseException) -> None:
    queue = am.jobs.JobQueue(root)

    @queue.kind("bad")
    async def bad(job: am.jobs.RunningJob) -> None:
        raise error

    async with queue:
        job = await (await queue.submit("bad")).wait()
        assert job.outcome is not None
        assert (job.state, job.attempt, type(error).__name__ in str(job.outcome.error)) == (
            "failed", 1, True,
        )  # fmt: skip


@pytest.mark.virtual_time
async def test_half_characters_in_texts_of_a_job_are_question_marks(
    root: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("CRITICAL", logger="asyncmon")  # a worker of pytest cannot send such a log
    queue = am.jobs.JobQueue(root)

    @queue.kind("bad")
    async def bad(job: am.jobs.RunningJob) -> None:
        job.report(1, **{"loss\udcff": 1.0, "é": float("nan")})
        raise ValueError("no file 'a\udcff'")

    @queue.kind("stopped")
    async def stopped(job: am.jobs.RunningJob) -> None:
        async with counting(job) as sess:
            sess.request_stop("for \udcff")

    async with queue:
        job = await (await queue.submit("bad")).wait()
        assert job.outcome is not None
        assert job.outcome.metrics == {"loss?": 1.0, "é": "NaN"}
        assert job.outcome.error == "ValueError: no file 'a?'"
        other = await (await queue.submit("stopped")).wait()
        assert other.outcome is not None
        assert other.outcome.cause == "for ?"
        with pytest.raises(ValueError, match="surrogates"):
            await queue.submit("bad", {"a": "\ud800"})
        with pytest.raises(ValueError, match="priority"):
            await queue.submit("bad", priority=2**63)
        assert [one.state for one in await queue.list()] == ["failed", "stopped"]


@pytest.mark.virtual_time
async def test_an_id_is_found_before_an_equal_name_of_another_job(root: Path, steered: Steered) -> None:
    async with queue_of(root, steered, max_running=2) as queue:
        first = await queue.submit("steered", name="first")
        other = await queue.submit("steered", name=first.id)
        assert (await queue.get(first.id)).name == "first"
        assert (await other.refresh()).name == first.id
        steered.end("first", first.id)
        await asyncio.gather(first.wait(), other.wait())
        await queue.delete(first)
        assert (await queue.get(first.id)).id == other.id


@pytest.mark.virtual_time
@pytest.mark.parametrize(("request_", "state"), [("cancel", "cancelled"), ("pause", "paused")])
async def test_a_kind_that_suppresses_its_cancellation_has_not_completed(
    root: Path, request_: str, state: str
) -> None:
    queue = am.jobs.JobQueue(root)
    started = asyncio.Event()

    @queue.kind("stubborn")
    async def stubborn(job: am.jobs.RunningJob) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            return

    async with queue:
        job = await queue.submit("stubborn")
        await started.wait()
        await getattr(job, request_)()
        assert (await job.wait(state)).state == state
        if state == "paused":  # else the shutdown below would have nothing to preempt
            started.clear()
            await job.resume()
            await started.wait()
    async with am.jobs.JobQueue(root) as other:
        assert (await other.get(job.id)).state == ("preempted" if state == "paused" else state)
