"""MonitoredTrainingSession continues from the newest checkpoint when the state file is lost."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncmon.checkpoint import get_checkpoint_state, latest_checkpoint
from asyncmon.graph import Graph, Variable, assign_add, control_dependencies, create_global_step
from asyncmon.programs import FunctionProgram
from asyncmon.training import MonitoredTrainingSession

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


def graph_program() -> tuple[Any, Any]:
    with Graph().as_default() as graph:
        weight = Variable(np.float32(0), name="weight")
        with control_dependencies([assign_add(create_global_step(), 1)]):
            train = assign_add(weight, 1.0)
    return graph, train


def function_program() -> tuple[Any, Any]:
    program = FunctionProgram(state={"weight": 0.0})

    @program.step
    async def train(state: dict[str, Any]) -> Any:
        state["weight"] += 1
        return state["weight"]

    return program, "train"


@pytest.fixture(params=[graph_program, function_program], ids=["graph", "functions"])
def make(request: pytest.FixtureRequest) -> Callable[[], tuple[Any, Any]]:
    made: Callable[[], tuple[Any, Any]] = request.param
    return made


LOSSES: dict[str, bytes | None] = {
    "gone": None,
    "empty": b"",
    "cut off": b'{"model_checkpoint_path": "model.ck',
    "not text": bytes(range(128, 256)),
    "names nothing": b'{"model_checkpoint_path": ""}',
}


@pytest.fixture(params=LOSSES.values(), ids=LOSSES)
def lose(request: pytest.FixtureRequest) -> Callable[[Path], None]:
    def lose(directory: Path) -> None:
        if request.param is None:
            (directory / "checkpoint").unlink()
        else:
            (directory / "checkpoint").write_bytes(request.param)

    return lose


async def train(directory: Path, made: tuple[Any, Any], steps: int) -> list[float]:
    """Train for some steps, with a checkpoint at each; return what each step returned."""
    program, op = made
    session = MonitoredTrainingSession(
        checkpoint_dir=directory, save_checkpoint_steps=1, program=program
    )
    async with session as sess:
        return [float(await sess.run(op)) for _ in range(steps)]


def warnings(caplog: pytest.LogCaptureFixture) -> str:
    return "\n".join(
        record.getMessage() for record in caplog.records if record.levelno == logging.WARNING
    )


def contents(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.glob("model.ckpt-*")}


async def test_training_continues_from_the_newest_checkpoint_and_so_do_its_saves(
    make: Callable[[], tuple[Any, Any]],
    lose: Callable[[Path], None],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert await train(tmp_path, make(), 3) == [1, 2, 3]
    before = contents(tmp_path)
    lose(tmp_path)
    caplog.clear()
    assert await train(tmp_path, make(), 2) == [4, 5]
    text = warnings(caplog)
    assert f"The state file {tmp_path / 'checkpoint'} is missing, damaged or empty" in text
    assert f"4 checkpoints are in the directory, the newest is {tmp_path / 'model.ckpt-3'}" in text
    assert "To start from the beginning, remove the checkpoints or use another directory." in text
    after = contents(tmp_path)
    assert before.items() <= after.items(), "what was there is written over by nothing"
    assert {name for name in after if name.endswith(".json")} == {
        f"model.ckpt-{step}.json" for step in range(6)
    }
    state = await get_checkpoint_state(tmp_path)
    assert state is not None
    assert [path.rpartition("-")[2] for path in state.all_model_checkpoint_paths] == ["4", "5"]
    caplog.clear()
    assert await train(tmp_path, make(), 1) == [6]
    assert "state file" not in warnings(caplog)


async def test_a_damaged_newest_checkpoint_is_skipped_with_its_reason(
    make: Callable[[], tuple[Any, Any]],
    lose: Callable[[Path], None],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await train(tmp_path, make(), 3)
    (tmp_path / "model.ckpt-3.safetensors").write_bytes(b"")
    lose(tmp_path)
    caplog.clear()
    assert await train(tmp_path, make(), 1) == [3]
    assert f"Skipping checkpoint {tmp_path / 'model.ckpt-3'}" in warnings(caplog)
    assert await latest_checkpoint(tmp_path) == str(tmp_path / "model.ckpt-3")  # saved again, whole


async def test_training_does_not_begin_again_where_all_checkpoints_are_damaged(
    make: Callable[[], tuple[Any, Any]], lose: Callable[[Path], None], tmp_path: Path
) -> None:
    await train(tmp_path, make(), 1)
    for step in (0, 1):
        (tmp_path / f"model.ckpt-{step}.safetensors").write_bytes(b"")
    lose(tmp_path)
    with pytest.raises(ValueError, match=r"not a valid checkpoint: .*model\.ckpt-1; nor is any older"):
        await train(tmp_path, make(), 1)


async def test_without_checkpoints_a_lost_state_file_is_no_news(
    make: Callable[[], tuple[Any, Any]],
    lose: Callable[[Path], None],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """So it starts from zero, as the warning advises, where the checkpoints were removed."""
    await train(tmp_path, make(), 2)
    lose(tmp_path)
    for name in contents(tmp_path):
        (tmp_path / name).unlink()
    caplog.clear()
    assert await train(tmp_path, make(), 1) == [1]
    assert "checkpoints are in the directory" not in warnings(caplog)
    assert await latest_checkpoint(tmp_path) == str(tmp_path / "model.ckpt-1")
