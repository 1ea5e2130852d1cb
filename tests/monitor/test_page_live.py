"""The monitor's page on a session that trains: its facts, its buttons, and a day of events."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.browser import NEEDS_BROWSER, Page, browser, ended
from tests.monitor.test_page import TEXT

pytest.importorskip("starlette", reason="the extra `web` is not installed")
pytest.importorskip("uvicorn", reason="the extra `web` is not installed")
pytestmark = NEEDS_BROWSER

STEP = "parseInt(document.querySelector('#facts dd').textContent.replaceAll(',', ''))"

# Stands in for the server's events: the test sends them.
SOURCE = """window.EventSource = class extends EventTarget {
  constructor() {
    super();
    window.source = this;
    setTimeout(() => this.onopen(), 0);
  }
  close() {}
  send(kind, data, id) {
    const lastEventId = String(id);
    this.dispatchEvent(new MessageEvent(kind, { data: JSON.stringify(data), lastEventId }));
  }
};"""

# What a tenth of a second brings: points of 10 tags, a row, now and then a line of the log.
UPDATES = """(async () => {
  const row = await (await fetch('api/runs/line')).json();
  for (let n = FIRST; n < LAST; n++) {
    const series = {};
    for (let i = 0; i < 10; i++) {
      series[`tag${i}`] = { steps: [n], values: [Math.sin(n / 500 + i)], wall_times: [n / 10] };
    }
    source.send('scalars', { run: 'line', series }, 3 * n);
    source.send('status', { ...row, step: n }, 3 * n + 1);
    const line = { n: 1e6 + n, time: n, level: 'INFO', logger: 'x', text: `line ${n}` };
    if (n % 10 === 0) source.send('log', { lines: [line] }, 3 * n + 2);
    if (n % 250 === 0) await new Promise(requestAnimationFrame);
  }
})()"""


@contextmanager
def trains(logdir: Path, port: int = 0) -> Iterator[str]:
    """Train in another process that serves its monitor; give the URL."""
    script = Path(__file__).parent / "serve_session.py"
    process = subprocess.Popen(
        [sys.executable, str(script), str(logdir), str(port)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with ended(process):
        assert process.stdout is not None
        with process.stdout as out:
            url = out.readline().strip()
            assert url.startswith("http://127.0.0.1:"), url
            yield url


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with browser(1440, 1000) as page:
        yield page


@pytest.fixture
def url(tmp_path: Path, page: Page) -> Iterator[str]:
    with trains(tmp_path) as url:
        page.call("Storage.clearDataForOrigin", origin=url.rstrip("/"), storageTypes="local_storage")
        page.open(url)
        page.wait_until(TEXT.format(tag="loss") + ".includes('at step')")
        yield url
        assert not page.errors
        assert {urlsplit(request).netloc for request in page.requests} <= {urlsplit(url).netloc, ""}


def click(page: Page, selector: str) -> None:
    """Click as soon as the element is there and can be clicked."""
    page.wait_until(f"(e => e && !e.hidden && !e.disabled)(document.querySelector('{selector}'))")
    page.click(selector)


def text(page: Page, selector: str) -> Any:
    return page.evaluate(f"document.querySelector('{selector}').innerText")


def test_a_session_is_shown_with_all_it_does(page: Page, url: str) -> None:
    page.wait_until(f"{STEP} > 20")
    assert "/ 100,000" in text(page, "#facts")
    page.wait_until("document.querySelector('#facts').innerText.includes('/s')")
    assert text(page, "#run-state") == "running"
    page.wait_until("document.querySelectorAll('#hook-rows tr').length === 6")
    page.wait_until("document.querySelector('#hook-rows .note.problem:not(:empty)')")
    assert "ValueError: <i>no luck</i>" in text(page, "#hook-rows")
    assert "10 m" in text(page, "#task-rows")
    assert "points_enqueue" in text(page, "#task-rows")
    page.wait_until("document.querySelector('#queue-rows').innerText.includes('/ 32')")
    assert page.evaluate("document.querySelector('#queue-rows meter').max") == 32
    page.wait_until(r"/age\s+[\d.]+, up to [0-3]/.test(document.querySelector('#pipelines').innerText)")
    assert "games" in text(page, "#pipelines")
    assert page.evaluate("document.querySelectorAll('#pipelines dt').length") == 10
    page.wait_until("document.querySelector('#lag').innerText.includes('lag p99')")
    page.wait_until(r"/^[\d,]+ · line · asyncmon$/.test(document.title)")
    assert text(page, "#checkpoint-rows").startswith("0")
    assert page.evaluate("document.querySelector('#announce').textContent") == "line: running"


def test_the_buttons_act_on_the_session(page: Page, url: str) -> None:
    page.wait_until("document.querySelectorAll('#checkpoint-rows tr').length === 1")
    page.press("s")
    page.wait_until("document.querySelectorAll('#checkpoint-rows tr').length === 2")
    page.wait_until("document.querySelector('#toasts').innerText.includes('model.ckpt-')")
    click(page, "#verify")
    page.wait_until("document.querySelectorAll('[data-verified=true]').length === 2")

    click(page, "#pause")
    page.wait_until("document.querySelector('#run-state').innerText === 'paused'")
    stood = page.wait_until(STEP)
    click(page, "#pause")
    page.wait_until("document.querySelector('#run-state').innerText === 'running'")
    page.wait_until(f"{STEP} > {stood} + 10")

    detach = '#hook-rows [aria-label="Detach Careless"]'
    click(page, detach)
    page.press("Escape")
    page.wait_until("!document.querySelector('#ask').open")
    assert "Careless" in text(page, "#hook-rows")
    click(page, detach)
    click(page, "#ask-yes")
    page.wait_until("!document.querySelector('#hook-rows').innerText.includes('Careless')")

    click(page, "#stop")
    page.press("Enter")  # the first button, which has the focus, is the one that does nothing
    page.wait_until("!document.querySelector('#ask').open")
    assert text(page, "#run-state") == "running"
    click(page, "#stop")
    page.evaluate("document.querySelector('#ask-reason').value = 'seen <b>enough</b>'")
    click(page, "#ask-yes")
    page.wait_until("document.querySelector('#run-state').innerText === 'stopped'")
    assert text(page, "#reason") == "seen <b>enough</b>"
    assert page.evaluate(
        "['save', 'pause', 'stop'].every((id) => document.getElementById(id).disabled)"
    )


def test_the_log_is_filtered_and_followed(page: Page, url: str) -> None:
    lines = "[...document.querySelectorAll('#log-lines p')]"
    page.wait_until(f"{lines}.some((line) => line.innerText.includes('no luck'))")
    page.evaluate(
        "(level => { level.value = '40'; level.dispatchEvent(new Event('change')); })"
        "(document.querySelector('#log-level'))"
    )
    shown = page.evaluate(f"{lines}.filter((line) => !line.hidden).map((line) => line.dataset.level)")
    assert set(shown) == {"40"}
    page.press("f")
    page.wait_until("!document.querySelector('#log-follow').checked")


def test_a_panel_begins_below_the_header_of_a_phone(page: Page, url: str) -> None:
    page.resize(400, 800, scale=2, phone=True)
    try:
        page.wait_until("document.querySelectorAll('#hook-rows tr').length")
        for panel in ("hooks", "tasks"):
            page.evaluate(f"document.getElementById('{panel}').scrollIntoView({{behavior: 'instant'}})")
            header, title = (
                page.box(f"document.querySelector('{one}')") for one in (".top", f"#{panel} h2")
            )
            assert header[1] + header[3] <= title[1]
    finally:
        page.resize(1440, 1000)


def memory(page: Page) -> dict[str, int]:
    """Return what the page has; nodes that were just removed may be collected a moment later."""
    page.call("HeapProfiler.collectGarbage")
    heap = page.call("Runtime.getHeapUsage")["usedSize"]
    return {**page.call("Memory.getDOMCounters"), "heap": heap}


def test_a_day_of_events_leaves_nothing_behind(page: Page, url: str) -> None:
    added = page.call("Page.addScriptToEvaluateOnNewDocument", source=SOURCE)
    try:
        page.open(url)
        page.wait_until("window.source && document.querySelectorAll('#runs li').length === 1")
        found = []
        for first, last in ((1, 5_000), (5_000, 20_000)):
            page.evaluate(UPDATES.replace("FIRST", str(first)).replace("LAST", str(last)))
            page.wait_until(f"{STEP} === {last - 1}")
            found.append(min((memory(page) for _ in range(5)), key=lambda one: one["heap"]))
        reduced = page.evaluate("performance.getEntriesByType('resource').map((one) => one.name)")
        assert len([name for name in reduced if "max_points" in name]) > 2  # by the server, not here
        early, late = found
        assert late["heap"] < early["heap"] + 1_500_000, found
        assert late["nodes"] < early["nodes"] + 6_000, found
        assert late["jsEventListeners"] < early["jsEventListeners"] + 50, found
        assert page.evaluate("document.querySelectorAll('#log-lines p').length") <= 1000
    finally:
        page.call("Page.removeScriptToEvaluateOnNewDocument", identifier=added["identifier"])


def test_the_page_comes_back_to_a_new_process(page: Page, url: str, tmp_path: Path) -> None:
    with trains(tmp_path / "other") as other:
        page.open(other)
        page.wait_until("document.querySelector('#connection')?.innerText === 'live'")
        page.wait_until(f"{STEP} > 10")
    page.wait_until("document.querySelector('#connection')?.innerText.startsWith('connection lost')")
    page.evaluate("document.querySelector('#log-lines p').dataset.old = ''")
    with trains(tmp_path / "other", port=urlsplit(other).port or 0):
        page.wait_until("document.querySelector('#connection')?.innerText === 'live'", 30)
        page.wait_until(f"{STEP} > 10")
        page.wait_until("document.querySelector('#log-lines p:first-child:not([data-old])')")
    page.errors.clear()  # refused connections
    page.open(url)
