"""Curves in a cell, and what notebooks show of sessions, statistics and lists of checkpoints."""

from __future__ import annotations

import asyncio
import math
import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

import asyncmon as am
from asyncmon.hooks.curves import _MOST

pytestmark = pytest.mark.asyncio


def program() -> am.programs.FunctionProgram:
    found = am.programs.FunctionProgram(state={"weight": 0.0})

    @found.step
    async def train(state: Any) -> dict[str, float]:
        state["weight"] += 1.0
        return {"loss": 10.0 / state["weight"]}

    return found


def lines(shown: str) -> list[str]:
    return re.findall(r'<polyline points="([^"]+)"', shown)


async def test_sampled_values_become_curves() -> None:
    hook = am.CurvesHook({"<loss>": "loss"}, every_secs=0.001)
    assert lines(hook._repr_html_()) == []
    async with am.MonitoredTrainingSession(program=program(), hooks=[hook]) as sess:
        while len(hook._points["<loss>"]) < 5:
            await sess.run("train")
            await asyncio.sleep(0)
    shown = hook._repr_html_()
    assert "&lt;loss&gt;" in shown
    assert "<loss>" not in shown
    (curve,) = lines(shown)
    heights = [float(point.split(",")[1]) for point in curve.split()]
    assert heights == sorted(heights)  # the loss falls: y grows downwards
    assert len(heights) >= 5


async def test_a_restored_session_removes_what_it_repeats(tmp_path: Path) -> None:
    hook = am.CurvesHook({"loss": "loss"}, every_secs=0.001)
    async with am.MonitoredTrainingSession(
        checkpoint_dir=tmp_path, program=program(), hooks=[am.StopAtStepHook(last_step=3)]
    ) as sess:
        while not sess.should_stop():
            await sess.run("train")
    hook._points["loss"] = [(1, 3.0), (3, 2.0), (4, 1.0), (9, 0.5)]
    async with am.MonitoredTrainingSession(checkpoint_dir=tmp_path, program=program(), hooks=[hook]):
        assert hook._points["loss"][:2] == [(1, 3.0), (3, 2.0)]
        assert all(step > 3 for step, _ in hook._points["loss"][2:])
        assert (9, 0.5) not in hook._points["loss"]


async def test_curves_are_bounded_and_have_gaps() -> None:
    hook = am.CurvesHook({"loss": "loss"})
    for step in range(10 * _MOST):
        hook._add({"loss": math.nan if 4_000 <= step < 6_000 else float(step)}, step)
    points = hook._points["loss"]
    assert len(points) <= _MOST
    assert (points[0][0], points[-1][0]) == (0, 10 * _MOST - 1)
    assert len(lines(hook._repr_html_())) == 2
    with pytest.raises(
        TypeError, match=r"CurvesHook was given \[1, 2\] for 'loss'; expected one number"
    ):
        hook._add({"loss": [1, 2]}, 1)
    with pytest.raises(ValueError, match="no value"):
        am.CurvesHook({})


async def test_the_points_of_a_long_curve_are_spread_over_all_of_it() -> None:
    hook = am.CurvesHook({"loss": "loss"})
    for step in range(10 * _MOST):
        hook._add({"loss": 0.0}, step)
    steps = [step for step, _ in hook._points["loss"]]
    gaps = [after - before for before, after in pairwise(steps[:-1])]
    assert max(gaps) <= 2 * min(gaps)
    assert steps[-1] == 10 * _MOST - 1


async def test_a_curve_reaches_from_corner_to_corner_of_its_axes() -> None:
    hook = am.CurvesHook({"loss": "loss"})
    for step in range(3):
        hook._add({"loss": float(step)}, step)
    shown = hook._repr_html_()
    assert 'd="M58 20V132H312"' in shown
    assert lines(shown) == ["58.0,132.0 185.0,76.0 312.0,20.0"]


async def test_sessions_and_checkpoints_are_shown_as_html(tmp_path: Path) -> None:
    session = am.MonitoredTrainingSession(
        checkpoint_dir=tmp_path, program=program(), hooks=[am.StopAtStepHook(last_step=4)]
    )
    assert "new" in session._repr_html_()
    async with session as sess:
        await sess.run("train")
        await sess.save()
        shown = sess._repr_html_()
        assert '<progress value="1" max="4"></progress> open at step 1 of 4' in shown
        assert "<td>StopAtStepHook</td>" in shown
        assert "CheckpointSaverHook" in shown
        assert sess.statistics()._repr_html_().startswith("<div><progress")
        sess.request_stop("<enough>")
    assert "&lt;enough&gt;" in session._repr_html_()
    state = await am.get_checkpoint_state(tmp_path)
    assert state is not None
    table = state._repr_html_()
    assert re.search(r"<td>[^<]+model\.ckpt-1</td><td>\d{4}-\d\d-\d\d \d\d:\d\d:\d\d</td>", table)
    saver = am.Saver()
    await saver.recover_last_checkpoints(state.all_model_checkpoint_paths)
    assert saver._repr_html_() == table
