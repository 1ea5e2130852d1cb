"""Programs of torch modules: steps, state, checkpoints, hooks."""

from __future__ import annotations

import asyncio
import json
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install 'asyncmon[torch]'")

import torch

import asyncmon as am
from asyncmon.errors import AbortedError, FailedPreconditionError, InvalidArgumentError, NotFoundError
from asyncmon.programs import optional
from asyncmon.programs.torch import MixedPrecision, TorchProgram, import_state_dict
from asyncmon.testing import PROGRAM_CASES, ProgramCase, check_program

pytestmark = pytest.mark.asyncio


def make(*, seed: int = 0, dropout: float = 0.0, **how: Any) -> TorchProgram:
    """A net with dropout, normalisation, a schedule and a generator of its own."""
    torch.manual_seed(seed)
    model = torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Dropout(dropout),
        torch.nn.ReLU(), torch.nn.Linear(8, 2),
    )  # fmt: skip
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 6])
    state = {"model": model, "optimizer": optimizer, "scheduler": scheduler}
    program = TorchProgram({**state, "noise": torch.Generator().manual_seed(seed)})

    @program.training_step(scheduler="scheduler", **how)
    def train(state: Any, batch: Any) -> dict[str, Any]:
        if batch.max() > 100:
            raise ValueError("too large")
        x = batch + torch.randn(batch.shape, generator=state["noise"])
        loss = state["model"](x).square().mean() + batch.mean()
        return {"loss": loss, "rate": state["optimizer"].param_groups[0]["lr"]}

    @program.step(read_only=True)
    def evaluate(state: Any, batch: Any) -> dict[str, Any]:
        model = state["model"].eval()
        loss = model(batch).square().mean()
        model.train()
        return {"error": loss}

    return program


def batch(number: int = 0) -> Any:
    return torch.linspace(-1, 1, 64).reshape(16, 4) * (number + 1)


def case(**how: Any) -> ProgramCase:
    return ProgramCase(
        program=make(**how), step="train", loss="loss", entry="model/0.weight",
        feeds=lambda number: {"batch": batch(number)},
        nan_feeds={"batch": torch.full((16, 4), torch.nan)},
        bad_feeds={"batch": torch.full((16, 4), 200.0)},
    )  # fmt: skip


@pytest.mark.parametrize("name", PROGRAM_CASES)
async def test_the_contract(name: str, tmp_path: Path) -> None:
    await check_program(case, [name], checkpoint_dir=tmp_path)


@pytest.mark.parametrize("inline_ms", [0.0, 1e6])
async def test_the_contract_in_a_worker_and_inline(inline_ms: float, tmp_path: Path) -> None:
    def factory() -> ProgramCase:
        return replace(case(), config=am.SessionConfig(inline_ms=inline_ms))

    names = ["run_is_one_step", "cancelled_run_is_before_or_after", "snapshot_is_consistent"]
    await check_program(factory, names, checkpoint_dir=tmp_path)


async def test_short_steps_run_in_the_loops_thread_and_long_ones_in_a_worker() -> None:
    threads: list[Any] = []
    program = TorchProgram({"x": torch.zeros(2)})

    @program.step
    def step(state: Any) -> None:
        threads.append(threading.current_thread())

    for limit, inline in ((0.0, False), (1e6, True)):
        threads.clear()
        session = program.create_session(config=am.SessionConfig(inline_ms=limit))
        for _ in range(3):
            await session.run("step")
        assert threads[0] is not threading.main_thread(), "how long the first one takes is unknown"
        assert (threads[-1] is threading.main_thread()) == inline
        await session.close()


