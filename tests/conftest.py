"""The plugin that users of the test bench switch on the same way; a new default graph for each test."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Iterator

import hypothesis
import pytest

from asyncmon.graph import reset_default_graph

pytest_plugins = ["asyncmon.testing.pytest_plugin"]

hypothesis.settings.register_profile("asyncmon", deadline=None)  # real time, and others compute too
hypothesis.settings.load_profile("asyncmon")


def pytest_addoption(parser: pytest.Parser) -> None:
    """``--seeds FIRST:COUNT``: the seeds of campaigns, instead of their short form's."""
    parser.addoption("--seeds", default=None, metavar="FIRST:COUNT")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that is marked as a campaign once for each seed."""
    mark = metafunc.definition.get_closest_marker("campaign")
    if mark is not None:
        first, count = 0, mark.kwargs["short"]
        if given := metafunc.config.getoption("--seeds"):
            first, count = map(int, given.split(":"))
        metafunc.parametrize("seed", range(first, first + count))


def pytest_configure() -> None:
    """Let Ctrl-C reach the programs that tests start: they inherit that it is ignored.

    A shell without job control starts what runs in its background so.
    """
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


LONG = {
    "test_chaos", "test_contract", "test_feed", "test_grpc", "test_grpc_failures",
    "test_llm_rollouts_example", "test_local", "test_local_parent", "test_local_saves",
    "test_mutations", "test_notebook", "test_resume", "test_resume_data", "test_random_faults",
    "test_rollouts_example", "test_sweeps",
}  # fmt: skip
"""Files that start processes through a helper, and campaigns of many examples."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark as fast what starts no process and is no campaign."""
    for item in items:
        module = getattr(item, "module", None)
        if item.path.stem not in LONG and not {"subprocess", "browser", "forked"} & vars(module).keys():
            item.add_marker("fast")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Run one process more than there are cores: many tests wait for others that they started."""
    return (os.cpu_count() or 1) + 1


def pytest_collection_finish() -> None:
    """Keep what the collection made out of each later garbage collection: 9,000 tests, all modules."""
    gc.collect()
    gc.freeze()


def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """Freeze again after a file whose simulations unfroze it: they end with ``gc.unfreeze()``."""
    if nextitem is not None and nextitem.path != item.path and not gc.get_freeze_count():
        gc.collect()
        gc.freeze()


@pytest.fixture(autouse=True)
def _new_default_graph() -> Iterator[None]:
    yield
    reset_default_graph()
