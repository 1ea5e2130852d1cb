"""Each test builds into a graph of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from asyncmon.graph import Graph

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(autouse=True)
def graph() -> Iterator[Graph]:
    with Graph().as_default() as graph:
        yield graph