async def test_a_steps_result_is_detached_and_named_values_are_arrays() -> None:
    session = make().create_session()
    result = await session.run("train", {"batch": batch()})
    assert isinstance(result["loss"], torch.Tensor)
    assert not result["loss"].requires_grad
    fetches = ["train", "model/0.weight", "global_step"]
    result, weight, step = await session.run(fetches, {"batch": batch()})
    assert isinstance(weight, np.ndarray)
    assert step == 2
    kept = weight.copy()
    await session.run("train", {"batch": batch()})
    assert weight.tolist() == kept.tolist(), "what was fetched is a copy"
    assert result["rate"] == pytest.approx(0.01)


async def test_async_steps_run_in_the_loop() -> None:
    program = TorchProgram({"x": torch.zeros(2)})

    @program.step
    async def step(state: Any, by: float) -> dict[str, Any]:
        await asyncio.sleep(0)
        state["x"] += by
        return {"sum": state["x"].sum()}

    session = program.create_session()
    assert await session.run(["sum", "step"], {"by": 2.0}) == [4.0, {"sum": torch.tensor(4.0)}]
    assert (await session.run("x")).tolist() == [2.0, 2.0]


async def test_an_object_with_an_async_call_is_an_async_step() -> None:
    class Doubles:
        async def __call__(self, state: Any) -> dict[str, Any]:
            await asyncio.sleep(0)
            return {"doubled": 2 * state["x"]}

    program = TorchProgram({"x": torch.ones(2)})
    program.step(Doubles(), name="double")
    session = program.create_session()
    assert (await session.run("double"))["doubled"].tolist() == [2.0, 2.0]
    await session.close()


async def test_a_step_that_fails_after_a_change_breaks_the_state_until_a_checkpoint(
    tmp_path: Path,
) -> None:
    program = make()

    @program.step
    def half(state: Any) -> None:
        with torch.no_grad():
            state["model"][0].bias += 1
        raise ValueError("half way")

    async with am.MonitoredTrainingSession(
        program=program, checkpoint_dir=tmp_path, save_checkpoint_steps=1, signals=None
    ) as session:
        await session.run("train", {"batch": batch()})
        raw = session.raw_session()
        good = (await raw.run("model/0.bias")).tolist()
        with pytest.raises(ValueError, match="half way"):
            await session.run("half")
        with pytest.raises(AbortedError, match=r"torn: \['half'\] failed after changing \['model/0.b"):
            await raw.snapshot()
        assert (await session.run("model/0.bias")).tolist() == good, "recovered from the checkpoint"
        assert session.global_step == 1


async def test_a_read_only_step_must_change_nothing_and_draws_no_random_number() -> None:
    program = make()

    @program.step(read_only=True)
    def wrong(state: Any) -> None:
        state["model"](torch.ones(4, 4))  # moves the running averages

    @program.step(read_only=True)
    def draws(state: Any) -> float:
        return float(torch.rand(()) + torch.rand((), generator=state["noise"]))

    session = program.create_session()
    assert await session.run("draws") == await session.peek("draws")
    with pytest.raises(TypeError, match=r"read_only, and changed \['model/1.num_batches"):
        await session.run("wrong")


async def test_a_second_session_evaluates_on_copies(tmp_path: Path) -> None:
    program = make()
    training, other = program.create_session(), program.create_session()
    before = await other.run("model/0.weight")
    await training.run("train", {"batch": batch()})
    assert (await other.run("model/0.weight")).tolist() == before.tolist()
    with pytest.raises(FailedPreconditionError, match=r"cannot run \['train'\]"):
        await other.run("train", {"batch": batch()})
    await training.close()
    await other.close()


async def test_hooks_work_on_named_values(tmp_path: Path) -> None:
    evaluation = am.EvalHook("evaluate", [{"batch": batch()}], every_steps=2)
    hooks = [
        am.StopAtStepHook(last_step=4),
        am.ProfilerHook(save_steps=2, output_dir=tmp_path),
        evaluation,
    ]
    async with am.MonitoredTrainingSession(
        program=make(), checkpoint_dir=tmp_path, hooks=hooks, signals=None
    ) as session:
        while not session.should_stop():
            await session.run("train", {"batch": batch()})
    assert evaluation.step == 4
    assert evaluation.metrics["error"] > 0
    trace = json.loads((tmp_path / "timeline-2.json").read_text())["traceEvents"]
    assert any(event["name"].startswith("aten::") or "addmm" in str(event) for event in trace)


