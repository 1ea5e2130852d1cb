"""Wrong hooks are refused when they are added, by name."""

from __future__ import annotations

import functools
import pydoc
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from asyncmon.runtime import SessionRunHook
from asyncmon.runtime.hook import hook_name, overrides
from asyncmon.runtime.hook_check import check_hooks


class Duck:
    """HP-16: the five methods, but not a subclass."""

    async def begin(self) -> None: ...
    async def after_create_session(self, session: Any, coord: Any) -> None: ...
    async def before_run(self, run_context: Any) -> None: ...
    async def after_run(self, run_context: Any, run_values: Any) -> None: ...
    async def end(self, session: Any) -> None: ...


def test_a_bare_subclass_and_a_duck_are_hooks_hp_2_hp_16() -> None:
    hooks = [SessionRunHook(), Duck()]
    assert list(check_hooks(hooks)) == hooks
    assert not any(overrides(hooks[0], m) for m in ("begin", "before_run", "background", "cleanup"))
    assert overrides(hooks[1], "before_run")
    assert not overrides(hooks[1], "cleanup")


def test_a_missing_method_is_named_up_front_hp_16() -> None:
    class Half:
        async def begin(self) -> None: ...

    with pytest.raises(TypeError, match="it has no method 'after_create_session', 'before_run'"):
        check_hooks([Half()])


def test_the_same_object_twice_is_refused_hp_15() -> None:
    hook = SessionRunHook()
    with pytest.raises(ValueError, match="is there twice"):
        check_hooks([hook, SessionRunHook(), hook])


def test_a_generator_is_copied_hp_17() -> None:
    def generate() -> Iterator[SessionRunHook]:
        yield SessionRunHook()

    assert len(check_hooks(generate())) == 1
    assert check_hooks(None) == ()


def test_a_plain_method_is_refused_and_the_right_line_given() -> None:
    class Plain(SessionRunHook):
        def before_run(self, run_context: Any) -> None:  # type: ignore[override]  # the mistake
            return None

    wanted = (
        r"Plain\.before_run is a plain function \(.*test_hook_check\.py:\d+\); hooks are awaited\. "
    )
    with pytest.raises(
        TypeError, match=wanted + r"Write `async def before_run\(self, run_context\)`\."
    ):
        check_hooks([Plain()])


def test_an_async_generator_is_refused() -> None:
    class Generating(SessionRunHook):
        async def background(self, session: Any, coord: Any) -> Any:
            yield 1

    with pytest.raises(TypeError, match=r"Generating\.background is an async generator"):
        check_hooks([Generating()])


def test_a_wrong_signature_is_refused() -> None:
    class Wrong(SessionRunHook):
        async def after_run(self, run_context: Any) -> None:  # type: ignore[override]  # the mistake
            ...

    with pytest.raises(
        TypeError, match=r"Wrong\.after_run cannot be called with \(run_context, run_values\)"
    ):
        check_hooks([Wrong()])


def test_other_argument_names_and_defaults_are_fine() -> None:
    class Fine(SessionRunHook):
        async def after_run(self, context: Any, values: Any, extra: int = 0) -> None: ...

    check_hooks([Fine()])


def test_what_hangs_on_the_object_is_checked_too() -> None:
    async def end(session: Any) -> None: ...

    class Callable:
        async def __call__(self, session: Any) -> None: ...

    for method in (end, functools.partial(end), Callable()):
        hook = SessionRunHook()
        hook.end = method  # type: ignore[method-assign]  # a hook made by hand
        check_hooks([hook])
        assert overrides(hook, "end")


def test_a_class_in_place_of_an_object_is_refused() -> None:
    with pytest.raises(TypeError, match=r"Write `SessionRunHook\(\)`"):
        check_hooks([SessionRunHook])


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("deadline", 0),
        ("deadline", -1.0),
        ("on_error", "ignore"),
        ("priority", "high"),
        ("priority", None),
        ("priority", float("nan")),
        ("priority", True),
    ],
)
def test_wrong_attributes_are_refused(name: str, value: Any) -> None:
    hook = SessionRunHook()
    setattr(hook, name, value)
    with pytest.raises(ValueError, match=f"SessionRunHook.{name} must be"):
        check_hooks([hook])


