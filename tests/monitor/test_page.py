"""The monitor's page in a headless Chromium, against the server of ``python -m asyncmon monitor``."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from asyncmon.summary import FileWriter
from tests import forked
from tests.browser import NEEDS_BROWSER, Page, browser, ended

pytest.importorskip("starlette", reason="the extra `web` is not installed")
pytest.importorskip("uvicorn", reason="the extra `web` is not installed")
pytestmark = NEEDS_BROWSER

HOSTILE = "<img src=x onerror=alert(1)>"
TOKEN = "a-token-of-the-test-suite"
POINTS = 300

CARD = """[...document.querySelectorAll('#grid .card')]
  .find((card) => card.querySelector('h3').title === '{tag}')"""
TEXT = "(" + CARD + "?.querySelector('.plot').getAttribute('aria-label') ?? '')"
COLOURED = """[...document.querySelectorAll('#grid canvas')].map((canvas) => {
  const { width, height } = canvas;
  const copy = new OffscreenCanvas(width, height).getContext('2d', { willReadFrequently: true });
  copy.drawImage(canvas, 0, 0);
  const { data } = copy.getImageData(0, 0, width, height);
  let count = 0;
  for (let i = 0; i < data.length; i += 4) {
    const [red, green, blue, opaque] = data.slice(i, i + 4);
    if (opaque > 200 && Math.max(red, green, blue) - Math.min(red, green, blue) > 60) count++;
  }
  return count;
})"""


async def write_points(directory: Path, first: int, last: int) -> None:
    """Write two scalars at the steps from the first to the last one."""
    async with FileWriter(directory) as writer:
        for step in range(first, last + 1):
            gap = 100 <= step < 120
            writer.add_scalar("loss", math.nan if gap else math.exp(-step / 90), step)
            writer.add_scalar(HOSTILE, step / 1000, step)


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with browser(1440, 1000) as page:
        yield page


@pytest.fixture
def logdir(tmp_path: Path) -> Path:
    """Write two runs, one of a hostile name."""
    asyncio.run(write_points(tmp_path / "first", 1, POINTS))
    asyncio.run(write_points(tmp_path / "b<b>old", 1, POINTS // 2))
    return tmp_path


@contextmanager
def served(logdir: Path, port: int = 0, token: str | None = None) -> Iterator[str]:
    """Serve a log directory from another process; give the URL that it prints."""
    server = forked.Process(
        "asyncmon", "monitor", str(logdir), "--port", str(port),
        imported=("asyncmon.monitor.serving", "uvicorn"),
        env={"ASYNCMON_TOKEN": token} if token else {},
    )  # fmt: skip
    with server, ended(server):
        url = server.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:"), url
        yield url


@pytest.fixture
def url(logdir: Path, page: Page) -> Iterator[str]:
    with served(logdir) as url:
        yield url
        assert not page.errors
        host = urlsplit(url).netloc
        assert {urlsplit(request).netloc for request in page.requests} <= {host, ""}


def open_charts(page: Page, url: str) -> None:
    """Open the page with its defaults, and wait for both charts."""
    page.call("Storage.clearDataForOrigin", origin=url.rstrip("/"), storageTypes="local_storage")
    page.open(url)
    page.wait_until(TEXT.format(tag="loss") + f".includes('at step {POINTS}')")
    page.wait_until("document.querySelectorAll('#grid canvas').length === 2")


def test_the_charts_are_drawn_and_have_their_text(page: Page, url: str) -> None:
    open_charts(page, url)
    assert min(page.wait_until(f"{COLOURED}.every((n) => n > 200) && {COLOURED}")) > 200
    text = page.evaluate(TEXT.format(tag="loss"))
    assert f"first: {POINTS} points" in text
    assert "20 not finite" in text
    assert f"b<b>old: {POINTS // 2} points" in text
    legend = page.evaluate(CARD.format(tag="loss") + ".querySelector('.legend').innerText")
    assert "first" in legend
    assert f"{POINTS}" in legend


def test_names_are_shown_as_they_are(page: Page, url: str) -> None:
    open_charts(page, url)
    titles = page.evaluate(
        "[...document.querySelectorAll('#grid h3')].map((title) => title.textContent)"
    )
    assert sorted(titles) == [HOSTILE, "loss"]
    assert page.evaluate("document.querySelectorAll('img[src=x], b b, li b b').length") == 0
    names = page.evaluate(
        "[...document.querySelectorAll('#runs .name')].map((name) => name.textContent)"
    )
    assert names == ["b<b>old", "first"]
    policy = page.evaluate("fetch('').then((answer) => answer.headers.get('content-security-policy'))")
    assert "unsafe" not in policy


def test_new_points_arrive_by_themselves(page: Page, logdir: Path, url: str) -> None:
    open_charts(page, url)
    asyncio.run(write_points(logdir / "first", POINTS + 1, POINTS + 40))
    page.wait_until(TEXT.format(tag="loss") + f".includes('{POINTS + 40} points')")
    page.click("#runs li:nth-child(2) .name")
    assert page.wait_until(f"document.querySelector('#facts').innerText.includes('{POINTS + 40}')")


def test_a_run_that_begins_is_shown(page: Page, logdir: Path, url: str) -> None:
    open_charts(page, url)
    asyncio.run(write_points(logdir / "third", 1, 10))
    page.wait_until("document.querySelectorAll('#runs li').length === 3")


def test_the_connection_is_lost_and_comes_back(page: Page, logdir: Path) -> None:
    with served(logdir) as url:
        open_charts(page, url)
        page.wait_until("document.querySelector('#connection').innerText === 'live'")
    page.wait_until("document.querySelector('#connection').innerText.startsWith('connection lost')")
    asyncio.run(write_points(logdir / "first", POINTS + 1, POINTS + 25))
    with served(logdir, port=urlsplit(url).port or 0):
        page.click("#reconnect")
        page.wait_until("document.querySelector('#connection').innerText === 'live'")
        page.wait_until(TEXT.format(tag="loss") + f".includes('{POINTS + 25} points')")
        asyncio.run(write_points(logdir / "first", POINTS + 26, POINTS + 30))
        page.wait_until(TEXT.format(tag="loss") + f".includes('{POINTS + 30} points')")


def test_the_colours_follow_the_system_and_the_switch(page: Page, url: str) -> None:
    background = "getComputedStyle(document.body.querySelector('.top')).backgroundColor"
    page.prefer(prefers_color_scheme="light")
    open_charts(page, url)
    light = page.evaluate(background)
    page.prefer(prefers_color_scheme="dark")
    assert page.wait_until(f"{background} !== '{light}' && {background}") == "rgb(23, 27, 33)"
    page.wait_until(f"{COLOURED}.every((n) => n > 200)")
    page.click("#theme")
    page.wait_until(f"{background} === '{light}'")
    page.open(url)
    assert page.wait_until(f"document.readyState === 'complete' && {background}") == light
    page.prefer(prefers_color_scheme="light")


@pytest.mark.parametrize("width", [320, 390, 700])
def test_a_narrow_screen_has_one_column_and_no_scrolling_sideways(
    page: Page, url: str, width: int
) -> None:
    page.resize(width, 800, scale=2, phone=True)
    try:
        open_charts(page, url)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        lefts = page.evaluate(
            "['aside', '#status', '#charts', '#checkpoints'].map((name) => "
            "Math.round(document.querySelector(name).getBoundingClientRect().left))"
        )
        assert len(set(lefts)) == 1
        wide = page.evaluate("document.querySelector('#grid canvas').getBoundingClientRect().width")
        assert wide > 0.7 * min(width, 400)
    finally:
        page.resize(1440, 1000)


def test_the_keyboard_is_enough(page: Page, url: str) -> None:
    open_charts(page, url)
    page.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.press("Tab")
    seen = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
    assert seen == "solid"

    page.press("?", modifiers=8)
    assert page.evaluate("document.querySelector('#shortcuts').open")
    assert page.evaluate("document.querySelectorAll('#shortcut-list kbd').length") > 15
    page.press("Escape")
    page.wait_until("!document.querySelector('#shortcuts').open")

    page.press("l")
    page.wait_until("document.querySelector('#log-scale').checked")
    page.press("t")
    page.wait_until("document.querySelector('#x-axis').value === 'elapsed'")
    page.press("t")
    page.press("t")
    page.press("k")
    page.wait_until("document.querySelector('#run-name').textContent === 'b<b>old'")
    page.press("j")
    page.wait_until("document.querySelector('#run-name').textContent === 'first'")

    page.press("/")
    page.press("l")
    page.press("o")
    page.wait_until("document.querySelectorAll('#grid .card').length === 1")
    page.evaluate(CARD.format(tag="loss") + ".focus()")
    for _ in range(3):
        page.press("ArrowLeft")
    at = CARD.format(tag="loss") + ".querySelector('.legend .at').textContent"
    assert int(page.wait_until(f"{at} !== '{POINTS}' && {at}")) < POINTS
    page.press("Enter")
    page.wait_until("document.querySelectorAll('#enlarged canvas').length === 1")
    page.evaluate("document.querySelector('#enlarged summary').click()")
    rows = "document.querySelectorAll('#enlarged tbody tr').length"
    assert page.wait_until(f"{rows}") > 100
    page.press("Escape")
    page.wait_until("!document.querySelector('#enlarged').open")


def test_a_zoom_requests_its_stretch_and_is_undone(page: Page, url: str) -> None:
    open_charts(page, url)
    box = page.box(CARD.format(tag="loss") + ".querySelector('.u-over')")
    y = box[1] + box[3] / 2
    page.drag([box[0] + box[2] * 0.25, y], [box[0] + box[2] * 0.5, y])
    page.wait_until("!document.querySelector('#zoom-reset').hidden")
    asked = page.wait_until(
        "performance.getEntriesByType('resource').map((e) => e.name).findLast((n) => /low=/.test(n))"
    )
    query = parse_qs(urlsplit(asked).query)
    low, high = float(query["low"][0]), float(query["high"][0])
    assert low < POINTS / 4 < POINTS / 2 < high
    page.press("0")
    page.wait_until("document.querySelector('#zoom-reset').hidden")
    page.wait_until(TEXT.format(tag="loss") + f".includes('{POINTS} points')")


def test_cursors_are_at_one_place_in_all_charts(page: Page, url: str) -> None:
    open_charts(page, url)
    box = page.box(CARD.format(tag="loss") + ".querySelector('.u-over')")
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=box[0] + box[2] / 2, y=box[1] + 20)
    steps = page.wait_until(
        f"""(() => {{
          const places = [...document.querySelectorAll('#grid .legend li:last-child .at')];
          const steps = places.map((place) => place.textContent);
          return !steps.includes('{POINTS}') && steps;
        }})()"""
    )
    assert len(set(steps)) == 1


def test_a_token_is_required(page: Page, logdir: Path) -> None:
    with served(logdir, token=TOKEN) as url:
        bare = url.partition("#")[0]
        page.open(bare)
        page.wait_until("document.querySelector('#login').open")
        submit = """document.querySelector('#token').value = '{}';
                    document.querySelector('#login-form').requestSubmit()"""
        page.evaluate(submit.format("wrong"))
        page.wait_until("document.querySelector('#login-error').textContent")
        page.evaluate(submit.format(TOKEN))
        page.wait_until(f"{TEXT.format(tag='loss')} && !document.querySelector('#login').open")
        assert TOKEN not in "".join(page.requests)
        page.call("Network.clearBrowserCookies")

        page.open(url)  # with the token in its fragment
        page.wait_until(TEXT.format(tag="loss"))
        assert page.evaluate("location.href") == bare
        assert TOKEN not in "".join(page.requests).replace(url, "")
        assert not page.evaluate("document.cookie")
        page.call("Network.clearBrowserCookies")


def tensorboards(values: list[float], weight: float) -> list[float]:
    """TensorBoard's smoothing, as its scalar card does it."""
    last, count, smoothed = 0.0, 0, []
    for value in values:
        if not math.isfinite(value):
            smoothed.append(value)
            continue
        last = last * weight + (1 - weight) * value
        count += 1
        smoothed.append(last / (1 - weight**count))
    return smoothed


