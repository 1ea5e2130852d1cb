"""The page with many runs and tags: groups, pins, links, run table, export, images and the like."""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from asyncmon.summary import FileWriter
from tests.browser import NEEDS_BROWSER, Page, browser
from tests.monitor.test_page import CARD, in_axes, served

pytest.importorskip("starlette", reason="the extra `web` is not installed")
pytest.importorskip("uvicorn", reason="the extra `web` is not installed")
pytestmark = NEEDS_BROWSER

RUNS = 12
LONG = "sweep-of-a-long-name-with-{}-as-its-rate"
LONG_TAG = "train/error/of_a_layer_with_a_long_name_{}"
TAGS = ["loss", LONG_TAG.format(1), LONG_TAG.format(2), "eval/error"]
GROUPS = """[...document.querySelectorAll('#grid summary')]
  .map((one) => [...one.children].map((part) => part.textContent).join(' '))"""
CHECKED = "[...document.querySelectorAll('#runs input')].filter((box) => box.checked).length"
COLUMN = """[...document.querySelectorAll('#table-rows tr')]
  .map((row) => row.querySelector(`[data-key="{}"]`).innerText)"""
SAVED = """window.saved = []; URL.createObjectURL = (blob) => { saved.push(blob); return 'data:,'; }"""


async def write_run(directory: Path, number: int) -> None:
    async with FileWriter(directory) as writer:
        writer.add_hparams({"rate": number / 100, "optimizer": "adam" if number % 2 else "sgd"})
        for step in range(20):
            for tag in TAGS:
                writer.add_scalar(tag, number + step / 10, step)
        if number == 0:
            for step in range(0, 20, 5):
                writer.add_histogram("weights/kernel", np.linspace(-step, step + 1, 200), step)
                writer.add_image("samples/digit", np.full((8, 8, 1), 10 * step, np.uint8), step)
                writer.add_text("notes", f"<img src=x onerror=alert(1)> at {step}", step)


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with browser(1280, 900) as page:
        yield page


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    directory = tmp_path_factory.mktemp("runs")
    for number in range(RUNS):
        asyncio.run(write_run(directory / LONG.format(number), number))
    with served(directory) as url:
        yield url


@pytest.fixture
def url(server: str, page: Page) -> Iterator[str]:
    page.call("Storage.clearDataForOrigin", origin=server.rstrip("/"), storageTypes="local_storage")
    page.open(server)
    page.wait_until(f"document.querySelectorAll('#grid canvas').length && {CHECKED} === 6")
    yield server
    assert not page.errors


def name_of(number: int) -> str:
    return LONG.format(number)


def focus(page: Page, number: int) -> None:
    page.evaluate(f"document.querySelector('#runs [title=\"{name_of(number)}\"]').click()")


def test_tags_are_grouped_collapsed_and_pinned(page: Page, url: str) -> None:
    assert page.evaluate(GROUPS) == ["Without a prefix 1", "eval 1", "train 2"]
    page.evaluate("document.querySelector('#grid summary').click()")
    page.wait_until("document.querySelectorAll('#grid details[open]').length === 2")
    page.evaluate(CARD.format(tag="eval/error") + ".querySelector('[aria-label^=Pin]').click()")
    assert page.evaluate(GROUPS) == ["Pinned 1", "Without a prefix 1", "train 2"]
    page.open(url)
    page.wait_until(f"({GROUPS}).length === 3")
    assert page.evaluate(GROUPS) == ["Pinned 1", "Without a prefix 1", "train 2"]
    assert page.evaluate("document.querySelectorAll('#grid details[open]').length") == 2
    page.evaluate(CARD.format(tag="eval/error") + ".querySelector('[aria-label^=Unpin]').click()")
    assert page.evaluate(GROUPS) == ["Without a prefix 1", "eval 1", "train 2"]


