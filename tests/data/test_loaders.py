"""Data loaders of torch: what a resumed session reads, and the values that it trains to, bit by bit."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch", reason="torch is not installed: pip install 'asyncmon[torch]'")

import torch
from torch.utils.data import DataLoader, Dataset

import asyncmon as am
from asyncmon.checkpoint.packing import pack, unpack
from asyncmon.programs import FunctionProgram
from asyncmon.programs.torch import TorchProgram

pytestmark = [
    pytest.mark.asyncio,
    pytest.mark.filterwarnings("ignore:'set_vital':UserWarning"),
    pytest.mark.filterwarnings("ignore:.*fork.*:RuntimeWarning"),  # if another test imported JAX
]

COUNT, SIZE, EPOCHS = 20, 4, 3
STEPS = COUNT // SIZE * EPOCHS


class Noisy(Dataset[Any]):
    """Items that draw from torch's default generator, of a worker or of this process."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, number: int) -> Any:
        return torch.randn(3), torch.tensor(number)


class Plain(Noisy):
    def __getitem__(self, number: int) -> Any:
        return torch.full((3,), float(number)), torch.tensor(number)


class EpochSampler:
    """As torch's ``DistributedSampler``: the order follows from the number of the epoch."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return COUNT

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed(self.epoch)
        return iter(torch.randperm(COUNT, generator=generator).tolist())


class OwnGenerator(EpochSampler):
    def __init__(self) -> None:
        self.generator = torch.Generator().manual_seed(3)

    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(COUNT, generator=self.generator).tolist())


def stateful(**options: Any) -> Any:
    module = pytest.importorskip("torchdata.stateful_dataloader", reason="torchdata is not installed")
    return module.StatefulDataLoader(Plain(), SIZE, shuffle=True, **options)


def seeded() -> Any:
    return torch.Generator().manual_seed(1)


LOADERS = {
    "shuffle": lambda: DataLoader(Noisy(), SIZE, shuffle=True),
    "shuffle, generator": lambda: DataLoader(Noisy(), SIZE, shuffle=True, generator=seeded()),
    "shuffle, workers": lambda: DataLoader(Noisy(), SIZE, shuffle=True, num_workers=2),
    "shuffle, workers, generator": lambda: DataLoader(
        Noisy(), SIZE, shuffle=True, num_workers=2, generator=seeded()
    ),
    "persistent workers": lambda: DataLoader(
        Plain(), SIZE, shuffle=True, num_workers=1, persistent_workers=True, generator=seeded()
    ),
    "in order": lambda: DataLoader(Noisy(), SIZE),
    "set_epoch": lambda: DataLoader(Noisy(), SIZE, sampler=EpochSampler()),
    "sampler with a generator": lambda: DataLoader(Noisy(), SIZE, sampler=OwnGenerator()),
    "stateful": stateful,
    "stateful, generator": lambda: stateful(generator=seeded()),
    "stateful, workers": lambda: stateful(num_workers=1, generator=seeded()),
    "stateful, persistent workers": lambda: stateful(num_workers=1, persistent_workers=True),
}

Trace = list[tuple[int, list[int], str]]


class Training:
    """A model with dropout, begun as a new process begins it: data, weights and generators."""

    def __init__(self, kind: str, directory: Path) -> None:
        torch.manual_seed(0)
        self.loader: Any = LOADERS[kind]()
        model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Dropout(0.3), torch.nn.Linear(4, 1))
        optimizer = torch.optim.AdamW(model.parameters(), 0.01)
        self.program = TorchProgram({"model": model, "optimizer": optimizer})
        self.program.step(train)
        self.directory = directory

    async def batches(self, sess: Any) -> AsyncIterator[Any]:
        async for epoch in sess.epochs(self.loader, EPOCHS):
            set_epoch = getattr(self.loader.sampler, "set_epoch", None)
            if set_epoch is not None:
                set_epoch(epoch.number)
            async for batch in epoch:
                yield batch

    async def run(self, last: int = STEPS) -> Trace:
        """Train until a step, and return each step with its elements and the weights after it."""
        trace: Trace = []
        async with am.MonitoredTrainingSession(
            program=self.program, checkpoint_dir=self.directory, log_step_count_steps=None,
            hooks=[am.StopAtStepHook(last_step=last)],
        ) as sess:  # fmt: skip
            async for values, numbers in self.batches(sess):
                weights = await sess.run("train", {"batch": values})
                trace.append((sess.global_step, numbers.tolist(), weights))
        return trace


def train(state: Any, batch: Any) -> str:
    """Train, and return the bits of the weights."""
    state["optimizer"].zero_grad()
    state["model"](batch).square().mean().backward()
    state["optimizer"].step()
    state["optimizer"].zero_grad()
    return b"".join(one.detach().numpy().tobytes() for one in state["model"].parameters()).hex()


class Iterating(Training):
    async def batches(self, sess: Any) -> AsyncIterator[Any]:
        while not sess.should_stop():
            async for batch in sess.iterate(self.loader):
                yield batch


@pytest.mark.parametrize("kind", LOADERS)
async def test_a_resumed_session_reads_the_same_and_trains_to_the_same_bits(
    kind: str, tmp_path: Path
) -> None:
    whole = await Training(kind, tmp_path / "whole").run()
    assert [step for step, _, _ in whole] == list(range(1, STEPS + 1))
    for first in range(0, STEPS, COUNT // SIZE):
        epoch = [number for _, numbers, _ in whole[first : first + 5] for number in numbers]
        assert sorted(epoch) == list(range(COUNT))
    trace: Trace = []
    for last in (2, 5, 6, 9, STEPS):  # within epochs, and between them
        trace += await Training(kind, tmp_path / "parts").run(last)
    assert trace == whole


@pytest.mark.parametrize("kind", ["stateful", "stateful, workers"])
async def test_iterate_keeps_the_place_of_a_stateful_loader(kind: str, tmp_path: Path) -> None:
    whole = await Iterating(kind, tmp_path / "whole").run()
    trace: Trace = []
    for last in (2, 5, 6, 9, STEPS):
        trace += await Iterating(kind, tmp_path / "parts").run(last)
    assert trace == whole


@pytest.mark.parametrize("kind", ["shuffle", "stateful, generator"])
async def test_an_epoch_that_is_left_early_is_left_after_a_restart_too(
    kind: str, tmp_path: Path
) -> None:
    class Leaving(Training):
        async def batches(self, sess: Any) -> AsyncIterator[Any]:
            async for epoch in sess.epochs(self.loader, EPOCHS):
                async for batch in epoch:
                    yield batch
                    if sess.global_step % 2 == 0:
                        break

    whole = await Leaving(kind, tmp_path / "whole").run()
    assert [step for step, _, _ in whole] == list(range(1, 2 * EPOCHS + 1))
    trace: Trace = []
    for last in (1, 3, STEPS):  # a stop comes before what the body leaves
        trace += await Leaving(kind, tmp_path / "parts").run(last)
    assert trace == whole


async def test_a_pipeline_over_a_loader_resumes_exactly(tmp_path: Path) -> None:
    async def read(last: int, name: str) -> list[Any]:
        torch.manual_seed(0)
        loader = DataLoader(range(COUNT), None, shuffle=True, generator=seeded())
        data = am.data.from_iterable(loader).map(int).batch(4).repeat(EPOCHS).prefetch(2)
        program, seen = FunctionProgram({"n": 0}), []
        program.step(lambda state: state.update(n=state["n"] + 1), name="count")
        async with am.MonitoredTrainingSession(
            program=program, checkpoint_dir=tmp_path / name, log_step_count_steps=None,
            hooks=[am.StopAtStepHook(last_step=last)],
        ) as sess:  # fmt: skip
            async for batch in sess.iterate(data):
                await sess.run("count")
                seen.append(batch.tolist())
        return seen

    whole = await read(STEPS, "whole")
    assert len(whole) == STEPS
    parts = [await read(last, "parts") for last in (3, 7, 12, STEPS)]
    assert [batch for part in parts for batch in part] == whole


async def test_a_shuffled_loader_without_a_place_is_named_once_with_the_remedy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    await Iterating("shuffle", tmp_path).run(STEPS)
    (warning,) = [one.getMessage() for one in caplog.records if "keeps no place" in one.getMessage()]
    assert "sess.epochs(loader" in warning
    await Iterating("in order", tmp_path / "in order").run(2)
    program = FunctionProgram({"n": 0})
    async with am.SingularMonitoredSession(program=program) as sess:  # saves nothing
        async for _ in sess.iterate(LOADERS["shuffle"]()):
            pass
    assert sum("keeps no place" in one.getMessage() for one in caplog.records) == 1


async def test_a_position_of_a_loader_with_other_generators_is_refused(tmp_path: Path) -> None:
    await Training("shuffle, generator", tmp_path).run(2)
    with pytest.raises(ValueError, match=r"states of 1 generators.*draws from 0"):
        await Training("shuffle", tmp_path).run()


async def test_tensors_in_states_are_saved_and_loaded_as_tensors() -> None:
    state = {"generator": seeded().get_state(), "scale": [torch.tensor(0.5)], "array": np.arange(2)}
    packed, arrays = pack("data", state)
    assert all(type(one) is np.ndarray for one in arrays.values())
    loaded = unpack(packed, arrays)
    assert torch.equal(loaded["generator"], state["generator"])
    assert (loaded["scale"][0], loaded["scale"][0].dtype) == (0.5, torch.float32)
    assert type(loaded["array"]) is np.ndarray


def of_rank(count: int, rank: int, size: int) -> DataLoader[Any]:
    sampler = torch.utils.data.DistributedSampler(Plain(), count, rank, shuffle=True, seed=4)
    return DataLoader(Plain(), size, sampler=sampler)


async def test_a_loader_continues_in_another_number_of_ranks_after_the_same_elements() -> None:
    found: list[int] = []
    state: Any = None
    for count, size, batches in ((2, 2, 1), (1, 4, 2), (2, 1, 4)):  # of 20 elements, 4 + 8 + 8
        data = [am.data.from_iterable(of_rank(count, rank, size)) for rank in range(count)]
        for one in data:
            if state is not None:
                one.load_state_dict(state)
            for _ in range(batches):
                found += (await one.get_next())[1].tolist()
        state = data[0].state_dict()
        for one in data:
            await one.aclose()
    assert sorted(found) == list(range(20))


async def test_a_loader_refuses_a_position_inside_one_of_its_batches_and_of_no_split() -> None:
    one = am.data.from_iterable(of_rank(1, 0, 2))
    await one.get_next()
    state = one.state_dict()
    await one.aclose()
    two = am.data.from_iterable(of_rank(2, 0, 2))
    with pytest.raises(
        ValueError, match=r"after 2 elements .* inside a batch of 2 ranks in batches of 2"
    ):
        two.load_state_dict(state)
    plain = am.data.from_iterable(DataLoader(Plain(), 2))
    with pytest.raises(ValueError, match="1 ranks in batches of 2, and this is a loader of one rank"):
        plain.load_state_dict(state)
    made = am.data.from_iterable(lambda: of_rank(2, 0, 2))
    made.load_state_dict(state)
    with pytest.raises(ValueError, match="Pass the loader itself"):
        await made.get_next()
