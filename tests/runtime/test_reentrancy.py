"""Each call of a session ends at once, wherever user code makes it: with its result, or refused."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import asyncmon as am
from asyncmon.runtime import SessionState
from tests.runtime.reentrancy import CALLS, PLACES, Scene, hook_of

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]

PAGE = Path(__file__).parents[2] / "docs" / "cancellation.md"

GROUPS = {
    "opening": ("begin", "after_create_session", "after create session, recovery"),
    "run": ("before_run", "after_run", "step function", "@every(steps)"),
    "step": ("program step", "py_func"),
    "close": ("end", "cleanup"),
}
"""The first words of the places of a column of the table; the others are in the last one."""

OTHERS = {
    # A session that recovers is open.
    ("after create session, recovery", "pause"): "yes",
    ("after create session, recovery", "iterate"): "yes",
    # A function that needs no variable is awaited before the run holds the state.
    ("py_func", "run(hooks=False)"): "yes",
    # The opening does not wait for a background.
    ("background", "close"): "yes",
    ("before_save by secs", "save"): "no",
    ("before_save by secs", "close"): "no",
    ("after_save by secs", "close"): "no",
    ("evaluation listener", "close"): "no",
}
"""The cells that the notes below the table are about: by the first words of a place, and the call."""

REMEDIES = (
    "the raw session", "argument of after_create_session", "run_context.session.run", "Use peek()",
    "Call it later", "request_stop()", "Leave the call out", "the function of another step",
    "depend on no variable",
)  # fmt: skip
"""One of them is in the text of each refusal. The tests below check that they work."""


def table() -> dict[str, dict[str, str]]:
    """Return the table of the page: the cells of each call, by column."""
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in PAGE.read_text().partition("## What may be called where")[2].splitlines()
        if line.startswith("|")
    ]
    columns = [*GROUPS, "elsewhere"]
    found = {}
    for calls, *cells in rows[2:]:
        for call in re.findall(r"`([^`]+)`", calls):
            found[call] = dict(zip(columns, cells, strict=True))
    return found


def expected(place: str, call: str) -> str:
    for (begin, other), outcome in OTHERS.items():
        if place.startswith(begin) and call == other and "of a variable" not in place:
            return outcome
    if place == "background" or place.endswith("_save by steps"):
        column = "opening" if place == "background" else "run"
    else:
        names = (name for name, begins in GROUPS.items() if place.startswith(begins))
        column = next(names, "elsewhere")
    return table()[call][column]


async def test_the_table_has_all_calls() -> None:
    assert table().keys() == CALLS.keys()


@pytest.mark.parametrize("place", PLACES)
async def test_each_call_ends_at_once(place: str, tmp_path: Path) -> None:
    for number, (name, call) in enumerate(CALLS.items()):
        scene = Scene(call, tmp_path / str(number))
        await PLACES[place](scene)
        wanted = expected(place, name)
        found = {"yes": "yes", "refused": "no"}.get(scene.outcome or "", scene.outcome)
        assert found == wanted, f"{name} in {place}: {scene.error!r}, {scene.end!r}"
        if wanted == "no":
            text = str(scene.error)
            assert isinstance(scene.error, RuntimeError), name
            assert any(one in text for one in REMEDIES), f"{name} in {place}: {text}"


def outcome_of(place: str, call: Callable[[Scene], Any], path: Path) -> Any:
    async def outcome() -> tuple[str | None, BaseException | None, Scene]:
        scene = Scene(call, path)
        await PLACES[place](scene)
        return scene.outcome, scene.error, scene

    return outcome()


async def raw_run(scene: Scene) -> Any:
    """Run in the raw session that the place gives."""
    session = scene.context[0]
    return await getattr(session, "session", session).run(scene.other)


async def waits_for_a_run(scene: Scene) -> Any:
    await scene.context[1].sample([])
    return await scene.sess.run(scene.other)


REMEDY = {
    "run, by the raw session": (
        raw_run,
        [
            "after_create_session", "after_create_session, task", "after create session, recovery",
            "background", "before_run", "before_run, task", "after_run", "end", "end, task",
            "before_save by steps", "after_save by steps", "@every(steps)",
        ],
    ),
    "run, after the first run": (waits_for_a_run, ["background"]),
    "run, by run_with_hooks": (
        lambda scene: scene.context[0].run_with_hooks(scene.other),
        ["step function", "step function, task"],
    ),
    "run, by the function of the step": (
        lambda scene: scene.other_function(scene.context[0]),
        ["program step", "program step, no hooks", "program step, task"],
    ),
    "sample, by peek": (
        lambda scene: scene.sess.peek(scene.value),
        [
            "before_run", "after_run", "step function", "program step", "py_func", "@every(steps)",
            "before_save by steps", "after_save by steps",
        ],
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("call", "place"), [(call, place) for call, (_, places) in REMEDY.items() for place in places]
)
async def test_the_remedy_of_a_refusal_works(call: str, place: str, tmp_path: Path) -> None:
    outcome, error, scene = await outcome_of(place, REMEDY[call][0], tmp_path)
    assert (outcome, error, scene.end) == ("yes", None, None)


@pytest.mark.parametrize(
    "place", [place for place in PLACES if expected(place, "close") == "no" and "create" not in place]
)
async def test_request_stop_in_place_of_close_ends_the_session(place: str, tmp_path: Path) -> None:
    outcome, error, scene = await outcome_of(place, lambda one: one.sess.request_stop(), tmp_path)
    assert (outcome, error) == ("yes", None)
    assert scene.sess.state is SessionState.CLOSED
    if place != "begin":  # else there was no session yet, and there is none
        assert scene.end is None


@pytest.mark.parametrize("moment", ["begin", "after_create_session"])
async def test_an_error_in_place_of_close_ends_the_opening(moment: str, tmp_path: Path) -> None:
    async def fail(*_args: Any) -> None:
        raise ValueError("not today")

    scene = Scene(lambda one: None, tmp_path)
    scene.functions()
    await scene.run(hook_of(moment, fail))
    assert isinstance(scene.end, ValueError)
    assert scene.sess.state is SessionState.CLOSED


async def test_a_save_after_the_run_in_a_background(tmp_path: Path) -> None:
    wanted, saved = asyncio.Event(), []

    class Saves(am.SessionRunHook):
        async def after_run(self, run_context: Any, run_values: Any) -> None:
            if run_values.step == 2:
                wanted.set()

        async def background(self, session: Any, coord: Any) -> None:
            await wanted.wait()
            saved.append(await scene.sess.save())

    scene = Scene(lambda one: None, tmp_path)
    scene.functions()

    async def body(_sess: Any) -> None:
        scene.outcome = "yes"

    await scene.run(Saves(), body=body)
    assert [path.rpartition("-")[2] for path in saved] == ["2"]
    assert scene.end is None
