"""``py_func``: plain and awaited functions as nodes."""

from __future__ import annotations

import asyncio
import functools
import threading
from typing import Any

import numpy as np
import pytest

from asyncmon import errors
from asyncmon import graph as tf

pytestmark = pytest.mark.asyncio


async def run(fetches: Any, feeds: Any = None, **config: Any) -> Any:
    async with tf.Session(config=tf.SessionConfig(**config)) as sess:
        await sess.run(tf.global_variables_initializer())
        return await sess.run(fetches, feeds)


@pytest.mark.parametrize("inline_ms", [1000, 0])
async def test_a_plain_function(inline_ms: float) -> None:
    x = tf.placeholder(tf.float32, [2])
    y = tf.py_func(lambda a: a * 2, [x], tf.float32)
    a, b = tf.py_func(lambda a: (a + 1, a.sum()), [x], [tf.float32, tf.float32])
    got = await run([y, a, b], {x: [1, 2]}, inline_ms=inline_ms)
    assert [np.asarray(v).tolist() for v in got] == [[2, 4], [2, 3], 3]
    assert y.shape.ndims is None


async def test_an_async_function() -> None:
    class Callable:
        async def __call__(self, a: Any) -> Any:
            await asyncio.sleep(0)
            return a + 1

    async def add(b: float, a: Any) -> Any:
        await asyncio.sleep(0)
        return np.float32(a + b)

    x = tf.constant(1.0)
    y = tf.py_func(Callable(), [tf.py_func(functools.partial(add, 10), [x], tf.float32)], tf.float32)
    assert await run(y) == 12


async def test_no_result_makes_an_operation() -> None:
    calls: list[float] = []
    op = tf.py_func(lambda a: calls.append(float(a)), [tf.constant(1.0)], [])
    assert isinstance(op, tf.Operation)
    assert await run(op) is None
    assert calls == [1]


async def test_independent_functions_wait_together() -> None:
    inside = 0
    both = asyncio.Event()

    async def wait() -> Any:
        nonlocal inside
        inside += 1
        if inside == 3:
            both.set()
        await both.wait()
        return np.float32(1)

    parts = [tf.py_func(wait, [], tf.float32) for _ in range(2)]
    chained = tf.py_func(lambda a: a, [parts[0]], tf.float32) * 0.0

    async def third(_a: Any) -> Any:
        return await wait()

    parts.append(tf.py_func(third, [tf.constant(1.0) + 1.0], tf.float32))
    assert await run(tf.add_n([*parts, chained])) == 3


async def test_a_chain_continues_while_another_function_waits() -> None:
    arrived = asyncio.Event()

    async def first() -> Any:
        await asyncio.sleep(0)
        return np.float32(1)

    async def second(a: Any) -> Any:
        arrived.set()
        return a

    async def other() -> Any:
        await arrived.wait()  # would never come, were there waves of nodes
        return np.float32(10)

    chain = tf.py_func(second, [tf.py_func(first, [], tf.float32) * 2.0], tf.float32)
    assert await run(chain + tf.py_func(other, [], tf.float32)) == 12


async def test_an_error_is_the_cause_of_an_op_error_that_names_the_node() -> None:
    class Mine(Exception):
        pass

    def fail() -> Any:
        raise Mine("broken")

    async def fail_later() -> Any:
        await asyncio.sleep(0)
        raise Mine("broken")

    for func in (fail, fail_later):
        for inline_ms in (1000, 0):
            with pytest.raises(errors.UnknownError, match="raised Mine: broken") as caught:
                await run(tf.py_func(func, [], tf.float32, name="node"), inline_ms=inline_ms)
            assert isinstance(caught.value.__cause__, Mine)
            assert any("node" in note for note in caught.value.__notes__)


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        (ValueError("x"), errors.InvalidArgumentError),
        (UnicodeError("x"), errors.InvalidArgumentError),
        (TypeError("x"), errors.InvalidArgumentError),
        (StopIteration("x"), errors.OutOfRangeError),
        (NotImplementedError("x"), errors.UnimplementedError),
        (MemoryError("x"), errors.ResourceExhaustedError),
        (RuntimeError("x"), errors.UnknownError),
        (OSError("x"), errors.UnknownError),
        (errors.AbortedError("x"), errors.AbortedError),
    ],
)
async def test_each_error_has_its_op_error(cause: Exception, kind: type[errors.OpError]) -> None:
    def fail() -> Any:
        raise cause

    async def fail_later() -> Any:
        await asyncio.sleep(0)
        raise cause

    for func in (fail, fail_later):
        with pytest.raises(kind) as caught:
            await run(tf.py_func(func, [], tf.float32))
        assert type(caught.value) is kind
        assert caught.value is cause or caught.value.__cause__ is not None


