"""Sessions in actors of Ray: the same results, and what is lost is said to be."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import asyncmon as am
from asyncmon import errors
from asyncmon import graph as g
from tests.distributed.ray_cluster import actor_pid, cluster, ray

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch, cluster() as (found, _):
        patch.setenv("RAY_ADDRESS", found)
        yield found
        ray.shutdown()


@pytest.fixture
def named(address: str) -> Iterator[str]:
    """The target of an actor of this test's own, which is stopped after it."""
    yield f"ray://{address}/shared"
    ray.kill(shared_actor())


def shared_actor() -> Any:
    return ray.get_actor("shared", namespace="asyncmon")


def config(timeout_secs: float) -> g.SessionConfig:
    found = g.SessionConfig()
    found.rpc_options.timeout_secs = timeout_secs
    return found


async def gone() -> None:
    while ray.util.list_named_actors(all_namespaces=True):  # noqa: ASYNC110 - Ray has no event for it
        await asyncio.sleep(0.05)


def counter() -> tuple[Any, Any]:
    v = g.Variable(0.0, name="v")
    return v, v.assign_add(1.0)


@pytest.mark.asyncio
async def test_a_session_in_an_actor_trains_and_ends_with_its_actor(address: str) -> None:
    x = g.placeholder(g.float32, [None, 4])
    w = g.get_variable("w", initializer=np.full((4, 2), 0.1, np.float32))
    loss = g.reduce_mean(g.square(g.matmul(x, w) - 1.0))
    train = g.train.AdamOptimizer(0.1).minimize(loss, am.get_or_create_global_step())
    trained = []
    for target in ("ray", ""):
        async with g.Session(target) as sess:
            await sess.run(g.global_variables_initializer())
            for _ in range(5):
                await sess.run(train, {x: np.ones((3, 4), np.float32)})
            assert sess.global_step == 5
            trained.append(await sess.run(w))
    np.testing.assert_array_equal(*trained)
    async with asyncio.timeout(10):
        await gone()


@pytest.mark.asyncio
async def test_the_start_of_an_actor_has_a_deadline_of_its_own(address: str) -> None:
    async with g.Session("ray") as sess:  # connects this process
        await sess.run(g.constant(1.0))
    async with g.Session("ray", config=config(0.5)) as sess:  # a process takes a second to start
        assert await sess.run(g.constant(1.0) + 1.0) == 2.0


@pytest.mark.asyncio
async def test_large_arrays_pass_both_ways(address: str) -> None:
    x = g.placeholder(g.float32, [None])
    y, none = x * 2.0, g.placeholder(g.float32, [0])
    large = np.arange(1_000_000, dtype=np.float32)
    async with g.Session("ray") as sess:
        value, empty = await sess.run([y, none], {x: large, none: np.zeros(0, np.float32)})
        np.testing.assert_array_equal(value, large * 2.0)
        assert empty.size == 0
        value[:] = 7.0  # the caller's own
        v = g.Variable(x, validate_shape=False)
        await sess.run(v.initializer, {x: large})
        snapshot = await sess.snapshot()
        np.testing.assert_array_equal(snapshot[v.op.name], large)


@pytest.mark.asyncio
async def test_functions_stay_with_the_client(address: str) -> None:
    called = []

    async def f(a: Any) -> Any:
        called.append(float(a))
        return a * 2

    y = g.py_func(f, [g.constant(3.0)], g.float32)
    async with g.Session("ray") as sess:
        assert await sess.run(y) == 6.0
    assert called == [3.0]


@pytest.mark.asyncio
async def test_an_actor_that_is_restarted_empty_aborts_its_sessions(named: str) -> None:
    v, add = counter()
    async with g.Session(named) as sess:
        await sess.run(v.initializer)
        assert await sess.run(add) == 1.0
        os.kill(actor_pid(shared_actor()), signal.SIGKILL)
        for _ in range(20):  # Ray restarts it, and tells nobody
            with pytest.raises((errors.AbortedError, errors.UnavailableError)) as caught:
                await sess.run(add)
            if isinstance(caught.value, errors.AbortedError):
                break
        assert "started anew" in str(caught.value)
    async with g.Session(named) as sess:
        with pytest.raises(errors.FailedPreconditionError, match="uninitialized"):
            await sess.run(v)


