"""The plugin that users of the test bench switch on the same way; a new default graph for each test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from asyncmon.graph import reset_default_graph

if TYPE_CHECKING:
    from collections.abc import Iterator

pytest_plugins = ["asyncmon.testing.pytest_plugin"]


@pytest.fixture(autouse=True)
def _new_default_graph() -> Iterator[None]:
    yield
    reset_default_graph()
