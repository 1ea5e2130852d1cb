"""Queues in a graph: what waits, in which order, and what a failed run gives back."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import numpy as np
import pytest
import pytest_asyncio

from asyncmon.errors import CancelledError, InvalidArgumentError, OutOfRangeError
from asyncmon.graph.control.while_loop import while_loop
from asyncmon.graph.core.build import control_dependencies
from asyncmon.graph.core.dtypes import float32, int32, int64, string
from asyncmon.graph.core.graph import Graph
from asyncmon.graph.ops.basic import constant, placeholder
from asyncmon.graph.ops.checks import check_numerics
from asyncmon.graph.ops.py_func import py_func
from asyncmon.graph.ops.variable_ops import assign_add
from asyncmon.graph.queues.ops import closing_error
from asyncmon.graph.queues.queues import FIFOQueue, RandomShuffleQueue
from asyncmon.graph.session.session import Session
from asyncmon.graph.variables.variable import Variable, global_variables_initializer
from asyncmon.testing import wait_all_tasks_blocked

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


@pytest_asyncio.fixture
async def sess() -> AsyncIterator[Session]:
    with Graph().as_default() as graph:
        async with Session(graph=graph) as session:
            yield session


async def started(coroutine: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
    """Return a task that waits by now."""
    task = asyncio.create_task(coroutine)
    await wait_all_tasks_blocked()
    assert not task.done()
    return task


async def test_elements_go_in_and_out_in_order(sess: Session) -> None:
    x = placeholder(int32, [])
    queue = FIFOQueue(3, [int32], shapes=[[]], name="q")
    enqueue, dequeue, size = queue.enqueue(x), queue.dequeue(), queue.size()
    assert await sess.run(enqueue, {x: 1}) is None
    await sess.run(enqueue, {x: 2})
    assert await sess.run(size) == 2
    assert [await sess.run(dequeue), await sess.run(dequeue)] == [1, 2]
    assert await sess.run([size, queue.is_closed()]) == [0, False]


async def test_the_nodes_have_the_names_of_the_original(sess: Session) -> None:
    queue = FIFOQueue(3, [int32], shapes=[[]], name="q")
    nodes = [queue.enqueue(1), queue.enqueue_many([[1]]), queue.close()]
    tensors = [queue.dequeue(), queue.dequeue_many(2), queue.dequeue_up_to(5), queue.size()]
    assert [node.name for node in nodes] == ["q_enqueue", "q_EnqueueMany", "q_Close"]
    assert [repr(tensor) for tensor in tensors] == [
        'Tensor("q_Dequeue:0", shape=(), dtype=int32)',
        'Tensor("q_DequeueMany:0", shape=(2,), dtype=int32)',
        'Tensor("q_DequeueUpTo:0", shape=(?,), dtype=int32)',
        'Tensor("q_Size:0", shape=(), dtype=int32)',
    ]
    assert repr(queue.is_closed()) == 'Tensor("q_Is_Closed:0", shape=(), dtype=bool)'
    assert (queue.name, queue.dtypes, queue.shapes, queue.names) == ("q", [int32], [()], None)
    assert queue.queue_ref.op.name == "q"
    assert FIFOQueue(1, int32).name == "fifo_queue"
    assert repr(queue) == "<FIFOQueue 'q'>"


async def test_several_components_come_as_a_list_or_by_name(sess: Session) -> None:
    queue = FIFOQueue(3, [int32, float32], shapes=[[], [2]])
    await sess.run(queue.enqueue((7, [1.0, 2.0])))
    number, vector = await sess.run(queue.dequeue())
    assert (number, vector.tolist()) == (7, [1, 2])
    named = FIFOQueue(3, [int32, string], names=["n", "s"])
    await sess.run(named.enqueue({"s": "a", "n": 3}))
    assert await sess.run(named.dequeue()) == {"n": 3, "s": b"a"}
    assert named.names == ["n", "s"]
    for wrong, words in [
        ((1, 2.0), "You must enqueue a dictionary in a Queue with names"),
        ({"n": 1}, r"Keys in dictionary .* Dictionary: \['n'\],Queue: \['n', 's'\]"),
    ]:
        with pytest.raises(ValueError, match=words):
            named.enqueue(wrong)
    with pytest.raises(ValueError, match="Queue must have names"):
        queue.enqueue({"a": 1})
    with pytest.raises(ValueError, match="takes 2 components, got 1"):
        queue.enqueue(1)


async def test_what_does_not_fit_together_is_refused(sess: Session) -> None:
    for arguments, words in [
        ({"shapes": [[]]}, r"received len\(shapes\)=1, len\(dtypes\)=2"),
        ({"names": ["a"]}, r"received len\(names\)=1,len\(dtypes\)=2"),
    ]:
        with pytest.raises(ValueError, match=words):
            FIFOQueue(3, [int32, float32], **arguments)
    with pytest.raises(ValueError, match="at least one dtype"):
        FIFOQueue(3, [])
    with pytest.raises(ValueError, match="min_after_dequeue 5 must be < capacity 5"):
        RandomShuffleQueue(5, 5, [int32])
    shapeless, scalars = FIFOQueue(3, [int32]), FIFOQueue(3, [int32], [[]])
    with pytest.raises(ValueError, match="require the components to have specified shapes"):
        shapeless.dequeue_many(2)
    with pytest.raises(ValueError, match=r"'n' must be >= 0, but is -1"):
        scalars.dequeue_many(-1)
    with pytest.raises(ValueError, match="integer scalar"):
        scalars.dequeue_many(1.5)
    with pytest.raises(ValueError, match=r"Shape \(\) must have rank at least 1"):
        scalars.enqueue_many([3])
    with pytest.raises(ValueError, match=r"Shapes \(2,\) and \(\) are incompatible"):
        scalars.enqueue([[1, 2]])


async def test_a_shape_that_is_known_in_the_run_only_is_checked_there(sess: Session) -> None:
    x = placeholder(int32)
    queue = FIFOQueue(3, [int32, int32], shapes=[[], []], name="q")
    with pytest.raises(InvalidArgumentError, match=r"Shapes \(2,\) and \(\) are incompatible"):
        await sess.run(queue.enqueue((x, 1)), {x: [1, 2]})
    with pytest.raises(InvalidArgumentError, match="same first dimension"):
        await sess.run(queue.enqueue_many((x, [1, 2])), {x: [1]})
    with pytest.raises(InvalidArgumentError, match="must have rank at least 1"):
        await sess.run(queue.enqueue_many((x, [1, 2])), {x: 1})
    n = placeholder(int32, [])
    with pytest.raises(InvalidArgumentError, match="Cannot take -1 elements"):
        await sess.run(queue.dequeue_many(n), {n: -1})
    assert await sess.run(queue.size()) == 0


async def test_the_shape_of_a_dequeued_element_is_checked_before_it_is_put(sess: Session) -> None:
    loose, strict = FIFOQueue(3, [int32]), FIFOQueue(3, [int32], shapes=[[]])
    await sess.run(loose.enqueue(np.array([1, 2], np.int32)))
    with pytest.raises(InvalidArgumentError, match=r"Shapes \(2,\) and \(\) are incompatible"):
        await sess.run(strict.enqueue(loose.dequeue()))
    assert await sess.run([loose.size(), strict.size()]) == [1, 0]


async def test_components_with_different_numbers_of_rows_are_refused(sess: Session) -> None:
    queue = FIFOQueue(3, [int32, int32], shapes=[[], []])
    with pytest.raises(ValueError, match="same first dimension"):
        queue.enqueue_many(([1], [1, 2]))


async def test_many_elements_are_put_and_taken_as_batches(sess: Session) -> None:
    queue = FIFOQueue(10, [int32, string], shapes=[[2], []])
    n = placeholder(int64, [])
    await sess.run(queue.enqueue_many(([[1, 2], [3, 4], [5, 6]], ["a", "b", "c"])))
    numbers, words = await sess.run(queue.dequeue_many(n), {n: 2})
    assert numbers.tolist() == [[1, 2], [3, 4]]
    assert words.tolist() == [b"a", b"b"]
    numbers, words = await sess.run(queue.dequeue_many(0))
    assert numbers.shape == (0, 2)
    await sess.run(queue.close())
    numbers, _words = await sess.run(queue.dequeue_up_to(9))
    assert numbers.tolist() == [[5, 6]]


async def test_more_than_fit_are_put_as_room_comes(sess: Session) -> None:
    queue = FIFOQueue(2, [int32], shapes=[[]])
    putting = await started(sess.run(queue.enqueue_many([[0, 1, 2, 3, 4]])))
    assert [await sess.run(queue.dequeue()) for _ in range(5)] == [0, 1, 2, 3, 4]
    await putting


async def test_more_than_fit_beside_what_must_stay_are_put_as_room_comes(sess: Session) -> None:
    queue = RandomShuffleQueue(10, 5, [int32], shapes=[[]])
    await sess.run(queue.enqueue_many([list(range(5))]))
    putting = await started(sess.run(queue.enqueue_many([list(range(5, 11))])))
    got = [await sess.run(queue.dequeue())]
    await putting
    await sess.run(queue.close())
    got += (await sess.run(queue.dequeue_many(10))).tolist()
    assert sorted(got) == list(range(11))


@pytest.mark.parametrize("depends_on_state", [False, True])
async def test_enqueues_of_one_run_that_do_not_fit_together_are_put_as_room_comes(
    sess: Session, depends_on_state: bool
) -> None:
    counter = Variable(0, dtype=int32)
    queue = FIFOQueue(2, [int32], shapes=[[]])
    added = assign_add(counter, 1) if depends_on_state else constant(1)
    enqueues = [queue.enqueue(added + i) for i in range(4)]
    await sess.run(global_variables_initializer())
    putting = await started(sess.run(enqueues))
    got = [await sess.run(queue.dequeue()) for _ in range(4)]
    await putting
    assert sorted(got) == [1, 2, 3, 4]
    assert await sess.run(counter) == int(depends_on_state)


async def test_a_loop_may_put_more_than_fits(sess: Session) -> None:
    queue = FIFOQueue(2, [int32], shapes=[[]])

    def body(i: Any) -> Any:
        with control_dependencies([queue.enqueue(i)]):
            return i + 1

    putting = await started(sess.run(while_loop(lambda i: i < 5, body, [constant(0)])))
    assert [await sess.run(queue.dequeue()) for _ in range(5)] == [0, 1, 2, 3, 4]
    assert await putting == 5


async def test_enqueues_of_a_run_that_fit_are_put_all_or_none(sess: Session) -> None:
    queue = FIFOQueue(2, [int32], shapes=[[]])
    await sess.run(queue.enqueue(0))
    putting = await started(sess.run([queue.enqueue(1), queue.enqueue(2)]))
    putting.cancel()
    await asyncio.wait([putting])
    assert await sess.run(queue.dequeue()) == 0
    assert await sess.run(queue.size()) == 0


async def test_taking_no_elements_does_not_wait_behind_others(sess: Session) -> None:
    queue = FIFOQueue(2, [int32], shapes=[[]])
    waiting = await started(sess.run(queue.dequeue()))
    assert (await sess.run(queue.dequeue_many(0))).shape == (0,)
    await sess.run(queue.enqueue(1))
    assert await waiting == 1


async def test_elements_are_copies(sess: Session) -> None:
    x = placeholder(float32, [2])
    counter = Variable(np.zeros(2, np.float32))
    queue = FIFOQueue(3, [float32], shapes=[[2]])
    await sess.run(global_variables_initializer())
    fed = np.ones(2, np.float32)
    await sess.run(queue.enqueue(x), {x: fed})
    await sess.run(queue.enqueue(counter))
    fed[:] = 9
    await sess.run(assign_add(counter, [5.0, 5.0]))
    assert (await sess.run(queue.dequeue_many(2))).tolist() == [[1, 1], [0, 0]]


async def test_a_run_that_waits_for_elements_does_not_hold_up_others(sess: Session) -> None:
    """QU-1: producers can run while a step waits for data."""
    counter = Variable(0, dtype=int32)
    queue = FIFOQueue(2, [int32], shapes=[[]])
    await sess.run(global_variables_initializer())
    step = assign_add(counter, queue.dequeue())
    waiting = await started(sess.run(step))
    assert await sess.run(assign_add(counter, 100)) == 100
    await sess.run(queue.enqueue(1))
    assert await waiting == 101


async def test_a_producer_that_waits_for_room_does_not_hold_up_others(sess: Session) -> None:
    """Its elements depend on the state, which it reads when there is room."""
    counter = Variable(0, dtype=int32)
    queue = FIFOQueue(1, [int32], shapes=[[]])
    await sess.run(global_variables_initializer())
    for enqueue in (
        queue.enqueue(assign_add(counter, 1)),
        queue.enqueue_many([assign_add(counter, 1)[None]]),
    ):
        await sess.run(enqueue)
        waiting = await started(sess.run(enqueue))
        value = await sess.run(assign_add(counter, 10))
        await sess.run(queue.dequeue())
        await waiting
        assert await sess.run(queue.dequeue()) == value + 1


async def test_a_cancelled_run_gives_its_elements_back(sess: Session) -> None:
    """Queue elements survive a cancelled dequeue."""
    first, second = (FIFOQueue(5, [int32], shapes=[[]], name=name) for name in "ab")
    await sess.run(first.enqueue_many([[1, 2, 3]]))
    waiting = await started(sess.run([first.dequeue_many(2), second.dequeue()]))
    assert await sess.run(first.size()) == 1
    waiting.cancel()
    await asyncio.wait([waiting])
    assert (await sess.run(first.dequeue_many(3))).tolist() == [1, 2, 3]


async def test_a_failed_run_gives_its_elements_back(sess: Session) -> None:
    queue = FIFOQueue(5, [float32], shapes=[[]])
    await sess.run(queue.enqueue_many([[np.nan, 1.0]]))
    element = queue.dequeue()
    with pytest.raises(InvalidArgumentError, match="is bad"):
        await sess.run(check_numerics(element, "is bad"))
    assert await sess.run(queue.size()) == 2


async def test_a_failed_run_puts_nothing(sess: Session) -> None:
    x = placeholder(float32, [])
    queue = FIFOQueue(1, [float32], shapes=[[]])
    with pytest.raises(InvalidArgumentError):
        await sess.run([queue.enqueue(x), check_numerics(x, "bad")], {x: np.inf})
    assert await sess.run(queue.size()) == 0
    await sess.run(queue.enqueue(x), {x: 1})


async def test_a_run_sees_what_it_has_put_itself(sess: Session) -> None:
    queue = FIFOQueue(1, [int32], shapes=[[]])
    with control_dependencies([queue.enqueue(7)]):
        size, element = queue.size(), queue.dequeue()
    assert await sess.run(size) == 1
    assert await sess.run(queue.dequeue()) == 7
    assert await sess.run(element) == 7
    assert await sess.run(queue.size()) == 0


async def test_the_end_of_the_data_has_the_words_of_the_original(sess: Session) -> None:
    """QU-3, QU-4, QU-5: elements that are too few stay; a second close does nothing."""
    queue = FIFOQueue(5, [int32], shapes=[[]], name="q")
    await sess.run(queue.enqueue(1))
    close = queue.close()
    await sess.run(close)
    await sess.run(close)
    with pytest.raises(OutOfRangeError) as raised:
        await sess.run(queue.dequeue_many(2))
    assert raised.value.message == (
        "FIFOQueue 'q' is closed and has insufficient elements (requested 2, current size 1)"
    )
    assert await sess.run(queue.dequeue()) == 1
    with pytest.raises(CancelledError, match=r"FIFOQueue 'q' is closed\."):
        await sess.run(queue.enqueue(1))


async def test_closing_the_session_cancels_pending_runs() -> None:
    """QU-7."""
    with Graph().as_default() as graph:
        dequeue = FIFOQueue(1, [int32], shapes=[[]]).dequeue()
        put = FIFOQueue(1, [int32], shapes=[[]]).enqueue(1)
    sess = Session(graph=graph)
    await sess.run(put)
    takes, puts = await started(sess.run(dequeue)), await started(sess.run(put))
    await sess.close()
    with pytest.raises(CancelledError, match="Dequeue operation was cancelled"):
        await takes
    with pytest.raises(CancelledError, match="Enqueue operation was cancelled"):
        await puts


async def test_no_elements_are_put_into_a_full_or_closed_queue(sess: Session) -> None:
    queue = FIFOQueue(1, [int32], shapes=[[]])
    rows = placeholder(int32, [None])
    put = queue.enqueue_many(rows)
    await sess.run(queue.enqueue(1))
    waiting = await started(sess.run(queue.enqueue(2)))
    await sess.run(put, {rows: []})
    await sess.run(queue.close(cancel_pending_enqueues=True))
    with pytest.raises(CancelledError, match="Enqueue operation was cancelled"):
        await waiting
    await sess.run(put, {rows: []})
    with pytest.raises(CancelledError, match="is closed"):
        await sess.run(put, {rows: [1]})


async def test_the_shape_of_the_only_component_needs_no_list(sess: Session) -> None:
    for shape in ((), [], [2, 3], [4]):
        queue = FIFOQueue(3, int32, shapes=shape)
        assert queue.shapes[0].as_list() == list(shape)
        assert queue.dequeue_many(2).shape.as_list() == [2, *shape]


async def test_a_failed_queue_raises_its_error_when_it_is_empty(sess: Session) -> None:
    queue = FIFOQueue(3, [int32], shapes=[[]])
    fail = queue.fail()
    await sess.run(queue.enqueue(1))
    closing_error.set(OSError("the producer broke"))
    await sess.run(fail)
    assert await sess.run(queue.dequeue()) == 1
    with pytest.raises(OSError, match="the producer broke"):
        await sess.run(queue.dequeue())


async def test_two_sessions_of_a_graph_have_queues_of_their_own(sess: Session) -> None:
    queue = FIFOQueue(3, [int32], shapes=[[]])
    await sess.run(queue.enqueue(1))
    async with Session(graph=sess.graph) as other:
        assert await other.run(queue.size()) == 0
    assert await sess.run(queue.size()) == 1


async def test_a_shuffled_queue_keeps_some_elements(sess: Session) -> None:
    queue = RandomShuffleQueue(-1, 2, [int32], shapes=[[]], seed=1)
    await sess.run(queue.enqueue_many([list(range(10))]))
    first = await sess.run(queue.dequeue_many(8))
    waiting = await started(sess.run(queue.dequeue()))
    await sess.run(queue.close())
    rest = [await waiting, await sess.run(queue.dequeue())]
    assert sorted([*first.tolist(), *rest]) == list(range(10))
    assert first.tolist() != list(range(8))


async def test_a_function_is_called_once_though_its_run_has_to_wait(sess: Session) -> None:
    calls: list[int] = []

    def call() -> int:
        calls.append(len(calls))
        return len(calls)

    queue = FIFOQueue(1, [int32], shapes=[[]])
    enqueue = queue.enqueue(py_func(call, [], int32))
    await sess.run(enqueue)
    waiting = await started(sess.run(enqueue))
    assert await sess.run(queue.dequeue()) == 1
    await waiting
    assert await sess.run(queue.dequeue()) == 2
    assert len(calls) == 2


async def test_a_run_that_is_tried_and_has_to_wait_leaves_no_trace(sess: Session) -> None:
    first, second = (FIFOQueue(5, [int32], shapes=[[]], name=name) for name in "ab")
    await sess.run(first.enqueue_many([[1, 2]]))
    both = [first.dequeue(), second.dequeue()]
    waiting = await started(sess.run(both))
    await sess.run(second.enqueue(9))
    assert await waiting == [1, 9]
    assert await sess.run(first.dequeue()) == 2


async def test_more_elements_than_fit_of_a_run_that_draws_leave_the_lock_to_other_runs(
    sess: Session,
) -> None:
    """They enter the queue after the commit; the run that waits for room holds no lock."""
    step = Variable(0)
    queue = FIFOQueue(2, int32, shapes=[[]])
    with control_dependencies([assign_add(step, 0)]):
        enqueue, dequeue = queue.enqueue_many([constant([1, 2, 3, 4, 5])]), queue.dequeue()
    train = assign_add(step, 1)
    await sess.run(global_variables_initializer())
    await sess.run(enqueue)
    more = await started(sess.run(enqueue))
    assert await sess.run(train) == 1
    closing = await started(sess.run(queue.close()))
    assert [await sess.run(dequeue) for _ in range(5)] == [1, 2, 3, 4, 5]
    await more
    await closing
    assert [await sess.run(dequeue) for _ in range(5)] == [1, 2, 3, 4, 5]
    with pytest.raises(OutOfRangeError):
        await sess.run(dequeue)


async def test_cancelling_pending_enqueues_drops_what_has_not_entered_yet(sess: Session) -> None:
    step = Variable(0)
    queue = FIFOQueue(2, int32, shapes=[[]])
    with control_dependencies([assign_add(step, 0)]):
        enqueue = queue.enqueue_many([constant([1, 2, 3, 4, 5])])
    await sess.run(global_variables_initializer())
    await sess.run(enqueue)
    assert await sess.run(queue.size()) == 2
    await sess.run(queue.close(cancel_pending_enqueues=True))
    assert list(await sess.run(queue.dequeue_many(2))) == [1, 2]
    with pytest.raises(OutOfRangeError):
        await sess.run(queue.dequeue())


async def test_a_shared_name_shares_the_queue_of_a_session(sess: Session) -> None:
    first = FIFOQueue(5, [int32], shapes=[[]], shared_name="s")
    second = FIFOQueue(5, [int32], shapes=[[]], shared_name="s")
    alone = FIFOQueue(5, [int32], shapes=[[]], name="s")
    assert first.name != second.name
    await sess.run(first.enqueue(3))
    assert await sess.run([second.size(), alone.size()]) == [1, 0]
    assert await sess.run(second.dequeue()) == 3
    async with Session() as other:
        assert await other.run(second.size()) == 0
    await sess.run(second.close())
    assert await sess.run(first.is_closed())


@pytest.mark.parametrize(
    ("queue", "text"),
    [
        (lambda: FIFOQueue(6, [int32], shapes=[[]], shared_name="s"), "capacity 5, but .* has 6"),
        (lambda: FIFOQueue(5, [int64], shapes=[[]], shared_name="s"), "dtypes .*int32.*int64"),
        (lambda: FIFOQueue(5, [int32], shapes=[[2]], shared_name="s"), r"shapes .*\(\).*\(2,\)"),
        (lambda: RandomShuffleQueue(5, 1, [int32], [[]], shared_name="s"), "kind FIFOQueue"),
    ],
)
async def test_a_shared_queue_refuses_to_be_another(
    sess: Session, queue: Callable[[], Any], text: str
) -> None:
    first = FIFOQueue(5, [int32], shapes=[[]], shared_name="s")
    await sess.run(first.enqueue(3))
    other = queue()
    with pytest.raises(InvalidArgumentError, match=text):
        await sess.run(other.size())
    assert await sess.run(first.size()) == 1
