"""Optional members: one typed lookup, and warnings about misspelled ones."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from asyncmon.system.members import members_of, misspelled, warn_of_misspelled


class Members:
    depth: int = 3
    release: Any = None
    load_state_dict: Any = None
    prepare: Any = None
    name: str | None = None


def test_a_member_that_is_there_is_found() -> None:
    class Deep:
        depth = 5

    assert members_of(Members, Deep()).depth == 5


def test_a_missing_member_has_the_declared_default() -> None:
    assert members_of(Members, object()).depth == 3
    assert members_of(Members, None).release is None


def test_a_member_is_looked_up_each_time() -> None:
    class Growing:
        depth = 1

    growing = Growing()
    members = members_of(Members, growing)
    growing.depth = 2
    assert members.depth == 2


def test_an_undeclared_member_is_an_error() -> None:
    with pytest.raises(AttributeError, match="dpeth"):
        assert members_of(Members, object()).dpeth  # type: ignore[attr-defined]  # refused


def test_a_misspelled_method_is_found_with_the_member_that_it_resembles() -> None:
    class Wrong:
        def load_state_dic(self, state: Any) -> None: ...
        def preprare(self) -> None: ...

    assert misspelled(Wrong(), Members) == [
        ("load_state_dic", "load_state_dict"),
        ("preprare", "prepare"),
    ]


def test_a_misspelled_attribute_of_the_object_is_found() -> None:
    class Wrong:
        def __init__(self) -> None:
            self.relaese = self

    assert misspelled(Wrong(), Members) == [("relaese", "release")]


@pytest.mark.parametrize(
    "name", ["names", "prepared", "released", "prepares", "state", "saver", "_prepar"]
)
def test_another_form_of_a_member_is_no_misspelling(name: str) -> None:
    assert misspelled(type("Fine", (), {name: 1})(), Members) == []


def test_an_attribute_that_resembles_a_member_which_is_there_is_no_misspelling() -> None:
    class Both:
        prepare = preprare = 1

    assert misspelled(Both(), Members) == []


def test_a_class_is_warned_about_once(caplog: pytest.LogCaptureFixture) -> None:
    class Wrong:
        preprare = 1

    with caplog.at_level(logging.WARNING):
        warn_of_misspelled("thing", Wrong(), Members)
        warn_of_misspelled("thing", Wrong(), Members)
    (record,) = caplog.records
    assert record.getMessage().endswith(
        "Wrong has an attribute 'preprare', which is never used. Did you mean 'prepare'?"
    )
