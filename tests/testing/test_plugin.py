"""The pytest plugin, seen from another project."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

PROJECT = """
import asyncio
import pytest, pytest_asyncio

@pytest.mark.asyncio
async def test_before():
    assert type(asyncio.get_running_loop()).__name__ != "VirtualTimeLoop"

@pytest_asyncio.fixture
async def waited():
    await asyncio.sleep(3600)
    return asyncio.get_running_loop()

@pytest.mark.asyncio
@pytest.mark.virtual_time
async def test_marked(waited):
    assert asyncio.get_running_loop() is waited and waited.time() == 3600

@pytest.mark.asyncio
async def test_by_fixture(virtual_time, waited):
    assert virtual_time.now() == 3600

@pytest.mark.asyncio
async def test_after():
    assert type(asyncio.get_running_loop()).__name__ != "VirtualTimeLoop"

@pytest.mark.asyncio
@pytest.mark.virtual_time
@pytest.mark.parametrize("n", [1, 2])
class TestClass:
    async def test_method(self, n):
        await asyncio.sleep(n * 1000)
"""


SWITCHED_ON = ("-p", "asyncmon.testing.pytest_plugin")


def run_pytest(folder: Path, source: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_project.py").write_text(source)
    (folder / "pytest.ini").write_text(
        "[pytest]\nfilterwarnings = error\nasyncio_mode = strict\n"
        "asyncio_default_fixture_loop_scope = function\n"
        "addopts = --strict-markers -p no:cacheprovider\n"
    )
    command = [sys.executable, "-m", "pytest", "-v", *SWITCHED_ON, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_project_opts_in_test_by_test(tmp_path: Path) -> None:
    """Test names stay as they are."""
    result = run_pytest(tmp_path, PROJECT)
    assert "6 passed" in result.stdout, result.stdout + result.stderr
    assert "test_project.py::test_marked PASSED" in result.stdout
    assert "test_project.py::test_after PASSED" in result.stdout


def test_tests_of_anyio_run_in_virtual_time_too(tmp_path: Path) -> None:
    source = PROJECT.replace("mark.asyncio", "mark.anyio").replace("_asyncio.fixture", ".fixture")
    result = run_pytest(tmp_path, source.replace("pytest, pytest.fixture", "pytest"))
    assert "test_project.py::test_marked[virtual_time] PASSED" in result.stdout, result.stdout
    assert "test_project.py::test_by_fixture[virtual_time] PASSED" in result.stdout
    assert "test_project.py::test_after[asyncio] PASSED" in result.stdout


def test_the_loops_a_project_chose_for_itself_stay(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(
        "import asyncio\n"
        "class Own(asyncio.SelectorEventLoop): pass\n"
        "def pytest_asyncio_loop_factories(config, item): return {'own': Own}\n"
    )
    source = PROJECT.replace('__name__ != "VirtualTimeLoop"', '__name__ == "Own"')
    result = run_pytest(tmp_path, source)
    assert "6 passed" in result.stdout, result.stdout + result.stderr


def test_an_installed_asyncmon_is_not_loaded(tmp_path: Path) -> None:
    """Nothing is registered by installing: pytest starts as fast as without it."""
    source = "import sys\ndef test_it():\n    assert not {'asyncmon', 'numpy'} & sys.modules.keys()\n"
    (tmp_path / "test_project.py").write_text(source)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "1 passed" in result.stdout, result.stdout + result.stderr


def test_the_top_conftest_switches_it_on(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["asyncmon.testing.pytest_plugin"]')
    (tmp_path / "test_project.py").write_text(PROJECT)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "6 passed" in result.stdout, result.stdout + result.stderr


def test_without_pytest_asyncio_other_tests_run(tmp_path: Path) -> None:
    (tmp_path / "test_project.py").write_text("def test_it(): pass")
    command = [
        sys.executable,
        "-m",
        "pytest",
        *SWITCHED_ON,
        "-p",
        "no:asyncio",
        "-p",
        "no:cacheprovider",
    ]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "1 passed" in result.stdout, result.stdout + result.stderr


def test_what_goes_wrong_reads_well(tmp_path: Path) -> None:
    source = """
import asyncio
import pytest

@pytest.mark.asyncio
@pytest.mark.virtual_time
async def test_stuck():
    await asyncio.Event().wait()  # here it stays

def test_not_async(virtual_time):
    virtual_time.now()
"""
    result = run_pytest(tmp_path, source)
    assert "2 failed" in result.stdout, result.stdout + result.stderr
    assert "it waits in Event.wait (" in result.stdout
    assert "called from test_stuck (" in result.stdout
    assert "test_project.py:8)" in result.stdout
    assert "used without a running loop: the test needs `async def`, @pytest.mark.asyn" in result.stdout
