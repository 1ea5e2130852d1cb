"""Many workers on one server over gRPC: ``python tests/benchmarks/distributed_workers.py [row ...]``.

scaling: steps a second of 1, 2 and 4 workers whose step waits for 20 ms, over 1, 2, 4 times one's.
hundred: 100 workers, each with a latency of about a second, for 15 seconds: calls lost, the memory of
the process, the steps of the slowest and the fastest worker.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from contextlib import AsyncExitStack

import psutil

import asyncmon as am
from asyncmon import graph as g


async def sessions(stack: AsyncExitStack, count: int) -> list[g.Session]:
    config = am.SessionConfig()
    config.rpc_options.use_rpc_for_inprocess_master = True
    server = await stack.enter_async_context(am.Server.create_local_server())
    made = [g.Session(server.target, config=config) for _ in range(count)]
    for one in made:
        stack.push_async_callback(one.close)
    return made


async def scaling() -> None:
    alone = 0.0
    for count in (1, 2, 4):
        with g.Graph().as_default():
            v = g.Variable(0.0)
            add = v.assign_add(1.0)
            async with AsyncExitStack() as stack:
                made = await sessions(stack, count)
                await made[0].run(v.initializer)

                async def work(session: g.Session, step: g.Tensor = add) -> None:
                    for _ in range(100):
                        await asyncio.sleep(0.02)
                        await session.run(step)

                await asyncio.gather(*[one.run(v) for one in made])
                began = time.perf_counter()
                await asyncio.gather(*[work(one) for one in made])
                rate = 100 * count / (time.perf_counter() - began)
                alone = alone or rate
                print(f"{count} workers: {rate:.1f} steps/s, {rate / alone / count:.2f} of linear")


async def hundred() -> None:
    v = g.Variable(0.0)
    add = v.assign_add(1.0)
    process, counts = psutil.Process(), [0] * 100
    async with AsyncExitStack() as stack:
        made = await sessions(stack, 100)
        await made[0].run(v.initializer)
        end = time.perf_counter() + 15

        async def work(number: int) -> None:
            draw = random.Random(number)
            while time.perf_counter() < end:
                await asyncio.sleep(draw.uniform(0.8, 1.2))
                await made[number].run(add)
                counts[number] += 1

        tasks = [asyncio.create_task(work(number)) for number in range(100)]
        await asyncio.sleep(5)
        before = process.memory_info().rss
        await asyncio.gather(*tasks)
        after = process.memory_info().rss
        done = await made[0].run(v)
    print(
        f"{sum(counts)} calls, {sum(counts) - int(done)} lost, memory {(after - before) / 1e6:+.1f} MB "
        f"in 10 s, steps of a worker {min(counts)} to {max(counts)}"
    )


for name in sys.argv[1:] or ["scaling", "hundred"]:
    asyncio.run({"scaling": scaling, "hundred": hundred}[name]())