def test_long_names_lose_their_middle_and_stay_distinguishable(page: Page, url: str) -> None:
    cut = (
        "[...document.querySelectorAll('#runs .name')].map((name) => {"
        " const [head, tail] = name.children; const box = name.getBoundingClientRect();"
        " return [head.scrollWidth > head.clientWidth,"
        " tail.getBoundingClientRect().right <= box.right + 1]; })"
    )
    assert page.evaluate(cut) == [[True, True]] * RUNS
    legend = CARD.format(tag="loss") + ".querySelectorAll('.legend .name')[0].textContent"
    assert page.evaluate(legend).startswith("sweep-of")
    assert page.evaluate(CARD.format(tag=TAGS[1]) + ".querySelector('h3').textContent") == TAGS[1]


def test_the_columns_of_legends_are_labelled(page: Page, url: str) -> None:
    head = (
        "[..."
        + CARD.format(tag="loss")
        + ".querySelectorAll('.legend-head span')].map((one) => one.textContent)"
    )
    assert page.wait_until(f"({head})[1] && {head}") == ["run", "smoothed", "last", "step"]
    page.evaluate("document.querySelector('#smoothing').value = 0")
    page.evaluate("document.querySelector('#smoothing').dispatchEvent(new Event('input'))")
    page.wait_until(f"({head})[1] === ''")


def test_every_axis_has_three_ticks_and_distinguishable_labels(page: Page, url: str) -> None:
    ends = [
        (0, 1),
        (0, 2),
        (1, 5),
        (999_990, 1_000_010),
        (0, 3e5),
        (-2.4, -2.3),
        (0, 1190),
        (1e9, 1.2e9),
    ]
    for most, (low, high) in product((3, 4, 6, 12), ends):
        ticks = in_axes(page, f"axes.linearTicks({low}, {high}, {most})")
        assert 3 <= len(ticks) <= max(most, 7)
        assert all(low - 1e-9 <= tick <= high + 1e-9 for tick in ticks)
        label = "ticks.map((tick) => axes.stepTick(tick, ticks[1] - ticks[0]))"
        labels = in_axes(page, f"{{ const ticks = {ticks}; return {label}; }}")
        assert len(set(labels)) == len(ticks), labels
    for most, (low, high) in product(
        (3, 4, 6, 12), [(2.1, 2.9), (0.5, 20), (1e-3, 1e3), (3, 30), (0.9, 1.1)]
    ):
        shown = in_axes(page, f"axes.labelled(axes.logTicks({low}, {high}, {most}), {most})")
        assert len([tick for tick in shown if tick is not None]) >= 3


def test_runs_are_selected_by_a_regular_expression(page: Page, url: str) -> None:
    page.evaluate("document.querySelector('#runs-filter').value = '-with-(1|10|3)-'")
    page.evaluate("document.querySelector('#runs-filter').dispatchEvent(new Event('input'))")
    assert page.evaluate("document.querySelectorAll('#runs li').length") == 3
    page.click("#runs-all")
    assert page.wait_until(CHECKED) == 3
    page.wait_until(CARD.format(tag="loss") + ".querySelectorAll('.legend li').length === 3")
    page.click("#runs-none")
    page.wait_until(f"{CHECKED} === 0")


def test_a_link_shows_the_same_view(page: Page, url: str) -> None:
    page.press("l")
    page.press("t")
    page.evaluate(CARD.format(tag="eval/error") + ".querySelector('[aria-label^=Pin]').click()")
    page.evaluate("document.querySelector('#runs-filter').value = 'with-1'")
    page.evaluate("document.querySelector('#runs-filter').dispatchEvent(new Event('input'))")
    page.click("#runs-all")
    focus(page, 1)
    page.click("#link")
    page.wait_until("document.querySelector('#toasts').innerText.toLowerCase().includes('link')")
    address = page.evaluate("location.href")
    assert "token" not in address
    page.call("Storage.clearDataForOrigin", origin=url.rstrip("/"), storageTypes="local_storage")
    page.open(address)
    page.wait_until("document.querySelector('#run-name').textContent")
    assert page.evaluate("document.querySelector('#run-name').textContent") == name_of(1)
    assert page.evaluate("document.querySelector('#log-scale').checked")
    assert page.evaluate("document.querySelector('#x-axis').value") == "elapsed"
    assert page.wait_until(CHECKED) == 3
    assert page.wait_until(f"({GROUPS}).length && {GROUPS}")[0] == "Pinned 1"


