"""Hooks around runs: order, fetches, feeds, options, errors, stops."""

from __future__ import annotations

import asyncio
import re
import threading
from collections import namedtuple
from typing import Any

import numpy as np
import pytest

import asyncmon as am
from asyncmon.errors import DeadlineExceededError, OutOfRangeError, UnavailableError
from asyncmon.protobuf.run_options import RunMetadata, RunOptions
from asyncmon.runtime import MonitoredSession, SessionRunArgs, SessionRunHook
from asyncmon.testing import Recorded, RecordingHook, ScriptedCreator, ScriptedSession, fail_in
from tests.runtime.conftest import World

pytestmark = [pytest.mark.asyncio, pytest.mark.virtual_time]


class Asking(SessionRunHook):
    """A hook with given requests that keeps its values."""

    def __init__(self, args: Any = None) -> None:
        self.args = args
        self.contexts: list[Any] = []
        self.values: list[Any] = []

    async def before_run(self, run_context: Any) -> Any:
        self.contexts.append(run_context)
        return self.args

    async def after_run(self, run_context: Any, run_values: Any) -> None:
        self.values.append(run_values)


def moments(record: list[Recorded]) -> list[str]:
    return [f"{entry.hook}.{entry.moment}" for entry in record]


async def test_every_phase_is_in_list_order_hp_1(world: World) -> None:
    record: list[Recorded] = []
    hooks = [RecordingHook("A", record=record), RecordingHook("B", record=record)]
    async with world.session(hooks) as sess:
        await sess.run(world.train, world.feed())
    phases = ["begin", "after_create_session", "before_run", "after_run", "end"]
    expected = [f"{hook}.{phase}" for phase in phases for hook in "AB"]
    assert moments(record) == [*expected, "B.cleanup", "A.cleanup"]


async def test_a_bare_subclass_is_a_hook_hp_2(world: World) -> None:
    async with world.session([SessionRunHook()]) as sess:
        assert await sess.run(world.train, world.feed(2.0)) == 2.0


async def test_no_hooks_hp_21(world: World) -> None:
    for hooks in (None, []):
        async with world.session(hooks) as sess:
            assert await sess.run(world.train, world.feed()) == 1.0


async def test_hooks_are_copied_hp_17_hp_18(world: World) -> None:
    given = [RecordingHook("A")]
    sess = world.session(hook for hook in given)
    given.append(RecordingHook("B"))
    async with sess:
        await sess.run(world.train, world.feed())
    assert "after_run" in given[0].moments()
    assert given[1].moments() == []


async def test_a_hook_without_a_hash_may_fetch_hp_19(world: World) -> None:
    class Unhashable(Asking):
        __hash__ = None  # type: ignore[assignment]  # not hashable

        def __eq__(self, other: object) -> bool:
            return True

    hooks = [Unhashable(SessionRunArgs(world.weight)), Unhashable(SessionRunArgs([world.weight]))]
    async with world.session(hooks) as sess:
        await sess.run(world.train, world.feed())
    assert type(hooks[1].values[0].results) is list


async def test_an_error_in_before_run_leaves_and_the_session_continues_hp_9(world: World) -> None:
    record: list[Recorded] = []
    fault = fail_in("before_run", ValueError("no"))
    hooks = [RecordingHook("A", record=record), fault, RecordingHook("B", record=record)]
    async with world.session(hooks) as sess:
        with pytest.raises(ValueError, match="no"):
            await sess.run(world.train, world.feed())
        assert moments(record)[4:] == ["A.before_run"]
        assert not sess.should_stop()
        assert sess.global_step == 0
        assert await sess.run(world.train, world.feed()) == 1.0


async def test_an_error_in_after_run_leaves_and_the_step_has_happened_hp_10(world: World) -> None:
    record: list[Recorded] = []
    fault = fail_in("after_run", ValueError("no"))
    async with world.session([fault, RecordingHook("B", record=record)]) as sess:
        with pytest.raises(ValueError, match="no"):
            await sess.run(world.train, world.feed())
        assert "B.after_run" not in moments(record)
        assert sess.global_step == 1
        assert not sess.should_stop()
        assert await sess.run(world.train, world.feed()) == 2.0


