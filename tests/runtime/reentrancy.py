"""The calls of a session, and the places from which user code may make them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any

import numpy as np

import asyncmon as am
from asyncmon import graph as g
from asyncmon.programs import FunctionProgram
from asyncmon.testing import RecordingHook, fail_at_step

Call = Callable[["Scene"], Any]

SECS = 5.0
"""A call that takes longer hangs."""


async def _items(scene: Scene) -> list[Any]:
    return [item async for item in scene.sess.iterate([1, 2])]


def _pause(scene: Scene) -> None:
    scene.sess.pause()
    asyncio.get_running_loop().call_later(1, scene.sess.resume)


CALLS: dict[str, Call] = {
    "run": lambda scene: scene.sess.run(scene.other),
    "run(hooks=False)": lambda scene: scene.sess.run(scene.other, hooks=False),
    "run_step_fn": lambda scene: scene.sess.run_step_fn(lambda context: None),
    "peek": lambda scene: scene.sess.peek(scene.value),
    "sample": lambda scene: scene.sess.sample(scene.value),
    "save": lambda scene: scene.sess.save(),
    "attach": lambda scene: scene.sess.attach(RecordingHook("new")),
    "detach": lambda scene: scene.sess.detach(scene.spare),
    "iterate": _items,
    "values": lambda scene: scene.sess.values(),
    "pause": _pause,
    "resume": lambda scene: scene.sess.resume(),
    "request_stop": lambda scene: scene.sess.request_stop(),
    "close": lambda scene: scene.sess.close(),
}


class Scene:
    """A session in which one call is made once, at one place.

    Attributes:
        outcome: ``"yes"``, ``"refused"`` or ``"hangs"``; None before the call has ended.
        error: the error of a refused call.
        end: the error of the session.
    """

    def __init__(self, call: Call, directory: Path) -> None:
        self.call = call
        self.directory = directory
        self.outcome: str | None = None
        self.error: BaseException | None = None
        self.result: Any = None
        self.end: BaseException | None = None
        self.sess: Any = None
        self.spare = RecordingHook("spare")
        self.context: tuple[Any, ...] = ()
        """The arguments of the place: a run context, a step context, a raw session or a state."""
        self._begun = False
        self.program: Any
        self.train: Any
        self.other: Any
        self.value: Any
        self.other_function: Any

    async def probe(self, *context: Any) -> None:
        """Make the call, the first time."""
        if self._begun:
            return
        self._begun, self.context = True, context
        loop = asyncio.get_running_loop()
        began = loop.time()
        try:
            async with asyncio.timeout(SECS) as limit:
                result = self.call(self)
                self.result = await result if isinstance(result, Awaitable) else result
            self.outcome = "yes"
        except TimeoutError as error:
            self.outcome, self.error = ("hangs", error) if limit.expired() else ("refused", error)
        except Exception as error:
            self.outcome, self.error = "refused", error
        except asyncio.CancelledError:
            closes = self.call is CALLS["close"]  # it ends the tasks of the session
            self.outcome = "yes" if closes else "cancelled"
            raise
        finally:
            if loop.time() - began > SECS:
                self.outcome = "hangs"

    def functions(self, step: Callable[[Any], Awaitable[None]] | None = None) -> None:
        """Train a program of functions; ``step`` is awaited in its step."""
        program = FunctionProgram({"n": 0, "m": 0})

        @program.step
        async def train(state: Any) -> None:
            if step is not None:
                await step(state)
            state["n"] += 1

        @program.step
        async def other(state: Any) -> None:
            state["m"] += 1

        self.program, self.train, self.other, self.value = program, "train", "other", "n"
        self.other_function = other

    async def run(self, *hooks: Any, **options: Any) -> None:
        """Train until the call has ended, then two more steps, and close the session."""
        await self._bounded(self._run(*hooks, **options))

    async def run_alone(self) -> None:
        """Make one run in a session without hooks."""

        async def main() -> None:
            self.sess = am.MonitoredSession(am.ChiefSessionCreator(program=self.program))
            async with self.sess as sess:
                await sess.run(self.train)

        await self._bounded(main())

    async def _bounded(self, main: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(main)
        done, _ = await asyncio.wait([task], timeout=20 * SECS)
        if not done:
            self.outcome = "session hangs"
            task.cancel()
            await asyncio.wait([task], timeout=1000)
        assert task.done(), "the session does not end"
        self.end = None if task.cancelled() else task.exception()

    async def _run(self, *hooks: Any, body: Any = None, saver: Any = None, steps: int = 1000) -> None:
        given = {"save_steps": 1_000_000, "saver": am.Saver()} | (saver or {})
        saves = am.hooks.CheckpointSaverHook(self.directory, **given)
        creator = am.ChiefSessionCreator(program=self.program)
        self.sess = am.MonitoredSession(creator, [*hooks, self.spare, saves])
        async with self.sess as sess:
            if body is not None:
                await body(sess)
            more, left = 2, steps
            while more and left and not sess.should_stop():
                await sess.run(self.train)
                await asyncio.sleep(0.1)
                more -= self.outcome is not None
                left -= 1


def hook_of(moment: str, fn: Callable[..., Awaitable[None]]) -> Any:
    """Return a hook that overrides one method with a function of that method's arguments."""

    async def method(_self: Any, *args: Any) -> None:
        await fn(*args)

    return type("Probe", (am.SessionRunHook,), {moment: method})()


