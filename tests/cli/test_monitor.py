"""``asyncmon monitor`` and the commands that act, as processes, against real servers."""

from __future__ import annotations

import io
import json
import re
import signal
import socket
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import IO, NamedTuple

import pytest

from asyncmon.cli import main
from asyncmon.cli.monitor import TOKEN as TOKEN_OF_COMMANDS
from asyncmon.monitor.serving import TOKEN_VARIABLE
from tests import forked

TOKEN = "a-token-that-is-long-enough"

LIVE = """
import asyncio, signal, sys
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount
import asyncmon as am

async def main(directory, token):
    step = am.get_or_create_global_step()
    add = am.graph.assign_add(step, 1)
    session = am.MonitoredTrainingSession(checkpoint_dir=directory, save_checkpoint_secs=3600)
    app = Starlette(routes=[Mount("/train", am.monitor.create_app({"digits": session}, token=token))])
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="warning"))
    async with session:
        async with asyncio.TaskGroup() as group:
            serving = group.create_task(server.serve())
            while not server.started:
                await asyncio.sleep(0.01)
            print(server.servers[0].sockets[0].getsockname()[1], flush=True)
            while not session.should_stop():
                await session.run(add)
                await asyncio.sleep(0.001)
            print(session.stop_reason, flush=True)
            server.should_exit = True

asyncio.run(main(sys.argv[1], sys.argv[2] or None))
"""


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def asyncmon(*arguments: str, token: str = "") -> Done:
    """Run a command in this process, whose servers are others."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setenv("ASYNCMON_TOKEN", token)
        status = main(arguments)
    return Done(status, out.getvalue(), err.getvalue())


@contextmanager
def process(*arguments: str) -> Iterator[tuple[forked.Process, IO[str]]]:
    with forked.Process(*arguments, options=("-W", "error")) as child:
        try:
            yield child, child.stdout
        finally:
            child.kill()


@contextmanager
def live(directory: Path, token: str = "") -> Iterator[tuple[str, IO[str]]]:
    """Run a session with a monitor mounted at /train; yield the page's URL and the output."""
    with process("-c", LIVE, str(directory), token) as (_, out):
        port = out.readline().strip()
        yield f"http://127.0.0.1:{port}/train/", out


def get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as answer:
        body: bytes = answer.read()
        return body


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_page_is_served_until_a_signal_though_a_viewer_listens(
    tmp_path: Path, number: signal.Signals
) -> None:
    with process("asyncmon", "monitor", str(tmp_path / "none"), "--port", "0") as (child, out):
        url = out.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/", url)
        assert b"<title>" in get(url)
        assert json.loads(get(f"{url}api/runs")) == {"runs": []}
        with urllib.request.urlopen(f"{url}api/events", timeout=10) as events:
            assert events.readline() == b"retry: 1000\n"
            child.send_signal(number)
            rest = events.read()  # the stream ends in order
        assert b"event: runs" in rest
        assert child.wait(timeout=4) in (0, 130, -number)
        assert child.stderr is not None
        assert "no directory yet" in child.stderr.read()


def test_a_port_that_is_none_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for port in ("99999", "-1", "http"):
        with pytest.raises(SystemExit) as exits:
            main(["monitor", str(tmp_path), "--port", port])
        assert exits.value.code == 2
        assert f"a port is a number from 0 to 65535, got '{port}'" in capsys.readouterr().err


def test_another_host_needs_a_token(tmp_path: Path) -> None:
    done = asyncmon("monitor", str(tmp_path), "--host", "0.0.0.0", "--port", "0")
    assert done.returncode == 2
    assert "The host 0.0.0.0 can be reached from other machines, which needs a token" in done.stderr
    (tmp_path / "token").write_text("short\n")
    done = asyncmon("monitor", str(tmp_path), "--token-file", str(tmp_path / "token"))
    assert (done.returncode, "16 printable" in done.stderr) == (2, True)
    (tmp_path / "token").write_text("\n")
    done = asyncmon("monitor", str(tmp_path), "--token-file", str(tmp_path / "token"))
    assert (done.returncode, "is empty" in done.stderr) == (2, True)