async def test_an_error_in_the_run_skips_after_run_hp_11(world: World) -> None:
    hook = RecordingHook()
    async with world.session([hook]) as sess:
        with pytest.raises(Exception, match="x"):
            await sess.run(world.train)  # nothing is fed
        assert "after_run" not in hook.moments()
        await sess.run(world.train, world.feed())
        assert "after_run" in hook.moments()


async def test_a_wrong_return_names_the_hook_hp_20(world: World) -> None:
    async with world.session([Asking([1])]) as sess:
        with pytest.raises(TypeError, match=r"Asking\.before_run must return None or SessionRunArgs"):
            await sess.run(world.train, world.feed())


async def test_the_contexts_session_triggers_no_hooks_hp_22(world: World) -> None:
    class Reader(RecordingHook):
        async def before_run(self, run_context: Any) -> Any:
            self.read = await run_context.session.run(world.weight)
            return await super().before_run(run_context)

    hook = Reader()
    async with world.session([hook]) as sess:
        await sess.run(world.train, world.feed())
    assert hook.read == 0
    assert hook.moments().count("before_run") == 1


async def test_the_step_in_after_run_is_that_after_the_commit_hp_25_gs_9(world: World) -> None:
    hook = RecordingHook()
    async with world.session([hook]) as sess:
        for _ in range(50):
            await sess.run(world.train, world.feed())
            await sess.run(world.weight)  # a run that counts no step
    assert hook.steps("before_run") == [n for n in range(50) for n in (n, n + 1)]
    assert hook.steps("after_run") == [n for n in range(1, 51) for n in (n, n)]


async def test_results_have_the_structure_requested_ra_1(world: World) -> None:
    Pair = namedtuple("Pair", "first second")
    hooks = [
        Asking(SessionRunArgs({"w": world.weight, "more": [world.weight]})),
        Asking(SessionRunArgs(Pair(world.weight, (world.weight,)))),
    ]
    async with world.session(hooks) as sess:
        result = await sess.run({"t": world.train, "l": [world.weight]}, world.feed(3.0))
    assert result["t"] == 3
    assert list(result) == ["t", "l"]
    assert list(hooks[0].values[0].results) == ["w", "more"]
    assert type(hooks[1].values[0].results) is Pair


async def test_what_a_hook_did_not_ask_for_is_none_ra_2(world: World) -> None:
    hooks = [Asking(None), Asking(SessionRunArgs(None)), Asking(SessionRunArgs([]))]
    async with world.session(hooks) as sess:
        await sess.run(world.train, world.feed())
    assert [hook.values[0].results for hook in hooks] == [None, None, []]


async def test_fetching_none_is_refused_and_nothing_is_fine_ra_3(world: World) -> None:
    hook = RecordingHook()
    async with world.session([hook]) as sess:
        with pytest.raises(TypeError, match="Cannot be None"):
            await sess.run(None)
        for nothing in ([], {}, ()):
            assert await sess.run(nothing) == nothing
    assert hook.moments().count("after_run") == 3


async def test_one_raw_run_computes_everything_ra_5() -> None:
    raw = ScriptedSession([{"a": 1, "b": 2, "c": 3}])
    hooks = [Asking(SessionRunArgs("b")), Asking(SessionRunArgs(["c"]))]
    async with _over(raw, hooks) as sess:
        assert await sess.run("a") == 1
    assert len(raw.runs) == 1
    assert [hook.values[0].results for hook in hooks] == [2, [3]]


async def test_feeds_are_merged_and_the_callers_dict_is_left_alone_ra_6() -> None:
    raw, own = ScriptedSession(), {"a": 1}
    hooks = [Asking(SessionRunArgs(None, {"b": 2})), Asking(SessionRunArgs(None, {"c": 3}))]
    async with _over(raw, hooks) as sess:
        await sess.run("x", own)
    assert raw.feeds == [{"a": 1, "b": 2, "c": 3}]
    assert own == {"a": 1}


async def test_the_original_args_include_the_options_ra_7(world: World) -> None:
    hook, options, feeds = Asking(), RunOptions(timeout_in_ms=5000), world.feed()
    async with world.session([hook]) as sess:
        await sess.run(world.train, feeds, options)
    assert hook.contexts[0].original_args == SessionRunArgs(world.train, feeds, options)


