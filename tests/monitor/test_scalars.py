"""Scalars in memory: nothing is lost, nothing grows, and peaks stay."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncmon.monitor.encoding import encode_series
from asyncmon.monitor.quota import Quota
from asyncmon.monitor.runs import Runs
from asyncmon.monitor.scalars import Part, Scalars, Series, downsample, extremes, means
from tests.monitor.scripted import ScriptedRun

FLOATS = st.floats(width=32)


def series(values: list[float], begin: int = 0) -> Series:
    steps = np.arange(begin, begin + len(values))
    return Series(steps, np.array(values, float), steps.astype(float))


def test_points_are_seen_once_they_are_published() -> None:
    scalars = Scalars()
    scalars.add("loss", 1, 0.5, 10.0)
    assert scalars.tags() == []
    assert scalars.pending() == 1
    assert [column.tolist() for column in scalars.publish(7)["loss"]] == [[1], [0.5], [10.0]]
    assert scalars.publish(8) == {}
    assert scalars.tags() == [("loss", 1, 1, 0.5, 10.0)]


def test_a_cursor_gives_what_was_published_after_it() -> None:
    scalars = Scalars()
    for cursor in range(1, 6):
        scalars.extend("loss", series([cursor] * cursor, 10 * cursor))
        scalars.publish(cursor)
    assert scalars.knows(["loss"], 0)
    for cursor in range(6):
        values = scalars.points(["loss"], cursor)["loss"].values
        assert values.tolist() == [c for c in range(cursor + 1, 6) for _ in range(c)]


def test_a_cursor_that_is_too_old_is_not_known() -> None:
    scalars = Scalars()
    for cursor in range(1, 2_100):
        scalars.add("loss", cursor, 0.0, 0.0)
        scalars.publish(cursor)
    assert not scalars.knows(["loss"], 50)
    assert scalars.knows(["loss"], 150)
    assert len(scalars.points(["loss"], 150)["loss"].steps) == 2_099 - 150


def test_a_full_column_is_thinned_and_keeps_its_peak() -> None:
    scalars = Scalars(most_points=1_000)
    values = np.random.default_rng(0).random(50_000)
    values[123] = 100.0
    for begin in range(0, 50_000, 100):
        scalars.extend("loss", series(values[begin : begin + 100].tolist(), begin))
        scalars.publish(begin)
    kept = scalars.points(["loss"])["loss"]
    assert len(kept.steps) <= 1_000
    assert kept.values.max() == 100.0
    assert kept.steps[-1] == 49_999
    assert (np.diff(kept.steps) > 0).all()
    np.testing.assert_array_equal(kept.values, values[kept.steps])


def test_thinning_breaks_the_readers_and_their_cursors() -> None:
    scalars = Scalars(most_points=100)
    scalars.extend("loss", series([0.0] * 90))
    scalars.publish(1)
    assert not scalars.broken
    scalars.extend("loss", series([0.0] * 20, 90))
    assert scalars.broken
    scalars.publish(2)
    assert not scalars.broken
    assert not scalars.knows(["loss"], 1)
    assert scalars.knows(["loss"], 2)


def test_all_tags_together_are_bounded() -> None:
    scalars = Scalars(most_in_all=1_000)
    for tag in range(10):
        scalars.extend(str(tag), series([float(tag)] * 300))
    scalars.publish(1)
    found = scalars.points(map(str, range(10)))
    assert sum(len(one.steps) for one in found.values()) <= 1_000
    assert min(len(one.steps) for one in found.values()) > 10


def test_the_points_of_all_runs_are_bounded_and_the_largest_run_gives_up_some() -> None:
    quota = Quota(most=1_000)
    small, large, gone = Scalars(), Scalars(), Scalars()
    small.extend("loss", series([0.0] * 100))
    for one in (small, large, gone):
        one.join(quota)
    gone.extend("loss", series([0.0] * 300))
    large.extend("loss", series([0.0] * 900))
    assert quota.amount <= 1_000
    gone.leave()
    before = large.size[0]
    for begin in range(10_000):
        large.add("loss", begin, 0.0, 0.0)
    assert before < large.size[0] <= 900
    assert small.size == (100, 1)
    assert quota.amount == large.size[0] + 100
    large.purge(-1, ["loss"])
    assert quota.amount == 100


def test_the_runs_of_a_table_share_a_quota() -> None:
    runs = [ScriptedRun("a"), ScriptedRun("b")]
    table = Runs(runs)
    for run in runs:
        run.scalars.extend("loss", series([0.0] * 10))
    assert table.quota.amount == 20
    table.remove("a")
    assert table.quota.amount == 10


def test_bounds_are_reached_once_for_many_points() -> None:
    """Viewers start from zero each time that points are thinned."""
    scalars = Scalars(most_in_all=10_000)
    broken = 0
    for cursor in range(3_000):
        for tag in range(10):
            scalars.add(str(tag), cursor, 0.0, 0.0)
        broken += scalars.broken
        scalars.publish(cursor)
    assert 0 < broken < 60


def test_more_tags_than_all_runs_may_have_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    quota = Quota(most_tags=3)
    runs = [Scalars(), Scalars()]
    for one in runs:
        one.join(quota)
        for tag in "ab":
            one.add(tag, 0, 0.0, 0.0)
    assert [one.size for one in runs] == [(2, 2), (1, 1)]
    assert "All runs together have more than 3 scalars" in caplog.text


def test_more_tags_than_are_shown_are_left_out_with_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    scalars = Scalars(most_tags=2)
    for tag in "abcd":
        scalars.add(tag, 0, 0.0, 0.0)
    scalars.publish(1)
    assert [point.tag for point in scalars.tags()] == ["a", "b"]
    assert len(caplog.records) == 1


def test_a_restored_session_replaces_the_steps_that_it_does_again() -> None:
    scalars = Scalars()
    scalars.extend("loss", series([0.0] * 10))
    scalars.extend("other", series([0.0] * 10))
    scalars.publish(1)
    scalars.purge(6, {"loss"})
    assert scalars.broken
    scalars.extend("loss", series([1.0] * 4, 6))
    scalars.publish(2)
    found = scalars.points(["loss", "other", "unknown"])
    assert found.keys() == {"loss", "other"}
    assert found["loss"].values.tolist() == [0.0] * 6 + [1.0] * 4
    assert len(found["other"].steps) == 10


@given(st.lists(FLOATS, min_size=1, max_size=300), st.integers(8, 60))
def test_downsampling_keeps_ends_peaks_and_nans(values: list[float], most: int) -> None:
    given_values = np.array(values)
    found = downsample(series(values), most)
    assert len(found.steps) <= most
    assert found.steps[0] == 0
    assert found.steps[-1] == len(values) - 1
    assert (np.diff(found.steps) > 0).all()
    np.testing.assert_array_equal(found.values, given_values[found.steps])
    assert np.isnan(found.values).any() == np.isnan(given_values).any()
    if not np.isnan(given_values).all():
        assert np.nanmax(found.values) == np.nanmax(given_values)
        assert np.nanmin(found.values) == np.nanmin(given_values)


def test_every_stretch_of_nans_stays_visible() -> None:
    values = np.sin(np.arange(100_000) / 100)
    values[5_000:5_200] = np.nan
    kept = extremes(values, 2_000)
    assert np.isnan(values[kept]).any()
    assert len(kept) <= 2_000


@given(st.lists(FLOATS, max_size=20))
def test_numbers_that_json_lacks_are_strings(values: list[float]) -> None:
    found = json.loads(encode_series({'a "tag"': series(values)}), parse_constant=pytest.fail)
    read = [float(value) for value in found['a "tag"']["values"]]
    np.testing.assert_array_equal(np.array(read), np.array(values))


@given(st.lists(FLOATS, min_size=1, max_size=300), st.integers(8, 60))
def test_means_are_those_of_equal_stretches(values: list[float], most: int) -> None:
    found = means(series(values), most)
    assert len(found.steps) <= most
    np.testing.assert_array_equal(found.values[-1], values[-1])
    assert found.steps[-1] == len(values) - 1
    assert (np.diff(found.steps) > 0).all()
    if len(values) > most:
        size = -(-(len(values) - 1) // (most - 1))
        for index, mean in enumerate(found.values[:-1]):
            stretch = np.array(values[:-1][index * size : (index + 1) * size])
            stretch = stretch[np.isfinite(stretch)]
            with np.errstate(over="ignore", invalid="ignore"):
                expected = stretch.mean() if len(stretch) else np.nan
            np.testing.assert_allclose(
                mean, expected, rtol=1e-9, atol=1e-6 * np.abs(stretch).max(initial=0)
            )


def test_a_part_has_its_neighbours() -> None:
    one = series([0.0] * 10)
    assert Part("steps", 3, 5).of(one).steps.tolist() == [2, 3, 4, 5, 6]
    assert Part("steps", 3.2, 3.8).of(one).steps.tolist() == [3, 4]
    assert Part("steps", -5, 0).of(one).steps.tolist() == [0, 1]
    assert Part("steps", 9, 50).of(one).steps.tolist() == [8, 9]
    assert Part("steps", 20, 50).of(one).steps.tolist() == [9]
    times = one.wall_times
    assert Part("wall_times", times[4], times[4]).of(one).steps.tolist() == [3, 4, 5]
