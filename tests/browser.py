"""A headless Chromium, driven through its debugging pipe with the DevTools protocol."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from typing import Any, BinaryIO

import pytest

from tests import forked

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
CHROMIUM = next(filter(None, map(shutil.which, NAMES)), None)

NEEDS_BROWSER = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason=f"no browser: none of {', '.join(NAMES)} is installed"),
]

# Puts the two pipes where --remote-debugging-pipe expects them, and becomes the browser.
LAUNCHER = """
import fcntl, os, sys
pipes = [fcntl.fcntl(int(number), fcntl.F_DUPFD, 10) for number in sys.argv[1:3]]
os.dup2(pipes[0], 3)
os.dup2(pipes[1], 4)
os.execv(sys.argv[3], sys.argv[3:])
"""

# Looks until an expression has a value that is not false; null when it never has.
SOON = """new Promise((resolve, reject) => {
  const end = performance.now() + %d;
  const look = async () => {
    try {
      const value = await (%s);
      if (value) resolve(value);
      else if (performance.now() > end) resolve(null);
      else setTimeout(look, 50);
    } catch (error) { reject(error); }
  };
  look();
})"""

KEYS = {"Enter": 13, "Escape": 27, "Tab": 9, "ArrowLeft": 37, "ArrowRight": 39}


class Navigated(Exception):
    """The document of a command is gone."""


class Page:
    """A page with its record: ``errors`` of scripts and console, ``requests`` as URLs."""

    def __init__(self, commands: BinaryIO, answers: BufferedReader) -> None:
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._commands = commands
        self._answers = answers
        self._number = 0
        self._rest = b""
        self.session_id: str | None = None
        self._loaded: set[str] = set()  # by their loaders' ids
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session_id = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Page.setLifecycleEventsEnabled", enabled=True)

    def open(self, url: str) -> None:
        """Go to a page, and forget the errors and requests of the previous one."""
        for address in ("about:blank", url):  # another fragment alone would not load anything
            self.errors.clear()
            self.requests.clear()
            loader = self.call("Page.navigate", url=address)["loaderId"]
            while loader not in self._loaded:
                self._note(json.loads(self._next()))

    def evaluate(self, expression: str) -> Any:
        """Return the value of a JavaScript expression, awaited."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def wait_until(self, expression: str, secs: float = 20) -> Any:
        """Return the first value of a JavaScript expression that is not false."""
        try:
            value = self.evaluate(SOON % (secs * 1000, expression))
        except Navigated:  # another page has replaced this one
            value = self.evaluate(SOON % (secs * 1000, expression))
        assert value is not None, f"the page never had {expression}; errors: {self.errors}"
        return value

    def click(self, selector: str) -> None:
        """Click in the middle of an element, as the mouse does."""
        box = f"document.querySelector({json.dumps(selector)})"
        self.evaluate(f"{box}.scrollIntoView({{block: 'center', behavior: 'instant'}})")
        x, y, width, height = self.box(box)
        self.drag([x + width / 2, y + height / 2], [x + width / 2, y + height / 2])

    def box(self, element: str) -> list[float]:
        """Return left, top, width and height of the element that is a JavaScript expression's value."""
        return self.evaluate(
            f"(({{x, y, width, height}}) => [x, y, width, height])(({element}).getBoundingClientRect())"
        )

    def drag(self, start: list[float], end: list[float]) -> None:
        """Press the mouse at one point and let it go at another one."""
        for kind, (x, y) in (
            ("mouseMoved", start),
            ("mousePressed", start),
            ("mouseMoved", end),
            ("mouseReleased", end),
        ):
            button = "none" if (kind, start) == ("mouseMoved", (x, y)) else "left"
            self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button=button, clickCount=1)

    def press(self, key: str, modifiers: int = 0) -> None:
        """Press a key and let it go. ``modifiers`` as the protocol counts them: 8 is Shift."""
        text = {"text": "\r"} if key == "Enter" else {"text": key} if len(key) == 1 else {}
        code = KEYS.get(key, ord(key.upper()[0]))
        for kind in ("keyDown", "keyUp"):
            extra = text if kind == "keyDown" else {}
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                windowsVirtualKeyCode=code,
                modifiers=modifiers,
                **extra,
            )

    def resize(self, width: int, height: int, *, scale: float = 1, phone: bool = False) -> None:
        """Give the page another size, in CSS pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=scale,
            mobile=phone,
        )

    def prefer(self, **features: str) -> None:
        """Set media features, such as ``prefers_color_scheme="dark"``."""
        wanted = [{"name": n.replace("_", "-"), "value": value} for n, value in features.items()]
        self.call("Emulation.setEmulatedMedia", features=wanted)

    def call(self, method: str, **params: Any) -> Any:
        """Send a command of the protocol, and return its answer."""
        self._number += 1
        command: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if self.session_id is not None:
            command["sessionId"] = self.session_id
        self._commands.write(json.dumps(command).encode() + b"\0")
        self._commands.flush()
        while True:
            message = json.loads(self._next())
            if message.get("id") == self._number:
                if "navigated" in message.get("error", {}).get("message", ""):
                    raise Navigated(message["error"]["message"])
                assert "error" not in message, message
                return message["result"]
            self._note(message)

    def _note(self, message: Any) -> None:
        method, params = message.get("method"), message.get("params")
        if method == "Page.lifecycleEvent" and params["name"] == "DOMContentLoaded":
            self._loaded.add(params["loaderId"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])
        elif method == "Runtime.exceptionThrown":
            self.errors.append(str(params["exceptionDetails"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] in ("warning", "error"):
            self.errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("warning", "error"):
            self.errors.append(str(params["args"]))

    def _next(self) -> bytes:
        while b"\0" not in self._rest:
            data = self._answers.read1(65536)
            assert data, "the browser is gone"
            self._rest += data
        message, _, self._rest = self._rest.partition(b"\0")
        return message


@contextmanager
def ended(process: subprocess.Popen[Any] | forked.Process) -> Iterator[None]:
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


@contextmanager
def browser(width: int = 1600, height: int = 1200) -> Iterator[Page]:
    """Start a browser with one page, and end it."""
    command_out, command_in = os.pipe()
    answer_out, answer_in = os.pipe()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        arguments = [
            str(CHROMIUM),
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-software-rasterizer",  # without WebGL TensorBoard draws curves as SVG
            "--disable-dev-shm-usage",
            "--no-first-run",
            f"--window-size={width},{height}",
            f"--user-data-dir={profile}",
            "--remote-debugging-pipe",  # descriptors 3 and 4
        ]
        process = subprocess.Popen(
            [sys.executable, "-c", LAUNCHER, str(command_out), str(answer_in), *arguments],
            pass_fds=(command_out, answer_in),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(command_out)
        os.close(answer_in)
        with ended(process), open(command_in, "wb") as commands, open(answer_out, "rb") as answers:
            page = Page(commands, answers)
            yield page
            page.session_id = None
            page.call("Browser.close")
