"""The wheel, as a user installs it, and what pyproject.toml says of it."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

PROGRAM = """
import sys
sys.path[:0] = sys.argv[1:3]
import asyncio
import asyncmon as am
from asyncmon import graph as g
from asyncmon.cli import main
from asyncmon.monitor import page_files

assert am.__file__.startswith(sys.argv[1]), am.__file__


async def train():
    add = am.get_or_create_global_step().assign_add(1)
    hooks = [am.StopAtStepHook(last_step=20)]
    async with am.MonitoredTrainingSession(checkpoint_dir="runs", hooks=hooks) as sess:
        while not sess.should_stop():
            await sess.run(add)


asyncio.run(train())
print(asyncio.run(am.latest_checkpoint("runs")))
sys.exit(main(["--version"]))
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("dist")
    made = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", place, ROOT],
        capture_output=True, text=True,
    )  # fmt: skip
    assert made.returncode == 0, made.stdout + made.stderr
    return next(place.glob("*.whl"))


def test_the_wheel_works_without_the_source_tree(wheel: Path, tmp_path: Path) -> None:
    target = tmp_path / "installed"
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", target, wheel],
        check=True, capture_output=True,
    )  # fmt: skip
    dependencies = Path(np.__file__).parents[1]  # without its .pth files, one of which is asyncmon's
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", PROGRAM, target, dependencies],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[:2] == ["runs/model.ckpt-20", f"asyncmon {PROJECT['version']}"]
    assert (target / "asyncmon" / "py.typed").exists()
    assert list(target.glob("asyncmon-*.dist-info/licenses/LICENSE"))
    assert not (target / "tests").exists()


def test_the_wheel_stays_small(wheel: Path) -> None:
    assert wheel.stat().st_size < 1_500_000  # of code: no data, no tests


def test_no_link_of_the_readme_is_dead_on_the_package_index(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        [metadata] = [name for name in archive.namelist() if name.endswith("/METADATA")]
        text = archive.read(metadata).decode()
    links = re.findall(r"\]\(([^)]+)\)", text)
    repository = r"https://(?:github\.com/asyncmon/asyncmon/blob|raw\.githubusercontent\.com/.*)/main/"
    files = [re.sub(repository, "", link) for link in links if re.match(repository, link)]
    assert len(files) > 20
    assert [name for name in files if not (ROOT / name).exists()] == []
    assert [link for link in links if not link.startswith(("https://", "#"))] == []


def test_the_readme_has_a_table_of_the_extras_and_what_they_install() -> None:
    rows = dict(re.findall(r"^\| `(\w+)` \|.*?\| ([^|]*) \|", (ROOT / "README.md").read_text(), re.M))
    extras = PROJECT["optional-dependencies"]
    assert set(rows) == set(extras) - {"test", "dev"}
    for extra, installed in rows.items():
        names = {re.split(r"[\[>=<;]", requirement)[0] for requirement in extras[extra]}
        assert set(re.findall(r"[a-z][\w-]+", installed)) >= names, extra


def test_versions_agree() -> None:
    import asyncmon

    assert asyncmon.__version__ == PROJECT["version"]
