"""Sessions that are nothing but state, and the files of a directory."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.checkpoint.memory_session import MemorySession


@pytest.fixture
def make_session() -> Callable[..., MemorySession]:
    return MemorySession


@pytest.fixture
def names_in() -> Callable[[Path], set[str]]:
    """Return the content of a directory, without the lock file."""
    return lambda directory: {path.name for path in directory.iterdir()} - {".asyncmon.lock"}