def in_a_task(fn: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """Return a function that awaits ``fn`` in a task of its own."""

    async def call(*args: Any) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fn(*args))

    return call


PLACES: dict[str, Callable[[Scene], Awaitable[None]]] = {}


def _moment(name: str, moment: str, wrap: Any = lambda fn: fn) -> None:
    async def place(scene: Scene) -> None:
        scene.functions()
        await scene.run(
            hook_of(moment, wrap(scene.probe)), steps=3 if moment in ("end", "cleanup") else 1000
        )

    PLACES[name] = place


for _name in (
    "begin", "after_create_session", "background", "before_run", "after_run", "end", "cleanup",
):  # fmt: skip
    _moment(_name, _name)
for _name in ("begin", "after_create_session", "before_run", "end"):
    _moment(f"{_name}, task", _name, in_a_task)


def _place(fn: Any) -> Any:
    PLACES[fn.__name__.replace("__", ", ").replace("_", " ")] = fn
    return fn


@_place
async def background__later(scene: Scene) -> None:
    async def background(session: Any, coord: Any) -> None:
        await coord.sample([])
        await scene.probe(session, coord)

    scene.functions()
    await scene.run(hook_of("background", background))


@_place
async def step_function(scene: Scene) -> None:
    async def body(sess: Any) -> None:
        async def step_fn(step_context: Any) -> None:
            await scene.probe(step_context)

        await sess.run_step_fn(step_fn)

    scene.functions()
    await scene.run(body=body)


@_place
async def step_function__task(scene: Scene) -> None:
    async def body(sess: Any) -> None:
        await sess.run_step_fn(in_step_fn)

    async def in_step_fn(step_context: Any) -> None:
        await in_a_task(scene.probe)(step_context)

    scene.functions()
    await scene.run(body=body)


@_place
async def program_step(scene: Scene) -> None:
    scene.functions(scene.probe)
    await scene.run()


@_place
async def program_step__no_hooks(scene: Scene) -> None:
    scene.functions(scene.probe)
    await scene.run_alone()


@_place
async def program_step__task(scene: Scene) -> None:
    scene.functions(in_a_task(scene.probe))
    await scene.run()


@_place
async def program_step__task_without_hooks(scene: Scene) -> None:
    scene.functions(in_a_task(scene.probe))
    await scene.run_alone()


def _graph(scene: Scene, *, reads: bool, tasks: bool = False) -> None:
    probe = in_a_task(scene.probe) if tasks else scene.probe

    async def fn(*args: Any) -> Any:
        await probe()
        return np.float32(1)

    with g.Graph().as_default() as graph:
        step = am.get_or_create_global_step()
        weight = g.get_variable("weight", initializer=1.0)
        called = g.py_func(fn, [weight] if reads else [], g.float32)
        with g.control_dependencies([called]):
            scene.train = g.group(weight.assign_add(1.0), step.assign_add(1))
        scene.other = weight.assign_add(2.0)
        scene.value = weight
    scene.program = graph


