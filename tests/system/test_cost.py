"""Which computations may hold the event loop, by the time of earlier ones."""

from __future__ import annotations

from math import inf

from asyncmon.system.cost import CostModel

LIMIT = 0.001


def learnt(*runs: tuple[float, int], weight: int = 0) -> CostModel:
    cost = CostModel(weight)
    for seconds, fed in runs:
        cost.observe(seconds, LIMIT, fed)
    return cost


def test_a_first_run_is_judged_by_its_elements() -> None:
    assert learnt().is_short(LIMIT)
    assert not learnt().is_short(0.0)
    assert not learnt(weight=1 << 18).is_short(LIMIT)
    assert not learnt().is_short(LIMIT, fed=1 << 18)


def test_further_ones_by_the_average() -> None:
    assert learnt((0.0009, 0)).is_short(LIMIT)
    assert not learnt((0.0011, 0)).is_short(LIMIT)


def test_one_that_took_very_long_sends_the_next_to_a_worker_and_is_forgotten() -> None:
    cost = learnt(*[(1e-5, 0)] * 10, (2.0, 0))
    assert not cost.is_short(LIMIT)
    for _ in range(13):
        cost.observe(1e-5, LIMIT)
    assert cost.is_short(LIMIT)


def test_one_that_gets_many_more_elements_will_take_longer() -> None:
    cost = learnt(*[(0.0005, 1000)] * 10)
    assert cost.is_short(LIMIT, fed=1000)
    assert cost.is_short(LIMIT, fed=4000)
    assert not cost.is_short(LIMIT, fed=10_000)
    assert learnt((1e-5, 10_000)).is_short(LIMIT, fed=100_000)


def test_few_elements_do_not_matter() -> None:
    assert learnt((0.0005, 1)).is_short(LIMIT, fed=4000)


def test_an_op_that_repeats_by_its_inputs_is_never_short() -> None:
    cost = CostModel(weight=inf)
    assert not cost.is_short(LIMIT)
    cost.observe(1e-6, LIMIT)
    assert not cost.is_short(LIMIT)
