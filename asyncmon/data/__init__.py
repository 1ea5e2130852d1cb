"""Input: anything that can be iterated, with backpressure, resumable at the exact element.

A tour in one screen::

    import asyncmon as am

    # Sources: arrays (the fast path), sequences, plain iterables (read in a thread), asynchronous ones.
    data = am.data.from_arrays({"x": images, "y": labels})
    data = am.data.from_iterable(lambda: open("lines.txt"))      # a function: called in every pass
    data = am.data.from_iterable(async_messages())               # back-pressure reaches the sender

    # Steps. Each returns a new dataset; nothing runs yet.
    data = (
        am.data.from_iterable(paths)
        .shuffle(10_000, seed=1)             # another order in every pass, the same for the same seed
        .map(download, concurrency=16)       # async def: awaited; def: in threads
        .map(decode, concurrency=2, ordered=False)  # results as they come
        .repeat(10)
        .batch(64)                           # numbers and arrays stacked, dicts and tuples part by part
        .prefetch(4)                         # 4 batches ahead, no more
    )
    both = data.zip(other)                   # tuples, as long as both last
    files = am.data.from_iterable(paths).interleave(read_rows, cycle_length=4, block_length=16)

    async for batch in data:                 # from its position to the end
        await sess.run(train_op, {x: batch["x"]})

    state = data.state_dict()                # JSON values and arrays; saved in checkpoints
    data.load_state_dict(state)              # the next element is the one after the last one returned

Elements move in chunks, so an element costs well under a microsecond a step. Only ``prefetch`` and a
``map`` with concurrency work ahead of the consumer.
"""

from asyncmon.data.batching import stack
from asyncmon.data.dataset import Dataset, Iteration, from_arrays, from_iterable
from asyncmon.data.replay import ReplayBuffer, Sample

__all__ = ["Dataset", "Iteration", "ReplayBuffer", "Sample", "from_arrays", "from_iterable", "stack"]
__dir__ = __all__.copy