async def test_two_hooks_feeding_the_same_are_refused_before_the_run_ra_8(world: World) -> None:
    hooks = [Asking(SessionRunArgs(None, world.feed(2.0))) for _ in range(2)]
    async with world.session(hooks) as sess:
        with pytest.raises(RuntimeError, match=r"Same tensor is fed by two hooks\. Conflict\(s\): \["):
            await sess.run(world.train)
        assert sess.global_step == 0


@pytest.mark.parametrize("by_name", [False, True])
async def test_a_hook_feeding_what_the_caller_feeds_is_refused_ra_9_ra_10(
    world: World, by_name: bool
) -> None:
    key = world.x_by_name if by_name else world.x
    async with world.session([Asking(SessionRunArgs(None, {key: 2.0}))]) as sess:
        with pytest.raises(
            RuntimeError, match=r"Same tensor is fed by a SessionRunHook and user\. Conf"
        ):
            await sess.run(world.train, world.feed())
        assert sess.global_step == 0
        assert await sess.run(world.train) == 2.0


async def test_options_are_merged_into_a_copy_ra_11_ra_12() -> None:
    seen = []

    class Raw(ScriptedSession):
        async def run(
            self, fetches: Any, feed_dict: Any = None, options: Any = None, md: Any = None
        ) -> Any:
            seen.append((options, md))
            return await super().run(fetches, feed_dict)

    own = RunOptions(trace_level=1, timeout_in_ms=0)
    hooks = [
        Asking(SessionRunArgs(None, None, RunOptions(trace_level=3))),
        Asking(SessionRunArgs(None, None, RunOptions(trace_level=2, timeout_in_ms=500))),
    ]
    metadata = RunMetadata()
    async with _over(Raw(), hooks) as sess:
        await sess.run("x", options=own, run_metadata=metadata)
        await sess.run("x")
    assert seen[0] == (RunOptions(trace_level=3, timeout_in_ms=500), metadata)
    assert seen[0][1] is metadata
    assert seen[1][0] == RunOptions(trace_level=3, timeout_in_ms=500)
    assert seen[1][1] is not None
    assert own == RunOptions(trace_level=1, timeout_in_ms=0)
    assert hooks[0].values[0].options is hooks[1].values[0].options


async def test_options_and_metadata_are_always_there_and_the_same_for_all_ra_13(world: World) -> None:
    hooks = [Asking(), Asking()]
    async with world.session(hooks) as sess:
        await sess.run(world.train, world.feed())
    (first,), (second,) = hooks[0].values, hooks[1].values
    assert first.options == RunOptions()
    assert first.run_metadata is second.run_metadata is not None


async def test_one_context_for_all_hooks_of_a_run_ra_14(world: World) -> None:
    hooks = [Asking(), Asking()]
    async with world.session(hooks) as sess:
        await sess.run(world.train, world.feed())
        await sess.run(world.train, world.feed())
    assert hooks[0].contexts[0] is hooks[1].contexts[0]
    assert hooks[0].contexts[0] is not hooks[0].contexts[1]


class Stopping(SessionRunHook):
    def __init__(self, moment: str) -> None:
        self.moment = moment

    async def before_run(self, run_context: Any) -> None:
        if self.moment == "before_run":
            assert not run_context.stop_requested
            run_context.request_stop()
            run_context.request_stop()
            assert run_context.stop_requested

    async def after_run(self, run_context: Any, run_values: Any) -> None:
        if self.moment == "after_run":
            run_context.request_stop("that was enough")


@pytest.mark.parametrize("moment", ["before_run", "after_run"])
async def test_a_stop_lets_the_run_complete_ra_15_ra_16(world: World, moment: str) -> None:
    later = RecordingHook()
    async with world.session([Stopping(moment), later]) as sess:
        assert await sess.run(world.train, world.feed()) == 1.0
        assert sess.should_stop()
        assert later.moments()[-1] == "after_run"
    expected = "Stopping requested a stop" if moment == "before_run" else "that was enough"
    assert sess.stop_reason == expected


async def test_a_stop_outlives_a_failure_of_the_run_ra_17(world: World) -> None:
    async with world.session([Stopping("before_run")]) as sess:
        with pytest.raises(Exception, match="x"):
            await sess.run(world.train)
        assert sess.should_stop()


