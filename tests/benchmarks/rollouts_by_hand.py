"""The loops of ``rollouts.py`` as one writes them by hand: tasks and a bounded ``asyncio.Queue``.

They keep no place over a restart, and one that stops leaves its queue undrained.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any


async def environments(
    sess: Any, play: Callable[[int], Awaitable[Any]], *, count: int, workers: int, size: int
) -> None:
    """Play with a number of workers, and train on batches of the first results."""
    queue: asyncio.Queue[Any] = asyncio.Queue(2 * workers)
    elements = iter(range(count))

    async def work() -> None:
        for element in elements:
            await queue.put(await play(element))

    tasks = [asyncio.create_task(work()) for _ in range(workers)]
    for _ in range(count // size):
        batch = [await queue.get() for _ in range(size)]
        await sess.run("train", {"batch": batch})
    await asyncio.gather(*tasks)


async def groups(
    sess: Any,
    write: Callable[[int, Any], Awaitable[Any]],
    *,
    count: int,
    workers: int,
    group: int,
    size: int,
    max_age: int,
) -> None:
    """Write groups of texts by the newest weights, and train on batches of whole groups.

    No more groups are begun than the next batches take in time; one that is too old is written again.
    """
    queue: asyncio.Queue[Any] = asyncio.Queue(2 * workers)
    calls = [(element, member) for element in reversed(range(count)) for member in range(group)]
    texts: dict[int, list[Any]] = {}
    version, weights, begun = 0, await sess.peek("weights"), 0
    advance = asyncio.Condition()

    async def work() -> None:
        nonlocal begun
        while True:
            async with advance:
                while not calls or begun >= (version + max_age + 1) * size * group:
                    await advance.wait()
            element, _ = calls.pop()
            begun += 1
            made = texts.setdefault(element, [])
            made.append((version, await write(element, weights)))
            if len(made) == group:
                await queue.put((element, texts.pop(element)))

    tasks = [asyncio.create_task(work()) for _ in range(workers)]
    for _ in range(count // size):
        batch: list[Any] = []
        while len(batch) < size:
            element, made = await queue.get()
            if version - min(older for older, _ in made) <= max_age:
                batch.append([text for _, text in made])
            else:
                async with advance:
                    calls += [(element, member) for member in range(group)]
                    begun -= group
                    advance.notify_all()
        await sess.run("train", {"batch": batch})
        weights = await sess.peek("weights")
        async with advance:
            version += 1
            advance.notify_all()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
