"""NanTensorHook: HK-NAN-1 to 3, MT-3 and the veto of saving."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np
import pytest

from asyncmon.errors import AbortedError
from asyncmon.hooks import NanLossDuringTrainingError, NanTensorHook
from asyncmon.hooks.hook_support import created_session
from asyncmon.runtime.hook_check import check_hooks
from asyncmon.runtime.monitored_session import MonitoredSession
from asyncmon.testing import RecordingHook, ScriptedCreator, ScriptedSession
from tests.hooks.conftest import Train

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]

NAN = float("nan")


async def test_nan_fails_the_run_and_end_is_not_called_hk_nan_1(
    train: Train, caplog: pytest.LogCaptureFixture
) -> None:
    recorder, session = RecordingHook(), ScriptedSession([{"loss": 1.0}, {"loss": NAN}, None])
    with pytest.raises(NanLossDuringTrainingError) as caught:
        await train(NanTensorHook("loss"), recorder, session=session)
    assert str(caught.value) == "NaN loss during training."
    assert caught.value.__notes__ == [
        "asyncmon: in 'loss' at global step 2",
        "asyncmon: raised in NanTensorHook.after_run",
    ]
    assert isinstance(caught.value, RuntimeError)
    assert recorder.steps("after_run") == [1]
    assert "end" not in recorder.moments()
    [line] = [record for record in caplog.records if record.name.endswith("stopping")]
    assert line.levelno == logging.ERROR
    assert line.getMessage() == "Model diverged with loss = NaN."


async def test_without_failing_a_stop_is_requested_hk_nan_2(
    train: Train, caplog: pytest.LogCaptureFixture
) -> None:
    recorder, session = RecordingHook(), ScriptedSession([{"loss": 1.0}, {"loss": NAN}, None])
    await train(NanTensorHook("loss", fail_on_nan_loss=False), recorder, session=session)
    assert session.global_step == 2
    assert recorder.steps("after_run") == [1, 2]
    assert "end" in recorder.moments()
    [line] = [record for record in caplog.records if record.name.endswith("stopping")]
    assert line.levelno == logging.WARNING
    assert line.getMessage() == "Model diverged with loss = NaN."


@pytest.mark.parametrize(
    "loss",
    [NAN, np.float32(NAN), np.array(NAN), np.array([1.0, NAN]), np.array([[0, NAN]], np.float16)],
)
async def test_one_nan_is_enough_hk_nan_3(train: Train, loss: Any) -> None:
    with pytest.raises(NanLossDuringTrainingError):
        await train(NanTensorHook("loss"), session=ScriptedSession([{"loss": loss}]))


@pytest.mark.parametrize("loss", [float("inf"), np.float32("-inf"), np.array([1.0, np.inf])])
async def test_infinity_is_an_option_hk_nan_3(
    train: Train, loss: Any, caplog: pytest.LogCaptureFixture
) -> None:
    await train(NanTensorHook("loss"), runs=1, session=ScriptedSession([{"loss": loss}]))
    with pytest.raises(NanLossDuringTrainingError):
        await train(NanTensorHook("loss", inf=True), session=ScriptedSession([{"loss": loss}]))
    assert "inf" in caplog.text


@pytest.mark.parametrize("loss", [0.0, 1, np.float32(3), np.array([1, 2]), np.array(5.0)])
@pytest.mark.parametrize("inf", [False, True])
async def test_numbers_pass(train: Train, loss: Any, inf: bool) -> None:
    session = await train(
        NanTensorHook("loss", inf=inf), runs=1, session=ScriptedSession(values={"loss": loss})
    )
    assert session.global_step == 1


async def test_guards_stand_before_all_other_hooks_mt_3() -> None:
    other, guard = RecordingHook(), NanTensorHook("loss")
    assert check_hooks([other, guard]) == (guard, other)


def is_vetoed(coord: Any) -> bool:
    return created_session(coord).boundary.vetoed is not None


async def test_a_nan_vetoes_saving_until_a_recovery() -> None:
    sessions = ScriptedSession([{"loss": NAN}, AbortedError("gone")]), ScriptedSession()
    recorder = RecordingHook()
    hooks = [recorder, NanTensorHook("loss", fail_on_nan_loss=True)]
    async with MonitoredSession(ScriptedCreator(*sessions), hooks) as sess:
        assert not is_vetoed(recorder.coords[0])
        with pytest.raises(NanLossDuringTrainingError):
            await sess.run("train")
        assert is_vetoed(recorder.coords[0])
        sessions[1].values["loss"] = 1.0
        await sess.run("train")
        assert not is_vetoed(recorder.coords[1])