# -- the step helper


async def test_accumulation_gives_the_gradient_of_the_whole_batch() -> None:
    states = []
    for parts in (1, 3):
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 2)
        program = TorchProgram({"model": model, "optimizer": torch.optim.SGD(model.parameters(), 0.1)})

        @program.training_step(accumulate=parts, clip_norm=0.5)
        def train(state: Any, batch: Any) -> dict[str, Any]:
            out = state["model"](batch["x"])
            return {"loss": out.square().mean(), "out": out}

        session = program.create_session()
        result = await session.run("train", {"batch": {"x": batch(), "name": "a"}})
        assert result["out"].shape == (16, 2)
        states.append(
            [float(result["loss"]), float(result["grad_norm"]), *model.weight.detach().flatten()]
        )
    assert [float(x) for x in states[0]] == pytest.approx([float(x) for x in states[1]], rel=1e-5)
    with pytest.raises(InvalidArgumentError, match=r"accumulate=3 .* found lengths \[2\]"):
        await session.run("train", {"batch": {"x": batch()[:2]}})


async def test_a_list_of_texts_is_split_with_the_batch() -> None:
    model = torch.nn.Linear(4, 2)
    program = TorchProgram({"model": model, "optimizer": torch.optim.SGD(model.parameters(), 0.1)})
    seen: list[Any] = []

    @program.training_step(accumulate=3)
    def train(state: Any, batch: Any) -> Any:
        seen.append((len(batch["x"]), batch["names"], batch["tags"]))
        return state["model"](batch["x"]).square().mean()

    one = {"x": batch()[:5], "names": list("abcde"), "tags": ["whole"]}
    await program.create_session().run("train", {"batch": one})
    assert seen == [(2, ["a", "b"], ["whole"]), (1, ["c"], ["whole"]), (2, ["d", "e"], ["whole"])]


@pytest.mark.parametrize("result", [{"los": 1.0}, {"loss": 1.0}, 1.0, None])
async def test_training_step_without_a_loss_is_refused_with_what_it_returned(result: Any) -> None:
    model = torch.nn.Linear(4, 2)
    program = TorchProgram({"model": model, "optimizer": torch.optim.SGD(model.parameters(), 0.1)})

    @program.training_step
    def train(state: Any, batch: Any) -> Any:
        return result

    text = "The training step 'train' must return the loss, a tensor, .* got 'loss?': (float|NoneType)"
    with pytest.raises(InvalidArgumentError, match=text):
        await program.create_session().run("train", {"batch": batch()})


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
async def test_mixed_precision_with_a_scaler_resumes_exactly(dtype: str, tmp_path: Path) -> None:
    def program() -> TorchProgram:
        torch.manual_seed(0)
        model = torch.nn.Linear(4, 2)
        made = TorchProgram(
            {
                "model": model,
                "optimizer": torch.optim.SGD(model.parameters(), 0.1, momentum=0.9),
                "scaler": torch.amp.GradScaler("cpu", init_scale=64.0, growth_interval=2),
            }
        )

        @made.training_step(precision=MixedPrecision(dtype), scaler="scaler", clip_norm=1.0)
        def train(state: Any, batch: Any) -> Any:
            out = state["model"](batch)
            assert out.dtype == getattr(torch, dtype)
            return out.float().square().mean()

        return made

    async def run(directory: Path, last: int) -> list[Any]:
        made = program()
        async with am.MonitoredTrainingSession(
            program=made, checkpoint_dir=directory, signals=None
        ) as session:
            while session.global_step < last:
                await session.run("train", {"batch": batch(session.global_step)})
        return [made.state["model"].weight.tolist(), made.state["scaler"].get_scale()]

    whole = await run(tmp_path / "a", 5)
    assert whole[1] > 64
    await run(tmp_path / "b", 3)
    assert await run(tmp_path / "b", 5) == whole