@pytest.mark.parametrize("inline_ms", [1000, 0])
async def test_stop_iteration_is_the_end_of_the_data(inline_ms: float) -> None:
    data = iter([np.float32(1)])
    x = tf.py_func(lambda: next(data), [], tf.float32)

    async def stop() -> Any:
        raise StopAsyncIteration

    async with tf.Session(config=tf.SessionConfig(inline_ms=inline_ms)) as sess:
        assert await sess.run(x) == 1
        with pytest.raises(errors.OutOfRangeError, match="no more data"):
            await sess.run(x)
        with pytest.raises(errors.OutOfRangeError, match="no more data"):
            await sess.run(tf.py_func(stop, [], tf.float32))


async def test_stop_iteration_in_an_async_function_is_the_end_of_the_data() -> None:
    data = iter([np.float32(1)])

    async def after() -> Any:
        await asyncio.sleep(0)
        return next(data)

    async def fail() -> Any:
        raise RuntimeError("coroutine raised StopIteration") from KeyError("another cause")

    x = tf.py_func(after, [], tf.float32)
    async with tf.Session() as sess:
        assert await sess.run(x) == 1
        with pytest.raises(errors.OutOfRangeError, match="no more data"):
            await sess.run(x)
        with pytest.raises(errors.UnknownError, match="raised StopIteration"):
            await sess.run(tf.py_func(fail, [], tf.float32))


async def test_a_failing_function_ends_the_others() -> None:
    cancelled = asyncio.Event()

    async def wait() -> Any:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.set()
            raise

    async def fail() -> Any:
        await asyncio.sleep(0)
        raise KeyError("failed")

    with pytest.raises(errors.UnknownError, match="KeyError: 'failed'"):
        await run([tf.py_func(wait, [], tf.float32), tf.py_func(fail, [], tf.float32)])
    assert cancelled.is_set()


@pytest.mark.parametrize(
    ("result", "tout", "text"),
    [(np.float64(1), tf.float32, "0-th value returned by .* is float64, but expects float32"),
     ((1, 2), [tf.int32] * 3, "returns 2 values, but expects to see 3 values"),
     (1.5, tf.int32, "is float64, but expects int32"),
     ("a", tf.float32, "expects float32")],
)  # fmt: skip
async def test_a_result_that_does_not_fit(result: Any, tout: Any, text: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=text):
        await run(tf.py_func(lambda: result, [], tout))


async def test_python_numbers_take_the_dtype() -> None:
    assert await run(tf.py_func(lambda: 1, [], tf.float32)) == 1
    assert await run(tf.py_func(lambda: "text", [], tf.string)) == b"text"
    assert (await run(tf.py_func(lambda: [[1, 2]], [], tf.int64))).tolist() == [1, 2]


async def test_the_function_gets_and_gives_arrays_of_its_own() -> None:
    kept: list[Any] = []
    v = tf.Variable(np.zeros(100))

    def keep(a: Any) -> Any:
        a += 5
        kept.append(a)
        return a

    y = tf.py_func(keep, [v], tf.float64)
    async with tf.Session() as sess:
        await sess.run(v.initializer)
        got = await sess.run(y)
        kept[0] += 1
        assert got[0] == 5
        assert (await sess.run(v))[0] == 0


async def test_a_plain_function_that_returns_an_awaitable_is_refused() -> None:
    async def inner() -> Any:
        return 1

    with pytest.raises(TypeError, match="returned an awaitable; pass an `async def` itself"):
        await run(tf.py_func(lambda: inner(), [], tf.float32))
    wrong: Any = 3
    with pytest.raises(TypeError, match="func must be callable"):
        tf.py_func(wrong, [], tf.float32)


