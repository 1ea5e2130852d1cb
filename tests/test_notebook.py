"""The notebook of the examples, run in a kernel from top to bottom."""

from __future__ import annotations

import re
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ipykernel", reason="ipykernel is not installed")
nbclient = pytest.importorskip("nbclient", reason="nbclient is not installed")
nbformat = pytest.importorskip("nbformat", reason="nbformat is not installed")

EXAMPLES = Path(__file__).parents[1] / "examples"


def text_of(cell: Any) -> str:
    return "".join(output.get("text", "") for output in cell.outputs)


def run(directory: Path) -> list[Any]:
    """Return the cells of code with their outputs, after a run where its data is."""
    (directory / "data").mkdir()
    shutil.copy(EXAMPLES / "data" / "digits.npz", directory / "data")
    notebook = nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=120, resources={"metadata": {"path": str(directory)}}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the packages that talk to kernels
        client.execute()
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def test_it_trains_peeks_stops_and_draws(tmp_path: Path) -> None:
    cells = run(tmp_path)
    progress, _, peeks, ended, interrupted, saved, plot = cells[2:]
    bar = progress.outputs[0].data["text/html"]
    assert re.search(r"value=\d+ max=3000></progress> step \d+, \d+ % of the held-out", bar)
    assert "step 3000 reached the last step" in text_of(progress)
    steps = [int(step) for step in re.findall(r"step (\d+): [89]\d\.\d % right", text_of(peeks))]
    assert len(steps) == 3
    assert 3000 < steps[0] < steps[1] < steps[2]
    assert text_of(ended) == "enough for now\n"
    assert "interrupted: cancelled" in text_of(interrupted)
    last = int(text_of(saved).rpartition("-")[2])
    assert last > steps[2]
    assert f"Session ended at step {last}: cancelled" in text_of(interrupted)
    assert "image/png" in plot.outputs[0].data


def test_it_is_stored_without_outputs() -> None:
    notebook = nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)
    nbformat.validate(notebook)
    assert all(not cell.outputs for cell in notebook.cells if cell.cell_type == "code")