def in_series(page: Page, call: str) -> Any:
    return page.evaluate(f"import('./series.js').then((series) => {call})")


def in_axes(page: Page, call: str) -> Any:
    return page.evaluate(f"import('./axes.js').then((axes) => {call})")


def test_ticks_are_round_and_few(page: Page, url: str) -> None:
    open_charts(page, url)
    about = partial(pytest.approx, rel=1e-12, abs=0)
    assert in_axes(page, "axes.linearTicks(-0.1, 1.06, 6)") == about([0, 0.2, 0.4, 0.6, 0.8, 1])
    assert in_axes(page, "axes.linearTicks(0, 2.1e-28, 4)") == about([0, 1e-28, 2e-28])
    assert in_axes(page, "axes.linearTicks(-3.6e38, 3.6e38, 6)") == [-2e38, 0, 2e38]
    assert in_axes(page, "axes.logTicks(0.5, 20, 6)") == [
        0.5, 0.6, 0.7, 0.8, 0.9, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 20,
    ]  # fmt: skip
    assert in_axes(page, "axes.logTicks(1e-44, 1e-38, 5)") == [1e-44, 1e-42, 1e-40, 1e-38]
    assert in_axes(page, "[5e31, 1e32, 1.5e32].map((tick) => axes.yTick(tick, 5e31))") == [
        "5e+31", "1.0e+32", "1.5e+32",
    ]  # fmt: skip
    assert len(in_axes(page, "axes.logTicks(5e-324, 1.7e308, 6)")) <= 7


