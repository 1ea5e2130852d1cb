"""What docs/porting.md shows is what happens, as tests/test_docs.py holds of the other pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import test_docs as docs

PAGE = docs.ROOT / "docs" / "porting.md"


@pytest.mark.parametrize(("page", "needs"), docs.cases([PAGE]))
def test_the_blocks_run_and_print_what_the_page_shows(
    page: str, needs: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    docs.test_the_blocks_run_and_print_what_the_page_shows(page, needs, tmp_path, monkeypatch)


def test_every_block_is_of_a_kind_that_is_run_or_has_a_reason() -> None:
    docs.test_every_block_is_of_a_kind_that_is_run_or_has_a_reason(PAGE)


def test_links_inside_of_the_project_lead_somewhere() -> None:
    docs.test_links_inside_of_the_project_lead_somewhere(PAGE)