def test_the_run_table_is_sorted_by_configuration_and_last_value(page: Page, url: str) -> None:
    heads = "[...document.querySelectorAll('#table-columns th')].map((one) => one.dataset.key)"
    wanted = [
        "name",
        "state",
        "step",
        "started",
        "ran for",
        "config optimizer",
        "config rate",
        "last loss",
    ]
    assert page.wait_until(f"({heads}).includes('config rate') && {heads}")[: len(wanted)] == wanted
    sort = "document.querySelector(`#table-columns [data-key='{}'] button`).click()"
    page.evaluate(sort.format("config rate"))
    assert page.evaluate(COLUMN.format("config rate"))[:3] == ["0", "0.01", "0.02"]
    page.evaluate(sort.format("last loss"))
    page.evaluate(sort.format("last loss"))
    assert page.evaluate(COLUMN.format("last loss"))[:2] == ["12.90", "11.90"]
    order = "document.querySelector(`#table-columns [data-key='last loss']`).getAttribute('aria-sort')"
    assert page.evaluate(order) == "descending"
    page.evaluate("document.querySelector('#table-rows button').click()")
    page.wait_until(f"document.querySelector('#run-name').textContent === '{name_of(11)}'")


def test_the_focus_is_set_again_once_all_runs_are_read(page: Page, url: str) -> None:
    found = page.evaluate("""import('./runs.js').then(({ Runs }) => {
      const runs = new Runs();
      const focusOf = (...times) => {
        runs.setRows(times.map((updated, id) => ({ id, name: `${id}`, state: 'unknown', updated })));
        return runs.focused;
      };
      return [focusOf(null, 5), focusOf(7, 5), focusOf(7, 9)]; })""")
    assert found == [1, 0, 0]


def test_headings_of_the_run_table_stand_over_their_values(page: Page, url: str) -> None:
    page.wait_until("document.querySelector('#table-rows td').textContent")
    sides = """[...document.querySelectorAll('#table-columns th')].map((th) => {
      const value = document.querySelector(`#table-rows [data-key="${th.dataset.key}"]`);
      return [th.dataset.key, ...[th, value].map((cell) => getComputedStyle(cell).textAlign)]; })"""
    for key, heading, value in page.evaluate(sides):
        assert heading == value == ("left" if key in ("name", "state", "config optimizer") else "right")


def test_legends_show_whole_rows_and_values(page: Page, url: str) -> None:
    legend = CARD.format(tag="loss") + ".querySelector('.legend')"
    page.wait_until(f"{legend}.children.length === 6")
    assert page.evaluate(f"{legend}.scrollHeight <= {legend}.clientHeight")
    page.evaluate(f"{legend}.querySelector('b').textContent = '-2.46e-12'")
    assert page.evaluate(
        f"((b) => b.scrollHeight <= b.parentElement.clientHeight + 1)({legend}.querySelector('b'))"
    )


def test_a_chart_is_exported_as_picture_and_table(page: Page, url: str) -> None:
    page.evaluate(SAVED)
    page.evaluate(CARD.format(tag="loss") + ".querySelector('[aria-label^=Enlarge]').click()")
    page.wait_until("document.querySelectorAll('#enlarged .legend li').length === 6")
    buttons = "[...document.querySelectorAll('#enlarged button')]"
    button = buttons + ".find((one) => one.textContent === '{}').click()"
    page.evaluate(button.format("CSV"))
    rows = list(csv.DictReader(io.StringIO(page.wait_until("saved[0] && saved[0].text()"))))
    assert len(rows) == 6 * 20
    assert {row["run"] for row in rows} <= {name_of(number) for number in range(RUNS)}
    assert [float(row["value"]) for row in rows if row["run"] == name_of(11)][:2] == pytest.approx(
        [11, 11.1]
    )
    page.evaluate(button.format("PNG"))
    size = "createImageBitmap(saved[1]).then(({ width, height }) => [width, height])"
    width, height = page.wait_until(f"saved[1] && {size}")
    assert width > 600
    assert height > 300
    page.press("Escape")