async def test_a_run_after_a_hooks_stop_is_refused_ra_18(world: World) -> None:
    async with world.session([Stopping("after_run")]) as sess:
        await sess.run(world.train, world.feed())
        with pytest.raises(RuntimeError, match=r"^Run called even after should_stop requested\.$"):
            await sess.run(world.train, world.feed())
        assert sess.global_step == 1


async def test_a_run_after_the_coordinators_stop_goes_through_ra_19(world: World) -> None:
    async with world.session() as sess:
        sess.coord.request_stop()
        assert sess.should_stop()
        assert await sess.run(world.train, world.feed()) == 1.0


async def test_priorities_put_guards_first_and_savers_last_in_every_phase(world: World) -> None:
    record: list[Recorded] = []
    hooks = [
        RecordingHook(n, record=record, priority=p) for n, p in [("S", 100), ("U", 0), ("G", -100)]
    ]
    async with world.session(hooks) as sess:
        await sess.run(world.train, world.feed())
    assert [entry.hook for entry in record] == list("GUS") * 5 + list("SUG")


class Hanging(SessionRunHook):
    deadline = 2.0

    async def before_run(self, run_context: Any) -> None:
        await asyncio.Event().wait()


async def test_a_deadline_ends_a_hook_that_hangs(world: World) -> None:
    async with world.session([Hanging()]) as sess:
        with pytest.raises(DeadlineExceededError, match=r"Hanging\.before_run took longer .* 2 s"):
            await sess.run(world.train, world.feed())
        assert asyncio.get_running_loop().time() == 2