async def test_a_stateless_function_of_constants_is_called_once() -> None:
    calls: list[int] = []

    def func(a: Any) -> Any:
        calls.append(1)
        return a

    y = tf.py_func(func, [tf.constant(1.0)], tf.float32, stateful=False)
    y.set_shape([])
    async with tf.Session() as sess:
        await sess.run(y)
        await sess.run(y)
    assert len(calls) == 1


async def test_closing_the_session_ends_what_waits() -> None:
    started = asyncio.Event()

    async def wait() -> Any:
        started.set()
        await asyncio.Event().wait()

    sess = tf.Session()
    running = asyncio.create_task(sess.run(tf.py_func(wait, [], tf.float32)))
    await started.wait()
    await sess.close()
    with pytest.raises(errors.CancelledError, match="Session has been closed"):
        await running


async def test_a_timeout_ends_what_waits_se_3() -> None:
    """SE-3."""

    async def wait() -> Any:
        await asyncio.Event().wait()

    v = tf.Variable(0)
    x = tf.py_func(wait, [], tf.float32)
    async with tf.Session() as sess:
        await sess.run(v.initializer)
        with pytest.raises(errors.DeadlineExceededError, match="longer than 5 ms"):
            await sess.run([x, v.assign_add(1)], options=tf.RunOptions(timeout_in_ms=5))
        assert await sess.run(v) == 0


@pytest.mark.parametrize("inline_ms", [1000, 0])
async def test_functions_of_one_run_are_called_side_by_side(inline_ms: float) -> None:
    barrier, v = threading.Barrier(2), tf.Variable(2.0)

    def meet(x: Any) -> Any:
        barrier.wait(10)
        return x

    first, second = (tf.py_func(meet, [x], tf.float32) for x in (tf.constant(1.0), v + 1.0))
    second.set_shape([])
    last = tf.py_func(lambda x, y: x + y, [first * 10.0, second], tf.float32)
    async with tf.Session(config=tf.SessionConfig(inline_ms=inline_ms)) as sess:
        await sess.run(v.initializer)
        for n in range(3):
            assert await sess.run([last, second, v.assign_add(1.0).op]) == [13 + n, 3 + n, None]
        assert await sess.peek(last) == 16


async def test_a_function_that_fails_beside_another_ends_the_run() -> None:
    done: list[int] = []

    def fail() -> Any:
        raise ValueError("broken")

    both = [tf.py_func(fail, [], []), tf.py_func(lambda: done.append(1), [], [])]
    async with tf.Session() as sess:
        with pytest.raises(errors.InvalidArgumentError, match="broken") as caught:
            await sess.run(both)
        assert any("PyFunc" in note for note in caught.value.__notes__)
        assert await sess.run(both[1]) is None
        assert len(done) == 2


async def test_functions_in_an_order_come_in_it() -> None:
    calls: list[int] = []
    first = tf.py_func(lambda: calls.append(1), [], [])
    with tf.control_dependencies([first]):
        second = tf.py_func(lambda: calls.append(2), [], [])
        with tf.control_dependencies([tf.group(second)]):
            third = tf.py_func(lambda: calls.append(3), [], [])
    async with tf.Session() as sess:
        await sess.run([third, second, first])
    assert calls == [1, 2, 3]


@pytest.mark.parametrize("is_async", [False, True])
@pytest.mark.parametrize(
    ("errors_in", "kind"),
    [
        ([errors.UnavailableError("away"), errors.UnavailableError("gone")], ExceptionGroup),
        ([ValueError("x"), TypeError("y")], errors.UnknownError),
        ([ValueError("x"), ValueError("y")], errors.InvalidArgumentError),
    ],
)
async def test_a_group_counts_as_what_all_its_errors_are(
    errors_in: list[Exception], kind: type[Exception], is_async: bool
) -> None:
    def fail() -> Any:
        raise ExceptionGroup("all", errors_in)

    async def fail_later() -> Any:
        fail()

    with pytest.raises(kind):
        await run(tf.py_func(fail_later if is_async else fail, [], tf.float32))