def test_half_a_state_is_refused() -> None:
    class Half(SessionRunHook):
        def state_dict(self) -> dict[str, Any]:
            return {}

    with pytest.raises(TypeError, match="only one of state_dict and load_state_dict"):
        check_hooks([Half()])


@pytest.mark.parametrize("method", ["state_dict", "load_state_dict"])
def test_a_state_that_would_have_to_be_awaited_is_refused(method: str) -> None:
    async def wrong(state: Any = None) -> None: ...

    hook: Any = SessionRunHook()
    hook.state_dict = hook.load_state_dict = lambda state=None: {}
    setattr(hook, method, wrong)
    with pytest.raises(TypeError, match=rf"Hook.{method} is a coroutine function \(.*Write `def"):
        check_hooks([hook])


TYPED = """
import asyncmon as am

class ByTF1(am.SessionRunHook):
    async def after_create_session(self, session: am.Session, coord: am.Coordinator) -> None: ...
    async def end(self, session: am.Session) -> None: ...

class ByTheProtocol(am.SessionRunHook):
    async def background(self, session: am.runtime.Session, coord: am.Coordinator) -> None: ...

class Listener(am.CheckpointSaverListener):
    async def after_save(self, session: am.Session, global_step_value: int) -> bool | None: ...

@am.every(secs=3)
async def tick(session: am.Session) -> None: ...

hooks: list[am.SessionRunHook] = [ByTF1(), ByTheProtocol(), tick]
"""


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_hook_may_annotate_its_session_by_any_class(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="mypy is not installed")
    (tmp_path / "hooks.py").write_text(TYPED)
    checks = [sys.executable, "-m", "mypy", "--strict", "--no-incremental", "hooks.py"]
    found = subprocess.run(checks, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert found.stdout.startswith("Success"), found.stdout + found.stderr


def test_priorities_order_the_hooks_stably() -> None:
    names = []
    for name, priority in [("saver", 100), ("a", 0), ("guard", -100), ("b", 0)]:
        hook = SessionRunHook()
        hook.priority = priority
        hook.name = name  # type: ignore[attr-defined]  # a label for messages
        names.append(hook)
    assert [hook_name(hook) for hook in check_hooks(names)] == ["guard", "a", "b", "saver"]


@pytest.mark.parametrize("hooks", [3, SessionRunHook()])
def test_one_hook_alone_is_no_list_of_hooks(hooks: Any) -> None:
    with pytest.raises(TypeError, match=r"hooks must be a list of hooks, got .*Write `hooks=\[...\]`"):
        check_hooks(hooks)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("after_rum", "after_run"),
        ("befor_run", "before_run"),
        ("after_create_sesion", "after_create_session"),
        ("begins", "begin"),
        ("clean_up", "cleanup"),
    ],
)
def test_a_misspelt_method_is_refused_with_the_name_that_was_meant(written: str, meant: str) -> None:
    async def method(self: Any, *args: Any) -> None:
        """Do nothing."""

    misspelt = type("Misspelt", (SessionRunHook,), {written: method})
    with pytest.raises(TypeError, match=rf"Misspelt has a method '{written}' .*Is it '{meant}'\?"):
        check_hooks([misspelt()])
    check_hooks([type("Knows", (SessionRunHook,), {written: method, meant: method})()])
    check_hooks([type("Private", (SessionRunHook,), {f"_{written}": method})()])


def test_other_methods_of_a_hook_are_its_own() -> None:
    class Own(SessionRunHook):
        def send(self) -> None: ...
        def run(self) -> None: ...
        def on_end(self) -> None: ...
        def before(self) -> None: ...
        def ended(self) -> None: ...

    check_hooks([Own()])


def test_help_shows_what_a_hook_may_set() -> None:
    text = pydoc.render_doc(SessionRunHook)
    for name in ("priority", "deadline", "on_error", "ends_on_cancel", "idle_until_step"):
        assert f"{name}:" in text