async def test_on_error_log_continues_without_the_hook(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    hooks = [fail_in("before_run", ValueError("logged")), Hanging()]
    for hook in hooks:
        hook.on_error = "log"
    async with world.session(hooks) as sess:
        assert await sess.run(world.train, world.feed()) == 1.0
    assert "_Fault.before_run failed; on_error='log'." in caplog.text
    assert "Hanging.before_run failed; on_error='log'." in caplog.text


async def test_on_error_detach_takes_the_hook_out(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    class Fragile(RecordingHook):
        on_error = "detach"

        async def after_run(self, run_context: Any, run_values: Any) -> None:
            await super().after_run(run_context, run_values)
            raise ValueError("broken")

    hook = Fragile()
    async with world.session([hook]) as sess:
        for _ in range(3):
            await sess.run(world.train, world.feed())
    assert hook.moments() == ["begin", "after_create_session", "before_run", "after_run", "cleanup"]
    assert str(hook.error) == "broken"
    assert "on_error='detach'" in caplog.text


async def test_the_frame_of_the_failing_hook_is_in_the_traceback_ax_26(world: World) -> None:
    async with world.session([fail_in("before_run", ValueError("here"))]) as sess:
        with pytest.raises(ValueError, match="here") as caught:
            await sess.run(world.train, world.feed())
    assert any(entry.name == "before_run" for entry in caught.traceback)


async def test_the_end_of_the_data_in_a_hook_ends_the_body(world: World) -> None:
    hook = RecordingHook()
    async with world.session([hook, fail_in("before_run", OutOfRangeError("no more"))]) as sess:
        await sess.run(world.train, world.feed())
        pytest.fail("not reached")
    assert hook.moments()[-2:] == ["end", "cleanup"]


def _over(raw: ScriptedSession, hooks: Any) -> Any:
    return MonitoredSession(ScriptedCreator(raw), hooks=hooks)


@pytest.mark.parametrize(
    "moment",
    ["begin", "after_create_session", "before_run", "after_run", "end", "cleanup"],
)
async def test_an_error_that_is_logged_gives_one_line_and_one_traceback(
    moment: str, world: World, caplog: pytest.LogCaptureFixture
) -> None:
    hook = fail_in(moment, ValueError("logged"))
    hook.on_error = "log"
    async with world.session([hook]) as sess:
        await sess.run(world.train, world.feed())
    assert len(caplog.records) == 1
    assert f"_Fault.{moment} failed" in caplog.text
    assert caplog.text.count("Traceback (most recent call last)") == 1


async def test_a_hook_that_holds_the_event_loop_beyond_its_deadline_is_named(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    class Blocking(SessionRunHook):
        deadline = 0.05

        async def after_run(self, run_context: Any, run_values: Any) -> None:
            threading.Event().wait(0.06)

    async with world.session([Blocking()]) as sess:
        await sess.run(world.train, world.feed())
    message = caplog.records[0].getMessage()
    found = re.match(
        r"Blocking.after_run held the event loop for (\S+) s, beyond its deadline", message
    )
    assert found is not None, message
    assert float(found[1]) >= 0.06
    assert "beyond its deadline of 0.05 s" in message


class Counting(am.Session):
    """A raw session with a ``run`` of its own, beside the inherited ``run_nowait``."""

    runs = 0

    async def run(self, *args: Any, **kwargs: Any) -> Any:
        self.runs += 1
        return await super().run(*args, **kwargs)


async def test_a_run_that_a_subclass_overrides_is_called_without_hooks_too() -> None:
    with am.graph.Graph().as_default() as graph:
        one = am.graph.constant(1.0)
        raw = Counting(graph=graph)

    class Creator(am.SessionCreator):
        async def create_session(self) -> Any:
            return raw

    async with MonitoredSession(Creator()) as sess:
        assert [await sess.run(one), await sess.run([one], hooks=False)] == [1.0, [1.0]]
        assert raw.runs == 2


async def test_a_run_that_is_replaced_while_the_session_is_open_is_called(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def fail(*args: Any, **kwargs: Any) -> Any:
        raise ValueError("replaced")

    with am.graph.Graph().as_default() as graph:
        one = am.graph.constant(1.0)
    async with MonitoredSession(am.ChiefSessionCreator(program=graph)) as sess:
        for place in (sess.raw_session(), am.Session):
            assert await sess.run(one) == 1.0
            with monkeypatch.context() as patch:
                patch.setattr(place, "run", fail)
                with pytest.raises(ValueError, match="replaced"):
                    await sess.run(one)


async def test_a_run_that_is_made_at_once_recovers_and_repeats() -> None:
    failures = [UnavailableError("gone"), None]

    def flaky() -> Any:
        if error := failures.pop(0):
            raise error
        return np.float32(2.0)

    with am.graph.Graph().as_default() as graph:
        value = am.graph.py_func(flaky, [], am.graph.float32)
    async with MonitoredSession(am.ChiefSessionCreator(program=graph)) as sess:
        assert await sess.run(value) == 2.0
        assert sess.statistics().recoveries == 1


async def test_an_error_with_an_op_that_is_no_node_is_passed_on() -> None:
    class ParseError(Exception):
        op = "+"

    error = ParseError("x +")
    hook = Asking(SessionRunArgs("loss"))
    async with MonitoredSession(ScriptedCreator(ScriptedSession([error])), [hook]) as sess:
        with pytest.raises(ParseError) as caught:
            await sess.run("train")
    assert caught.value is error


@pytest.mark.parametrize("fetch", ["train", 7])
async def test_an_error_of_a_node_of_another_graph_is_passed_on(fetch: Any) -> None:
    with am.graph.Graph().as_default() as graph:
        x = am.graph.placeholder(am.graph.float32, name="x")

    async def step() -> Any:
        async with am.graph.Session(graph=graph) as inner:
            return await inner.run(x * 2.0)

    hook = Asking(SessionRunArgs("loss"))
    async with MonitoredSession(ScriptedCreator(ScriptedSession([step])), [hook]) as sess:
        with pytest.raises(am.errors.InvalidArgumentError, match="x"):
            await sess.run(fetch)


async def test_an_error_of_a_node_names_the_hooks_that_alone_need_it() -> None:
    with am.graph.Graph().as_default() as graph:
        train = am.get_or_create_global_step().assign_add(1)
        x = am.graph.placeholder(am.graph.float32, name="x")
        hooks = [Asking(), Asking(SessionRunArgs(x * 2.0)), RecordingHook("other")]
    async with MonitoredSession(am.ChiefSessionCreator(program=graph), hooks) as sess:
        with pytest.raises(am.errors.InvalidArgumentError) as caught:
            await sess.run(train)
        notes = [note for note in caught.value.__notes__ if "need" in note]
        assert len(notes) == 1
        assert "the fetches of Asking need it, those of the caller do not" in notes[0]
        with pytest.raises(am.errors.InvalidArgumentError) as caught:
            await sess.run([train, x])
        assert not [note for note in caught.value.__notes__ if "Asking" in note]
