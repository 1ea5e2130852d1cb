"""Errors that do not end training are counted, and logged without repetition."""

from __future__ import annotations

from typing import Any

from asyncmon.runtime.failures import Failures


def test_the_same_error_in_a_row_is_logged_once_and_then_counted(caplog: Any) -> None:
    failures = Failures()
    for _ in range(3000):
        failures.log(ValueError("no connection"), "%s failed.", "Notify")
    assert failures.count == failures.in_a_row == 3000
    assert [record.exc_info is not None for record in caplog.records] == [True, *[False] * 5]
    counts = [10, 100, 1000, 2000, 3000]
    assert [record.getMessage() for record in caplog.records[1:]] == [
        f"Notify failed. {count} times in a row, the same error: ValueError: no connection"
        for count in counts
    ]


def test_another_error_is_logged_whole(caplog: Any) -> None:
    failures = Failures()
    for text in ("one", "two", "one"):
        failures.log(ValueError(text), "Failed.")
    assert failures.in_a_row == 1
    assert failures.count == len(caplog.records) == 3
    assert all(record.exc_info for record in caplog.records)
    assert failures.last == "ValueError: one"
