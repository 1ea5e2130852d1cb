"""A browser opens TensorBoard on a run and finds its curves, its graph and its hyperparameters.

Needs Chromium (or Chrome); where there is none, these tests are skipped and say so.
"""

from __future__ import annotations

import asyncio
import math
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncmon.graph.core import dtypes
from asyncmon.graph.core.build import name_scope
from asyncmon.graph.core.graph import Graph
from asyncmon.graph.ops.basic import placeholder
from asyncmon.graph.ops.elementwise import multiply
from asyncmon.summary import FileWriter
from tests.browser import NEEDS_BROWSER, Page, browser, ended

pytestmark = NEEDS_BROWSER

LOSSES = [math.exp(-step / 7) for step in range(1, 31)]

# Everything of the page, also the shadow of a custom element.
IN_PAGE = """(() => {
function* everything(root) {
  for (const element of root.querySelectorAll('*')) {
    yield element;
    if (element.shadowRoot) yield* everything(element.shadowRoot);
  }
}
return (%s)([...everything(document)]);
})()"""


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with browser() as page:
        yield page


def wait_for(page: Page, function: str) -> Any:
    """Return the first value of a JavaScript function of all elements that is not false."""
    return page.wait_until(IN_PAGE % function, 60)


@pytest.fixture(scope="module")
def tensorboard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Write a run and serve it on the loopback device; give the address."""
    logdir = tmp_path_factory.mktemp("logs")
    asyncio.run(write_run(logdir / "run1"))
    arguments = ["--logdir", str(logdir), "--host", "127.0.0.1", "--port", "0", "--load_fast=false"]
    server = subprocess.Popen(
        [sys.executable, "-m", "tensorboard.main", *arguments],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    with ExitStack() as stack:
        stack.enter_context(ended(server))
        assert server.stderr is not None
        stack.enter_context(server.stderr)
        said, address = "", None
        for line in server.stderr:
            said += line
            if address := re.search(r"http://127\.0\.0\.1:\d+/", line):
                break
        assert address, said
        yield address[0]


async def write_run(directory: Path) -> None:
    with Graph().as_default() as graph:
        x = placeholder(dtypes.float32, [None, 3], name="pixels")
        with name_scope("classifier"):
            multiply(x, 2.0, name="logits")
    async with FileWriter(directory, graph) as writer:
        writer.add_hparams({"learning_rate": 0.125, "optimizer": "adam"})
        writer.start(0)
        for step, loss in enumerate(LOSSES, 1):
            writer.add_scalar("train/loss", loss, step)
            writer.add_scalar("train/accuracy", 1 - loss, step)


def points(path: str) -> Any:
    """Return the corners of an SVG path ``M1,2L3,4...``."""
    return np.array([list(map(float, pair.split(","))) for pair in re.split("[ML]", path) if pair])


def fits(found: Any, wanted: Any) -> bool:
    """Whether one series of numbers is the other one, shifted and stretched."""
    return len(found) == len(wanted) and abs(np.corrcoef(found, wanted)[0, 1]) > 1 - 1e-9


@pytest.mark.parametrize(("tag", "sign"), [("train/loss", -1), ("train/accuracy", 1)])
def test_the_curves_are_drawn(page: Page, tensorboard: str, tag: str, sign: int) -> None:
    page.open(f"{tensorboard}#timeseries")
    drawn = wait_for(
        page,
        """(all) => {
             const card = all.find((e) => e.tagName == 'SCALAR-CARD-COMPONENT'
                                          && e.querySelector('[title="TAG"]'));
             const paths = card ? [...card.querySelectorAll('.series-view > svg > path')] : [];
             return paths.length ? paths.map((p) => p.getAttribute('d')) : null;
           }""".replace("TAG", tag),
    )
    steps = np.arange(1, len(LOSSES) + 1)
    heights = -sign * np.array(LOSSES)  # on the screen, y grows downwards
    curves = [points(path) for path in drawn]
    assert any(
        fits(curve[:, 0], steps) and fits(curve[:, 1], heights)
        for curve in curves
        if len(curve) == len(steps)
    ), drawn


def test_the_graph_page_shows_the_graph(page: Page, tensorboard: str) -> None:
    page.open(f"{tensorboard}#graphs&run=run1")
    names = wait_for(
        page,
        """(all) => {
             const names = all.filter((e) => e.getAttribute('data-name'))
                              .map((e) => e.getAttribute('data-name'));
             return names.includes('classifier') ? names : null;
           }""",
    )
    assert {"pixels", "classifier"} <= set(names)


def test_the_hparams_page_shows_the_session(page: Page, tensorboard: str) -> None:
    page.open(f"{tensorboard}#hparams")
    shown = wait_for(
        page,
        """(all) => {
             const text = all.filter((e) => !e.children.length).map((e) => e.textContent.trim());
             const wanted = ['learning_rate', 'optimizer', 'adam', '0.12500'];
             return wanted.every((word) => text.includes(word)) && wanted;
           }""",
    )
    assert shown