def test_histograms_images_and_texts_are_shown(page: Page, url: str) -> None:
    focus(page, 0)
    page.wait_until("document.querySelectorAll('#media .card').length === 3")
    page.evaluate("document.querySelector('#media').scrollIntoView({ behavior: 'instant' })")
    record = "document.querySelector('#media .{} .record {}')"
    assert page.wait_until(record.format("histogram", "canvas") + "?.width") == 4
    label = page.evaluate(record.format("histogram", "canvas") + ".getAttribute('aria-label')")
    assert "from step 0 to 15; 200 values from -15 to 16" in label
    page.wait_until(record.format("image", "img") + "?.naturalWidth === 8")
    text = record.format("text", "pre") + "?.textContent"
    assert page.wait_until(text) == "<img src=x onerror=alert(1)> at 15"
    slider = "document.querySelector('#media .text input')"
    page.evaluate(f"{slider}.value = 0, {slider}.dispatchEvent(new Event('input'))")
    assert page.evaluate(text) == "<img src=x onerror=alert(1)> at 0"
    focus(page, 1)
    page.wait_until("document.querySelector('#media').hidden")


def test_panels_are_collapsed_and_stay_so(page: Page, url: str) -> None:
    height = "document.querySelector('#table').getBoundingClientRect().height"
    before = page.wait_until(f"document.querySelectorAll('#table-rows tr').length && {height}")
    page.click("#table .fold")
    assert page.evaluate(height) < before / 4
    page.open(url)
    page.wait_until(f"document.querySelectorAll('#table-rows tr').length && {height} < {before} / 4")
    page.click("#table .fold")


def test_all_panels_are_reached_on_a_phone(page: Page, url: str) -> None:
    page.resize(400, 800, scale=2, phone=True)
    try:
        focus(page, 0)
        page.wait_until("!document.querySelector('#media').hidden")
        links = (
            "[...document.querySelectorAll('nav a')].filter((a) => a.checkVisibility()).map((a) => {"
            " const { left, right } = a.getBoundingClientRect();"
            " return [a.hash, left >= 0 && right <= 400]; })"
        )
        found = dict(page.evaluate(links))
        assert all(found.values())
        shown = (
            "[...document.querySelectorAll('main section[tabindex]')]"
            ".filter((one) => one.checkVisibility()).map((one) => '#' + one.id)"
        )
        assert set(page.evaluate(shown)) == set(found)
        assert page.evaluate("document.documentElement.scrollWidth") <= 400
    finally:
        page.resize(1280, 900)


def test_what_is_loading_is_shown_as_loading(page: Page, url: str) -> None:
    slow = {"offline": False, "downloadThroughput": -1, "uploadThroughput": -1}
    shown = "document.querySelector('{}').checkVisibility() && document.querySelector('{}')"
    page.call("Network.emulateNetworkConditions", latency=300, **slow)
    try:
        page.open(url)
        assert "Loading" in page.wait_until(shown.format("#loading", "#loading") + ".textContent")
        card = (
            "getComputedStyle(document.querySelector('#grid .card.loading .plot'), '::before').content"
        )
        page.wait_until("document.querySelector('#grid .card.loading')")
        assert "Loading" in page.evaluate(card)
        page.wait_until("document.querySelector('#table-rows td').textContent")
    finally:
        page.call("Network.emulateNetworkConditions", latency=0, **slow)
    page.wait_until("!document.querySelector('#loading').checkVisibility()")
    page.wait_until("document.querySelectorAll('#grid .card:not(.loading) canvas').length")
