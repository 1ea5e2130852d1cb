"""The page on sessions that have ended, on many equal tasks and on small groups of charts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.browser import NEEDS_BROWSER, Page, browser, ended

pytest.importorskip("starlette", reason="the extra `web` is not installed")
pytest.importorskip("uvicorn", reason="the extra `web` is not installed")
pytestmark = NEEDS_BROWSER

SERVER = """
import asyncio
import asyncmon as am
from asyncmon.monitor.run import Details, Status
from asyncmon.runtime.session_statistics import TaskStatistics
from tests.monitor.scripted import ScriptedRun

tasks = tuple(TaskStatistics(f"env-{n}", "it waits in play (envs.py:7)", False) for n in range(32))
runs = [ScriptedRun("open", facts=Details(tasks=(*tasks, TaskStatistics("other", "x", False))))]
for outcome in ("completed", "preempted", "failed"):
    error = "ValueError: bad <i>data</i>" if outcome == "failed" else None
    row = Status(
        state="closed", outcome=outcome, stop_reason="the end", last_error=error,
        metrics={"accuracy": 0.5, "loss": "nan"},
    )
    runs.append(ScriptedRun(outcome, row=row))
for tag in ("loss", "eval/a", "eval/b", "lr/x", "time/y"):
    runs[0].scalars.add(tag, 1, 0.5, 1.0)

async def main():
    async with am.monitor.serve(runs, port=0):
        await asyncio.Event().wait()

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with browser(1280, 900) as page:
        yield page


@pytest.fixture
def url(page: Page) -> Iterator[str]:
    server = subprocess.Popen([sys.executable, "-c", SERVER], stdout=subprocess.PIPE, text=True)
    with ended(server):
        assert server.stdout is not None
        with server.stdout as out:
            url = out.readline().strip()
            page.open(url)
            page.wait_until("document.querySelectorAll('#runs li').length === 4")
            yield url
            assert not page.errors


def focus(page: Page, name: str) -> None:
    page.evaluate(f"document.querySelector('#runs [title=\"{name}\"]').click()")
    page.wait_until(f"document.querySelector('#run-name').innerText === '{name}'")


def colour(page: Page, selector: str) -> str:
    return str(page.evaluate(f"getComputedStyle(document.querySelector('{selector}')).color"))


def test_outcomes_have_words_and_colours(page: Page, url: str) -> None:
    colours = {}
    for name in ("completed", "preempted", "failed"):
        focus(page, name)
        assert page.evaluate("document.querySelector('#run-state').innerText") == name
        colours[name] = colour(page, "#run-state")
        shown = "ValueError: bad <i>data</i>" if name == "failed" else "the end"
        assert page.evaluate("document.querySelector('#reason').innerText") == shown
        facts = page.evaluate("document.querySelector('#facts').innerText").split()
        assert facts[-4:] == ["accuracy", "0.50000", "loss", "NaN"]
    assert len(set(colours.values())) == 3
    assert colour(page, "#reason") == colours["failed"]  # the last one, its error
    page.click("#remove")
    page.click("#ask-yes")
    page.wait_until("document.querySelectorAll('#runs li').length === 3")


def test_equal_tasks_are_one_row_with_their_line(page: Page, url: str) -> None:
    focus(page, "open")
    page.wait_until("document.querySelectorAll('#task-rows tr').length === 2")
    shown = page.evaluate("document.querySelector('#task-rows').innerText")
    assert "env-#" in shown
    assert shown.startswith("32 ")
    assert "envs.py:7" in shown


def test_small_groups_of_charts_share_a_row(page: Page, url: str) -> None:
    focus(page, "open")
    groups = "[...document.querySelectorAll('#grid .group')]"
    tops = f"{groups}.map((one) => one.getBoundingClientRect().top)"
    page.wait_until("document.querySelectorAll('#grid .group').length === 4")
    assert len(set(page.evaluate(tops))) < 4
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
