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


DISPLAYS = """
import asyncio
import asyncmon as am

program = am.programs.FunctionProgram(state={"weight": 0.0})

@program.step
async def train(state):
    state["weight"] += 1.0
    return {"loss": 1.0 / state["weight"]}

progress = am.ProgressHook(values={"loss": "loss"}, every_secs=0.05)
curves = am.CurvesHook({"loss": "loss"}, every_secs=0.05)
hooks = [am.StopAtStepHook(last_step=200), progress, curves]
async with am.MonitoredTrainingSession(program=program, hooks=hooks) as sess:
    while not sess.should_stop():
        await sess.run("train")
        await asyncio.sleep(0.002)
"""


def test_progress_and_curves_are_shown_without_widgets(tmp_path: Path) -> None:
    cells = [DISPLAYS, "sess", "curves"]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    client = nbclient.NotebookClient(
        notebook, timeout=120, resources={"metadata": {"path": str(tmp_path)}}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the packages that talk to kernels
        client.execute()
    training, session, shown = notebook.cells
    pages = [output.data["text/html"] for output in training.outputs if "data" in output]
    bar, drawn = sorted(pages, key=lambda page: "<svg" in page)
    assert re.search(r'<progress value="200" max="200"></progress> training: step 200/200, ', bar)
    assert "<polyline" in drawn
    assert "ipywidgets" not in text_of(training)
    assert "closed at step 200 of 200" in session.outputs[0].data["text/html"]
    assert "<polyline" in shown.outputs[0].data["text/html"]


MODEL = [
    "import asyncio, asyncmon as am\nfrom asyncmon import graph as g",
    """
w = g.get_variable("w", initializer=0.0)
v = g.Variable(0.0, name="v")
op = g.group(w.assign_add(1.0), am.get_or_create_global_step().assign_add(1))
async with am.MonitoredTrainingSession(checkpoint_dir="run", hooks=[am.StopAtStepHook(3)]) as sess:
    while not sess.should_stop():
        await sess.run(op)
""",
    """
async with am.MonitoredTrainingSession(checkpoint_dir="run") as sess:
    print("goes on at", sess.global_step, await sess.peek(w), w.graph is g.get_default_graph())
""",
    "am.summary.scalar('w', w); print('sync', w.graph is g.get_default_graph())",
    """
async def other():
    g.reset_default_graph()
    return g.get_default_graph()
print("a task has its own", await asyncio.create_task(other()) is not g.get_default_graph())
""",
    "g.get_variable('w', initializer=0.0)",
    """
g.Variable(0.0, name="v")
async with am.MonitoredTrainingSession(checkpoint_dir="run") as sess: pass
""",
    "g.reset_default_graph()\nnew = g.Variable(2.0, name='new')\nawait asyncio.sleep(0)",
    "print('reset', [one.op.name for one in g.global_variables()], new.graph is g.get_default_graph())",
]


def test_cells_have_one_default_graph_whether_they_await_or_not(tmp_path: Path) -> None:
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in MODEL])
    client = nbclient.NotebookClient(
        notebook, timeout=120, allow_errors=True, resources={"metadata": {"path": str(tmp_path)}}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the packages that talk to kernels
        client.execute()
    _, trained, goes_on, sync, task, again, renamed, _, reset = notebook.cells
    assert not [one for one in trained.outputs if one.output_type == "error"]
    assert text_of(goes_on).splitlines()[-1] == "goes on at 3 3.0 True"
    assert text_of(sync) == "sync True\n"
    assert text_of(task) == "a task has its own True\n"
    for cell in (again, renamed):
        error = next(one for one in cell.outputs if one.output_type == "error")
        assert "am.graph.reset_default_graph()" in "".join(error.traceback)
    assert text_of(reset) == "reset ['new'] True\n"


def test_it_is_stored_without_outputs() -> None:
    notebook = nbformat.read(EXAMPLES / "notebook.ipynb", as_version=4)
    nbformat.validate(notebook)
    assert all(not cell.outputs for cell in notebook.cells if cell.cell_type == "code")
