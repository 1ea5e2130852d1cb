"""Each test builds into a graph of its own; ``evaluate`` runs it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

import asyncmon.tf1 as tf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@pytest.fixture
def graph() -> Iterator[tf.Graph]:
    with tf.Graph().as_default() as graph:
        yield graph


@pytest.fixture
def evaluate(graph: tf.Graph) -> Callable[..., Any]:
    """Run fetches, each with feeds of its own, in one session of the test's graph; return the last."""

    def evaluate(*fetches: Any, feeds: Any = ()) -> Any:
        async def run() -> Any:
            result = None
            async with tf.Session(graph=graph) as sess:
                with graph.as_default():
                    init = tf.global_variables_initializer(), tf.local_variables_initializer()
                await sess.run(init)
                for i, fetch in enumerate(fetches):
                    result = await sess.run(fetch, feeds[i] if i < len(feeds) else None)
            return result

        return asyncio.run(run())

    return evaluate
