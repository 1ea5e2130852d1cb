"""Wrote the checkpoint beside it, with asyncmon 0.1.0 at f50de3e: ``python make.py``.

The manifest of that version has ``travellers`` in place of ``stateful``, arrays of states begin with
``__traveller__/``, and the rules of early stopping save ``in_vain``.
"""

import asyncio
from pathlib import Path

import numpy as np

import asyncmon as am
from asyncmon import graph as g


async def main() -> None:
    x = g.placeholder(g.float32, [], name="x")
    weight = g.get_variable("weight", initializer=1.0)
    train = g.group(weight.assign_add(x), am.get_or_create_global_step().assign_add(1))
    data = am.data.from_iterable(np.arange(10, dtype=np.float32)).shuffle(4, seed=1)
    evaluation = am.EvalHook({"loss": g.constant(1.0)}, lambda: [{}], every_steps=1, concurrent=False)
    stop = am.stop_if_no_decrease(evaluation, "loss", 20)
    directory = str(Path(__file__).parent)
    saver = am.CheckpointSaverHook(directory, save_steps=4)
    async with am.MonitoredSession(hooks=[evaluation, stop, saver]) as sess:
        async for value in sess.iterate(data):
            await sess.run(train, {x: value})
            if sess.global_step == 4:
                break


asyncio.run(main())