def test_a_token_is_printed_in_the_fragment_only(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    arguments = ["monitor", str(tmp_path), "--port", "0", "--token-file", str(tmp_path / "token")]
    with process("asyncmon", *arguments) as (_, out):
        url = out.readline().strip()
        assert url.endswith(f"/#token={TOKEN}")
        with pytest.raises(urllib.error.HTTPError, match="401"):
            get(f"{url.partition('#')[0]}api/runs")


def test_a_taken_port_is_an_error(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = str(server.getsockname()[1])
        done = asyncmon("monitor", str(tmp_path), "--port", port)
    assert done.returncode == 1
    assert "in use" in done.stderr


@pytest.mark.parametrize("token", ["", TOKEN])
def test_a_session_is_saved_paused_resumed_and_stopped(tmp_path: Path, token: str) -> None:
    with live(tmp_path, token) as (url, out):
        saved = asyncmon("save", url, token=token)
        assert saved.returncode == 0, saved.stderr
        assert re.fullmatch(
            rf"digits has saved {re.escape(str(tmp_path))}/model.ckpt-\d+\n", saved.stdout
        )
        assert asyncmon("pause", url, "--reason", "dinner", token=token).stdout == "digits pauses\n"
        (file := tmp_path / "token").write_text(token or "none")
        assert asyncmon("resume", url, "--token-file", str(file)).returncode == 0
        if token:
            shown = asyncmon("resume", f"{url}#token={token}")
            assert (shown.returncode, "visible to all users" in shown.stderr) == (0, True)
            wrong = asyncmon("stop", url, token="another-token-of-some-length")
            assert (wrong.returncode, wrong.stderr) == (1, "The token is wrong.\n")
        found = asyncmon("stop", url, "--run", "digits", "--reason", "enough", "--json", token=token)
        assert json.loads(found.stdout) == {"run": "digits", "action": "stop", "ok": True}
        assert out.readline() == "enough\n"


def test_what_cannot_be_done_is_a_sentence(tmp_path: Path) -> None:
    with live(tmp_path) as (url, _):
        none = asyncmon("stop", url, "--run", "x")
        assert (none.returncode, none.stderr) == (1, "There is no run 'x': api/runs lists them.\n")
        elsewhere = asyncmon("stop", url.replace("train", "other"), "--run", "x")
        assert (elsewhere.returncode, "is it the URL of a monitor?" in elsewhere.stderr) == (1, True)
    gone = asyncmon("stop", url)
    assert (gone.returncode, "does not answer" in gone.stderr) == (1, True)
    reason = asyncmon("save", url, "--reason", "x")
    assert (reason.returncode, "is for a stop or a pause" in reason.stderr) == (2, True)
    nonsense = asyncmon("stop", "ftp://x")
    assert (nonsense.returncode, "is no URL of a monitor" in nonsense.stderr) == (2, True)


def test_with_several_runs_one_has_to_be_named(tmp_path: Path) -> None:
    with process("asyncmon", "monitor", str(tmp_path), "--port", "0") as (_, out):
        done = asyncmon("save", out.readline().strip())
    assert done.returncode == 1
    assert done.stderr == (
        "There is not one session that is open: give --run ID. The monitor shows no run.\n"
    )


def test_a_file_is_no_log_directory(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").touch()
    errors = io.StringIO()
    with redirect_stderr(errors):
        assert main(["monitor", str(tmp_path / "checkpoint")]) == 2
    assert errors.getvalue().endswith(
        f"is a file: give the directory of the runs, {str(tmp_path)!r}.\n"
    )


def test_the_variable_with_the_token_is_that_of_the_server() -> None:
    assert TOKEN_OF_COMMANDS == TOKEN_VARIABLE
