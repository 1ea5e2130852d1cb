"""Which checkpoints stay."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import google_crc32c
import pytest

from asyncmon import testing
from asyncmon.checkpoint import (
    KeepBest,
    Saver,
    get_checkpoint_state,
    latest_checkpoint,
    load_checkpoint,
)
from asyncmon.checkpoint.manifest import Manifest, TensorFile
from asyncmon.checkpoint.retention import Kept, Retention
from asyncmon.system import clock
from asyncmon.system.files import FileCalls


def steps(directory: Path) -> list[int]:
    return sorted(int(path.stem.split("-")[1]) for path in directory.glob("m-*.json"))


@pytest.mark.asyncio
async def test_the_oldest_beyond_max_to_keep_go_sa_3(
    tmp_path: Path, make_session: Callable[..., Any], names_in: Callable[[Path], set[str]]
) -> None:
    """SA-3: list and state file agree, and no file of a deleted checkpoint stays."""
    saver = Saver(max_to_keep=3)
    for step in range(5):
        await saver.save(make_session(a=1.0), tmp_path / "m", step)
    assert steps(tmp_path) == [2, 3, 4]
    assert saver.last_checkpoints == [str(tmp_path / f"m-{step}") for step in (2, 3, 4)]
    state = await get_checkpoint_state(tmp_path)
    assert state is not None
    assert list(state.all_model_checkpoint_paths) == saver.last_checkpoints
    assert len(names_in(tmp_path)) == 7


@pytest.mark.asyncio
@pytest.mark.parametrize("unlimited", [None, 0])
async def test_unlimited_keeps_and_lists_all_sa_3(
    tmp_path: Path, make_session: Callable[..., Any], unlimited: int | None
) -> None:
    saver = Saver(max_to_keep=unlimited)
    for step in range(8):
        await saver.save(make_session(a=1.0), tmp_path / "m", step)
    assert steps(tmp_path) == list(range(8))
    assert len(saver.last_checkpoints) == 8


@pytest.mark.asyncio
async def test_a_new_saver_continues_with_the_list_and_prunes_all_excess_sa_4_sa_7(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    saver = Saver(max_to_keep=5)
    for step in range(5):
        await saver.save(make_session(a=1.0), tmp_path / "m", step)
    await saver.close()
    again = Saver(max_to_keep=2)
    await again.save(make_session(a=1.0), tmp_path / "m", 5)
    assert steps(tmp_path) == [4, 5]


@pytest.mark.asyncio
async def test_each_directory_of_a_saver_has_its_own_list(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    """A graph's saver serves its sessions one after another, in whichever directories."""
    saver = Saver(max_to_keep=2)
    for step in (1, 2, 3):
        await saver.save(make_session(a=1.0), tmp_path / "one" / "m", step)
    for step in (1, 2, 3, 4):
        await saver.save(make_session(a=1.0), tmp_path / "two" / "m", step)
    assert (steps(tmp_path / "one"), steps(tmp_path / "two")) == ([2, 3], [3, 4])
    await saver.close()
    await saver.continue_from(tmp_path / "one")
    await saver.save(make_session(a=1.0), tmp_path / "one" / "m", 4)
    assert (steps(tmp_path / "one"), steps(tmp_path / "two")) == ([3, 4], [3, 4])
    state = await get_checkpoint_state(tmp_path / "one")
    assert state is not None
    assert [path[-1] for path in state.all_model_checkpoint_paths] == ["3", "4"]


