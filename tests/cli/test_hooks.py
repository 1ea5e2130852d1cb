"""``asyncmon hooks``: asyncmon's hooks, and the hooks that packages publish as entry points."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from asyncmon import hooks
from tests import forked

MODULE = '''
import asyncmon as am

print("imported")

class Post(am.SessionRunHook):
    """Post the step to a chat.

    And more.
    """

    def __init__(self, channel):
        self.channel = channel

    async def end(self, session):
        print("posted to", self.channel, "at", session.global_step)
'''


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder in which a package is installed that publishes two hooks."""
    return publish(tmp_path, "chat-hooks", "Post = chat_hooks:Post\nLost = nowhere_at_all:Hook\n")


def publish(folder: Path, package: str, points: str) -> Path:
    (folder / "chat_hooks.py").write_text(MODULE)
    installed = folder / f"{package.replace('-', '_')}-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (installed / "entry_points.txt").write_text(f"[asyncmon.hooks]\n{points}")
    return folder


def run(folder: Path, *arguments: str) -> tuple[int, str, str]:
    process = forked.Process("asyncmon", *arguments, cwd=folder)
    out, err = process.communicate(timeout=40)
    return process.wait(), out, err


def test_hooks_of_asyncmon_are_listed_with_the_first_line_of_their_docstrings(tmp_path: Path) -> None:
    status, out, _ = run(tmp_path, "hooks", "--json")
    found = {one["name"]: one for one in json.loads(out) if one["package"] == "asyncmon"}
    assert status == 0
    assert set(found) == {name for name in hooks.__all__ if name.endswith("Hook")}
    assert found["StopAtStepHook"] == {
        "name": "StopAtStepHook", "package": "asyncmon", "error": None,
        "summary": "Request a stop at a step. TF1: `tf.train.StopAtStepHook`.",
    }  # fmt: skip


def test_hooks_of_packages_are_listed_and_one_that_cannot_be_imported_has_its_error(
    folder: Path,
) -> None:
    status, out, err = run(folder, "hooks")
    lines = [line.split(maxsplit=2) for line in out.splitlines()]
    assert status == 0
    assert lines[0] == ["hook", "package", "description"]
    missing = "ModuleNotFoundError: No module named 'nowhere_at_all'"
    assert lines[-2:] == [
        ["Lost", "chat-hooks", f"cannot be imported: {missing}"],
        ["Post", "chat-hooks", "Post the step to a chat."],
    ]
    assert err == "imported\n", "what the module prints is no part of the list"


def test_the_list_for_programs_has_the_error_of_a_hook(folder: Path) -> None:
    _, out, _ = run(folder, "hooks", "--json")
    lost, post = json.loads(out)[-2:]
    assert (lost["name"], lost["summary"], post["error"]) == ("Lost", "", None)
    assert "No module named 'nowhere_at_all'" in lost["error"]


PROGRAM = """
import asyncmon as am

program = am.programs.FunctionProgram(state={"weight": 0.0})

@program.step
def train(state):
    state["weight"] += 1

def main(session):
    return am.MonitoredTrainingSession(program=program, **session), "train"
"""


def with_hook(folder: Path, hook: str) -> tuple[int, str, str]:
    (folder / "digits.py").write_text(PROGRAM)
    settings = "target = 'digits:main'\n[[session.hooks]]\nname = 'StopAtStepHook'\nnum_steps = 3\n"
    (folder / "settings.toml").write_text(f"{settings}[[session.hooks]]\n{hook}")
    return run(folder, "run", "--config", "settings.toml")


def test_settings_name_a_hook_of_a_package(folder: Path) -> None:
    status, out, err = with_hook(folder, "name = 'Post'\nchannel = 'train'")
    assert (status, out) == (0, "imported\nposted to train at 3\n"), err


def test_settings_name_a_hook_of_a_module(folder: Path) -> None:
    status, out, err = with_hook(folder, "name = 'chat_hooks:Post'\nchannel = 'x'")
    assert (status, out) == (0, "imported\nposted to x at 3\n"), err


@pytest.mark.parametrize(
    ("hook", "sentence"),
    [
        ("name = 'Posts'", "There is no hook 'Posts'. Known: CheckpointSaverHook, "),
        ("name = 'Post'", "The hook 'Post' cannot be made: TypeError: "),
        ("name = 'Lost'", "The hook 'Lost' of chat-hooks: ModuleNotFoundError: "),
        ("name = 'StopAtStepHook'\nsteps = 3", "The hook 'StopAtStepHook' cannot be made: TypeError: "),
        ("name = 'digits:nothing'", "The module 'digits' has no 'nothing'"),
        (
            "nam = 'Post'",
            "settings.toml: write each hook as a table [[session.hooks]] with its `name`.",
        ),
    ],
)
def test_a_hook_that_cannot_be_made_is_refused_by_name(folder: Path, hook: str, sentence: str) -> None:
    status, _, err = with_hook(folder, hook)
    assert status == 2
    assert err.splitlines()[-1].startswith(sentence)


def test_a_name_of_two_packages_is_refused_with_both(folder: Path) -> None:
    publish(folder, "other-hooks", "Post = other:Post\n")
    status, _, err = with_hook(folder, "name = 'Post'\nchannel = 'x'")
    assert status == 2
    assert err == (
        "Several packages have a hook 'Post': give one of 'chat_hooks:Post' of chat-hooks, "
        "'other:Post' of other-hooks.\n"
    )
