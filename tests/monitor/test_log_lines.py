"""The last log lines: kept within bounds, and other logging is unchanged."""

from __future__ import annotations

import gc
import logging

import pytest

import asyncmon as am
from asyncmon.monitor.log_lines import LogLines
from tests import forked

LOGGER = logging.getLogger("asyncmon.test_log_lines")


def test_the_last_lines_are_kept_and_numbered() -> None:
    lines = LogLines(most=3)
    for number in range(5):
        LOGGER.warning("line %d", number)
    LOGGER.warning("x" * 10_000)
    assert lines.next == 6
    assert [(line["n"], line["text"][:6]) for line in lines.after(0)] == [
        (3, "line 3"),
        (4, "line 4"),
        (5, "xxxxxx"),
    ]
    assert len(lines.after(5)[0]["text"]) == 4_000
    assert lines.after(6) == []
    lines.close()
    LOGGER.warning("later")
    assert lines.next == 6


def test_other_loggers_are_shown_where_requested() -> None:
    lines = LogLines(["asyncmon", "mine"])
    logging.getLogger("mine").error("here")
    logging.getLogger("other").error("not here")
    assert [(line["logger"], line["level"]) for line in lines.after(0)] == [("mine", "ERROR")]
    lines.close()


def test_an_application_that_is_gone_leaves_no_handler() -> None:
    gc.collect()  # the applications of other tests
    before = list(logging.getLogger("asyncmon").handlers)
    app = am.monitor.create_app([])
    assert len(logging.getLogger("asyncmon").handlers) == len(before) + 1
    del app
    gc.collect()
    assert logging.getLogger("asyncmon").handlers == before


@pytest.mark.parametrize("configured", [False, True])
def test_warnings_are_printed_as_without_the_monitor(configured: bool) -> None:
    program = f"""
import logging
from asyncmon.monitor.log_lines import LogLines
if {configured}:
    logging.basicConfig(format="configured %(message)s")
lines = LogLines()
logging.getLogger("asyncmon.x").warning("a warning")
logging.getLogger("asyncmon.x").info("a detail")
assert lines.next == 1
"""
    done = forked.run("-c", program, check=True)
    assert done.stderr == ("configured a warning\n" if configured else "a warning\n")


def test_a_name_that_is_not_there_is_an_error() -> None:
    with pytest.raises(AttributeError, match="has no 'server'; it has: LiveRun"):
        _ = am.monitor.server