def test_the_smoothing_is_tensorboards(page: Page, url: str) -> None:
    open_charts(page, url)
    values = [math.sin(n) + n / 10 for n in range(50)]
    found = in_series(page, f"series.smooth({values}, 0.9)")
    assert found == pytest.approx(tensorboards(values, 0.9), rel=1e-12)
    found = in_series(page, "series.smooth([1, NaN, 2], 0.5).map(String)")
    assert found == ["1", "NaN", str(tensorboards([1, math.nan, 2], 0.5)[2])]
    assert in_series(page, "series.smooth([3, 3, 3], 0.9)") == [3, 3, 3]


def test_values_of_any_size_are_drawn(page: Page, tmp_path: Path) -> None:
    async def write() -> None:
        async with FileWriter(tmp_path) as writer:
            for step in range(50):
                for tag, scale in (("tiny", 1e-30), ("huge", 1e30), ("denormal", 1e-44)):
                    writer.add_scalar(tag, scale * (step + 1), step)
                writer.add_scalar("wide", 3.4e38 * (-1) ** step, step)

    asyncio.run(write())
    with served(tmp_path) as url:
        page.open(url)
        page.wait_until("document.querySelectorAll('#grid canvas').length === 4")
        page.wait_until(f"{COLOURED}.every((n) => n > 100)")
        page.press("l")
        page.wait_until(f"{COLOURED}.filter((n) => n > 100).length === 3")  # half of `wide` is negative
        page.press("l")
        page.wait_until(f"{COLOURED}.every((n) => n > 100)")
        assert not page.errors


def test_points_are_added_once_and_drawn_in_the_order_of_their_steps(page: Page, url: str) -> None:
    open_charts(page, url)
    found = in_series(
        page,
        """(() => {
          const one = series.empty();
          const first = { steps: [1, 2, 3], values: [1, 'NaN', 3], wall_times: [1, 2, 3] };
          const added = [series.extend(one, first), series.extend(one, first)];
          series.extend(one, { steps: [2], values: [4], wall_times: [4] }); // evaluated again
          const { steps, values, times, xs } = series.ordered(one, one.steps);
          return [added, steps, values.map(String), times, xs];
        })()""",
    )
    assert found == [[3, 0], [1, 2, 2, 3], ["1", "NaN", "4", "3"], [1, 2, 4, 3], [1, 2, 2, 3]]
