"""Loggers for MLflow and Weights & Biases, read by the readers of these libraries."""

from __future__ import annotations

import asyncio
import importlib.util
import struct
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import asyncmon as am

pytestmark = pytest.mark.asyncio

CONFIG = {"rate": 0.1, "layers": 2, "name": "a"}


def needs(package: str) -> pytest.MarkDecorator:
    missing = importlib.util.find_spec(package) is None
    return pytest.mark.skipif(missing, reason=f"{package} is not installed")


@pytest.fixture
def _their_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


async def train(*loggers: Any, fails: bool = False) -> None:
    program = am.programs.FunctionProgram({"weight": 0.0})

    @program.step
    def step(state: Any) -> None:
        state["weight"] += 1.0

    session = am.MonitoredTrainingSession(program=program, loggers=loggers, name="digits-1")
    async with session as sess:
        sess.log_config(CONFIG)
        for loss in (0.5, 0.25):
            await sess.run("step")
            sess.log({"train/loss": loss})
        sess.log({"samples": np.arange(4.0), "note": "hello", "accuracy (top 5)": 0.5, "x//y": 1.0})
        sess.log("digit", am.summary.Image(np.zeros((4, 5))))
        if fails:
            raise ValueError("a bug")


@needs("mlflow")
@pytest.mark.usefixtures("_their_warnings")
async def test_mlflow_reads_metrics_params_and_artifacts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    monkeypatch.chdir(tmp_path)
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    logger = am.MlflowLogger("digits", run_name="first", tracking_uri=uri)
    await train(logger)
    client = mlflow.MlflowClient(tracking_uri=uri)
    experiment = client.get_experiment_by_name("digits")
    (run,) = client.search_runs([experiment.experiment_id])
    assert (run.info.run_id, run.info.run_name, run.info.status) == (logger.run_id, "first", "FINISHED")
    assert run.data.params == {"rate": "0.1", "layers": "2", "name": "a"}
    history = client.get_metric_history(logger.run_id, "train/loss")
    assert [(point.step, point.value) for point in history] == [(1, 0.5), (2, 0.25)]
    assert run.data.metrics["samples/mean"] == 1.5
    assert run.data.metrics["accuracy _top 5_"] == 0.5  # and "x//y" is refused
    assert [one.path for one in client.list_artifacts(logger.run_id)] == ["digit", "note"]
    assert mlflow.artifacts.load_text(f"{run.info.artifact_uri}/note/2.txt") == "hello"

    with pytest.raises(ValueError, match="a bug"):
        await train(am.MlflowLogger("digits", tracking_uri=uri, run_id=logger.run_id), fails=True)
    (run,) = client.search_runs([experiment.experiment_id])
    assert run.info.status == "FAILED"
    assert len(client.get_metric_history(logger.run_id, "train/loss")) == 4


def wandb_records(folder: Path) -> Iterator[Any]:
    """Yield the messages of the file that an offline run leaves for ``wandb sync``.

    The frame is that of LevelDB's logs; newer versions of wandb have their reader of it in a binary.
    """
    from wandb.proto.wandb_internal_pb2 import Record

    (path,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    data, position, parts = path.read_bytes(), 7, b""
    assert data.startswith(b":W&B")
    while position + 7 <= len(data):
        if (left := 32768 - position % 32768) < 7:
            position += left
            continue
        size, kind = struct.unpack_from("<HB", data, position + 4)
        parts += data[position + 7 : position + 7 + size]
        position += 7 + size
        if kind in (1, 4):  # a whole record, or its last part
            yield Record.FromString(parts)
            parts = b""


@needs("mlflow")
@pytest.mark.usefixtures("_their_warnings")
async def test_a_run_of_a_tracker_has_the_name_of_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import mlflow

    monkeypatch.chdir(tmp_path)
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    logger = am.MlflowLogger("digits", tracking_uri=uri)
    await train(logger)
    assert mlflow.MlflowClient(tracking_uri=uri).get_run(logger.run_id).info.run_name == "digits-1"


@needs("wandb")
@pytest.mark.usefixtures("_their_warnings")
async def test_wandb_reads_an_offline_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import wandb

    monkeypatch.setenv("WANDB_SILENT", "true")
    await train(am.WandbLogger(project="digits", mode="offline", dir=str(tmp_path)))
    await asyncio.to_thread(wandb.teardown)  # its process writes the file after run.finish()
    rows: list[dict[str, str]] = []
    config: dict[str, str] = {}
    exits = []
    for record in wandb_records(tmp_path):
        if record.WhichOneof("record_type") == "history":
            rows.append({"/".join(i.nested_key) or i.key: i.value_json for i in record.history.item})
        for update in (*record.run.config.update, *record.config.update):
            config["/".join(update.nested_key) or update.key] = update.value_json
        if record.HasField("exit"):
            exits.append(record.exit.exit_code)
    losses = [(row["global_step"], row["train/loss"]) for row in rows if "train/loss" in row]
    assert losses == [("1", "0.5"), ("2", "0.25")]
    assert {name: config[name] for name in CONFIG} == {"rate": "0.1", "layers": "2", "name": '"a"'}
    assert [row["note"] for row in rows if "note" in row] == ['"hello"']
    assert any("histogram" in row.get("samples", "") or "samples/_type" in row for row in rows)
    assert any(
        "image" in value for row in rows for key, value in row.items() if key.startswith("digit")
    )
    assert exits == [0]


@pytest.mark.parametrize(
    ("logger", "package"), [(am.MlflowLogger, "mlflow"), (am.WandbLogger, "wandb")]
)
async def test_a_missing_library_is_an_error_with_the_line_that_installs_it(
    logger: Any, package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (package, "mlflow.entities"):
        monkeypatch.setitem(sys.modules, name, None)  # not importable
    with pytest.raises(ImportError, match=rf"pip install 'asyncmon\[{package}\]'"):
        logger()
