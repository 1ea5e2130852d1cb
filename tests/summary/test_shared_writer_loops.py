"""The cache and event loops."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from asyncmon.summary import FileWriter, FileWriterCache

if TYPE_CHECKING:
    from pathlib import Path


def test_each_loop_has_its_own_writers(tmp_path: Path) -> None:
    async def get() -> FileWriter:
        return FileWriterCache.get(tmp_path)

    assert asyncio.run(get()) is not asyncio.run(get())


def test_without_a_loop_there_is_no_writer(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="no running event loop"):
        FileWriterCache.get(tmp_path)
