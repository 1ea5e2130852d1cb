"""The pytest plugin: async tests in virtual time.

Enable it in the top ``conftest.py`` of a project, or with ``-p asyncmon.testing.pytest_plugin``::

    pytest_plugins = ["asyncmon.testing.pytest_plugin"]

A marker or a fixture then runs a test, with its fixtures, on a
:class:`asyncmon.testing.VirtualTimeLoop`. It needs pytest-asyncio 1.4 or newer, or the plugin of anyio
(``@pytest.mark.anyio``)::

    @pytest.mark.asyncio
    @pytest.mark.virtual_time
    async def test_an_hour_passes_at_once() -> None:
        await asyncio.sleep(3600)

    @pytest.mark.asyncio
    async def test_the_clock_moved(virtual_time: VirtualTime) -> None:
        await asyncio.sleep(60)
        assert virtual_time.now() == 60
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Mapping
from contextlib import AbstractContextManager
from typing import Any

import pytest

from asyncmon.testing.virtual_time import VirtualTimeLoop


class VirtualTime:
    """The clock of the loop that runs the test: the value of the fixture ``virtual_time``."""

    def now(self) -> float:
        """Return virtual seconds since the test's loop was made."""
        return self.loop.time()

    def hold(self) -> AbstractContextManager[None]:
        """Hold virtual time during a block. See :meth:`asyncmon.testing.VirtualTimeLoop.hold`."""
        return self.loop.hold()

    def spend(self, seconds: float) -> None:
        """Advance time. See :meth:`asyncmon.testing.VirtualTimeLoop.spend`."""
        self.loop.spend(seconds)

    @property
    def loop(self) -> VirtualTimeLoop:
        """The running loop."""
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            where = "without a running loop: the test needs `async def`, "
        else:
            if isinstance(loop, VirtualTimeLoop):
                return loop
            where = f"on a {type(loop).__name__}: the test needs "
        raise RuntimeError(
            f"The fixture 'virtual_time' was used {where}@pytest.mark.asyncio, and pytest-asyncio 1.4 "
            "or newer, or @pytest.mark.anyio."
        )


@pytest.fixture
def virtual_time() -> VirtualTime:
    """Run the test in virtual time, and return its clock."""
    return VirtualTime()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "virtual_time: run the async test on asyncmon's loop, whose clock jumps over waits"
    )
    # Among tryfirst hooks the last registered is called first: before pytest-asyncio's.
    config.pluginmanager.register(_FirstUse(), _FirstUse.name)


_ANYIO = pytest.mark.parametrize(
    "anyio_backend",
    [("asyncio", {"loop_factory": VirtualTimeLoop})],
    ids=["virtual_time"],
    scope="module",  # as anyio's own fixture
)


class _FirstUse:
    """Register the loop factories when the first test requests virtual time."""

    # If the hook were always defined, pytest-asyncio would parametrise every test of a project.

    name = "asyncmon-first-use"

    @pytest.hookimpl(tryfirst=True)
    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        if not _requests(metafunc.definition):
            return
        if "anyio_backend" in metafunc.fixturenames:
            metafunc.definition.add_marker(_ANYIO)
            return
        plugins = metafunc.config.pluginmanager
        if not plugins.has_plugin("asyncio"):
            return  # another plugin runs async tests here, and reports that it does not know the loop
        if not hasattr(metafunc.config.hook, "pytest_asyncio_loop_factories"):
            pytest.fail("virtual_time needs pytest-asyncio 1.4 or newer", pytrace=False)
        if not plugins.has_plugin(_LoopFactories.name):
            plugins.register(_LoopFactories(), _LoopFactories.name)


class _LoopFactories:
    name = "asyncmon-loop-factories"

    @pytest.hookimpl(wrapper=True)
    def pytest_asyncio_loop_factories(
        self, item: pytest.Item
    ) -> Generator[None, Any, Mapping[str, Any]]:
        chosen = yield
        if _requests(item):
            return {"virtual_time": VirtualTimeLoop}
        return chosen or {"asyncio": asyncio.new_event_loop}


def _requests(item: pytest.Item) -> bool:
    if item.get_closest_marker("virtual_time") is not None:
        return True
    return "virtual_time" in getattr(item, "fixturenames", ())