@pytest.mark.asyncio
@pytest.mark.parametrize("own", [True, False])
async def test_training_recovers_from_the_death_of_its_actor(
    request: pytest.FixtureRequest, tmp_path: Path, address: str, own: bool
) -> None:
    target = "ray" if own else request.getfixturevalue("named")
    step = am.get_or_create_global_step()
    v = g.Variable(0.0)
    add = g.group(v.assign_add(1.0), step.assign_add(1))
    killed = False
    async with am.MonitoredTrainingSession(
        target, checkpoint_dir=str(tmp_path), save_checkpoint_steps=5,
        hooks=[am.StopAtStepHook(last_step=20)],
    ) as sess:  # fmt: skip
        while not sess.should_stop():
            await sess.run(add)
            if sess.global_step == 12 and not killed:
                killed = True
                (name,) = ray.util.list_named_actors(all_namespaces=True)
                os.kill(actor_pid(ray.get_actor(**name)), signal.SIGKILL)
        assert await sess.raw_session().run(v) == 20.0
    assert killed


@pytest.mark.asyncio
async def test_sessions_of_one_actor_share_its_variables(named: str) -> None:
    v, add = counter()
    async with g.Session(named) as sess, g.Session(named) as other:
        await sess.run(v.initializer)
        await asyncio.gather(*[one.run(add) for one in (sess, other) for _ in range(10)])
        assert await other.run(v) == 20.0
    async with g.Session(named) as sess:  # the actor stays
        assert await sess.run(v) == 20.0


@pytest.mark.asyncio
async def test_an_actor_that_dies_for_good_is_aborted_at_once(address: str) -> None:
    v, add = counter()
    async with g.Session("ray") as sess:
        await sess.run(v.initializer)
        (name,) = ray.util.list_named_actors(all_namespaces=True)
        os.kill(actor_pid(ray.get_actor(**name)), signal.SIGKILL)
        with pytest.raises(errors.AbortedError, match="ActorDiedError"):
            await sess.run(add)


@pytest.mark.asyncio
async def test_an_actor_that_hangs_is_unavailable_in_time(named: str) -> None:
    v, add = counter()
    async with g.Session(named, config=config(1.5)) as sess:
        await sess.run(v.initializer)
        pid = actor_pid(shared_actor())
        os.kill(pid, signal.SIGSTOP)
        try:
            with pytest.raises(errors.UnavailableError, match="no answer came"):
                await sess.run(add)
        finally:
            os.kill(pid, signal.SIGCONT)


@pytest.mark.asyncio
async def test_a_run_that_is_cancelled_is_cancelled_there(address: str) -> None:
    started = asyncio.Event()

    async def waits() -> None:
        started.set()
        await asyncio.Event().wait()

    v, add = counter()
    both = g.group(g.py_func(waits, [], g.float32), add)
    async with g.Session("ray") as sess:
        await sess.run(v.initializer)
        task = asyncio.create_task(sess.run(both))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await sess.run(v) == 0.0


@pytest.mark.asyncio
async def test_a_session_that_is_closed_ends_its_runs(address: str) -> None:
    sess = g.Session("ray", config=config(3.0))
    v, _ = counter()
    await sess.run(v.initializer)
    started = asyncio.Event()

    async def waits() -> None:
        started.set()
        await asyncio.Event().wait()

    task = asyncio.create_task(sess.run(g.py_func(waits, [], g.float32)))
    await started.wait()
    await sess.close()
    with pytest.raises(errors.OpError):
        await task


