"""What a session adds to the steps of other engines: ``python tests/benchmarks/programs.py [row ...]``.

Rows: function, jax_1ms, jax_20ms, torch_3ms, torch_16ms, torch_lag, torch_peers_200us, torch_peers_1ms,
torch_peers_10ms. Rows of an engine that is not installed are left out.

The bare loop and the session do the same steps in turns, a stretch of each; the median of the stretches
counts, and the overhead is the difference. Loop lag is what a task that sleeps for 1 ms comes late.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.util
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any

import numpy as np
from harness import Measure, Row, command

from asyncmon.programs import FunctionProgram

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

STRETCHES = 15


async def stretch(step: Callable[[], Awaitable[Any]], count: int) -> float:
    """Return the seconds of a step, over a number of steps in a row."""
    start = time.perf_counter()
    for _ in range(count):
        await step()
    return (time.perf_counter() - start) / count


async def in_turns(
    bare: Callable[[], Awaitable[Any]], ours: Callable[[], Awaitable[Any]], count: int
) -> tuple[float, float]:
    """Return the seconds of a bare step, and the seconds that the session adds."""
    await stretch(bare, count)
    await stretch(ours, count)
    found = [(await stretch(bare, count), await stretch(ours, count)) for _ in range(STRETCHES)]
    return (
        statistics.median(a for a, _ in found),
        statistics.median(b - a for a, b in found),
    )


async def lag_of(step: Callable[[], Awaitable[Any]], seconds: float) -> float:
    """Return the 99th percentile of the loop's lag while steps run."""
    lags: list[float] = []

    async def watch() -> None:
        while True:
            start = time.perf_counter()
            await asyncio.sleep(0.001)
            lags.append(time.perf_counter() - start - 0.001)

    watcher = asyncio.create_task(watch())
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        await step()
        await asyncio.sleep(0)
    watcher.cancel()
    return float(np.quantile(lags, 0.99))


async def function() -> list[Row]:
    """An ``async def`` step that changes a number of the state, and the call of it alone."""

    async def train(state: dict[str, Any], batch: float) -> dict[str, Any]:
        state["sum"] += batch
        return {"loss": state["sum"]}

    program = FunctionProgram({"sum": 0.0})
    program.step(train)
    session = program.create_session()
    state, feeds = {"sum": 0.0}, {"batch": 1.0}
    _, added = await in_turns(lambda: train(state, batch=1.0), lambda: session.run("train", feeds), 500)
    return [Row("inline async function", f"{added * 1e6:.2f} us", "5 us or less", added <= 5e-6)]


class Perceptron:
    """A perceptron with momentum in JAX: the bare jitted step, and a session of it."""

    def __init__(self, width: int, rows: int) -> None:
        import jax
        import jax.numpy as jnp

        from asyncmon.programs.jax import JaxProgram

        self._jax = jax
        keys = jax.random.split(jax.random.key(0), 3)
        weights = [jax.random.normal(key, (width, width)) / width**0.5 for key in keys]
        self._declared = {"w": weights, "m": [jnp.zeros_like(w) for w in weights]}

        def loss_of(weights: Any, x: Any) -> Any:
            for w in weights:
                x = jnp.tanh(x @ w)
            return jnp.square(x - 1).mean()

        def train(state: Any, x: Any) -> Any:
            loss, gradient = jax.value_and_grad(loss_of)(state["w"], x)
            m = [0.9 * a + b for a, b in zip(state["m"], gradient, strict=True)]
            w = [a - 0.01 * b for a, b in zip(state["w"], m, strict=True)]
            return {"w": w, "m": m}, {"loss": loss}

        self._step = jax.jit(train, donate_argnums=0)
        self.program = JaxProgram(self._declared, {"train": train})
        self.x = np.random.default_rng(0).normal(size=(rows, width)).astype(np.float32)
        self.state = jax.tree.map(jnp.copy, self._declared)

    async def bare(self) -> None:
        """Do one step by hand, and wait for it."""
        self.state, outputs = self._step(self.state, self.x)
        self._jax.block_until_ready((self.state, outputs))


async def jax_step(width: int, rows: int, count: int) -> list[Row]:
    """Compare and watch the loop."""
    work = Perceptron(width, rows)
    session = work.program.create_session()
    feeds = {"x": work.x}
    for _ in range(60):  # until the time of the compilation is forgotten
        await session.run("train", feeds)
    bare, added = await in_turns(work.bare, lambda: session.run("train", feeds), count)
    lag = await lag_of(lambda: session.run("train", feeds), 3.0)
    await session.close()
    what = f"jax MLP, {bare * 1e3:.2f} ms a step"
    share = added / bare
    said = f"{added * 1e6:.0f} us more, {100 * share:.1f} %; loop lag p99 {lag * 1e3:.2f} ms"
    return [Row(what, said, "2 %, 5 ms", share <= 0.02 and lag <= 5e-3)]


async def torch_lag() -> list[Row]:
    """Watch the event loop beside steps of 16 ms."""
    work = importlib.import_module("torch_peers").Perceptron(1024, 256)
    session, feeds = work.program.create_session(), {"x": work.x}
    late = await lag_of(lambda: session.run("train", feeds), 2.0)
    await session.close()
    return [Row("loop lag p99 beside torch", f"{late * 1e3:.2f} ms", "5 ms or less", late <= 5e-3)]


async def torch_peers(name: str) -> list[Row]:
    """Measure a row of ``torch_peers.py``."""
    found: list[Row] = importlib.import_module("torch_peers").row(name)
    return found


def of_engine(engine: str, measure: Callable[[], Awaitable[list[Row]]]) -> Measure:
    """Return what measures a row, or says that its engine is not installed."""

    def measured() -> Row | Awaitable[list[Row]]:
        if importlib.util.find_spec(engine) is None:
            return Row(engine, "is not installed", "")
        return measure()

    return measured


ROWS: dict[str, Measure] = {
    "function": function,
    "jax": of_engine("jax", lambda: jax_step(1024, 512, 8)),
    "torch_lag": of_engine("torch", torch_lag),
    "torch_peers_200us": of_engine("torch", lambda: torch_peers("200us")),
    "torch_peers_1ms": of_engine("torch", lambda: torch_peers("1ms")),
    "torch_peers_10ms": of_engine("torch", lambda: torch_peers("10ms")),
}


if __name__ == "__main__":
    sys.exit(command("what a session adds to steps of other engines", ROWS))