@pytest.mark.asyncio
async def test_lists_can_be_set_and_recovered_sa_7(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    saver = Saver(max_to_keep=2)
    for step in range(3):
        await saver.save(make_session(a=1.0), tmp_path / "m", step)
    other = Saver(max_to_keep=1)
    await other.recover_last_checkpoints([str(tmp_path / f"m-{step}") for step in range(3)])
    assert other.last_checkpoints == [str(tmp_path / "m-1"), str(tmp_path / "m-2")]
    other.set_last_checkpoints([str(tmp_path / "m-1"), str(tmp_path / "m-2")])
    await other.save(make_session(a=1.0), tmp_path / "m", 3)
    assert steps(tmp_path) == [1, 2, 3]  # set without times: never deleted
    other.set_last_checkpoints_with_time([(str(tmp_path / "m-1"), 5.0)])
    await other.save(make_session(a=1.0), tmp_path / "m", 4)
    assert steps(tmp_path) == [2, 3, 4]


def test_one_of_every_so_many_hours_is_kept_for_good_sa_5(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    """SA-5, with the loop's own clock: a week takes no time."""

    async def main() -> Saver:
        saver = Saver(max_to_keep=2, keep_checkpoint_every_n_hours=2)
        for step in range(10):
            await saver.save(make_session(a=1.0), tmp_path / "m", step)
            await asyncio.sleep(3600)
        return saver

    saver = testing.run(main())
    # The mark stands at 2 h, 4 h, 6 h, ...: kept is the first that was saved after it.
    assert steps(tmp_path) == [3, 5, 7, 8, 9]
    assert [path[-1] for path in saver.last_checkpoints] == ["8", "9"]


def test_the_mark_survives_a_restart_sa_5(tmp_path: Path, make_session: Callable[..., Any]) -> None:
    async def main() -> None:
        for step in range(6):
            saver = Saver(max_to_keep=1, keep_checkpoint_every_n_hours=2)
            await saver.save(make_session(a=1.0), tmp_path / "m", step)
            await saver.close()
            await asyncio.sleep(3600)

    testing.run(main())
    assert steps(tmp_path) == [3, 5]


@pytest.mark.asyncio
async def test_the_best_by_a_metric_are_kept_besides_the_newest(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    keep = KeepBest("loss", k=2)
    saver = Saver(max_to_keep=1, keep_best=keep)
    losses = [0.5, 0.1, math.nan, 0.3, 0.2, 0.9]
    for step, loss in enumerate(losses):
        await saver.save(make_session(a=1.0), tmp_path / "m", step, metrics={"loss": loss})
    assert steps(tmp_path) == [1, 4, 5]
    assert saver.best_checkpoints == [str(tmp_path / "m-1"), str(tmp_path / "m-4")]
    assert Saver().best_checkpoints == []
    await saver.close()
    again = Saver(max_to_keep=1, keep_best=keep)  # reads metrics from the manifests
    await again.save(make_session(a=1.0), tmp_path / "m", 6, metrics={"loss": 0.15})
    assert steps(tmp_path) == [1, 6]
    await again.save(make_session(a=1.0), tmp_path / "m", 7)
    assert steps(tmp_path) == [1, 6, 7]
    async with await load_checkpoint(tmp_path / "m-6") as reader:
        assert reader.facts.metrics == {"loss": 0.15}


@pytest.mark.asyncio
async def test_a_best_that_no_save_has_a_metric_for_is_a_warning(
    tmp_path: Path, make_session: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    saver = Saver(max_to_keep=1, keep_best=KeepBest("loss"))
    await saver.save(make_session(a=1.0), tmp_path / "m", 0)  # before the first evaluation
    assert not caplog.messages
    for step in (1, 2):
        await saver.save(make_session(a=1.0), tmp_path / "m", step)
    (message,) = [one for one in caplog.messages if "the metric 'loss'" in one]
    assert f"{tmp_path / 'm-0'} is deleted" in message
    assert "They have no metrics." in message


@pytest.mark.asyncio
async def test_a_best_by_a_metric_of_another_name_is_a_warning_with_the_names(
    tmp_path: Path, make_session: Callable[..., Any], caplog: pytest.LogCaptureFixture
) -> None:
    saver = Saver(max_to_keep=1, keep_best=KeepBest("los"))
    for step in range(4):
        metrics = {"loss": 1.0} if step > 1 else None
        await saver.save(make_session(a=1.0), tmp_path / "m", step, metrics=metrics)
    found = [one for one in caplog.messages if "the metric 'los'" in one]
    assert [("no metrics" in one, "They have ['loss']" in one) for one in found] == [
        (True, False),
        (False, True),
    ]


def test_best_is_the_greatest_if_so_configured_and_the_newer_of_equals() -> None:
    kept = [Kept(str(number), 0.0, {"m": value}) for number, value in enumerate([1, 3, 3, 2])]
    assert [one.path for one in KeepBest("m", k=3, mode="max").best(kept)] == ["2", "1", "3"]
    assert KeepBest("other").best(kept) == []
    with pytest.raises(ValueError, match="k=0"):
        KeepBest("m", k=0)
    with pytest.raises(ValueError, match="'min' or 'max'"):
        KeepBest("m", mode="up")  # type: ignore[arg-type] # refused
    with pytest.raises(ValueError, match=r"max_to_keep is a number of checkpoints, .* got 2\.5"):
        Retention(2.5, 0, 0)  # type: ignore[arg-type]  # refused


def test_the_newest_is_never_among_those_to_be_deleted() -> None:
    kept = [Kept(str(number), 0.0) for number in range(4)]
    decision = Retention(1, 10000.0, math.inf).decide(kept)
    assert [one.path for one in decision.listed] == ["3"]
    assert [one.path for one in decision.excess] == ["0", "1", "2"]


@pytest.mark.asyncio
async def test_what_a_reader_has_open_is_not_deleted(
    tmp_path: Path, make_session: Callable[..., Any], names_in: Callable[[Path], set[str]]
) -> None:
    saver = Saver(max_to_keep=1)
    path = await saver.save(make_session(a=1.0), tmp_path / "m", 1)
    async with await load_checkpoint(str(path)) as reader:
        await saver.save(make_session(a=2.0), tmp_path / "m", 2)
        await saver.save(make_session(a=3.0), tmp_path / "m", 3)
        assert steps(tmp_path) == [1, 3]
        array = await reader.get_tensor("a")
        await saver.save(make_session(a=4.0), tmp_path / "m", 1)  # the same name, saved again
        assert await reader.get_tensor("a") == 1.0
    await saver.save(make_session(a=3.0), tmp_path / "m", 4)
    assert steps(tmp_path) == [4]
    assert await latest_checkpoint(tmp_path) == str(tmp_path / "m-4")
    await saver.close()
    await saver.claim(tmp_path)  # the next start deletes the file that was replaced while it was read
    assert names_in(tmp_path) == {"checkpoint", "m-4.json", "m-4.safetensors"}
    assert array == 1.0, "it stays valid, and keeps nothing from being deleted"


@pytest.mark.asyncio
async def test_a_deletion_that_fails_is_a_warning_and_is_tried_again_sa_6(
    tmp_path: Path,
    make_session: Callable[..., Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    class NoDeletions(FileCalls):
        def replace(self, source: Path, target: Path) -> None:
            if target.name.startswith(".asyncmon-"):
                raise OSError("it is not to be deleted")
            super().replace(source, target)

    saver = Saver(max_to_keep=1, calls=NoDeletions())
    for step in (1, 2):
        await saver.save(make_session(a=1.0), tmp_path / "m", step)
    assert steps(tmp_path) == [1, 2]
    assert "Ignoring: it is not to be deleted" in caplog.text
    state = await get_checkpoint_state(tmp_path)
    assert state is not None
    assert state.all_model_checkpoint_paths == [str(tmp_path / "m-2")]  # written before
    async with await load_checkpoint(tmp_path / "m-2") as reader:
        assert reader.manifest is not None
        assert reader.manifest.excess == ("m-1",)
    assert len(saver.last_checkpoints) == 2
    await saver.close()
    await Saver(max_to_keep=1).save(make_session(a=1.0), tmp_path / "m", 3)  # the next start
    assert steps(tmp_path) == [3]


@pytest.mark.asyncio
async def test_a_list_is_looked_at_again_once_the_directory_is_ours_sa_7(
    tmp_path: Path, make_session: Callable[..., Any]
) -> None:
    """A kill between the commit of a checkpoint and its state file: the next claim completes that."""

    saver = Saver(max_to_keep=2)
    for step in (1, 2):
        await saver.save(make_session(a=1.0), tmp_path / "m", step)
    await saver.close()
    old = ("checkpoint", "m-1.json", "m-1.safetensors")
    before = {name: (tmp_path / name).read_bytes() for name in old}
    await saver.save(make_session(a=1.0), tmp_path / "m", 3)
    await saver.close()
    journal = Manifest(
        files=(TensorFile("m-3.safetensors", 0, ""),),
        program={
            "asyncmon.state_file": {"checkpoint": (tmp_path / "checkpoint").read_text()},
            "asyncmon.state_file_before": {"checkpoint": google_crc32c.value(before["checkpoint"])},
        },
    )
    (tmp_path / ".asyncmon-0123abcd-m-3.json").write_bytes(journal.encode())
    for name in old:
        (tmp_path / name).write_bytes(before[name])

    again = Saver(max_to_keep=2)
    await again.restore_latest(make_session(a=0.0), tmp_path)
    await again.continue_from(tmp_path)
    assert [path[-1] for path in again.last_checkpoints] == ["1", "2"]
    await again.save(make_session(a=1.0), tmp_path / "m", 4)
    assert [path[-1] for path in again.last_checkpoints] == ["3", "4"]
    assert steps(tmp_path) == [3, 4]


@pytest.mark.asyncio
async def test_a_list_that_was_set_stays_sa_7(tmp_path: Path, make_session: Callable[..., Any]) -> None:
    saver = Saver(max_to_keep=3)
    for step in (1, 2, 3):
        await saver.save(make_session(a=1.0), tmp_path / "m", step)
    await saver.close()
    again = Saver(max_to_keep=1)
    again.set_last_checkpoints_with_time([(str(tmp_path / "m-1"), 5.0)])
    await again.continue_from(tmp_path)
    await again.save(make_session(a=1.0), tmp_path / "m", 4)
    assert steps(tmp_path) == [2, 3, 4]


@pytest.mark.asyncio
async def test_a_list_with_absolute_paths_continues_in_a_relative_directory(
    tmp_path: Path, make_session: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for first in (0, 2):  # step 2 is saved again after a restore
        saver = Saver(max_to_keep=3, save_relative_paths=False)
        session = make_session(a=1.0)
        if first:
            assert await saver.restore_latest(session, "runs") == str(tmp_path / "runs" / "m-2")
        for step in range(first, first + 3):
            await saver.save(session, "runs/m", step)
        await saver.close()
    assert steps(tmp_path / "runs") == [2, 3, 4]
    assert saver.last_checkpoints == ["runs/m-2", "runs/m-3", "runs/m-4"]


def lives(
    tmp_path: Path, make_session: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., None]:
    """Return a function that saves a step every so often, at times in hours, in a saver of its own."""
    steps_done = [0]

    def live(start: float, count: int, every: float, hours: float = 1.0, keep: int = 2) -> None:
        async def main() -> None:
            now = [3600 * start]
            monkeypatch.setattr(clock, "wall", lambda: now[0])
            saver = Saver(max_to_keep=keep, keep_checkpoint_every_n_hours=hours)
            for _ in range(count):
                await saver.save(make_session(a=1.0), tmp_path / "m", steps_done[0])
                steps_done[0] += 1
                now[0] += 3600 * every
            await saver.close()

        asyncio.run(main())

    return live


def test_one_checkpoint_an_interval_is_kept_after_a_pause(
    tmp_path: Path, make_session: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    live = lives(tmp_path, make_session, monkeypatch)
    live(1000, 13, 1 / 6)
    assert steps(tmp_path) == [7, 11, 12]
    live(1000 + 72, 25, 1 / 6)  # three days later, for four hours
    assert steps(tmp_path) == [7, 13, 20, 26, 32, 36, 37]


def test_each_checkpoint_of_sparse_saves_is_kept(
    tmp_path: Path, make_session: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    live = lives(tmp_path, make_session, monkeypatch)
    live(1000, 6, 5)
    assert steps(tmp_path) == [1, 2, 3, 4, 5], "the first is no later than the first mark"


def test_one_checkpoint_an_interval_is_kept_over_restarts(
    tmp_path: Path, make_session: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Preempted after each two saves, every 10 minutes, and once after the state file was lost."""
    live = lives(tmp_path, make_session, monkeypatch)
    for number in range(12):
        live(1000 + number / 3, 2, 1 / 6)
    kept = steps(tmp_path)[:-2]
    assert len(kept) == 3
    assert all(6 <= later - earlier <= 7 for earlier, later in itertools.pairwise(kept))


@pytest.mark.parametrize("with_interval", [1.0, 10000.0])
def test_clock_that_is_set_back_is_warned_about_once_and_restarts_the_mark(
    tmp_path: Path, make_session: Callable[..., Any], monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture, with_interval: float,
) -> None:  # fmt: skip
    live = lives(tmp_path, make_session, monkeypatch)
    live(1000, 13, 1 / 6, with_interval)
    assert "set back" not in caplog.text
    before = steps(tmp_path)
    live(900, 25, 1 / 6, with_interval)
    assert caplog.text.count("The clock was set back") == 1
    live(904.2, 3, 1 / 6, with_interval)
    assert caplog.text.count("The clock was set back") == 1, "it goes forward again"
    assert asyncio.run(latest_checkpoint(tmp_path)) == str(tmp_path / "m-40")
    if with_interval == 1.0:
        kept = [step for step in steps(tmp_path)[:-2] if step >= 13]
        assert kept == [20, 26, 32, 38]
        assert set(before[:-2]) < set(steps(tmp_path))
    else:
        assert steps(tmp_path) == [39, 40]


def test_clocks_of_two_machines_may_differ(
    tmp_path: Path, make_session: Callable[..., Any], monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    live = lives(tmp_path, make_session, monkeypatch)
    live(1000, 3, 1 / 6)
    live(1000 + 2 / 6 - 30 / 3600, 3, 1 / 6)
    assert "set back" not in caplog.text
