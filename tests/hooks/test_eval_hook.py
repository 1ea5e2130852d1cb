"""EvalHook: when it evaluates, and what."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from asyncmon import graph as g
from asyncmon.checkpoint import Saver
from asyncmon.errors import NotFoundError, OutOfRangeError
from asyncmon.hooks import CheckpointSaverHook, EvalHook, evaluate, evaluate_checkpoints
from asyncmon.programs import FunctionProgram
from asyncmon.runtime.hook import overrides
from asyncmon.runtime.monitored_session import MonitoredSession
from asyncmon.runtime.session_creators import ChiefSessionCreator
from asyncmon.summary import FileWriter, summary_iterator
from asyncmon.system import clock
from asyncmon.testing import ScriptedSession, assert_nothing_left_behind, wait_all_tasks_blocked

Result = tuple[int, dict[str, float], float]

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


def program(step_secs: float = 1.0, eval_secs: float = 0.0) -> FunctionProgram:
    """Each step adds one to w; an evaluation takes some seconds and gives w * scale."""
    made = FunctionProgram(state={"w": 0.0})

    @made.step
    async def train(state: Any) -> None:
        await asyncio.sleep(step_secs)
        state["w"] += 1

    @made.step(read_only=True)
    async def test(state: Any, scale: float = 1.0) -> dict[str, float]:
        await asyncio.sleep(eval_secs)
        return {"w": float(state["w"]) * scale, "twice": 2 * float(state["w"])}

    return made


def listen(hook: Any) -> list[Result]:
    """Return the list to which each result is added: step, metrics, time."""
    results: list[Result] = []
    hook.add_listener(lambda step, metrics: results.append((step, dict(metrics), clock.monotonic())))
    return results


async def train_for(runs: int, made: Any, *hooks: Any) -> MonitoredSession:
    sess = MonitoredSession(ChiefSessionCreator(program=made), hooks)
    async with sess:
        for _ in range(runs):
            await sess.run("train")
    return sess


class TestEvaluate:
    async def test_metrics_are_averaged_over_batches(self) -> None:
        session = program().create_session()
        await session.load({"w": 2.0})
        feeds = [{"scale": 1.0}, {"scale": 2.0}, {"scale": 6.0}]
        assert await evaluate(session, "test", feeds) == {"w": 6, "twice": 4}
        assert await evaluate(session, {"a": "w"}, feeds) == {"a": 2}
        assert await evaluate(session, "test", feeds[1]) == {"w": 4, "twice": 4}
        assert await evaluate(session, "test", lambda: iter(feeds), batches=2) == {"w": 3, "twice": 4}
        assert await evaluate(session, "test") == {"w": 2, "twice": 4}

    async def test_batches_may_be_async_and_weighted(self) -> None:
        async def feeds() -> AsyncIterator[dict[str, float]]:
            for n in (1, 2):
                await asyncio.sleep(1)
                yield {"n": n}

        session = ScriptedSession([{"loss": 1.0, "size": 3}, {"loss": 2.0, "size": 1}])
        assert await evaluate(session, {"loss": "loss"}, feeds, weight="size") == {"loss": 1.25}
        assert session.feeds == [{"n": 1}, {"n": 2}]

    async def test_the_end_of_the_data_may_come_from_the_run(self) -> None:
        session = ScriptedSession([{"loss": 1.0}, {"loss": 2.0}, OutOfRangeError("end")])
        batches: Any = ({} for _ in range(100))
        assert await evaluate(session, {"loss": "loss"}, batches) == {"loss": 1.5}

    async def test_no_data_is_an_error(self) -> None:
        with pytest.raises(ValueError, match="An evaluation needs data, got 0 batches"):
            await evaluate(ScriptedSession(), {"loss": "loss"}, [])

    async def test_batches_that_are_no_feeds_are_refused(self) -> None:
        loader: Any = lambda: [[1.0, 2.0]]  # noqa: E731
        with pytest.raises(TypeError, match=r"feeds must give dicts, as run\(\) takes them, got list"):
            await evaluate(ScriptedSession(), {"loss": "loss"}, loader)

    async def test_a_function_of_batches_may_be_async(self) -> None:
        async def load() -> list[dict[str, float]]:
            await asyncio.sleep(1)
            return [{"n": 1}]

        session = ScriptedSession(values={"loss": 1.0})
        assert await evaluate(session, {"loss": "loss"}, load) == {"loss": 1.0}
        assert session.feeds == [{"n": 1}]

    async def test_no_more_batches_are_requested_than_used_and_their_generator_is_closed(self) -> None:
        asked, closed = [], []

        async def endless() -> AsyncIterator[dict[str, float]]:
            try:
                while True:
                    asked.append(1)
                    yield {}
            finally:
                closed.append(1)

        session = ScriptedSession(values={"loss": 1.0})
        await evaluate(session, {"loss": "loss"}, endless, batches=3)
        assert (len(asked), len(closed)) == (3, 1)

    async def test_an_iterator_of_the_caller_is_gone_on_with(self) -> None:
        session = ScriptedSession(values={"loss": 1.0})
        feeds: Any = iter([{"n": n} for n in range(4)])
        for _ in range(2):
            await evaluate(session, {"loss": "loss"}, feeds, batches=2)
        assert session.feeds == [{"n": n} for n in range(4)]
        with pytest.raises(ValueError, match="pass a function that returns a new one"):
            await evaluate(session, {"loss": "loss"}, feeds)

    async def test_what_is_no_number_by_name_is_named(self) -> None:
        session = ScriptedSession(values={"loss": [1.0, 2.0]})
        with pytest.raises(ValueError, match=r"The metric 'loss' of a batch has the shape \[2\]"):
            await evaluate(session, {"loss": "loss"})
        with pytest.raises(TypeError, match="metrics must give numbers by name, 'loss' gave"):
            await evaluate(session, "loss")
        with pytest.raises(ValueError, match="invalid batches=0"):
            await evaluate(session, "loss", batches=0)


async def test_a_long_evaluation_says_how_far_it_is_hk_eval_1(
    lines: Callable[[str], list[str]],
) -> None:
    session = ScriptedSession(values={"loss": 1.0})
    await evaluate(session, {"loss": "loss"}, [{}] * 30, batches=25)
    assert lines("evaluation")[:2] == ["Evaluation [2/25]", "Evaluation [4/25]"]
    assert lines("evaluation")[-1] == "Evaluation [25/25]"


async def test_each_new_checkpoint_of_another_process_hk_eval_2(
    tmp_path: Path, lines: Callable[[str], list[str]]
) -> None:
    saver = CheckpointSaverHook(tmp_path, save_steps=2, saver=Saver())

    async def train() -> None:
        await asyncio.sleep(5)
        await train_for(4, program(step_secs=3), saver)

    training = asyncio.create_task(train())
    found = []
    async with assert_nothing_left_behind(tasks=False):
        results = evaluate_checkpoints(tmp_path, program(), "test", timeout=20)
        async for step, metrics in results:
            found.append((step, metrics["w"]))
    await training
    assert found == [(0, 0), (2, 2), (4, 4)]
    assert lines("evaluation")[:2] == [
        f"Starting evaluation of {tmp_path}/model.ckpt-0",
        f"Finished evaluation of {tmp_path}/model.ckpt-0",
    ]


async def test_a_checkpoint_written_during_an_evaluation_is_evaluated_at_once(tmp_path: Path) -> None:
    saver = CheckpointSaverHook(tmp_path, save_steps=1, saver=Saver())
    await train_for(1, program(step_secs=0.0), saver)
    times = []
    async for _ in evaluate_checkpoints(tmp_path, program(), "test", timeout=0.5):
        times.append(clock.monotonic())
        if len(times) == 1:
            await train_for(
                2, program(step_secs=0.0), CheckpointSaverHook(tmp_path, save_steps=2, saver=Saver())
            )
    assert times == [0, 0]


async def test_a_hook_may_be_used_in_one_loop_after_another() -> None:
    hook = EvalHook("test", every_steps=2)
    results = listen(hook)
    await train_for(4, program(), hook)
    await asyncio.to_thread(asyncio.run, train_for(4, program(step_secs=0.0), hook))
    assert [step for step, _, _ in results][:2] == [2, 4]
    assert results[-1][0] == 4
    assert len(results) > 2


async def test_by_steps_beside_the_steps() -> None:
    """Steps of 1 s, evaluations of 1.5 s: the steps do not wait, each result is of its step."""
    hook = EvalHook("test", every_steps=3)
    hook_results = listen(hook)
    await train_for(8, program(eval_secs=1.5), hook)
    assert hook_results == [(3, {"w": 3, "twice": 6}, 4.5), (6, {"w": 6, "twice": 12}, 7.5)]
    assert (hook.step, hook.metrics) == (6, {"w": 6, "twice": 12})
    assert clock.monotonic() == 8


async def test_by_steps_only_the_newest_state_waits_and_the_end_waits_for_it() -> None:
    hook = EvalHook("test", every_steps=1)
    results = listen(hook)
    await train_for(5, program(eval_secs=2.5), hook)
    assert [(step, at) for step, _, at in results] == [(1, 3.5), (3, 6.0), (5, 8.5)]
    assert clock.monotonic() == 8.5


async def test_by_steps_pausing_training() -> None:
    hook = EvalHook("test", every_steps=2, concurrent=False)
    results = listen(hook)
    await train_for(4, program(eval_secs=10), hook)
    assert [(step, at) for step, _, at in results] == [(2, 12), (4, 24)]
    assert not overrides(hook, "background")


@pytest.mark.parametrize("concurrent", [True, False])
@pytest.mark.parametrize("back_at", [9, 11])
async def test_a_step_that_goes_back_has_the_same_multiples_tm_4(
    concurrent: bool, back_at: int
) -> None:
    """Whether the run that goes back was due or not."""
    made = FunctionProgram(state={"global_step": 0})

    @made.step
    async def train(state: Any) -> None:
        state["global_step"] += 1

    @made.step
    async def back(state: Any) -> None:
        state["global_step"] = 1

    @made.step(read_only=True)
    async def test(state: Any) -> dict[str, float]:
        return {"step": float(state["global_step"])}

    hook = EvalHook("test", every_steps=3, concurrent=concurrent)
    results = listen(hook)
    async with MonitoredSession(ChiefSessionCreator(program=made), [hook]) as sess:
        for n in range(1, back_at + 7):
            await sess.run("back" if n == back_at else "train")
            await wait_all_tasks_blocked()
    assert [step for step, _, _ in results] == [3, 6, *([] if back_at == 9 else [9]), 3, 6]
    assert all(metrics == {"step": step} for step, metrics, _ in results)


async def test_by_seconds_also_in_the_middle_of_a_step() -> None:
    hook = EvalHook("test", every_secs=5)
    results = listen(hook)
    await train_for(3, program(step_secs=7), hook)
    assert [(step, metrics["w"], at) for step, metrics, at in results] == [
        (0, 0, 5),
        (1, 1, 10),
        (2, 2, 15),
    ]
    assert not overrides(hook, "after_run")


async def test_by_seconds_pausing_training() -> None:
    hook = EvalHook("test", every_secs=5, concurrent=False)
    results = listen(hook)
    await train_for(3, program(step_secs=3, eval_secs=4), hook)
    assert [(step, at) for step, _, at in results] == [(2, 10), (3, 17)]


async def test_by_seconds_an_unchanged_state_is_not_evaluated_again() -> None:
    hook = EvalHook("test", every_secs=5)
    results = listen(hook)
    async with MonitoredSession(ChiefSessionCreator(program=program()), [hook]):
        await asyncio.sleep(60)
    assert [step for step, _, _ in results] == [0]


async def test_the_last_state_on_request() -> None:
    hook = EvalHook("test", every_steps=2, at_end=True)
    results = listen(hook)
    await train_for(3, program(), hook)
    assert [step for step, _, _ in results] == [2, 3]


async def test_metrics_are_written_and_logged(
    tmp_path: Path, lines: Callable[[str], list[str]]
) -> None:
    hook = EvalHook("test", every_steps=2, output_dir=tmp_path, name="held out")
    await train_for(2, program(), hook)
    [name] = os.listdir(tmp_path)
    written = [
        (event.step, value.tag, value.simple_value)
        async for event in summary_iterator(tmp_path / name)
        for value in event.summary.value
    ]
    assert written == [(2, "held out/w", 2), (2, "held out/twice", 4)]
    assert lines("eval_hook") == ["Evaluation 'held out' at step 2: w = 2, twice = 4"]


@pytest.mark.parametrize("concurrent", [True, False])
async def test_a_failing_evaluation_ends_training_by_default(
    concurrent: bool, caplog: pytest.LogCaptureFixture
) -> None:
    def hook() -> EvalHook:
        return EvalHook("test", [], every_steps=2, concurrent=concurrent)

    with pytest.raises(ValueError, match="needs data"):
        await train_for(9, program(), hook())
    lenient = hook()
    lenient.on_error = "log"
    await train_for(4, program(), lenient)
    assert "Evaluation 'eval' at step 2 failed." in caplog.text
    assert "Evaluation 'eval' at step 4 failed." in caplog.text


@pytest.mark.parametrize(
    ("when", "expected"), [({"every_steps": 2}, [2, 4, 6]), ({"every_secs": 2.5}, [2, 4])]
)
async def test_training_continues_after_a_failing_listener_if_so_configured(
    when: dict[str, Any], expected: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    def asks(step: int, metrics: dict[str, float]) -> None:
        raise KeyError("accuracy")

    hook = EvalHook("test", **when)
    hook.on_error = "log"
    hook.add_listener(asks)
    results = listen(hook)
    await train_for(6, program(eval_secs=0.5), hook)
    assert [step for step, _, _ in results] == expected
    assert caplog.text.count("KeyError: 'accuracy'") == 1, "the same error is logged once"


async def test_training_continues_if_metrics_cannot_be_written_and_so_configured(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Full(FileWriter):
        def add_scalar(self, tag: str, value: Any, global_step: int | None = None) -> None:
            raise RuntimeError("No space left on device")

    async with Full(tmp_path) as writer:
        hook = EvalHook("test", every_steps=2, summary_writer=writer)
        hook.on_error = "log"
        await train_for(4, program(), hook)
    assert "Evaluation 'eval' at step 2 failed." in caplog.text
    assert "Evaluation 'eval' at step 4 failed." in caplog.text


async def test_a_background_that_fails_is_started_again_if_so_configured(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Brief(EvalHook):
        on_error = "log"

        async def background(self, session: Any, coord: Any) -> None:
            async with asyncio.timeout(3):
                await super().background(session, coord)

    hook = Brief("test", every_steps=2)
    results = listen(hook)
    await train_for(9, program(), hook)
    assert [step for step, _, _ in results] == [2, 4, 6, 8]
    assert "eval.background failed; on_error='log'." in caplog.text


async def test_listeners_may_be_async() -> None:
    heard: list[int] = []

    async def slowly(step: int, metrics: Any) -> None:
        await asyncio.sleep(1)
        heard.append(step)

    hook = EvalHook("test", every_steps=2)
    hook.add_listener(slowly)
    await train_for(2, program(), hook)
    assert heard == [2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "Either every_secs or every_steps should be provided"),
        ({"every_steps": 1, "every_secs": 1}, "Can not provide both every_secs and every_steps"),
        ({"every_steps": 0}, "invalid every_steps=0"),
        ({"every_secs": 0}, "invalid every_secs=0"),
    ],
)
async def test_wrong_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        EvalHook("test", **arguments)


def graphs() -> tuple[g.Graph, Any, g.Graph, Any, Any]:
    """Return a graph to train and one to evaluate, with the variable of the same name."""
    training, testing = g.Graph(), g.Graph()
    with training.as_default():
        w = g.get_variable("w", initializer=np.float32(0))
        train = g.group(g.assign_add(w, 1.0), g.assign_add(g.create_global_step(), 1))
    with testing.as_default():
        x = g.placeholder(g.float32, [], name="x")
        product = g.get_variable("w", initializer=np.float32(-1)) * x
    return training, train, testing, x, product


async def test_another_program_before_at_intervals_and_at_the_end() -> None:
    training, train, testing, x, product = graphs()
    hook = EvalHook(
        {"wx": product}, [{x: 1.0}, {x: 3.0}], every_steps=2, program=testing,
        concurrent=False, at_start=True, at_end=True,
    )  # fmt: skip
    results = listen(hook)
    sess = MonitoredSession(ChiefSessionCreator(program=training), [hook])
    async with assert_nothing_left_behind(), sess:
        for _ in range(5):
            await sess.run(train)
    assert [(step, metrics["wx"]) for step, metrics, _ in results] == [(0, 0), (2, 4), (4, 8), (5, 10)]


async def test_another_program_beside_training_in_two_sessions() -> None:
    hook = EvalHook("test", every_steps=3, program=program())
    for _ in range(2):
        results = listen(hook)
        await train_for(4, program(), hook)
        assert [(step, metrics["w"]) for step, metrics, _ in results] == [(3, 3)]


async def test_the_end_does_not_evaluate_twice() -> None:
    training, train, testing, x, product = graphs()
    hook = EvalHook({"wx": product}, [{x: 1.0}], 2, program=testing, concurrent=False, at_end=True)
    results = listen(hook)
    async with MonitoredSession(ChiefSessionCreator(program=training), [hook]) as sess:
        await sess.run(train)
        await sess.run(train)
    assert [step for step, _, _ in results] == [2]


async def test_step_that_the_program_lacks_is_refused_before_the_first_step() -> None:
    hook = EvalHook("tset", every_steps=1000)
    text = r"There is no step 'tset' to evaluate; the program has \[.*'test'"
    with pytest.raises(NotFoundError, match=text):
        await MonitoredSession(ChiefSessionCreator(program=program()), [hook]).start()


async def test_variables_that_training_lacks_are_named() -> None:
    training, _, testing, x, product = graphs()
    with testing.as_default():
        g.get_variable("more", initializer=np.float32(0))
    hook = EvalHook({"wx": product}, [{x: 1.0}], every_steps=1, program=testing, at_start=True)
    with pytest.raises(NotFoundError, match=r"\['more'\]"):
        await MonitoredSession(ChiefSessionCreator(program=training), [hook]).start()


async def test_a_graph_is_evaluated_beside_its_own_training() -> None:
    training, train, _, _, _ = graphs()
    with training.as_default():
        w = training.get_tensor_by_name("w:0")
    hook = EvalHook({"w": w}, every_steps=2)
    results = listen(hook)
    async with MonitoredSession(ChiefSessionCreator(program=training), [hook]) as sess:
        for _ in range(4):
            await sess.run(train)
            await asyncio.sleep(1)
    assert [(step, metrics["w"]) for step, metrics, _ in results] == [(2, 2), (4, 4)]


@pytest.mark.parametrize("concurrent", [False, True])
@pytest.mark.parametrize("stopping", [False, True])
async def test_a_signal_ends_an_evaluation_at_once(concurrent: bool, stopping: bool) -> None:
    """Also where a stop was requested before: the step is done, and the session ends in order."""
    hook = EvalHook("test", every_steps=1, concurrent=concurrent, at_end=True)
    creator = ChiefSessionCreator(program=program(eval_secs=100))
    asyncio.get_running_loop().call_later(5, signal.raise_signal, signal.SIGTERM)
    async with assert_nothing_left_behind(), MonitoredSession(creator, [hook], signals="auto") as sess:
        if stopping:
            asyncio.get_running_loop().call_later(2, sess.request_stop, "enough")
        await sess.run("train")
        await asyncio.sleep(4.5 if concurrent else 0)
        assert clock.monotonic() == (5.5 if concurrent else 5)
    assert clock.monotonic() <= 5.5
    assert (hook.metrics, sess.stop_reason) == ({}, "enough" if stopping else "signal SIGTERM")


async def test_local_variables_of_an_evaluation_are_initialised() -> None:
    """In its own session, before the first evaluation."""
    with g.Graph().as_default() as graph:
        step = g.train.create_global_step()
        train_op = g.assign_add(step, 1)
        offset = g.Variable(
            5.0, name="offset", trainable=False, collections=[g.GraphKeys.LOCAL_VARIABLES]
        )
        metric = g.add(g.cast(step, g.float32), offset)
    hook = EvalHook({"metric": metric}, every_steps=2)
    async with MonitoredSession(ChiefSessionCreator(program=graph), [hook]) as sess:
        for _ in range(2):
            await sess.run(train_op)
    assert hook.metrics == {"metric": 7.0}


async def test_variables_in_parts_are_evaluated_beside_steps_and_from_checkpoints(
    tmp_path: Path,
) -> None:
    found = []
    for parts in (2, 3):
        with g.Graph().as_default() as graph:
            partitioner = g.fixed_size_partitioner(parts)
            initial = g.ones_initializer()
            v = g.get_variable("v", [5, 2], initializer=initial, partitioner=partitioner)
            loss = g.reduce_sum(g.square(v))
            if parts == 2:
                train = g.train.GradientDescentOptimizer(0.25).minimize(
                    loss, g.train.create_global_step()
                )
                hook = EvalHook({"loss": loss}, batches=1, every_steps=1, concurrent=False)
                async with MonitoredSession(ChiefSessionCreator(), [hook]) as sess:
                    await sess.run(train)
                    await Saver().save(sess, tmp_path / "m", global_step=1)
                found.append(hook.metrics["loss"])
            else:
                evaluations = evaluate_checkpoints(
                    tmp_path, graph, {"loss": loss}, batches=1, timeout=0.0, timeout_fn=lambda: True
                )
                found += [result["loss"] async for _, result in evaluations]
    assert found == [2.5, 2.5]
