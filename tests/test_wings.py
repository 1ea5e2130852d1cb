"""The core works without its wings, whose folders can be deleted."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from asyncmon.system.wings import wings

ROOT = Path(__file__).parents[1]
NAMES = [wing.name for wing in wings()]

BLOCKED = """
import sys

blocked = sys.argv[1:]
sys.modules.update({f"asyncmon.{name}": None for name in blocked})

import importlib
import pkgutil

import asyncmon as am

core = [one.name for one in pkgutil.walk_packages(am.__path__, "asyncmon.", onerror=lambda name: None)]
for name in core:
    if name.split(".")[1] in [*blocked, "__main__"]:
        continue
    try:
        importlib.import_module(name)
    except ImportError as error:  # of a package that an extra installs
        assert not any(f"asyncmon.{one}" in str(error) for one in blocked), (name, error)

for name in ("StopAtStepHok", "placeholder", "nonsense", *blocked):
    try:
        getattr(am, name)
    except (AttributeError, ImportError) as error:
        print(error)
"""


@pytest.mark.skipif(not NAMES, reason="there is no wing")
def test_every_module_of_the_core_is_imported_while_the_wings_are_blocked() -> None:
    command = [sys.executable, "-c", BLOCKED, *NAMES]
    out = subprocess.run(command, capture_output=True, text=True, check=False)
    assert out.returncode == 0, out.stderr
    assert out.stdout.splitlines()[:3] == [
        "module 'asyncmon' has no attribute 'StopAtStepHok'; did you mean 'StopAtStepHook'?",
        "module 'asyncmon' has no attribute 'placeholder': it is asyncmon.graph.placeholder",
        "module 'asyncmon' has no attribute 'nonsense'",
    ]


@pytest.mark.parametrize("name", NAMES)
def test_what_a_wing_registers_is_in_its_folder(name: str) -> None:
    (wing,) = (one for one in wings() if one.name == name)
    inside = f"asyncmon.{name}."
    modules = [wing.advice, *(module for module, _ in wing.commands.values())]
    assert all(module.startswith(inside) and find_spec(module) for module in modules)
    assert all(prefix.startswith(inside) for prefix in wing.wire)


@pytest.mark.parametrize("name", NAMES)
def test_a_command_of_a_wing_that_cannot_be_imported_is_an_error_of_one_line(name: str) -> None:
    (wing,) = (one for one in wings() if one.name == name)
    code = (
        f"import sys; sys.modules['asyncmon.{name}'] = None\n"
        "from asyncmon.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    for command in wing.commands:
        out = subprocess.run([sys.executable, "-c", code, command], capture_output=True, text=True)
        assert (out.returncode, out.stderr.count("\n")) == (1, 1), out.stderr
        assert f"asyncmon.{name}" in out.stderr


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.skipif(not NAMES, reason="there is no wing")
def test_the_rest_passes_its_tests_and_its_type_check_without_the_wings(tmp_path: Path) -> None:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    gone = tuple(f"{folder}/{name}/" for name in NAMES for folder in ("asyncmon", "tests"))
    for file in filter(None, listed.stdout.split("\0")):
        if not file.startswith(gone) and (ROOT / file).is_file():
            (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / file, tmp_path / file)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    for command in (
        ["mypy"], ["pytest", "-q", "-n", "2", "-m", "fast and not slow", "-p", "no:cacheprovider"],
    ):  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-m", *command], cwd=tmp_path, env=environment,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout[-5000:]
