"""Optional members of sessions, programs, creators, savers and hooks: declared and listed."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import asyncmon as am
from asyncmon.checkpoint import Saver
from asyncmon.checkpoint.saveable_session import SaverMembers
from asyncmon.hooks import (
    CheckpointSaverHook,
    ClusterHook,
    LoggingTensorHook,
    StopAtStepHook,
)
from asyncmon.programs import FunctionProgram
from asyncmon.runtime import ChiefSessionCreator, Program, Session, SessionCreator, SessionRunHook
from asyncmon.runtime.graph_program import GraphProgram
from asyncmon.runtime.hook import HookMembers
from asyncmon.runtime.protocols import CreatorMembers, ProgramMembers, SessionMembers
from asyncmon.system.members import misspelled

DOCS = Path(__file__).parents[2] / "docs"

DECLARED = {
    "session": SessionMembers,
    "program": ProgramMembers,
    "session creator": CreatorMembers,
    "saver": SaverMembers,
}


def declared(members: type) -> set[str]:
    """Return the names of the attributes that a class and its bases declare."""
    names = {name for cls in members.__mro__ for name in vars(cls).get("__annotations__", ())}
    return {name for name in names if not name.startswith("_")}


def rows(page: str, heading: str) -> list[list[str]]:
    """Return the cells of the first table below a heading."""
    text = (DOCS / page).read_text().split(f"# {heading}\n")[1].split("\n#")[0]
    lines = [line for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.parametrize("kind", DECLARED)
def test_the_table_of_programs_lists_the_declared_members(kind: str) -> None:
    listed = [row for row in rows("programs.md", "Optional members") if row[0] == kind]
    assert {name for row in listed for name in re.findall(r"`(\w+)`", row[1])} == declared(
        DECLARED[kind]
    )


def test_the_table_of_hooks_lists_the_declared_members() -> None:
    listed = rows("writing_hooks.md", "Attributes and optional methods")
    assert {re.findall(r"\w+", row[0])[0] for row in listed} == declared(HookMembers)


@pytest.mark.parametrize("members", [*DECLARED.values(), HookMembers])
def test_each_declared_member_has_a_default(members: type) -> None:
    assert all(hasattr(members, name) for name in declared(members))


# -- misspelled members


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    texts = [record.getMessage() for record in caplog.records]
    return [text.split("<locals>.")[1] for text in texts if "Did you mean" in text]


def test_a_misspelled_member_of_a_hook_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    class Wrong(SessionRunHook):
        on_eror = "log"

        async def save_nwo(self, session: Any) -> str:
            return ""

    am.MonitoredSession(hooks=[Wrong()])
    assert warnings(caplog) == [
        "Wrong has an attribute 'on_eror', which is never used. Did you mean 'on_error'?",
        "Wrong has an attribute 'save_nwo', which is never used. Did you mean 'save_now'?",
    ]


def test_a_hook_with_a_misspelled_half_of_its_state_is_refused_with_the_name(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Wrong(SessionRunHook):
        def state_dict(self) -> dict[str, Any]:
            return {}

        def load_state_dic(self, state: Any) -> None: ...

    with pytest.raises(TypeError, match="its state needs both"):
        am.MonitoredSession(hooks=[Wrong()])
    assert warnings(caplog) == [
        "Wrong has an attribute 'load_state_dic', which is never used. Did you mean 'load_state_dict'?"
    ]


def test_a_misspelled_member_of_a_program_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    class Wrong(FunctionProgram):
        def start_prodcuers(self, session: Any, coord: Any) -> list[Any]:
            return []

    am.runtime.as_program(Wrong({}))
    am.runtime.as_program(Wrong({}))
    (text,) = warnings(caplog)
    assert text.endswith("Did you mean 'start_producers'?")


@pytest.mark.asyncio
async def test_a_misspelled_member_of_a_session_and_its_creator_is_reported(
    caplog: pytest.LogCaptureFixture,
) -> None:
    program = FunctionProgram({"x": 0})

    class WrongSession:
        def __init__(self) -> None:
            self._raw = program.create_session()
            self.graph, self.run, self.close = program, self._raw.run, self._raw.close
            self.snapshot, self.load = self._raw.snapshot, self._raw.load

        def snapshot_to_wirte(self) -> Any:
            return self.snapshot()

    class WrongCreator:
        async def create_session(self) -> WrongSession:
            return WrongSession()

        def preprare(self) -> None: ...

    session = am.MonitoredSession(WrongCreator())  # type: ignore[arg-type]  # refused
    async with session:
        pass
    first, second = warnings(caplog)
    assert first.endswith("Did you mean 'prepare'?")
    assert second.endswith("Did you mean 'snapshot_to_write'?")


def test_a_misspelled_member_of_a_saver_is_reported(caplog: pytest.LogCaptureFixture) -> None:
    class WrongSaver:
        async def restore(self, session: Any, path: str) -> None: ...
        async def restor_latest(self, session: Any, directory: str) -> None: ...

    am.Scaffold(saver=WrongSaver()).finalize(FunctionProgram({}))
    (text,) = warnings(caplog)
    assert text.endswith("Did you mean 'restore_latest'?")


@pytest.mark.parametrize(
    "name",
    [
        *("names", "state", "states", "saver", "stop_at_step", "save_step", "saved_steps", "deadlines"),
        *("log", "errors", "queue", "graphs", "step", "end_time", "on_end", "save", "save_every"),
    ],
)
def test_own_attributes_of_a_hook_are_not_reported(name: str) -> None:
    assert misspelled(type("Own", (SessionRunHook,), {name: 1})(), HookMembers) == []


@pytest.mark.parametrize(
    ("one", "members"),
    [
        (FunctionProgram({}), (Program, ProgramMembers)),
        (FunctionProgram({}).create_session(), (Session, SessionMembers)),
        (GraphProgram(am.graph.Graph()), (Program, ProgramMembers)),
        (am.Session(graph=am.graph.Graph()), (Session, SessionMembers)),
        (ChiefSessionCreator(program=FunctionProgram({})), (SessionCreator, CreatorMembers)),
        (Saver(allow_empty=True), (SaverMembers,)),
        (CheckpointSaverHook("runs", save_steps=1), (HookMembers,)),
        (ClusterHook(), (HookMembers,)),
        (LoggingTensorHook(["loss"], 1), (HookMembers,)),
        (StopAtStepHook(1), (HookMembers,)),
    ],
    ids=lambda one: type(one).__name__,
)
def test_own_classes_have_no_misspelled_members(one: object, members: tuple[type, ...]) -> None:
    assert misspelled(one, *members) == []
