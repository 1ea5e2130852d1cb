"""Texts for exceptions whose own text fails."""

from __future__ import annotations

import dataclasses

import pytest

from asyncmon.system.error_text import add_note, phrase, text_of


@dataclasses.dataclass(frozen=True)
class Frozen(Exception):
    code: int


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise LookupError("no words")


def test_a_note_is_attached() -> None:
    error = ValueError("boom")
    add_note(error, "and more")
    assert error.__notes__ == ["and more"]


def test_an_exception_that_takes_no_notes_has_them_logged(caplog: pytest.LogCaptureFixture) -> None:
    error = Frozen(503)
    add_note(error, "and more")
    assert caplog.messages == ["Cannot attach a note to Frozen: 503: and more"]


def test_the_phrase_about_an_exception() -> None:
    assert phrase(ValueError("boom")) == "ValueError: boom"
    assert phrase(ValueError()) == "ValueError"


def test_an_exception_without_text_has_a_phrase_too() -> None:
    assert text_of(Unspeakable()) == "<its __str__ raised LookupError>"
    assert phrase(Unspeakable()) == "Unspeakable: <its __str__ raised LookupError>"
