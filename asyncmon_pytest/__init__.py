"""The pytest plugin of asyncmon: tests in virtual time, and an assertion that nothing is left behind.

pytest loads this module in every project of an environment where asyncmon is installed. It therefore
lies beside the package, and imports asyncmon (and numpy with it) only for a test that asks for it.

A test asks by a marker or by a fixture; pytest-asyncio 1.4 or newer runs it, fixtures included, on a
:class:`asyncmon.testing.VirtualTimeLoop`::

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
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping
    from contextlib import AbstractContextManager

    from asyncmon.testing import VirtualTimeLoop


class VirtualTime:
    """What the fixture ``virtual_time`` gives: the clock of the loop that runs the test."""

    def now(self) -> float:
        """Return virtual seconds since the test's loop was made."""
        return self.loop.time()

    def hold(self) -> AbstractContextManager[None]:
        """Make time stand still for a block. See :meth:`asyncmon.testing.VirtualTimeLoop.hold`."""
        return self.loop.hold()

    def spend(self, seconds: float) -> None:
        """Hold the loop for a while. See :meth:`asyncmon.testing.VirtualTimeLoop.spend`."""
        self.loop.spend(seconds)

    @property
    def loop(self) -> VirtualTimeLoop:
        """The running loop."""
        from asyncmon.testing import VirtualTimeLoop

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
            "or newer."
        )


@pytest.fixture
def virtual_time() -> VirtualTime:
    """Run the test in virtual time, and give its clock."""
    return VirtualTime()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "virtual_time: run the async test on asyncmon's loop, whose clock jumps over waits"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Take part in choosing loops from the first test on that asks for it, and not before.

    Merely defining the hook makes pytest-asyncio parametrise every test of a project.
    """
    if not _asks(metafunc.definition):
        return
    plugins = metafunc.config.pluginmanager
    if not plugins.has_plugin("asyncio"):
        return  # another plugin runs async tests here; it will say that it does not know the loop
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
        if _asks(item):
            return {"virtual_time": _new_virtual_time_loop}
        return chosen or {"asyncio": asyncio.new_event_loop}


def _new_virtual_time_loop() -> VirtualTimeLoop:
    from asyncmon.testing import VirtualTimeLoop

    return VirtualTimeLoop()


def _asks(item: pytest.Item) -> bool:
    if item.get_closest_marker("virtual_time") is not None:
        return True
    return "virtual_time" in getattr(item, "fixturenames", ())
