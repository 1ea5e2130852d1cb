"""A browser opens TensorBoard on a run and finds its curves, its graph and its hyperparameters.

Needs Chromium (or Chrome); where there is none, these tests are skipped and say so.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import re
import shutil
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from asyncmon.graph.construction.build import name_scope
from asyncmon.graph.construction.graph import Graph
from asyncmon.graph.core import dtypes
from asyncmon.graph.ops.arithmetic import multiply
from asyncmon.graph.ops.basic import placeholder
from asyncmon.summary import FileWriter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from io import BufferedReader
    from pathlib import Path
    from typing import BinaryIO

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)

pytestmark = [
    pytest.mark.browser,
    pytest.mark.timeout(120),
    pytest.mark.skipif(CHROMIUM is None, reason=f"no browser: none of {', '.join(NAMES)} is installed"),
]

LOSSES = [math.exp(-step / 7) for step in range(1, 31)]

# Everything of the page, also what lies in the shadow of a custom element.
IN_PAGE = """{
function* everything(root) {
  for (const element of root.querySelectorAll('*')) {
    yield element;
    if (element.shadowRoot) yield* everything(element.shadowRoot);
  }
}
const found = () => { const all = [...everything(document)]; return (%s)(all); };
new Promise((resolve) => {
  const look = () => { const value = found(); value ? resolve(value) : setTimeout(look, 100); };
  setTimeout(() => resolve(null), 60000);
  look();
});
}"""


# Puts the two pipes where --remote-debugging-pipe expects them, and becomes the browser.
LAUNCHER = """
import fcntl, os, sys
pipes = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
os.dup2(pipes[0], 3)
os.dup2(pipes[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""


class Page:
    """A page of a headless browser, driven through its debugging pipe."""

    def __init__(self, commands: BinaryIO, answers: BufferedReader) -> None:
        self._commands = commands
        self._answers = answers
        self._number = 0
        self._rest = b""
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        attached = self._call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]

    def open(self, url: str) -> None:
        """Go to a page."""
        for address in ("about:blank", url):  # another fragment alone would not load anything
            self._call("Page.navigate", self._session, url=address)

    def wait_for(self, function: str) -> Any:
        """Return the first value of a JavaScript function of all elements that is not false."""
        answer = self._call(
            "Runtime.evaluate",
            self._session,
            expression=IN_PAGE % function,
            awaitPromise=True,
            returnByValue=True,
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        value = answer["result"].get("value")
        assert value is not None, f"the page never had {function}"
        return value

    def close(self) -> None:
        """End the browser."""
        self._call("Browser.close")

    def _call(self, method: str, session: str | None = None, **params: Any) -> Any:
        self._number += 1
        command: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if session is not None:
            command["sessionId"] = session
        self._commands.write(json.dumps(command).encode() + b"\0")
        self._commands.flush()
        while True:
            answer = json.loads(self._next())
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def _next(self) -> bytes:
        while b"\0" not in self._rest:
            data = self._answers.read1(65536)
            assert data, "the browser is gone"
            self._rest += data
        message, _, self._rest = self._rest.partition(b"\0")
        return message


@contextmanager
def ended(process: subprocess.Popen[Any]) -> Iterator[None]:
    """End a process, at the latest by force."""
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(10)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    command_out, command_in = os.pipe()
    answer_out, answer_in = os.pipe()
    arguments = [
        str(CHROMIUM),
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-software-rasterizer",  # without WebGL TensorBoard draws curves as SVG
        "--disable-dev-shm-usage",
        "--no-first-run",
        "--window-size=1600,1200",
        f"--user-data-dir={tmp_path_factory.mktemp('profile')}",
        "--remote-debugging-pipe",  # descriptors 3 and 4
    ]
    browser = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, str(command_out), str(answer_in), *arguments],
        pass_fds=(command_out, answer_in),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(command_out)
    os.close(answer_in)
    with ended(browser), open(command_in, "wb") as commands, open(answer_out, "rb") as answers:
        page = Page(commands, answers)
        yield page
        page.close()


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
    drawn = page.wait_for(
        """(all) => {
             const card = all.find((e) => e.tagName == 'SCALAR-CARD-COMPONENT'
                                          && e.querySelector('[title="TAG"]'));
             const paths = card ? [...card.querySelectorAll('.series-view > svg > path')] : [];
             return paths.length ? paths.map((p) => p.getAttribute('d')) : null;
           }""".replace("TAG", tag)
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
    names = page.wait_for(
        """(all) => {
             const names = all.filter((e) => e.getAttribute('data-name'))
                              .map((e) => e.getAttribute('data-name'));
             return names.includes('classifier') ? names : null;
           }"""
    )
    assert {"pixels", "classifier"} <= set(names)


def test_the_hparams_page_shows_the_session(page: Page, tensorboard: str) -> None:
    page.open(f"{tensorboard}#hparams")
    shown = page.wait_for(
        """(all) => {
             const text = all.filter((e) => !e.children.length).map((e) => e.textContent.trim());
             const wanted = ['learning_rate', 'optimizer', 'adam', '0.12500'];
             return wanted.every((word) => text.includes(word)) && wanted;
           }"""
    )
    assert shown