async def test_a_plateau_scheduler_is_stepped_by_a_number_of_the_result(tmp_path: Path) -> None:
    def plateau() -> TorchProgram:
        model = torch.nn.Linear(1, 1)
        optimizer = torch.optim.SGD(model.parameters(), 0.1)
        scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=1)
        return TorchProgram({"model": model, "optimizer": optimizer, "scheduler": scheduler})

    def train(state: Any, batch: Any) -> Any:
        return {"loss": state["model"](batch).sum() * 0 + 1, "score": 1.0}

    program = plateau()
    with pytest.raises(ValueError, match="is a ReduceLROnPlateau: give metric='loss'"):
        program.training_step(train, scheduler="scheduler")
    with pytest.raises(ValueError, match=r"metric='loss' is for a scheduler= that is"):
        program.training_step(train, metric="loss")
    program.training_step(train, name="other", scheduler="scheduler", metric="accuracy")
    session = program.create_session()
    with pytest.raises(am.errors.InvalidArgumentError, match="'accuracy' is not in the result of"):
        await session.run("other", {"batch": torch.ones(1, 1)})
    await session.close()
    rates = []
    for metric, last in [("loss", 3), ("score", 8)]:  # a restart continues the count
        program = plateau()
        program.training_step(train, scheduler="scheduler", metric=metric)
        async with am.MonitoredTrainingSession(
            program=program, checkpoint_dir=tmp_path, log_step_count_steps=None,
            hooks=[am.StopAtStepHook(last_step=last)],
        ) as sess:  # fmt: skip
            while not sess.should_stop():
                await sess.run("train", {"batch": torch.ones(1, 1)})
                rates.append(program.learning_rates()["learning_rate"])
    assert rates == [0.1, 0.1, 0.05, 0.05, 0.025, 0.025, 0.0125, 0.0125]


async def test_wrong_arguments_of_the_step_helper_are_refused() -> None:
    program = TorchProgram({"x": torch.zeros(1)})
    for how, message in [
        ({}, r"optimizer='optimizer' is not in the state, which has \['x'\]"),
        ({"optimizer": "x", "accumulate": 0}, "accumulate must be 1 or more"),
        ({"optimizer": "x", "precision": MixedPrecision("float16")}, "give scaler="),
    ]:
        with pytest.raises(ValueError, match=message):
            program.training_step(lambda state, batch: None, **how)
    with pytest.raises(ValueError, match="'bfloat16' or 'float16'"):
        MixedPrecision("float8")
    with pytest.raises(TypeError, match="must be a module, an optimizer"):
        TorchProgram({"x": 3})
    program = TorchProgram({"optimizer": torch.optim.LBFGS([torch.zeros(1, requires_grad=True)])})
    with pytest.raises(TypeError, match=r"write a @program.step that calls step\(closure\)"):
        program.training_step(lambda state, batch: None)


# -- entries


async def test_all_kinds_of_elements_are_saved_and_restored(tmp_path: Path) -> None:
    kinds = [
        torch.bfloat16, torch.float16, torch.float32, torch.float64, torch.int8, torch.uint8,
        torch.int64, torch.bool, torch.complex64, torch.float8_e4m3fn, torch.float8_e5m2,
    ]  # fmt: skip

    def values(offset: int) -> dict[str, Any]:
        made = {str(k)[6:]: (torch.arange(6) + offset).to(k).reshape(2, 3) for k in kinds}
        return made | {
            "turned": (torch.arange(6.0) + offset).reshape(2, 3).t(),
            "empty": torch.zeros(0),
        }

    program, other = TorchProgram(values(1)), TorchProgram(values(0))
    saver = am.Saver()
    session, second = program.create_session(), other.create_session()
    path = await saver.save(session, tmp_path / "model.ckpt")
    await saver.restore(second, path)
    for name, value in program.state.items():
        found = other.state[name]
        same = value.view(torch.uint8) if value.element_size() == 1 else value
        assert torch.equal(same, found.view(torch.uint8) if value.element_size() == 1 else found), name
    await saver.close()