@pytest.mark.asyncio
@pytest.mark.parametrize("target", ["ray://", "ray://host:1", "ray:///name", "ray://host:1/"])
async def test_targets_of_another_form_are_refused(target: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="ray://ADDRESS/NAME"):
        g.Session(target)


@pytest.mark.asyncio
async def test_a_process_has_one_cluster(address: str) -> None:
    y = g.constant(1.0)
    async with g.Session("ray") as sess:
        await sess.run(y)
    async with g.Session("ray://127.0.0.1:1/x") as sess:
        with pytest.raises(errors.FailedPreconditionError, match="a process has one"):
            await sess.run(y)


def run(program: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env=os.environ | environment, check=False, timeout=50,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def test_without_ray_the_error_says_what_to_install() -> None:
    done = run("import sys; sys.modules['ray'] = None; import asyncmon; asyncmon.Session('ray')")
    assert "ImportError: Sessions on Ray need the package ray: pip install 'asyncmon[cluster]'" in (
        done.stdout
    )


def test_the_module_that_registers_the_target_does_not_import_ray() -> None:
    done = run("import asyncmon, sys; asyncmon.Session('ray'); assert 'ray' not in sys.modules")
    assert done.returncode == 0, done.stdout


SILENT = """
import asyncio, os, socket, time
import asyncmon as am

async def main():
    silent = socket.create_server(("127.0.0.1", 0))
    silent.listen()
    config = am.SessionConfig()
    config.rpc_options.timeout_secs = 1.0
    late = 0.0

    async def tick():
        nonlocal late
        while True:
            begun = time.monotonic()
            await asyncio.sleep(0.01)
            late = max(late, time.monotonic() - begun)

    ticks = asyncio.create_task(tick())
    sess = am.Session(f"ray://127.0.0.1:{silent.getsockname()[1]}/x", config=config)
    for _ in range(2):
        begun = time.monotonic()
        try:
            await sess.run(am.graph.constant(1.0))
        except am.errors.UnavailableError as error:
            print("unavailable", error, time.monotonic() - begun < 3.0, flush=True)
    await sess.close()
    print("held", late < 0.9, late, flush=True)
    os._exit(0)

asyncio.run(main())
"""


def test_connecting_ends_in_time_and_never_holds_the_loop() -> None:
    lines = run(SILENT).stdout.splitlines()
    found = [line for line in lines if line.startswith("unavailable")]
    assert len(found) == 2, lines
    assert all("was not there within 1 s" in line and line.endswith("True") for line in found)
    assert any(line.startswith("held True") for line in lines), lines


LOST = """
import asyncio, logging, os, signal, sys, time
import asyncmon as am

said = asyncio.Event()

class Said(logging.StreamHandler):
    def emit(self, record):
        super().emit(record)
        if record.levelno == logging.ERROR:
            said.set()

logging.getLogger("asyncmon").addHandler(Said())
v = am.graph.Variable(0.0)

async def main():
    async with am.Session("ray") as sess:
        await sess.run(v.initializer)
        os.kill(int(sys.argv[1]), signal.SIGKILL)
        await asyncio.wait_for(said.wait(), 10)
        print("runs", await sess.run(v.assign_add(1.0)), flush=True)
        other = am.Session("ray")
        begun = time.monotonic()
        try:
            await other.run(v)
        except am.errors.UnavailableError as error:
            print("unavailable", time.monotonic() - begun < 3.0, error, flush=True)
        os._exit(0)

asyncio.run(main())
"""


def test_the_loss_of_the_control_process_is_said_at_once_and_runs_go_on() -> None:
    off = {"RAY_AUTH_MODE": "disabled"}
    with cluster(**off) as (address, control):
        out = run(LOST, control, RAY_ADDRESS=address, **off).stdout
    assert "Processes of Ray listen on all interfaces" in out
    assert f"The control process of the Ray cluster at {address}" in out
    assert "runs 1.0" in out
    assert "unavailable True The control process" in out
