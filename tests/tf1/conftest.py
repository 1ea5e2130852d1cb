"""Each test builds into a graph of its own; ``evaluate`` runs it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import asyncmon.tf1 as tf


@pytest.fixture
def graph() -> Iterator[tf.Graph]:
    with tf.Graph().as_default() as graph:
        yield graph


@pytest.fixture
def evaluate(graph: tf.Graph) -> Callable[..., Any]:
    """Run fetches, each with feeds of its own, in one session of the test's graph; return the last."""

    def evaluate(*fetches: Any, feeds: Any = ()) -> Any:
        result = None

        async def run() -> None:  # no result: asyncio.run formats that of its task, twice
            nonlocal result
            async with tf.Session(graph=graph) as sess:
                with graph.as_default():
                    init = tf.global_variables_initializer(), tf.local_variables_initializer()
                await sess.run(init)
                for i, fetch in enumerate(fetches):
                    result = await sess.run(fetch, feeds[i] if i < len(feeds) else None)

        asyncio.run(run())
        return result

    return evaluate
