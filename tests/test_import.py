"""Importing asyncmon is free of side effects."""

from __future__ import annotations

import importlib
import inspect
import json
import pydoc
import subprocess
import sys
from types import ModuleType

import pytest

import asyncmon

PROBE = """
import json, logging, signal, sys, threading

handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
import asyncmon

print(json.dumps({
    "modules": sorted(name.split(".")[0] for name in sys.modules),
    "threads": threading.active_count(),
    "signals": handlers == {number: signal.getsignal(number) for number in signal.valid_signals()},
    "root_handlers": len(logging.root.handlers),
    "own_handlers": sum(
        len(logging.getLogger(name).handlers)
        for name in logging.root.manager.loggerDict
        if name.split(".")[0] == "asyncmon"
    ),
    "level": logging.getLogger("asyncmon").level,
    "loop": __import__("asyncio").events._get_running_loop() is not None,
}))
"""

EXTRAS = {
    "grpc", "httpx", "jax", "matplotlib", "obstore", "prometheus_client", "pytest", "ray", "rich",
    "starlette", "tensorboard", "torch", "uvicorn",
}  # fmt: skip


PACKAGES = [
    "", ".checkpoint", ".data", ".distributed", ".executors", ".graph", ".graph.layers", ".graph.nn",
    ".graph.train", ".hooks", ".jobs", ".monitor", ".programs", ".runtime", ".summary", ".testing",
]  # fmt: skip


def test_import_starts_nothing_and_imports_no_extra() -> None:
    out = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROBE], capture_output=True, text=True, check=True
    )
    seen = json.loads(out.stdout)
    assert not EXTRAS & set(seen.pop("modules"))
    assert seen == {
        "threads": 1,
        "signals": True,
        "root_handlers": 0,
        "own_handlers": 0,
        "level": 0,
        "loop": False,
    }
    assert out.stderr == ""


def test_import_leaves_slow_modules_that_few_programs_need() -> None:
    probe = (
        "import sys, numpy; before = set(sys.modules); import asyncmon;"
        "print(*sys.modules.keys() - before)"
    )
    out = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert not {"numpy.random", "_hashlib", "sqlite3", "wave"} & set(out.stdout.split())


def test_an_engine_that_is_missing_is_named_with_its_pip_line() -> None:
    probe = "import sys; sys.modules['jax'] = None; import asyncmon.programs.jax"
    out = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    assert "ImportError: JaxProgram needs JAX: pip install 'asyncmon[jax]'" in out.stderr


@pytest.mark.parametrize("name", PACKAGES)
def test_no_name_of_another_package_is_visible(name: str) -> None:
    module = importlib.import_module(f"asyncmon{name}")
    found = {name: one for name, one in vars(module).items() if not name.startswith("_")}
    homes = {
        name: one.__name__ if isinstance(one, ModuleType) else getattr(one, "__module__", "asyncmon")
        for name, one in found.items()
    }
    assert {name: home for name, home in homes.items() if not f"{home}.".startswith("asyncmon.")} == {}
    assert not {"TYPE_CHECKING", "lacking", "missing_name"} & found.keys()


@pytest.mark.parametrize("name", PACKAGES)
def test_dir_and_help_show_the_public_names(name: str) -> None:
    module = importlib.import_module(f"asyncmon{name}")
    assert dir(module) == sorted(set(module.__all__))
    assert [one for one in module.__all__ if not hasattr(module, one)] == []
    documented = pydoc.plain(pydoc.render_doc(module))
    assert [one for one in module.__all__ if one not in documented] == []


NAMES = """
    Channel CheckpointSaverHook CheckpointSaverListener ChiefSessionCreator ClusterHook ClusterSpec
    Coordinator CsvLogger CurvesHook EarlyStoppingHook EvalHook FeedFnHook FinalOpsHook
    GlobalStepWaiterHook JsonlWriter KeepBest LoggersHook LoggingTensorHook LoopLagHook LooperTask
    MlflowLogger ModelSummaryHook MonitoredSession MonitoredTrainingSession MovingAverageHook
    NanLossDuringTrainingError NanTensorHook ProfilerHook ProgressHook QueueRunner Recovery
    RestoreBestHook SaveHandle Saver Scaffold Server Session SessionConfig SessionManager
    SessionRunArgs SessionRunContext SessionRunHook SessionRunValues StepContext StepCounterHook
    StopAtStepHook SummarySaverHook Supervisor TensorBoardLogger
    TrainingMetricsHook WandbLogger WorkerSessionCreator add_queue_runner checkpoint
    checkpoints_iterator data distributed errors evaluate evaluate_checkpoints every executors export
    get_checkpoint_state get_global_step get_or_create_global_step graph hooks jobs latest_checkpoint
    list_variables load_checkpoint load_model logging_handler monitor programs replica_device_setter
    run run_record runs runtime start_queue_runners stop_if summary testing
"""
"""What a newcomer needs. Each further name makes the others harder to find."""

TF1_NAMES = """
    GraphKeys RunMetadata RunOptions SecondOrStepTimer SessionCreator SingularMonitoredSession
    assert_global_step basic_train_loop checkpoint_exists create_global_step get_checkpoint_mtimes
    global_step init_from_checkpoint load_variable remove_checkpoint update_checkpoint_state
    wait_for_new_checkpoint
"""


def test_the_top_level_has_the_names_of_a_newcomer() -> None:
    assert NAMES.split() == asyncmon.__all__


def test_other_names_of_tf1_are_importable_and_explicitly_exported() -> None:
    assert not set(TF1_NAMES.split()) & set(asyncmon.__all__)
    source = inspect.getsource(asyncmon)
    for name in TF1_NAMES.split():
        assert hasattr(asyncmon, name)
        assert f"{name} as {name}" in source, "type checkers see such imports only"


def test_packages_that_few_programs_need_are_imported_at_their_first_use() -> None:
    probe = (
        "import sys, asyncmon as am\n"
        "lazy = {f'asyncmon.{name}' for name in ('monitor', 'testing')}\n"
        "assert not lazy & sys.modules.keys()\n"
        "am.monitor, am.testing\n"
        "assert lazy <= sys.modules.keys()"
    )
    subprocess.run([sys.executable, "-c", probe], check=True)
