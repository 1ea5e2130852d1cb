"""Clusters of chief, workers and parameter servers in actors of Ray."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import asyncmon as am
from asyncmon import errors
from asyncmon import graph as g
from tests.distributed.ray_cluster import cluster, ray
from tests.doc_page import programs

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

launch = am.distributed.launch
SMALL = {"CPU": 0.5}


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch, cluster() as (found, _):
        patch.setenv("RAY_ADDRESS", found)
        yield found
        ray.shutdown()


async def describe(task: Any) -> Any:
    return (
        task.job_name,
        task.task_index,
        task.is_chief,
        task.cluster.as_dict(),
        task.target,
        os.getpid(),
    )


def named(directory: Path, name: str) -> list[Path]:
    return list(directory.glob(f"{name}*"))


def has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


async def true(condition: Callable[[], bool]) -> None:
    """Wait until what other processes do is true."""
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - there is no event
            await asyncio.sleep(0.05)


@pytest.mark.asyncio
async def test_each_worker_gets_its_role_and_the_chiefs_result_comes_back(
    address: str, tmp_path: Path
) -> None:
    async def role(task: Any) -> Any:
        (tmp_path / str(task.task_index)).write_text(str(task.is_chief))
        return await describe(task)

    job, index, chief, spec, target, pid = await launch(
        role, workers=2, ps=1, resources=SMALL, log_dir=tmp_path / "logs"
    )
    assert (job, index, chief) == ("worker", 0, True)
    assert {name: len(tasks) for name, tasks in spec.items()} == {"ps": 1, "worker": 2}
    assert target == f"grpc://{spec['worker'][0]}"
    assert target.startswith("grpc://127.0.0.1:")  # one machine
    assert [(tmp_path / str(i)).read_text() for i in (0, 1)] == ["True", "False"]
    logs = {path.name: path.read_text() for path in (tmp_path / "logs").iterdir()}
    assert logs.keys() == {"ps-0.log", "worker-0.log", "worker-1.log"}
    assert "Server grpc://127.0.0.1:" in logs["ps-0.log"]
    await true(lambda: has_ended(pid))
    await true(lambda: ray.available_resources()["CPU"] == 4.0)


@pytest.mark.asyncio
async def test_the_error_of_a_function_is_raised_here(address: str) -> None:
    async def fails(task: Any) -> None:
        if not task.is_chief:
            raise errors.DataLossError("lost")
        await asyncio.Event().wait()

    with pytest.raises(errors.DataLossError, match="lost") as caught:
        await launch(fails, workers=2, resources=SMALL)
    assert caught.value.__notes__ == ["raised in Task worker:1"]


@pytest.mark.asyncio
async def test_a_worker_that_dies_is_started_anew_within_its_budget(
    address: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def dies(task: Any) -> int:
        path = tmp_path / "starts"
        with path.open("a") as file:
            file.write("x")
        if path.stat().st_size < 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return path.stat().st_size

    assert await launch(dies, resources=SMALL, max_restarts=2) == 3
    assert "Task worker:0 died; restart 2 of 2." in caplog.text
    (tmp_path / "starts").unlink()
    with pytest.raises(errors.AbortedError, match="worker:0 died, and was restarted 1 times"):
        await launch(dies, resources=SMALL, max_restarts=1)


@pytest.mark.asyncio
async def test_a_cancelled_launch_cancels_the_functions_and_ends_all(
    address: str, tmp_path: Path
) -> None:
    async def waits(task: Any) -> None:
        (tmp_path / f"pid{task.task_index}").write_text(str(os.getpid()))
        try:
            await asyncio.Event().wait()
        finally:
            (tmp_path / f"end{task.task_index}").touch()

    run = asyncio.create_task(launch(waits, workers=2, ps=1, resources=SMALL))
    await true(lambda: len(named(tmp_path, "pid")) == 2)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await run
    assert len(named(tmp_path, "end")) == 2
    for path in named(tmp_path, "pid"):
        pid = int(path.read_text())
        await true(partial(has_ended, pid))


@pytest.mark.asyncio
async def test_workers_that_do_not_end_after_the_chief_are_ended(
    address: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def chief_only(task: Any) -> str:
        if not task.is_chief:
            await asyncio.Event().wait()
        return "done"

    assert await launch(chief_only, 2, resources=SMALL, stop_grace_period_secs=0.2) == "done"
    assert "Task worker:1 did not end within 0.2 s of the chief." in caplog.text


@pytest.mark.asyncio
async def test_a_cluster_without_room_is_said_to_be(address: str) -> None:
    with pytest.raises(errors.ResourceExhaustedError, match=r"no room within 0\.5 s"):
        await launch(describe, resources={"worker": {"CPU": 99}}, max_wait_secs=0.5)


@pytest.mark.asyncio
async def test_what_means_nothing_is_refused() -> None:
    with pytest.raises(TypeError, match="async def"):
        await launch(print)  # type: ignore[arg-type]
    for number in (0, (0, 2), (3, 2)):
        with pytest.raises(ValueError, match="1 or more workers"):
            await launch(describe, workers=number)
    with pytest.raises(ValueError, match="wanted= needs the least and the most number"):
        await launch(describe, workers=2, wanted=lambda: 3)
    for wrong in ({}, {"CPU": -1}, {"worker": {}}, {"CPU": 1, "worker": {"CPU": 1}}):
        with pytest.raises(ValueError, match="resources are amounts by name"):
            await launch(describe, resources=wrong)


@pytest.mark.asyncio
async def test_workers_are_added_and_removed_while_others_work(
    address: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Those beyond the least number may die; the index of one that left is used again."""

    async def work(task: Any) -> list[str]:
        name = tmp_path / f"{task.task_index}.{os.getpid()}"
        name.touch()
        try:
            while not (tmp_path / "over").exists():
                if (tmp_path / "die").exists() and task.task_index == 2:
                    (tmp_path / "die").unlink()
                    os.kill(os.getpid(), signal.SIGKILL)
                await asyncio.sleep(0.05)
        finally:
            name.with_suffix(".end").touch()
        return sorted(task.cluster.elastic)

    def number(pattern: str) -> int:
        return len(list(tmp_path.glob(pattern)))

    caplog.set_level("INFO", "asyncmon")
    wanted = 3
    running = asyncio.create_task(launch(work, (1, 4), 1, wanted=lambda: wanted, resources=SMALL))
    await true(lambda: number("0.*") == number("1.*") == number("2.*") == 1)
    (tmp_path / "die").touch()
    await true(lambda: number("2.*") == 2)
    wanted = 1
    await true(lambda: number("1.end") == number("2.end") == 1)
    wanted = 9
    await true(lambda: number("[123].*[0-9]") == 6)
    (tmp_path / "over").touch()
    assert await running == ["worker"]
    assert number("*.end") == 4
    assert "Task worker:2 has left" in caplog.text
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]
    await true(lambda: ray.available_resources()["CPU"] == 4.0)


