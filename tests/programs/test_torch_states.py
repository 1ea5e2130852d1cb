"""States of torch that are hard to save: changing parameters, generators, elements without arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import asyncmon as am
from asyncmon.errors import InvalidArgumentError

torch = pytest.importorskip("torch")

from asyncmon.programs.torch import TorchProgram  # noqa: E402

pytestmark = pytest.mark.asyncio


def replacing() -> TorchProgram:
    program = TorchProgram({"model": torch.nn.Linear(2, 1)})

    @program.step
    def replace(state: Any, fail: bool) -> None:
        model = state["model"]
        model.weight = torch.nn.Parameter(model.weight.detach() + 1)
        if fail:
            raise ValueError("half way")

    @program.step
    def refuse(state: Any) -> None:
        raise ValueError("at once")

    return program


async def test_a_parameter_that_a_failed_step_has_replaced_is_restored(tmp_path: Path) -> None:
    program = replacing()
    before = program.state["model"].weight.detach().clone()
    async with am.MonitoredTrainingSession(
        program=program, checkpoint_dir=tmp_path, signals=None
    ) as sess:
        with pytest.raises(ValueError, match="half way"):
            await sess.run("replace", {"fail": True})
        await sess.run("replace", {"fail": False})
        assert sess.global_step == 1
    assert torch.equal(program.state["model"].weight, before + 1)


async def test_one_that_was_replaced_before_a_save_is_no_change_of_a_later_step(tmp_path: Path) -> None:
    async with am.MonitoredTrainingSession(
        program=replacing(), checkpoint_dir=tmp_path, signals=None
    ) as sess:
        await sess.run("replace", {"fail": False})
        await sess.save()
        await sess.run("global_step")
        with pytest.raises(ValueError, match="at once"):
            await sess.run("refuse")
        await sess.raw_session().snapshot()  # is not torn


async def test_groups_that_were_added_during_training_are_named_at_the_resume(tmp_path: Path) -> None:
    def program() -> TorchProgram:
        model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
        optimizer = torch.optim.Adam(model[1].parameters())
        made = TorchProgram({"model": model, "optimizer": optimizer})

        @made.step
        def unfreeze(state: Any) -> None:
            state["optimizer"].add_param_group({"params": list(state["model"][0].parameters())})

        return made

    how: Any = {"checkpoint_dir": tmp_path, "signals": None}
    async with am.MonitoredTrainingSession(program=program(), **how) as sess:
        await sess.run("unfreeze")
    with pytest.raises(
        InvalidArgumentError, match=r"\[2, 2\]; add the later groups before the session"
    ):
        await am.MonitoredTrainingSession(program=program(), **how).start()


async def test_another_order_of_the_parameters_of_an_optimizer_is_refused(tmp_path: Path) -> None:
    def program(step: int) -> TorchProgram:
        model = torch.nn.ModuleDict({"a": torch.nn.Linear(2, 2), "b": torch.nn.Linear(2, 2)})
        optimizer = torch.optim.Adam(list(model.parameters())[::step])
        made = TorchProgram({"model": model, "optimizer": optimizer})

        @made.training_step
        def train(state: Any, batch: Any) -> Any:
            return state["model"]["b"](state["model"]["a"](batch)).square().mean()

        return made

    how: Any = {"checkpoint_dir": tmp_path, "signals": None}
    async with am.MonitoredTrainingSession(program=program(1), **how) as sess:
        await sess.run("train", {"batch": torch.ones(1, 2)})
    with pytest.raises(
        InvalidArgumentError, match=r"with 'model/b\.bias' in the place of 'model/a\.we"
    ):
        await am.MonitoredTrainingSession(program=program(-1), **how).start()
    async with am.MonitoredTrainingSession(program=program(1), **how) as sess:
        assert sess.global_step == 1


@pytest.mark.parametrize(
    ("tensor", "error", "message"),
    [
        (torch.zeros(2, device="meta"), InvalidArgumentError, "'x' is on the meta device"),
        (torch.ones(2).to(torch.float8_e8m0fnu), TypeError, "'x' has elements of torch.float8_e8m0fnu"),
    ],
)
async def test_a_tensor_without_an_array_is_named(
    tensor: Any, error: type[Exception], message: str, tmp_path: Path
) -> None:
    program = TorchProgram({"x": tensor})
    program.step(lambda state: None, name="train")
    with pytest.raises(error, match=message):
        await am.MonitoredTrainingSession(
            program=program, checkpoint_dir=tmp_path, signals=None
        ).start()


async def test_a_snapshot_has_the_generators_of_its_step(tmp_path: Path) -> None:
    program = TorchProgram({"x": torch.zeros(2)})

    @program.step
    def draw(state: Any) -> None:
        state["x"].copy_(torch.rand(2))

    session = program.create_session()
    await session.run("draw")
    after_step = torch.get_rng_state()
    torch.rand(2)  # the next element, which is read before the snapshot is copied
    snapshot = await session.snapshot()
    assert torch.equal(torch.from_numpy(snapshot["__random__/cpu"].copy()), after_step)
    await session.close()
