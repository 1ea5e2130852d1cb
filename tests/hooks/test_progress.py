"""ProgressHook: a bar on a terminal, lines elsewhere."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from asyncmon.hooks import ProgressHook, StopAtStepHook
from asyncmon.runtime.hook import overrides
from asyncmon.testing import ScriptedSession, assert_nothing_left_behind
from tests.hooks.conftest import Train

Lasting = Callable[..., Iterable[Any]]

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


def lines_console() -> Console:
    return Console(file=io.StringIO(), force_terminal=False, width=200)


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


async def test_lines_come_one_per_interval_and_at_the_end(train: Train, lasting: Lasting) -> None:
    console = lines_console()
    hook = ProgressHook(100, {"loss": "loss"}, every_secs=10, console=console)
    session = ScriptedSession(lasting(0.7), values={"loss": np.float32(0.25)})
    await train(hook, runs=40, session=session)
    assert printed(console).splitlines() == [
        "training: step 14/100, 1.4 steps/s, 0:01:01 left, loss = 0.25",
        "training: step 28/100, 1.4 steps/s, 0:00:51 left, loss = 0.25",
        "training: step 40/100, 1.43 steps/s, 0:00:42 left, loss = 0.25",
    ]


async def test_lines_go_to_the_error_output(
    train: Train, lasting: Lasting, capsys: pytest.CaptureFixture[str]
) -> None:
    await train(ProgressHook(every_secs=5), runs=6, session=ScriptedSession(lasting(0.99)))
    out, err = capsys.readouterr()
    assert (out, err.splitlines()[0]) == ("", "training: step 5, 1 steps/s")


async def test_without_a_last_step_nothing_is_said_of_the_time_left(
    train: Train, lasting: Lasting
) -> None:
    console = lines_console()
    hook = ProgressHook(console=console, every_secs=5, description="[fine] tuning")
    await train(hook, runs=6, session=ScriptedSession(lasting(0.99)))
    assert printed(console).splitlines()[0] == "[fine] tuning: step 5, 1 steps/s"


@pytest.mark.parametrize("first", [True, False])
async def test_the_last_step_is_that_of_a_stop_at_step_hook(
    train: Train, lasting: Lasting, first: bool
) -> None:
    """The lowest of several, in any order; counted from the step the session begins at."""
    console = lines_console()
    hooks = [ProgressHook(every_secs=5, console=console), StopAtStepHook(num_steps=10)]
    session = ScriptedSession(lasting(0.99), state={"global_step": 100})
    await train(*(hooks if first else hooks[::-1]), StopAtStepHook(last_step=500), session=session)
    assert [line.split(",")[0] for line in printed(console).splitlines()] == [
        "training: step 105/110",
        "training: step 110/110",
    ]


async def test_a_given_last_step_precedes_that_of_a_stop_at_step_hook(
    train: Train, lasting: Lasting
) -> None:
    console = lines_console()
    hooks = ProgressHook(200, every_secs=5, console=console), StopAtStepHook(last_step=5)
    await train(*hooks, session=ScriptedSession(lasting(0.99)))
    assert printed(console).splitlines()[-1].startswith("training: step 5/200")


async def test_a_bar_is_drawn_on_a_terminal_and_taken_away(train: Train, lasting: Lasting) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120, legacy_windows=False)
    async with assert_nothing_left_behind():
        await train(ProgressHook(10, console=console), runs=10, session=ScriptedSession(lasting(0.2)))
    assert "step 4/10" in printed(console)
    assert "step 10/10" in printed(console)
    assert printed(console).endswith("\x1b[?25h"), "the cursor is back"


async def test_a_bar_shows_tags_as_they_are_and_begins_again_in_a_new_session(
    train: Train, lasting: Lasting
) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120, legacy_windows=False)
    hook = ProgressHook(values={"s[b]": "loss"}, console=console)
    await train(hook, runs=10, session=ScriptedSession(lasting(0.2), values={"loss": 0.5}))
    assert "s[b] = 0.5" in printed(console)
    before = len(printed(console))
    await train(hook, runs=1, session=ScriptedSession(lasting(3), values={"loss": 0.25}))
    assert "s[b] = 0.5" not in printed(console)[before:]


async def test_the_terminal_is_given_back_at_an_error(train: Train, lasting: Lasting) -> None:
    console = Console(file=io.StringIO(), force_terminal=True, width=120, legacy_windows=False)
    session = ScriptedSession(lasting(1, [None, None, KeyError("x")]))
    with pytest.raises(KeyError):
        await train(ProgressHook(10, console=console), session=session)
    assert printed(console).endswith("\x1b[?25h")


async def test_an_error_is_not_the_last_line_if_so_configured(train: Train, lasting: Lasting) -> None:
    class Broken(io.StringIO):
        fails = 1

        def write(self, text: str) -> int:
            self.fails -= 1
            if self.fails == 0:
                raise OSError("the terminal is gone for a moment")
            return super().write(text)

    console = Console(file=Broken(), force_terminal=False, width=200)
    hook = ProgressHook(100, every_secs=10, console=console)
    hook.on_error = "log"
    await train(hook, runs=40, session=ScriptedSession(lasting(0.7)))
    assert "step 28/100" in printed(console)


async def test_a_run_costs_nothing() -> None:
    hook = ProgressHook(console=lines_console())
    assert not overrides(hook, "before_run")
    assert not overrides(hook, "after_run")


async def test_values_are_fetched_once_a_second(train: Train, lasting: Lasting) -> None:
    hook = ProgressHook(values={"loss": "loss"}, console=lines_console())
    session = await train(hook, runs=40, session=ScriptedSession(lasting(0.1)))
    assert 3 <= sum(fetches != "train" for fetches in session.runs) <= 5


async def test_values_that_are_no_numbers_are_shown_as_they_are(train: Train, lasting: Lasting) -> None:
    console = lines_console()
    hook = ProgressHook(values={"w": "w"}, every_secs=2, console=console)
    await train(hook, runs=3, session=ScriptedSession(lasting(1), state={"w": [1, 2]}))
    assert "w = [1 2]" in printed(console)


async def test_the_interval_is_positive() -> None:
    with pytest.raises(ValueError, match="invalid every_secs=0"):
        ProgressHook(console=lines_console(), every_secs=0)


async def test_without_rich_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.console", None)
    with pytest.raises(ImportError, match=r"pip install 'asyncmon\[progress\]'"):
        ProgressHook()
