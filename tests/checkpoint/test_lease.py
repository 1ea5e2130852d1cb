"""One process saves into a prefix of an object store: it holds a lease there."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import tempfile
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import obstore
import obstore.exceptions
import obstore.store
import pytest

from asyncmon.checkpoint import Saver, cloud, latest_checkpoint, prune
from asyncmon.checkpoint import lease as leases
from asyncmon.checkpoint.cloud import ObjectStore
from asyncmon.checkpoint.directory import Directory
from asyncmon.checkpoint.lease import LEASE_NAME, Lease
from asyncmon.errors import (
    CancelledError,
    FailedPreconditionError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
)
from asyncmon.programs import FunctionProgram
from asyncmon.runtime.run_record import run_record
from asyncmon.system import portable
from asyncmon.system.files import in_thread
from asyncmon.training import MonitoredTrainingSession
from tests import forked

pytestmark = pytest.mark.asyncio

MakeSession = Callable[..., Any]


@pytest.fixture(params=["memory", "local"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "memory":
        return f"memory://{tmp_path.name}/runs/one"
    cloud.mount(f"local://{tmp_path.name}/", obstore.store.LocalStore(tmp_path))
    return f"local://{tmp_path.name}/runs/one"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "RENEW_SECS", 0.02)
    monkeypatch.setattr(leases, "EXPIRE_SECS", 0.3)
    # the other process of these tests is this one
    monkeypatch.setattr(portable, "has_ended", lambda machine, process: False)


@contextlib.asynccontextmanager
async def other_process(url: str) -> AsyncIterator[Lease]:
    """Hold the lease of a prefix like another process."""
    lease = await in_thread(Lease, url)
    try:
        yield lease
    finally:
        await in_thread(lease.release)


async def names(url: str) -> list[str]:
    return await in_thread(ObjectStore(url).names)


@pytest.mark.usefixtures("quick")
async def test_second_process_is_refused_while_the_first_one_renews_its_lease(
    url: str, make_session: MakeSession
) -> None:
    saver = Saver()
    for step in (1, 2):
        await saver.save(make_session(a=1.0), f"{url}/m", step)
    await saver.close()
    store = ObjectStore(url)
    await in_thread(store.write, "m-3.safetensors", b"of a save in flight")
    async with other_process(url):
        before = await names(url)
        with pytest.raises(FailedPreconditionError, match=rf'saves checkpoints .*"pid": {os.getpid()}'):
            await saver.save(make_session(a=1.0), f"{url}/m", 3)
        with pytest.raises(FailedPreconditionError, match="Another process saves checkpoints into"):
            await prune(url, 1)
        assert await names(url) == before
    assert len((await prune(url, 1)).deleted) == 1
    assert await saver.save(make_session(a=1.0), f"{url}/m", 3)
    await saver.close()
    assert LEASE_NAME not in await names(url)


async def suspend(lease: Lease) -> None:
    """Stop the renewals of a lease, and wait for one that has begun."""
    lease.forget()

    def wait() -> None:
        with lease._lock:
            pass

    await in_thread(wait)


@pytest.mark.usefixtures("quick")
async def test_lease_that_is_not_renewed_expires(url: str, make_session: MakeSession) -> None:
    async with other_process(url) as lease:
        await suspend(lease)  # as after a kill on another machine
        saver = Saver()
        await saver.save(make_session(a=1.0), f"{url}/m", 1)
        with pytest.raises(FailedPreconditionError, match="Another process saves"):
            await in_thread(lambda: (lease._ended.clear(), lease._renew_now(), lease.check()))
        await saver.close()


async def test_lease_of_a_killed_process_of_this_machine_is_taken_over_at_once(
    tmp_path: Path, make_session: MakeSession
) -> None:
    cloud.mount("killed://x", obstore.store.LocalStore(tmp_path))
    program = (
        "import os, sys, obstore.store\n"
        "from asyncmon.checkpoint import cloud\n"
        "from asyncmon.checkpoint.lease import Lease\n"
        "cloud.mount('killed://x', obstore.store.LocalStore(sys.argv[1]))\n"
        "Lease('killed://x/run')\n"
        "print('held', flush=True)\n"
        "os._exit(9)\n"
    )
    assert forked.run("-c", program, str(tmp_path)).stdout == "held\n"
    assert LEASE_NAME in await names("killed://x/run")
    saver = Saver()
    started = asyncio.get_running_loop().time()
    await saver.save(make_session(a=1.0), "killed://x/run/m", 1)
    assert asyncio.get_running_loop().time() - started < leases.EXPIRE_SECS / 3
    await saver.close()


@pytest.mark.usefixtures("quick")
async def test_process_that_was_suspended_commits_nothing_after_its_lease_was_taken(
    url: str, make_session: MakeSession
) -> None:
    saver = Saver()
    await saver.save(make_session(a=1.0), f"{url}/m", 1)
    mine = Directory.of(url)._lock._lease
    await suspend(mine)
    async with other_process(url):
        with pytest.raises(FailedPreconditionError, match="Another process saves"):
            await in_thread(lambda: (mine._ended.clear(), mine._renew_now(), mine.check()))
        with pytest.raises(FailedPreconditionError, match="Another process saves"):
            await saver.save(make_session(a=2.0), f"{url}/m", 2)
        assert await latest_checkpoint(url) == f"{url}/m-1"
    await saver.close()


class Answers:
    """Stands in for the answers of a store to each put."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answer: Callable[[], Exception]) -> None:
        self.puts: list[dict[str, Any]] = []
        put = obstore.put

        def refuse(store: Any, path: str, data: Any, **options: Any) -> Any:
            self.puts.append(options)
            error = answer()
            if error is not None:
                raise error
            return put(store, path, data, **options)

        monkeypatch.setattr(obstore, "put", refuse)


