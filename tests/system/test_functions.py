"""What callables say of themselves."""

from __future__ import annotations

from functools import partial

import pytest

from asyncmon.system.functions import is_coroutine_function


async def waits() -> None: ...


def returns() -> None: ...


class Waits:
    async def __call__(self) -> None: ...


@pytest.mark.parametrize("fn", [waits, partial(waits), Waits(), Waits().__call__])
def test_a_call_is_awaited(fn: object) -> None:
    assert is_coroutine_function(fn)


@pytest.mark.parametrize("fn", [returns, len, Waits, 5])
def test_a_call_is_not_awaited(fn: object) -> None:
    assert not is_coroutine_function(fn)