PAGE = Path(__file__).parents[2] / "docs" / "distributed.md"
SHOWN = {"a session in an actor": "runs/ray", "a cluster of workers": "launch("}
"""Programs of the page, with a part of their text."""


@pytest.mark.parametrize("part", SHOWN.values(), ids=SHOWN)
def test_the_programs_of_the_page_print_what_it_says(address: str, tmp_path: Path, part: str) -> None:
    blocks = [block for program in programs(PAGE) for block in program]
    (number,) = (i for i, block in enumerate(blocks) if part in block.text)
    text = blocks[number].text.replace("/shared/run", str(tmp_path / "run"))
    (tmp_path / "program.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "program.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=True
    )
    assert done.stdout == blocks[number + 1].text


async def train(task: Any, directory: Path) -> Any:
    """Count to 60 on the parameter servers; one of them is killed on the way."""
    own = f"/job:worker/task:{task.task_index}"
    with g.device(am.replica_device_setter(worker_device=own, cluster=task.cluster)):
        step = am.get_or_create_global_step()
        v = g.get_variable("v", initializer=np.zeros(4, np.float32))
        add = g.group(v.assign_add(np.ones(4, np.float32)), step.assign_add(1))
    async with am.MonitoredTrainingSession(
        task.target, task.is_chief, str(directory / "run"), config=task.config,
        hooks=[am.StopAtStepHook(last_step=60)], save_checkpoint_steps=10,
    ) as sess:  # fmt: skip
        while not sess.should_stop():
            await sess.run(add)
            if task.is_chief and sess.global_step >= 30 and not (directory / "killed").exists():
                (directory / "killed").touch()
                words = (directory / "logs" / "ps-0.log").read_text().split()
                os.kill(int(words[2]), signal.SIGKILL)
        return float((await sess.raw_session().run(v))[0])


@pytest.mark.asyncio
async def test_a_parameter_server_that_dies_is_started_anew_and_filled_from_the_checkpoint(
    address: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    result = await launch(
        partial(train, directory=tmp_path), workers=2, ps=2, resources=SMALL, log_dir=tmp_path / "logs"
    )
    assert "Task ps:0 died; restart 1 of 3." in caplog.text
    assert result >= 60.0


@pytest.mark.parametrize(("workers", "steps"), [("3", 900), ("1:3", 2500)])
def test_the_example_learns_though_processes_are_killed_or_added(
    tmp_path: Path, workers: str, steps: int
) -> None:
    program = Path(__file__).parents[2] / "examples" / "cluster_ray.py"
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    done = subprocess.run(
        [sys.executable, str(program), "--steps", str(steps), "--workers", workers],
        cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=True,
        env=environment,
    )  # fmt: skip
    found = re.search(r"^accuracy (\S+) %, curves (\S+)$", done.stdout, re.MULTILINE)
    assert found is not None, done.stdout
    assert float(found[1]) >= 97.0
    assert Path(found[2]).read_bytes().startswith(b"\x89PNG")
    assert len(list(Path(found[2]).parent.glob("worker-*.jsonl"))) == 3