async def test_what_does_not_fit_is_refused_by_entry_with_expected_and_found() -> None:
    session = make().create_session()
    await session.run("train", {"batch": batch()})
    values = dict(await session.snapshot())
    wrong = {
        "model/0.weight": np.zeros((3, 3), np.float32),
        "model/0.bias": np.zeros(8),
        "nowhere/x": np.zeros(1),
        "optimizer/state/0/other": np.zeros(1),
    }
    with pytest.raises(InvalidArgumentError) as caught:
        await session.load(values | wrong)
    for part in (
        "'model/0.weight': expected shape (8, 4), found (3, 3)",
        "'model/0.bias': expected dtype float32, found float64",
        "'nowhere/x' is not an entry of the state",
        "'optimizer/state/0/other' is not an entry of 'optimizer'",
    ):
        assert part in str(caught.value)
    other = torch.nn.Linear(4, 2)
    small = TorchProgram({"optimizer": torch.optim.AdamW(other.parameters())}).create_session()
    optimizer = {name: value for name, value in values.items() if name.startswith("optimizer")}
    with pytest.raises(InvalidArgumentError, match=r"expected groups of \[2\] parameters, found \[6\]"):
        await small.load(optimizer)


async def test_a_state_dict_file_is_imported(tmp_path: Path) -> None:
    program = make(seed=1)
    session = program.create_session()
    await session.run("train", {"batch": batch()})
    model, optimizer = program.state["model"], program.state["optimizer"]
    torch.save({"net": model.state_dict(), "optim": optimizer.state_dict()}, tmp_path / "old.pt")
    torch.save(model.state_dict(), tmp_path / "model.pt")
    wanted = dict(await session.snapshot())
    for path, into, prefixes in (
        ("old.pt", {"net": "model", "optim": "optimizer"}, ("model/", "optimizer")),
        ("model.pt", "model", ("model/",)),
    ):
        fresh = make(seed=2).create_session()
        await import_state_dict(fresh, tmp_path / path, into)
        found = dict(await fresh.snapshot())
        for name in filter(lambda name: name.startswith(prefixes), wanted):
            assert found[name].tolist() == wanted[name].tolist(), name
    with pytest.raises(NotFoundError, match=r"has no 'weights'; expected one of its keys \['net', 'op"):
        await import_state_dict(fresh, tmp_path / "old.pt", {"weights": "model"})


async def test_an_evaluation_beside_steps_leaves_the_default_generator_alone() -> None:
    program = make(dropout=0.5)
    training, other = program.create_session(), program.create_session()
    await other.run("evaluate", {"batch": batch()})
    torch.manual_seed(5)
    expected = torch.rand(3).tolist()
    torch.manual_seed(5)
    drawn: list[float] = []

    @program.step(read_only=True)
    def evaluate_slowly(state: Any) -> None:
        drawn.append(float(torch.rand(())))  # as a concurrent step of the other session does

    for _ in range(3):
        await other.run("evaluate_slowly")
    assert drawn == expected
    await training.close()
    await other.close()


async def test_hooks_fetch_optional_values() -> None:
    session = make().create_session()
    fetches = [optional("loss", 7.0), optional("error"), "global_step"]
    assert await session.run([*fetches, "evaluate"], {"batch": batch()}) != []
    loss, error, step, _ = await session.run([*fetches, "train"], {"batch": batch()})
    assert loss > 0
    assert (error, step) == (None, 1)
