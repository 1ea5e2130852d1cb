"""The rule of success: which exception of which origin is the end of the data."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import asyncmon as am
from asyncmon import graph as g
from asyncmon.errors import OutOfRangeError
from asyncmon.programs import FunctionProgram
from asyncmon.runtime.stop.origin import ENDS, NoEndError, is_end_of_data, mark, origin_of
from asyncmon.runtime.stop.stop import Cause
from asyncmon.system.error_groups import is_only
from asyncmon.testing import fail_at_step

PAGE = Path(__file__).parents[3] / "docs" / "cancellation.md"

Fail = Callable[[], None]


class Scene:
    """A session in which one piece of code raises, and the name of that code in messages."""

    def __init__(self, name: str, **options: Any) -> None:
        self.name = name
        self.hooks: list[Any] = options.get("hooks", [])
        self.task: Any = options.get("task")
        self.step: Any = options.get("step")
        self.source: Any = options.get("source")
        self.body: Any = options.get("body")
        self.step_fn: Any = options.get("step_fn")


class Listener(am.CheckpointSaverListener):
    def __init__(self, fail: Fail) -> None:
        self._fail = fail

    async def after_save(self, session: Any, step: int) -> None:
        self._fail()


def scene(kind: str, fail: Fail) -> Scene:
    async def call(*_args: Any) -> None:
        fail()

    async def later() -> None:
        await asyncio.sleep(0.01)
        fail()

    async def source() -> AsyncIterator[int]:
        yield 1
        fail()

    class Background(am.SessionRunHook):
        async def background(self, session: Any, coord: Any) -> None:
            fail()

    class Before(am.SessionRunHook):
        async def before_run(self, run_context: Any) -> None:
            fail()

    class After(am.SessionRunHook):
        async def after_run(self, run_context: Any, run_values: Any) -> None:
            fail()

    def feed() -> None:
        fail()

    def saver() -> Any:
        saver = am.Saver()
        return am.CheckpointSaverHook("run", save_steps=1, saver=saver, listeners=[Listener(fail)])

    timer = am.every(steps=1)(call)
    evaluation = am.EvalHook({"n": "evaluate"}, [None], every_steps=1, concurrent=False)
    evaluation.add_listener(lambda step, metrics: fail())
    match kind:
        case "data":
            return Scene("the data", source=source)
        case "data: feed_fn":
            return Scene("feed_fn", hooks=[am.FeedFnHook(feed)])
        case "body":
            return Scene("", body=fail)
        case "step function":
            return Scene("", step_fn=lambda step_context: call())
        case "step":
            return Scene("the step 'train'", step=fail)
        case "hook":
            return Scene("Before.before_run", hooks=[Before()])
        case "hook: after_run":
            return Scene("After.after_run", hooks=[After()])
        case "task":
            return Scene("later", task=later)
        case "background":
            return Scene("Background.background", hooks=[Background()])
        case "timer":
            return Scene("call", hooks=[timer])
        case "listener":
            return Scene("Listener.after_save", hooks=[saver()])
    assert kind == "listener: of an evaluation", kind
    return Scene("the listener", hooks=[evaluation])


KINDS = [
    "data", "data: feed_fn", "body", "step function", "step", "hook", "hook: after_run", "task",
    "background", "timer", "listener", "listener: of an evaluation",
]  # fmt: skip


def ends() -> Iterator[tuple[str, Callable[[], BaseException]]]:
    yield "OutOfRangeError", lambda: OutOfRangeError("no more")
    yield "a group of it", lambda: ExceptionGroup("all", [OutOfRangeError("no more")])
    yield "StopIteration", StopIteration
    yield "StopAsyncIteration", StopAsyncIteration


async def train(scene: Scene) -> am.MonitoredSession:
    """Run a session with the failing code, and return it. Raises its error."""
    program = FunctionProgram({"n": 0})

    @program.step
    def train(state: Any) -> None:
        if scene.step is not None:
            scene.step()
        state["n"] += 1

    @program.step
    def evaluate(state: Any) -> int:
        return int(state["n"])

    creator = am.ChiefSessionCreator(program=program)
    session = am.MonitoredSession(creator, scene.hooks)
    async with session:
        assert session.coord is not None
        if scene.task is not None:
            session.coord.create_task(scene.task)
        async for _ in session.iterate(range(5) if scene.source is None else scene.source()):
            if scene.step_fn is not None:
                await session.run_step_fn(scene.step_fn)
            await session.run("train")
            await asyncio.sleep(0.01)
            if scene.body is not None:
                scene.body()
    return session


@pytest.mark.asyncio
@pytest.mark.virtual_time
@pytest.mark.parametrize(("end", "make"), [pytest.param(*one, id=one[0]) for one in ends()])
@pytest.mark.parametrize("kind", KINDS)
async def test_the_origin_decides_whether_the_data_has_ended(
    kind: str, end: str, make: Callable[[], BaseException], tmp_path: Path, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)

    def fail() -> None:
        raise make()

    rule = ENDS[kind.partition(":")[0]]
    is_end = rule.stop_iteration if end.startswith("Stop") else rule.out_of_range
    made = scene(kind, fail)
    if is_end:
        session = await train(made)
        is_named = rule.cause in (Cause.HOOK, Cause.TASK) or kind == "data: feed_fn"
        assert (made.name if is_named else "") in (session.stop_reason or "")
        return
    with pytest.raises(Exception) as caught:  # noqa: PT011 -- of several types
        await train(made)
    assert made.name in "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert isinstance(caught.value, NoEndError) is end.startswith("Stop")


@pytest.mark.asyncio
@pytest.mark.virtual_time
async def test_a_hooks_error_is_named_in_the_last_line(caplog: Any) -> None:
    hook = fail_at_step(2, ValueError("broken"), moment="after_run")
    with pytest.raises(ValueError, match="broken"):
        await train(Scene("", hooks=[hook]))
    name = f"{type(hook).__name__}.after_run"
    assert f"Session ended at step 2: ValueError: broken, in {name}." in caplog.text


def test_the_page_has_the_rule() -> None:
    row = r"^\| ([a-z -]+) \| .* \| (success|error) \| (success|error) \|$"
    rows = re.findall(row, PAGE.read_text(), re.MULTILINE)
    said = {True: "success", False: "error"}
    assert {kind: tuple(cells) for kind, *cells in rows} == {
        kind: (said[rule.out_of_range], said[rule.stop_iteration]) for kind, rule in ENDS.items()
    }


def test_the_error_that_python_makes_of_a_stop_iteration_is_known_by_its_cause() -> None:
    async def stop() -> None:
        raise StopIteration

    coro = stop()
    with pytest.raises(RuntimeError) as caught:
        coro.send(None)
    assert is_end_of_data(caught.value)
    assert not is_end_of_data(RuntimeError("coroutine raised StopIteration"))
    assert not is_end_of_data(None)


def test_the_first_mark_stays_and_an_error_may_refuse_it() -> None:
    error, frozen = ValueError(), Refuses()
    mark(error, "listener", "first")
    mark(error, "hook", "second")
    mark(frozen, "hook", "first")
    assert origin_of(error).name == "first"
    assert origin_of(error).cause is Cause.HOOK
    assert origin_of(frozen).kind == "hook"
    assert error.__notes__ == ["asyncmon: raised in first"]


class Refuses(Exception):
    """Its attributes can neither be set nor read."""

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(name)

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


def test_a_group_is_what_all_of_its_members_are() -> None:
    away = am.errors.UnavailableError("away")
    types = (am.errors.UnavailableError, am.errors.AbortedError)
    inner = ExceptionGroup("inner", [away, am.errors.AbortedError("gone")])
    assert is_only(ExceptionGroup("outer", [inner, away]), types)
    assert not is_only(ExceptionGroup("outer", [inner, ValueError()]), types)
    assert not is_only(None, types)


@pytest.mark.asyncio
@pytest.mark.parametrize("is_async", [False, True])
async def test_the_end_of_an_iterator_in_a_py_func_is_no_end_of_the_data_in_a_step(
    is_async: bool,
) -> None:
    values = iter([1.0])

    async def following() -> float:
        return next(values)

    with g.Graph().as_default():
        value = g.py_func(following if is_async else lambda: next(values), [], g.float32)
        with g.control_dependencies([value]):
            train_op = am.get_or_create_global_step().assign_add(1)

        async def train() -> None:
            async with am.MonitoredSession() as sess:
                while not sess.should_stop():
                    await sess.run(train_op)

        with pytest.raises(NoEndError, match="raised Stop"):
            await train()
