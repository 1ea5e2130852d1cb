"""Memory given out by stretches: never twice at a time, and used again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from asyncmon.graph.execution.arena import Space


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 1000)), max_size=60))
def test_stretches_in_use_never_overlap(actions: list[tuple[bool, int]]) -> None:
    space = Space()
    used: list[tuple[int, int]] = []
    for take, number in actions:
        if take or not used:
            start = space.take(number)
            assert start % 64 == 0
            assert start + number <= space.size
            assert all(start + number <= a or a + size <= start for a, size in used if number and size)
            used.append((start, number))
        else:
            space.give(*used.pop(number % len(used)))


def test_what_is_given_back_is_used_again() -> None:
    space = Space()
    first, second, third = space.take(100), space.take(100), space.take(100)
    size = space.size
    space.give(first, 100)
    space.give(second, 100)  # one stretch now
    assert space.take(256) == first
    space.give(third, 100)
    space.take(300)  # the free end is extended
    assert space.size == size - 128 + 320


def test_the_smallest_stretch_that_fits_is_taken() -> None:
    space = Space()
    large, _, small, _ = (space.take(n) for n in (640, 64, 128, 64))
    space.give(large, 640)
    space.give(small, 128)
    assert space.take(100) == small
    assert space.take(100) == large