def _in_graph(name: str, *, reads: bool, hooks: bool, tasks: bool = False) -> None:
    async def place(scene: Scene) -> None:
        _graph(scene, reads=reads, tasks=tasks)
        await (scene.run() if hooks else scene.run_alone())

    PLACES[name] = place


_in_graph("py_func", reads=False, hooks=True)
_in_graph("py_func of a variable", reads=True, hooks=True)
_in_graph("py_func, no hooks", reads=False, hooks=False)
_in_graph("py_func of a variable, no hooks", reads=True, hooks=False)
_in_graph("py_func, task, no hooks", reads=False, hooks=False, tasks=True)
_in_graph("py_func of a variable, task, no hooks", reads=True, hooks=False, tasks=True)


def _listener(name: str, method: str, **saver: Any) -> None:
    async def place(scene: Scene) -> None:
        async def call(_self: Any, session: Any, step: int) -> None:
            if step > 0:
                await scene.probe(session)

        listener = type("Listens", (am.hooks.CheckpointSaverListener,), {method: call})()
        scene.functions()
        await scene.run(saver={"listeners": [listener], **saver})

    PLACES[name] = place


_BY_SECS: dict[str, Any] = {"save_steps": None, "save_secs": 0.25}
_listener("before_save by steps", "before_save", save_steps=1)
_listener("after_save by steps", "after_save", save_steps=1)
_listener("before_save by secs", "before_save", **_BY_SECS)
_listener("after_save by secs", "after_save", **_BY_SECS)


def _evaluation(name: str, **when: Any) -> None:
    async def place(scene: Scene) -> None:
        async def heard(step: int, metrics: Any) -> None:
            if step > 0:
                await scene.probe()

        scene.functions()

        @scene.program.step(read_only=True)
        async def score(state: Any) -> dict[str, float]:
            return {"score": 1.0}

        hook = am.hooks.EvalHook("score", None, **when)
        hook.add_listener(heard)
        await scene.run(hook)

    PLACES[name] = place


_evaluation("evaluation listener by steps", every_steps=1)
_evaluation("evaluation listener by secs", every_secs=0.25)


def _timer(name: str, **when: Any) -> None:
    async def place(scene: Scene) -> None:
        async def tick(session: Any) -> None:
            await scene.probe(session)

        scene.functions()
        await scene.run(am.every(**when)(tick))

    PLACES[name] = place


_timer("@every(steps)", steps=1)
_timer("@every(secs)", secs=0.25)


def _task(name: str, make: Any) -> None:
    async def place(scene: Scene) -> None:
        async def body(sess: Any) -> None:
            sess.coord.create_task(make(scene, sess))

        scene.functions()
        await scene.run(body=body)

    PLACES[name] = place


def _every(scene: Scene, sess: Any) -> Any:
    async def work() -> None:
        async for _ in sess.coord.every(0.25):
            await scene.probe()

    return work


_task("coord.every", _every)
_task("coord.create_task", lambda scene, sess: scene.probe)
_task("coord.create_task, task", lambda scene, sess: in_a_task(scene.probe))


@_place
async def source(scene: Scene) -> None:
    async def numbers() -> Any:
        while True:
            await asyncio.sleep(0.1)
            await scene.probe()
            yield 1

    async def body(sess: Any) -> None:
        async for _ in sess.iterate(numbers()):
            await sess.run(scene.train)
            if scene.outcome is not None:
                break

    async def trains() -> None:
        while scene.outcome is None and not scene.sess.should_stop():
            await scene.sess.run(scene.train)
            await asyncio.sleep(0.1)

    async def both(sess: Any) -> None:
        sess.coord.create_task(trains)
        await body(sess)

    scene.functions()
    await scene.run(body=both)


@_place
async def after_create_session__recovery(scene: Scene) -> None:
    scene.functions()
    created = 0

    async def probe(session: Any, coord: Any) -> None:
        nonlocal created
        created += 1
        if created == 2:
            await scene.probe(session)

    await scene.run(hook_of("after_create_session", probe), fail_at_step(2))


@_place
async def after_create_session__recovery__task(scene: Scene) -> None:
    scene.functions()
    created = 0

    async def probe(session: Any, coord: Any) -> None:
        nonlocal created
        created += 1
        if created == 2:
            await in_a_task(scene.probe)(session)

    await scene.run(hook_of("after_create_session", probe), fail_at_step(2))
