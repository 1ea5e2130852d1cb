"""``tf.logging``: levels, sources, and the form of lines."""

from __future__ import annotations

import logging
import subprocess
import sys
import textwrap
from collections.abc import Iterator

import pytest

import asyncmon.tf1 as tf
from tests import forked


@pytest.fixture(autouse=True)
def _verbosity() -> Iterator[None]:
    logger = logging.getLogger("asyncmon")
    before, handlers = logger.level, list(logger.handlers)
    yield
    logger.setLevel(before)
    logger.handlers[:] = handlers


def stderr_of(code: str) -> str:
    return forked.run("-c", textwrap.dedent(code), options=("-W", "error"), check=True).stderr


def test_lines_look_like_those_of_tf1_and_savers_and_hooks_are_among_them() -> None:
    err = stderr_of("""
        import asyncio, tempfile
        import asyncmon.tf1 as tf

        tf.logging.info("not yet")
        tf.logging.warn("%d warnings", 1)
        tf.logging.set_verbosity(tf.logging.INFO)
        tf.logging.info("shown")
        tf.logging.debug("no")
        tf.logging.error("e")
        tf.logging.fatal("f")
        tf.logging.log(tf.logging.WARN, "w %s", "x")
        tf.logging.vlog(tf.logging.INFO, "v")
        tf.logging.TaskLevelStatusMessage("status")
        tf.logging.flush()

        async def main():
            tf.train.get_or_create_global_step()
            async with tf.train.MonitoredTrainingSession(checkpoint_dir=tempfile.mkdtemp()):
                pass
        asyncio.run(main())
    """)
    lines = err.splitlines()
    assert lines[:8] == [
        "WARNING:tensorflow:1 warnings",
        "INFO:tensorflow:shown",
        "ERROR:tensorflow:e",
        "CRITICAL:tensorflow:f",
        "WARNING:tensorflow:w x",
        "INFO:tensorflow:v",
        "ERROR:tensorflow:status",
        "INFO:tensorflow:Create CheckpointSaverHook.",
    ]
    assert "INFO:tensorflow:Graph was finalized." in lines


def test_a_program_that_configures_logging_itself_gets_each_line_once() -> None:
    err = stderr_of("""
        import logging
        import asyncmon.tf1 as tf
        tf.logging.warn("before")
        logging.basicConfig(format="mine %(message)s")
        tf.logging.warn("after")
    """)
    assert err == "WARNING:tensorflow:before\nmine after\n"


def test_an_interpreter_shows_info_on_stdout() -> None:
    code = "import asyncmon.tf1 as tf; tf.logging.info('here')"
    done = subprocess.run(
        [sys.executable, "-i", "-c", code],
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert "INFO:tensorflow:here" in done.stdout


def test_importing_configures_nothing() -> None:
    code = "import logging, asyncmon.tf1\nassert not logging.getLogger('asyncmon').handlers"
    command = [sys.executable, "-W", "error", "-c", code]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stderr == ""


def test_verbosity_is_the_loggers_level(caplog: pytest.LogCaptureFixture) -> None:
    assert tf.logging.get_verbosity() == tf.logging.WARN
    tf.logging.set_verbosity(tf.logging.INFO)
    assert tf.logging.get_verbosity() == logging.getLogger("asyncmon.hooks").getEffectiveLevel() == 20
    tf.get_logger().info("by the logger")
    assert caplog.messages == ["by the logger"]


def test_records_name_the_line_of_the_caller(caplog: pytest.LogCaptureFixture) -> None:
    for function in (tf.logging.error, tf.logging.fatal, tf.logging.warning, tf.logging.warn):
        function("x")
    tf.logging.log(tf.logging.ERROR, "x")
    tf.logging.log_if(tf.logging.ERROR, "x", True)
    tf.logging.log_if(tf.logging.ERROR, "x", False)
    assert {record.funcName for record in caplog.records} == {
        "test_records_name_the_line_of_the_caller"
    }
    assert len(caplog.records) == 6


def test_calls_of_one_place_are_counted_together(caplog: pytest.LogCaptureFixture) -> None:
    for i in range(7):
        tf.logging.log_every_n(tf.logging.WARN, "every %d", 3, i)
        tf.logging.log_first_n(tf.logging.WARN, "first %d", 2, i)
    tf.logging.log_first_n(tf.logging.WARN, "elsewhere %d", 2, 9)
    assert caplog.messages == ["every 0", "first 0", "first 1", "every 3", "every 6", "elsewhere 9"]


def test_the_terminal_prints_in_tf1s_form(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    logger = logging.getLogger("asyncmon")
    logger.handlers.clear()
    tf.logging.set_verbosity(tf.logging.INFO)
    logging.getLogger("asyncmon.hooks").info("%d", 1)
    tf.logging.debug("no")
    tf.logging.TaskLevelStatusMessage("status")
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    tf.logging.info("interactive")
    tf.logging.flush()
    out, err = capsys.readouterr()
    assert err == "INFO:tensorflow:1\nERROR:tensorflow:status\n"
    assert out == "INFO:tensorflow:interactive\n"


def test_an_interpreter_shows_info_unless_it_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    logger = logging.getLogger("asyncmon")
    logger.handlers.clear()
    logger.setLevel(logging.NOTSET)
    monkeypatch.setattr(sys, "ps1", ">>> ", raising=False)
    assert tf.get_logger().level == logging.INFO
