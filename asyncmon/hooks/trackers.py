"""Loggers for experiment trackers: MLflow and Weights & Biases."""

from __future__ import annotations

import importlib
import re
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np

from asyncmon.summary.logged import Image, LoggedValue, plain_numbers
from asyncmon.summary.values import HParam


class MlflowLogger:
    """Write logged values to a run of MLflow. Needs the extra ``mlflow``.

    Arrays are the metrics ``tag/min``, ``tag/max`` and ``tag/mean``. Texts and images are artifacts,
    ``tag/STEP.txt`` and ``tag/STEP.png``. Hyperparameters are params, which MLflow does not allow to
    change. In names, ``_`` replaces characters that MLflow refuses; a value that it refuses takes no
    other one with it. The run ends as FINISHED, or as FAILED after an error. ``run_id`` is set once it
    has begun.

    Args:
        experiment: the name of the experiment; created if missing.
        run_name: the name of a new run. Default: that of the session.
        tracking_uri: the server or directory, such as ``"sqlite:///mlflow.db"``. Default: MLflow's.
        run_id: continue this run, as a restarted training does.

    Raises:
        ImportError: MLflow is not installed.

    Example::

        session = MonitoredTrainingSession(loggers=[MlflowLogger("digits")])
    """

    def __init__(
        self,
        experiment: str = "Default",
        *,
        run_name: str | None = None,
        tracking_uri: str | None = None,
        run_id: str | None = None,
    ) -> None:
        self._entities = _imported("mlflow.entities", "MlflowLogger", "mlflow")
        self.run_id = run_id
        self._where = (experiment, run_name, tracking_uri)
        self._made: Any = None

    def _client(self) -> Any:
        if self._made is None:
            experiment, run_name, uri = self._where
            client = importlib.import_module("mlflow").MlflowClient(tracking_uri=uri)
            if self.run_id is None:
                found = client.get_experiment_by_name(experiment)
                made = client.create_experiment(experiment) if found is None else found.experiment_id
                self.run_id = client.create_run(made, run_name=run_name).info.run_id
            else:
                client.set_terminated(self.run_id, "RUNNING")
            self._made = client
        return self._made

    def name_run(self, name: str) -> None:
        """Set the name of a new run that was given none."""
        experiment, run_name, uri = self._where
        self._where = experiment, run_name or name, uri

    def write(self, step: int | None, wall_time: float, values: Mapping[str, LoggedValue]) -> None:
        """Log metrics and artifacts. Blocking."""
        client, at, millis = self._client(), step or 0, round(1000 * wall_time)
        metrics = [
            self._entities.Metric(_mlflow_name(tag), number, millis, at)
            for tag, number in plain_numbers(values).items()
        ]
        calls = self._batches("metrics", metrics)
        for tag, value in values.items():
            if isinstance(value, str):
                calls.append(
                    partial(client.log_text, self.run_id, value, f"{_mlflow_name(tag)}/{at}.txt")
                )
            elif isinstance(value, Image):
                calls.append(partial(self._log_image, _mlflow_name(tag), at, value))
        _call_all(calls)

    def write_config(self, config: Mapping[str, HParam]) -> None:
        """Log params. Blocking."""
        params = [
            self._entities.Param(_mlflow_name(name), str(value)) for name, value in config.items()
        ]
        _call_all(self._batches("params", params))

    def _batches(self, kind: str, entries: list[Any]) -> list[Callable[[], object]]:
        """Log entries in one request. If it is refused, return requests of one entry each."""
        client = self._client()
        try:
            if entries:
                client.log_batch(self.run_id, **{kind: entries})
        except Exception:
            return [partial(client.log_batch, self.run_id, **{kind: [entry]}) for entry in entries]
        return []

    def _log_image(self, tag: str, step: int, image: Image) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, f"{step}.png")
            path.write_bytes(image.png())
            self._client().log_artifact(self.run_id, str(path), tag)

    def flush(self) -> None:
        """Do nothing: each write is a request."""

    def close(self, error: BaseException | None = None) -> None:
        """End the run, if there is one."""
        if self._made is not None:
            self._made.set_terminated(self.run_id, "FINISHED" if error is None else "FAILED")


def _call_all(calls: list[Callable[[], object]]) -> None:
    """Make all calls, then raise the first error."""
    errors = []
    for call in calls:
        try:
            call()
        except Exception as error:
            errors.append(error)
    if errors:
        raise errors[0]


def _mlflow_name(tag: str) -> str:
    return re.sub(r"[^\w\-. :/]", "_", tag, flags=re.ASCII)


class WandbLogger:
    """Write logged values to a run of Weights & Biases. Needs the extra ``wandb``.

    The axis of the charts is ``global_step``, so that steps which a recovery repeats are not refused.
    The first write begins the run; ``run`` is its object from then on.

    Args:
        **init: arguments of ``wandb.init``, such as ``project``, ``name`` (default: that of the
            session), ``mode="offline"``, or ``id`` and ``resume`` to continue a run.

    Raises:
        ImportError: wandb is not installed.

    Example::

        session = MonitoredTrainingSession(loggers=[WandbLogger(project="digits")])
    """

    def __init__(self, **init: Any) -> None:
        self._wandb = _imported("wandb", "WandbLogger", "wandb")
        self._init = init
        self.run: Any = None

    def _open(self) -> Any:
        if self.run is None:
            self.run = self._wandb.init(**self._init)
            self.run.define_metric("global_step")
            self.run.define_metric("*", step_metric="global_step")
        return self.run

    def name_run(self, name: str) -> None:
        """Set the name of a run that was given none, and is not continued."""
        if "id" not in self._init:
            self._init.setdefault("name", name)

    def write(self, step: int | None, wall_time: float, values: Mapping[str, LoggedValue]) -> None:
        """Log values with the step and the time. Blocking."""
        found = {tag: self._value(value) for tag, value in values.items()} | {"wall_time": wall_time}
        self._open().log(found if step is None else found | {"global_step": step})

    def _value(self, value: LoggedValue) -> Any:
        if isinstance(value, Image):
            return self._wandb.Image(value.shown())
        return self._wandb.Histogram(value) if isinstance(value, np.ndarray) else value

    def write_config(self, config: Mapping[str, HParam]) -> None:
        """Update the config of the run. Blocking."""
        self._open().config.update(dict(config), allow_val_change=True)

    def flush(self) -> None:
        """Do nothing: wandb writes in a process of its own."""

    def close(self, error: BaseException | None = None) -> None:
        """Finish the run, if there is one; with exit code 1 after an error."""
        if self.run is not None:
            self.run.finish(exit_code=0 if error is None else 1)


def _imported(module: str, name: str, extra: str) -> ModuleType:
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise ImportError(f"{name} needs {extra}: pip install 'asyncmon[{extra}]'") from error
