"""What the checkpoint of one torch program means to another one, and to a model alone."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install 'asyncmon[torch]'")

import torch
from safetensors.torch import load_file, save_file

import asyncmon as am
from asyncmon.errors import InvalidArgumentError, NotFoundError
from asyncmon.programs.torch import TorchProgram

pytestmark = pytest.mark.asyncio

X = torch.linspace(-1, 1, 12).reshape(4, 3)


def net(outputs: int = 2) -> Any:
    return torch.nn.ModuleDict({"encoder": torch.nn.Linear(3, 4), "head": torch.nn.Linear(4, outputs)})


def program(
    model: Any, make: Callable[..., Any] | None = torch.optim.AdamW, **how: Any
) -> TorchProgram:
    objects = {"model": model}
    if make is not None:
        objects["optimizer"] = make(model.parameters(), lr=0.01)
    made = TorchProgram(objects, **how)

    def loss(state: Any, batch: Any) -> Any:
        return state["model"]["head"](state["model"]["encoder"](batch)).square().mean()

    if make is not None:
        made.training_step(loss, name="train")
    made.step(lambda state, batch: {"loss": loss(state, batch)}, name="evaluate", read_only=True)
    return made


async def train(
    directory: Path, model: Any, make: Any = torch.optim.AdamW, *hooks: Any, steps: int = 3, **how: Any
) -> TorchProgram:
    made = program(model, make, **how)
    hooks = (am.StopAtStepHook(num_steps=steps), *hooks)
    async with am.MonitoredTrainingSession(
        program=made, checkpoint_dir=directory, hooks=hooks, signals=None
    ) as sess:
        while not sess.should_stop():
            await sess.run("train", {"batch": X})
    return made


def same(one: Any, other: Any) -> bool:
    pairs = zip(one.parameters(), other.parameters(), strict=True)
    return all(torch.equal(a, b) for a, b in pairs)


@pytest.mark.parametrize("make", [torch.optim.AdamW, None])
async def test_a_program_with_less_is_restored_and_evaluated(tmp_path: Path, make: Any) -> None:
    trained = net()
    await train(tmp_path, trained)
    fresh = net()
    creator = am.ChiefSessionCreator(program=program(fresh, make), checkpoint_dir=tmp_path)
    async with am.MonitoredSession(creator, signals=None) as sess:
        assert sess.global_step == 3
        assert same(fresh, trained)
    found = am.evaluate_checkpoints(
        tmp_path, program(net(), make), "evaluate", [{"batch": X}], timeout=0.01
    )
    assert [step async for step, metrics in found if np.isfinite(metrics["loss"])] == [3]


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (torch.optim.Adam, torch.optim.AdamW, "class AdamW, found that of Adam"),
        (torch.optim.Adam, torch.optim.SGD, "class SGD, found that of Adam"),
        (torch.optim.SGD, torch.optim.RMSprop, "class RMSprop, found that of SGD"),
    ],
)
async def test_an_optimizer_of_another_class_is_refused_or_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, before: Any, after: Any, text: str
) -> None:
    trained = net()
    await train(tmp_path, trained, before)
    with pytest.raises(InvalidArgumentError, match=f"{text} .*load_optimizer=False"):
        await train(tmp_path, net(), after)
    model = net()
    made = await train(tmp_path, model, after, steps=1, load_optimizer=False)
    assert (
        f"The state in the checkpoint is left out: 'optimizer': expected the state of the {text}"
        in (caplog.text)
    )
    again = await train(tmp_path, net(), after, steps=1, load_optimizer=False)  # as after a preemption
    if after is not torch.optim.SGD:
        steps = [
            int(next(iter(one.state["optimizer"].state.values()))["step"]) for one in (made, again)
        ]
        assert steps == [1, 2]


async def test_a_scheduler_of_another_class_is_refused(tmp_path: Path) -> None:
    def scheduled(make: Any) -> TorchProgram:
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        return TorchProgram({"model": model, "optimizer": optimizer, "schedule": make(optimizer)})

    saver = am.Saver()
    schedules = torch.optim.lr_scheduler
    first = scheduled(lambda optimizer: schedules.StepLR(optimizer, 5)).create_session()
    path = await saver.save(first, tmp_path / "model.ckpt")
    other = scheduled(lambda optimizer: schedules.CosineAnnealingLR(optimizer, 5)).create_session()
    with pytest.raises(InvalidArgumentError, match="class CosineAnnealingLR, found that of StepLR"):
        await saver.restore(other, path)
    await saver.close()


async def test_other_hyperparameters_are_a_choice(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def sgd(**values: Any) -> Any:
        return lambda parameters, lr: torch.optim.SGD(parameters, **{"lr": lr} | values)

    def found(made: TorchProgram) -> tuple[float, float]:
        group = made.state["optimizer"].param_groups[0]
        return group["lr"], group["momentum"]

    caplog.set_level(logging.INFO, "asyncmon")
    await train(tmp_path, net(), sgd(momentum=0.5))
    with pytest.raises(
        InvalidArgumentError, match=r"momentum=0.9, found 0.5 .*hyperparameters='checkp"
    ):
        await train(tmp_path, net(), sgd(momentum=0.9))
    made = await train(tmp_path, net(), sgd(lr=0.3, momentum=0.5), steps=1)
    assert found(made) == (0.01, 0.5)
    assert "'optimizer' gets the hyperparameters of the checkpoint: lr=0.01, not 0.3." in caplog.text
    made = await train(
        tmp_path, net(), sgd(lr=0.3, momentum=0.9), steps=1, hyperparameters="checkpoint"
    )
    assert found(made) == (0.01, 0.5)
    made = await train(tmp_path, net(), sgd(lr=0.3, momentum=0.9), steps=1, hyperparameters="code")
    assert found(made) == (0.3, 0.9)
    with pytest.raises(ValueError, match="must be 'checkpoint', 'code' or None, got 'mine'"):
        program(net(), hyperparameters="mine")


async def test_an_encoder_is_taken_over_by_a_scope_and_a_new_head_is_left(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trained = net(10)
    await train(tmp_path, trained)
    for scope, ignore, wanted in (
        ("model/encoder.", False, ["encoder.bias", "encoder.weight"]),
        ("model/", True, ["encoder.bias", "encoder.weight"]),
    ):
        model = net(3)
        session = program(model, None).create_session()
        loaded = await am.init_from_checkpoint(
            session, tmp_path, {scope: scope}, ignore_mismatched=ignore
        )
        assert sorted(loaded) == [f"model/{name}" for name in wanted]
        assert torch.equal(model["encoder"].weight, trained["encoder"].weight)
        await session.close()
    assert "Keeping the values of 2 variables: 'model/head.weight' has shape [10, 4]" in caplog.text


@pytest.mark.parametrize("whole", [True, False])
async def test_compiled_modules_keep_plain_names(tmp_path: Path, whole: bool) -> None:
    trained = net()
    await train(tmp_path, trained)
    model = net()
    if whole:
        given = torch.compile(model, backend="eager")
    else:
        given = model
        given["encoder"] = torch.compile(model["encoder"], backend="eager")
    session = TorchProgram({"model": given}).create_session()
    assert "model/encoder.weight" in await session.snapshot()
    saver = am.Saver()
    latest = await am.latest_checkpoint(tmp_path)
    await saver.restore(session, latest)
    assert same(model, trained)
    await saver.close()


async def test_a_model_is_loaded_without_a_session(tmp_path: Path) -> None:
    trained = net()
    await train(tmp_path, trained)
    for objects in ({"model": net()}, net()):
        assert len(await am.load_model(tmp_path, objects)) == 4
        assert same(objects if not isinstance(objects, dict) else objects["model"], trained)
    other = net(3)
    before = other["encoder"].weight.clone()
    with pytest.raises(InvalidArgumentError, match=r"'model/head.bias': expected shape \(3,\), found"):
        await am.load_model(tmp_path, other)
    assert torch.equal(other["encoder"].weight, before)
    loaded = await am.load_model(tmp_path, other, ignore_mismatched=True)
    assert sorted(loaded) == ["model/encoder.bias", "model/encoder.weight"]
    with pytest.raises(NotFoundError, match=r"has no module 'net'; it has \['model'\]"):
        await am.load_model(tmp_path, {"net": net()})
    with pytest.raises(TypeError, match="objects must be a module, or modules by name; 'model' is 3"):
        await am.load_model(tmp_path, {"model": 3})
    with pytest.raises(NotFoundError, match="has no moving averages of"):
        await am.load_model(tmp_path, net(), ema=True)


async def test_moving_averages_are_entries(tmp_path: Path) -> None:
    averages = am.MovingAverageHook(0.9, names=lambda name: name.startswith("model/"))
    trained = await train(tmp_path, net(), torch.optim.SGD, averages)
    name = "model/head.weight/ExponentialMovingAverage"
    wanted = averages.averages["model/head.weight"]
    assert name in dict(await am.list_variables(tmp_path))
    async with await am.load_checkpoint(tmp_path) as reader:
        assert (await reader.get_tensor(name)).tolist() == wanted.tolist()
    model = net()
    await am.load_model(tmp_path, model, ema=True)
    assert model["head"].weight.tolist() == wanted.tolist()
    await am.export(tmp_path, tmp_path / "ema.pt", ema=True)
    assert torch.load(tmp_path / "ema.pt")["head.weight"].tolist() == wanted.tolist()
    again = await train(tmp_path, net(), torch.optim.SGD, averages, steps=1)  # they are no state of it
    assert again.state.keys() == trained.state.keys()


async def test_a_model_is_exported_for_other_tools(tmp_path: Path) -> None:
    trained = net().to(torch.bfloat16)
    saver = am.Saver()
    made = TorchProgram({"model": trained, "rate": torch.tensor(0.5)})
    await saver.save(made.create_session(), tmp_path / "run" / "model.ckpt")
    await saver.close()
    out = tmp_path / "out" / "model.safetensors"
    assert sorted(await am.export(tmp_path / "run", out)) == sorted(trained.state_dict())
    read: dict[str, Any] = load_file(out)
    assert all(torch.equal(value, read[key]) for key, value in trained.state_dict().items())
    for path in (out, out.parent):
        model = net().to(torch.bfloat16)
        await am.load_model(path, model)
        assert same(model, trained)
    with pytest.raises(ValueError, match=r"must end with .safetensors, .pt or .pth, got .*model.bin"):
        await am.export(tmp_path / "run", tmp_path / "model.bin")
    with pytest.raises(NotFoundError, match=r"has no module 'rate'; it has \['model'\]"):
        await am.export(tmp_path / "run", out, "rate")


async def test_a_sharded_folder_of_hugging_face_is_read(tmp_path: Path) -> None:
    trained = net()
    keys, files = sorted(trained.state_dict()), ["m-00001-of-00002.safetensors", "m-00002.safetensors"]
    for file, part in zip(files, (keys[:3], keys[3:]), strict=True):
        save_file({key: trained.state_dict()[key] for key in part}, tmp_path / file)
    index = tmp_path / "model.safetensors.index.json"
    places = {key: files[i >= 3] for i, key in enumerate(keys)}
    index.write_text(json.dumps({"metadata": {}, "weight_map": places}))
    for path in (tmp_path, index):
        model = net()
        await am.load_model(path, model)
        assert same(model, trained)
    assert [name for name, _ in await am.list_variables(tmp_path)] == keys
    content = index.read_text()
    index.unlink()
    model = net()
    await am.load_model(tmp_path, model)  # two files, and no index
    assert same(model, trained)
    save_file({keys[0]: torch.zeros(1)}, tmp_path / "x.safetensors")
    with pytest.raises(am.errors.DataLossError, match=f"both have .*{keys[0]}"):
        await am.load_model(tmp_path, net())
    index.write_text(content)
    for content in ('{"weight_map": {"a": "../m-00002.safetensors"}}', "[]", "{"):
        index.write_text(content)
        with pytest.raises(am.errors.DataLossError, match="is no index of safetensors files"):
            await am.load_checkpoint(index)


async def test_the_file_of_a_save_that_was_not_committed_is_no_model(tmp_path: Path) -> None:
    saver = am.Saver()
    await saver.save(program(net(), None).create_session(), tmp_path / "model", write_state=False)
    await saver.close()
    (tmp_path / "model.json").unlink()
    with pytest.raises(ValueError, match="Couldn't find 'checkpoint' file or checkpoints"):
        await am.load_model(tmp_path, net())


async def test_scalars_of_an_export_stay_scalars(tmp_path: Path) -> None:
    norm = torch.nn.BatchNorm1d(2)
    norm(torch.ones(3, 2))
    saver = am.Saver()
    made = TorchProgram({"norm": norm})
    await saver.save(made.create_session(), tmp_path / "run" / "model.ckpt")
    await saver.close()
    for name in ("model.safetensors", "model.pt"):
        await am.export(tmp_path / "run", tmp_path / name)
    assert load_file(tmp_path / "model.safetensors")["num_batches_tracked"].shape == ()
    assert torch.load(tmp_path / "model.pt")["num_batches_tracked"].shape == ()
    other = torch.nn.BatchNorm1d(2)
    await am.load_model(tmp_path / "model.safetensors", other)
    assert int(other.num_batches_tracked) == 1
    with pytest.raises(NotFoundError, match="give the module alone, without the name 'norm'"):
        await am.load_model(tmp_path / "model.safetensors", {"norm": other})


async def test_a_model_on_the_meta_device_cannot_be_loaded(tmp_path: Path) -> None:
    save_file(torch.nn.Linear(3, 2).state_dict(), tmp_path / "model.safetensors")
    model = torch.nn.Linear(3, 2, device="meta")
    with pytest.raises(InvalidArgumentError, match=r"is on the meta device .*call to_empty"):
        await am.load_model(tmp_path, model)
    model.to_empty(device="cpu")
    assert await am.load_model(tmp_path, model) == ["model/bias", "model/weight"]


async def test_the_main_file_of_a_folder_is_read_beside_others(tmp_path: Path) -> None:
    trained = torch.nn.Linear(3, 2)
    save_file(trained.state_dict(), tmp_path / "model.safetensors")
    save_file({"lora": torch.zeros(1)}, tmp_path / "adapter_model.safetensors")
    model = torch.nn.Linear(3, 2)
    await am.load_model(tmp_path, model)
    assert same(model, trained)


class Versioned(torch.nn.Linear):
    """A module with a state that is no tensor."""

    version = "new"

    def get_extra_state(self) -> Any:
        return {"version": self.version}

    def set_extra_state(self, state: Any) -> None:
        self.version = state["version"]


@pytest.mark.parametrize("named", [False, True])
async def test_a_module_with_a_state_that_is_no_tensor_is_one(tmp_path: Path, named: bool) -> None:
    trained = Versioned(2, 2)
    trained.version = "trained"
    saver = am.Saver()
    made = TorchProgram({"net": trained, "optimizer": torch.optim.SGD(trained.parameters())})
    await saver.save(made.create_session(), tmp_path / "model.ckpt")
    await saver.close()
    assert sorted(await am.export(tmp_path, tmp_path / "net.pt")) == ["bias", "weight"]
    model = Versioned(2, 2)
    await am.load_model(tmp_path, {"net": model} if named else model)
    assert same(model, trained)
    assert model.version == "trained"


@pytest.mark.parametrize("compiled", [(False, True), (True, False)])
async def test_names_of_parameters_are_those_of_the_module_that_is_compiled(
    tmp_path: Path, compiled: tuple[bool, bool]
) -> None:
    def made(is_compiled: bool) -> TorchProgram:
        model: Any = torch.nn.Linear(3, 2)
        model = torch.compile(model, backend="eager") if is_compiled else model
        return TorchProgram({"net": model, "optimizer": torch.optim.SGD(model.named_parameters())})

    saver = am.Saver()
    path = await saver.save(made(compiled[0]).create_session(), tmp_path / "model.ckpt")
    other = made(compiled[1])
    await saver.restore(other.create_session(), path)
    names = other.state["optimizer"].param_groups[0]["param_names"]
    assert names == [name for name, _ in other.state["net"].named_parameters()]
    await saver.close()


SCHEDULES = torch.optim.lr_scheduler


@pytest.mark.parametrize(
    "schedule",
    [
        lambda optimizer: SCHEDULES.StepLR(optimizer, 2, 0.5),
        lambda optimizer: SCHEDULES.LambdaLR(optimizer, lambda step: 0.5**step),
        lambda optimizer: SCHEDULES.CosineAnnealingLR(optimizer, 10),
        lambda optimizer: SCHEDULES.SequentialLR(
            optimizer,
            [
                SCHEDULES.LinearLR(optimizer, 0.1, total_iters=2),
                SCHEDULES.ExponentialLR(optimizer, 0.5),
            ],
            [2],
        ),
    ],
)
async def test_a_scheduler_continues_by_the_chosen_learning_rate(tmp_path: Path, schedule: Any) -> None:
    def scheduled(make: Any = torch.optim.SGD, rate: float = 0.1, **how: Any) -> TorchProgram:
        model = torch.nn.Linear(3, 1)
        optimizer = make(model.parameters(), lr=rate)
        objects = {"model": model, "optimizer": optimizer, "schedule": schedule(optimizer)}
        made = TorchProgram(objects, **how)
        made.training_step(
            lambda state, batch: state["model"](batch).square().mean(),
            name="train",
            scheduler="schedule",
        )
        return made

    async def rate_after(made: TorchProgram, steps: int, directory: str) -> float:
        async with am.MonitoredTrainingSession(
            program=made,
            checkpoint_dir=tmp_path / directory,
            hooks=[am.StopAtStepHook(num_steps=steps)],
            signals=None,
        ) as sess:
            while not sess.should_stop():
                await sess.run("train", {"batch": X})
        return float(made.state["optimizer"].param_groups[0]["lr"])

    whole = await rate_after(scheduled(rate=0.4), 5, "whole")
    await rate_after(scheduled(), 3, "parts")
    resumed = await rate_after(scheduled(rate=0.4, hyperparameters="code"), 2, "parts")
    assert resumed == pytest.approx(whole)
    new = await rate_after(scheduled(torch.optim.Adam, 0.4, load_optimizer=False), 5, "parts")
    assert new == pytest.approx(whole)  # with the new optimizer its schedule starts from zero
