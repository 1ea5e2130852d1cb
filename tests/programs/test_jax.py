"""Programs of jitted steps: state, donation, checkpoints, hooks."""

from __future__ import annotations

import asyncio
import gc
import threading
import weakref
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("jax", reason="jax is not installed: pip install 'asyncmon[jax]'")

import jax
import jax.numpy as jnp

import asyncmon as am
from asyncmon.errors import AbortedError, InvalidArgumentError, NotFoundError
from asyncmon.programs import optional
from asyncmon.programs.jax import JaxProgram
from asyncmon.testing import PROGRAM_CASES, ProgramCase, check_program

pytestmark = pytest.mark.asyncio


@pytest.fixture(scope="module", autouse=True)
def _compile_each_step_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Each test builds its program again, and XLA takes a second for the same steps."""
    wanted = {
        "jax_compilation_cache_dir": str(tmp_path_factory.mktemp("compiled")),
        "jax_persistent_cache_min_compile_time_secs": 0,
        "jax_persistent_cache_min_entry_size_bytes": -1,
    }
    before = {name: getattr(jax.config, name) for name in wanted}
    for name, value in wanted.items():
        jax.config.update(name, value)
    yield
    for name, value in before.items():
        jax.config.update(name, value)


def make(donate: bool = True, optimizer: Any = None) -> JaxProgram:
    """A regression with noise, by momentum or an optax optimizer."""
    params = {"w": jnp.arange(4.0), "layers": [jnp.ones((4, 2), jnp.bfloat16)]}
    moments = jax.tree.map(jnp.zeros_like, params) if optimizer is None else optimizer.init(params)
    state = {"params": params, "opt": moments, "key": jax.random.key(3), "count": 0}
    program = JaxProgram(state)

    def loss_of(params: Any, batch: Any, key: Any) -> Any:
        noise = 0.01 * jax.random.normal(key, batch.shape)
        hidden = ((batch + noise) * params["w"]) @ params["layers"][0].astype(jnp.float32)
        return jnp.square(hidden - 1).mean()

    @program.step(donate=donate)
    def train(state: Any, batch: Any) -> Any:
        key, mine = jax.random.split(state["key"])
        params, opt = state["params"], state["opt"]
        loss, gradient = jax.value_and_grad(loss_of)(params, batch, mine)
        if optimizer is None:
            opt = jax.tree.map(lambda m, g: 0.9 * m + g, opt, gradient)
            updates = jax.tree.map(lambda m: -0.01 * m, opt)
        else:
            updates, opt = optimizer.update(gradient, opt, params)
        params = jax.tree.map(lambda p, u: (p + u).astype(p.dtype), params, updates)
        after = {"params": params, "opt": opt, "key": key, "count": state["count"] + 1}
        return after, {"loss": loss, "gradient": gradient["w"]}

    @program.step(read_only=True)
    def evaluate(state: Any, batch: Any) -> Any:
        return {"error": jnp.abs(batch * state["params"]["w"]).sum()}

    return program


def batch(number: int = 0) -> Any:
    return np.linspace(-1, 1, 32, dtype=np.float32).reshape(8, 4) * (number + 1) / 4


def case(**how: Any) -> ProgramCase:
    return ProgramCase(
        program=make(**how), step="train", loss="loss", entry="params/w",
        feeds=lambda number: {"batch": batch(number)},
        nan_feeds={"batch": np.full((8, 4), np.nan, np.float32)},
        bad_feeds={"batch": np.zeros((8, 5), np.float32)},
    )  # fmt: skip


@pytest.mark.parametrize("name", PROGRAM_CASES)
@pytest.mark.parametrize("donate", [True, False], ids=["donated", "kept"])
async def test_the_contract(name: str, donate: bool, tmp_path: Path) -> None:
    await check_program(lambda: case(donate=donate), [name], checkpoint_dir=tmp_path)


async def test_an_optax_state_is_resumed_exactly(tmp_path: Path) -> None:
    optax = pytest.importorskip("optax", reason="optax is not installed")
    cases = ["interrupted_training_resumes_exactly", "load_sets_the_state"]
    factory = partial(case, optimizer=optax.adamw(1e-2))
    await check_program(factory, cases, checkpoint_dir=tmp_path)
    names = [leaf.name for leaf in factory().program.leaves]
    assert {"opt/0/count", "opt/0/mu/w", "opt/0/nu/layers/0", "params/w", "key"} <= set(names)


async def test_fetches_are_values_of_the_host_and_entries_after_the_run() -> None:
    session = make().create_session()
    found = await session.run(
        {"all": "train", "loss": "loss", "w": "params/w", "count": "count", "none": optional("error")},
        {"batch": batch()},
    )
    assert isinstance(found["all"]["gradient"], jax.Array)
    assert isinstance(found["loss"], np.float32)
    assert isinstance(found["w"], np.ndarray)
    assert (found["count"], found["none"], session.global_step) == (1, None, 1)
    kept = found["w"].copy()
    await session.run("train", {"batch": batch(1)})
    assert found["w"].tolist() == kept.tolist()
    assert await session.peek(["error"][:0]) == []
    assert (await session.peek("evaluate", {"batch": batch()}))["error"] > 0
    await session.close()


async def test_an_unknown_fetch_is_found_before_the_state_is_donated() -> None:
    session = make().create_session()
    with pytest.raises(NotFoundError, match=r"'accuracy'.*returned: \['gradient', 'loss'\]"):
        await session.run(["train", "accuracy"], {"batch": batch()})
    assert (await session.run(["train", "loss"], {"batch": batch()}))[1] > 0
    await session.close()


async def test_a_first_step_compiles_in_a_worker_and_a_short_one_runs_in_the_loop() -> None:
    names: list[str] = []
    program = JaxProgram({"n": 0})

    @program.step
    def count(state: Any, x: Any) -> Any:
        names.append(threading.current_thread().name)  # while it is traced
        return {"n": state["n"] + 1}, {}

    session = program.create_session()
    for shape in (2, 3):
        await session.run("count", {"x": np.zeros(shape)})
    assert threading.main_thread().name not in names
    assert len(set(names)) == 1
    assert await session.run("n") == 2
    await session.close()


async def test_a_step_that_fails_after_the_donation_recovers_from_the_checkpoint(
    tmp_path: Path,
) -> None:
    fails = [3]
    program = JaxProgram({"w": jnp.zeros(1000)})

    def check(n: Any) -> Any:
        if fails and n == fails[0]:
            fails.clear()
            raise ValueError("the device is lost")
        return np.int32(0)

    @program.step
    def train(state: Any, n: Any) -> Any:
        zero = jax.pure_callback(check, jax.ShapeDtypeStruct((), jnp.int32), n)
        return {"w": state["w"] + 1 + zero}, {"zero": zero}

    async with am.MonitoredTrainingSession(
        program=program, checkpoint_dir=tmp_path, save_checkpoint_steps=1, save_summaries_steps=0,
        log_step_count_steps=None, signals=None,
    ) as sess:  # fmt: skip
        for number in range(5):
            await sess.run("train", {"n": np.int32(number)})
        assert sess.global_step == 5
        assert (await sess.peek("w")).tolist() == [5.0] * 1000
    assert not fails


async def test_a_lost_state_says_so_until_it_is_loaded() -> None:
    session = make().create_session()
    await session.run("train", {"batch": batch()})
    good = dict(await session.snapshot())
    for leaf in jax.tree_util.tree_leaves(session._state):
        leaf.delete()  # what a failed step leaves that had donated
    with pytest.raises((AbortedError, RuntimeError)):
        await session.run("train", {"batch": batch()})
    with pytest.raises(AbortedError, match="failed after the state was donated, so it is lost"):
        await session.run("train", {"batch": batch()})
    with pytest.raises(InvalidArgumentError, match=r"the state is lost, and .* are missing"):
        await session.load({"params/w": good["params/w"]})
    await session.load(good)
    await session.run("train", {"batch": batch(1)})
    assert session.global_step == 2
    await session.close()


async def test_a_snapshot_outlives_donated_buffers() -> None:
    session = make().create_session()
    await session.run("train", {"batch": batch()})
    first = await session.snapshot()
    before = {name: np.array(value) for name, value in first.items()}
    orders = []
    for number in range(20):
        orders.append(session.snapshot())
        await session.run("train", {"batch": batch(number % 3)})
    steps = [snapshot.step for snapshot in await asyncio.gather(*orders)]
    assert steps == list(range(1, 21))
    assert all(np.array_equal(first[name], value) for name, value in before.items())
    await session.close()


async def test_wrong_states_and_steps_are_refused() -> None:
    with pytest.raises(TypeError, match="The entry 'a/b' of the state is 'text'"):
        JaxProgram({"a": {"b": "text"}})
    with pytest.raises(ValueError, match="Two leaves of the state have the name 'a/b'"):
        JaxProgram({"a": {"b": 1}, "a/b": 2})
    program = JaxProgram({"n": 0, "x": jnp.zeros(2)})
    with pytest.raises(TypeError, match="must be a plain function"):
        program.step(asyncio.sleep, name="sleep")
    with pytest.raises(ValueError, match="The name 'n' is taken"):
        program.step(lambda state: state, name="n")
    program.step(lambda state: state["n"], name="one")
    program.step(lambda state: ({"n": state["n"]}, {}), name="structure")
    program.step(lambda state: ({"n": state["n"], "x": jnp.zeros(3)}, {}), name="shape")
    session = program.create_session()
    for name, text in {
        "one": r"must return \(state, outputs\)",
        "structure": "a state of another structure",
        "shape": r"the entry 'x' with shape \(3,\)",
    }.items():
        with pytest.raises(TypeError, match=text):
            await session.run(name)
    assert await session.run("n") == 0
    assert session.global_step == 0
    assert program.is_chief
    assert program.describe() == {"type": "JaxProgram", "steps": ["one", "structure", "shape"]}
    await session.close()


async def test_a_jitted_function_that_donates_by_itself_and_shardings_stay() -> None:
    device = jax.devices()[0]
    sharding = jax.sharding.SingleDeviceSharding(device)
    program = JaxProgram({"w": jax.device_put(jnp.zeros(8), sharding)})
    jitted = jax.jit(lambda state: ({"w": state["w"] + 1}, {}), donate_argnums=0)
    program.step(jitted, name="train")
    session = program.create_session()
    for _ in range(3):
        await session.run("train")
    assert (await session.snapshot())["w"].tolist() == [3.0] * 8
    await session.load({"w": np.ones(8, np.float32)})
    assert session._state["w"].sharding == sharding
    assert (await session.run("w")).tolist() == [1.0] * 8
    await session.close()


async def test_a_closed_session_keeps_no_program() -> None:
    program = JaxProgram({"w": jnp.zeros(4)})

    @program.step
    def train(state: Any) -> Any:
        return {"w": state["w"] + 1}, {"loss": 1.0}

    known = weakref.ref(program)
    sess = am.MonitoredSession(am.ChiefSessionCreator(program=program))
    del program, train
    async with sess:
        await sess.run("train")
    gc.collect()
    assert known() is None
    assert sess.global_step == 1