@pytest.mark.parametrize(
    ("answer", "error", "text"),
    [
        (
            "status code: 403 X: <Code>ExpiredToken</Code>",
            PermissionDeniedError,
            "have expired",
        ),
        (
            "status code: 403 X: <Code>AccessDenied</Code>",
            PermissionDeniedError,
            "403 AccessDen",
        ),
        ("status code: 404 X: <Code>NoSuchBucket</Code>", NotFoundError, "no such bucket"),
        ("status code: 503 Slow: <Code>SlowDown</Code>", UnavailableError, "503 SlowDown"),
        ("error sending request", UnavailableError, "error sending request"),
    ],
)
async def test_error_names_the_status_and_the_code_of_the_store(
    url: str, make_session: MakeSession, monkeypatch: pytest.MonkeyPatch,
    answer: str, error: type[Exception], text: str,
) -> None:  # fmt: skip
    Answers(monkeypatch, lambda: obstore.exceptions.GenericError(f"Generic S3 error: {answer}"))
    with pytest.raises(error, match=text):
        await Saver().save(make_session(a=1.0), f"{url}/m", 1)


async def test_small_file_is_one_put_and_a_large_one_several(
    url: str, make_session: MakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver = Saver()
    await saver.claim(url)
    answers = Answers(monkeypatch, lambda: None)  # type: ignore[arg-type,return-value]  # no fault
    await saver.save(make_session(a=np.zeros(600_000)), f"{url}/m", 1)  # 4.8 MB
    assert [options["use_multipart"] for options in answers.puts] == [False] * 4
    answers.puts.clear()
    await saver.save(make_session(a=np.zeros(1_200_000)), f"{url}/m", 2)
    assert [options["use_multipart"] for options in answers.puts].count(True) == 1
    session = make_session(a=np.ones(1_200_000))
    await saver.restore(session, f"{url}/m-2")
    assert not session.state["a"].any()
    await saver.close()


async def test_cancelled_save_leaves_a_store_that_does_not_answer(
    url: str, make_session: MakeSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    saver, answer, asked = Saver(), threading.Event(), threading.Event()
    await saver.save(make_session(a=1.0), f"{url}/m", 1)

    def hang() -> Any:
        asked.set()
        assert answer.wait(20)

    Answers(monkeypatch, hang)
    try:
        handle = saver.start_save(make_session(a=2.0), f"{url}/m", 2)
        await in_thread(asked.wait, 10)
        async with asyncio.timeout(5):
            await saver.abandon()
        with pytest.raises(CancelledError):
            await handle
        assert await latest_checkpoint(url) == f"{url}/m-1"
    finally:
        answer.set()
    await saver.close()


async def test_cancelled_session_leaves_a_store_that_does_not_answer_within_its_grace_period(
    url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The save in flight is awaited once, and the log says that its state is not saved."""
    answer, asked = threading.Event(), threading.Event()
    program = FunctionProgram({"x": 0.0})

    @program.step
    async def train(state: dict[str, Any]) -> None:
        state["x"] += 1

    async def training() -> None:
        session = MonitoredTrainingSession(
            checkpoint_dir=url, program=program, save_checkpoint_steps=1, stop_grace_period_secs=0.1,
            save_summaries_steps=0, log_step_count_steps=0, signals=None, loggers=[],
            summary_dir=tmp,
        )  # fmt: skip
        async with session as sess:
            Answers(monkeypatch, hang)
            await sess.run("train")
            await asyncio.Event().wait()

    def hang() -> Any:
        asked.set()
        assert answer.wait(20)

    with tempfile.TemporaryDirectory() as tmp:
        task = asyncio.create_task(training())
        try:
            await in_thread(asked.wait, 10)
            task.cancel()
            done, _ = await asyncio.wait([task], timeout=6)
            assert done
            assert task.cancelled()
            assert "is abandoned: its state is not saved" in caplog.text
        finally:
            answer.set()
    assert await latest_checkpoint(url) == f"{url}/model.ckpt-0"


async def test_record_of_a_run_is_unknown_after_an_hour(url: str, tmp_path: Path) -> None:
    """A store has no lock to check, so its run is never lost."""
    program = FunctionProgram({"n": 0})
    async with MonitoredTrainingSession(
        program=program, checkpoint_dir=url, summary_dir=tmp_path / "events", name="digits"
    ) as sess:
        found = await run_record(url)
        assert found is not None
        assert (found.name, found.state, found.directory) == ("digits", "running", url)
        old = json.loads(msgspec.json.encode(found)) | {"updated": found.updated - 3601}
        await in_thread(ObjectStore(url).put, {"run.json": json.dumps(old).encode()})
        found = await run_record(url)
        assert found is not None
        assert found.state == "unknown"
    assert await run_record(url) == sess.outcome
