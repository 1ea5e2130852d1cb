"""Report progress: the rate of steps, or a progress bar."""

from __future__ import annotations

import datetime
import errno
import logging
import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from asyncmon.graph import get_global_step
from asyncmon.hooks.hook_support import (
    created_session,
    current_graph,
    log_errors,
    named_tensor,
    next_sample,
    positive,
    samples_every,
    whole_number,
)
from asyncmon.hooks.step_schedule import StepSchedule, global_step_of, require_global_step, step_after
from asyncmon.runtime import Coordinator, Session, SessionRunContext, SessionRunHook, SessionRunValues
from asyncmon.runtime.session_statistics import last_step as last_step_of
from asyncmon.summary.shared_writer import SharedWriter, SummaryWriter
from asyncmon.system import clock, files
from asyncmon.system.diagnostics import Diagnostics
from asyncmon.system.notebook import Cell, in_notebook, progress_bar

if TYPE_CHECKING:
    from rich.console import Console

logger = logging.getLogger(__name__)


class _NotPassed(int):
    """A default value that is distinguishable from an equal argument."""


_DEFAULT: Final = _NotPassed(100)


class StepCounterHook(SessionRunHook):
    """Log and write the number of steps per second. TF1: ``tf.train.StepCounterHook``.

    The first run starts the measurement: with ``every_n_steps=10`` the rate is reported at steps 11,
    21 and so on. A recovery restarts it. By seconds, a background task reports; an interval without a
    step reports nothing and is added to the next one.

    Args:
        every_n_steps: the interval in global steps; 100 unless ``every_n_secs`` is given.
        every_n_secs: the interval in seconds.
        output_dir: write the rate to the event file of this directory, as ``global_step/sec``.
        summary_writer: write it to this writer instead.

    Raises:
        ValueError: neither or both of ``every_n_steps`` and ``every_n_secs`` are given, or the value
            is not positive.

    Example::

        hooks = [StepCounterHook(every_n_secs=10, output_dir="logs")]
    """

    def __init__(
        self,
        every_n_steps: int | None = _DEFAULT,
        every_n_secs: float | None = None,
        output_dir: str | os.PathLike[str] | None = None,
        summary_writer: SummaryWriter | None = None,
    ) -> None:
        if every_n_steps is _DEFAULT and every_n_secs is not None:
            every_n_steps = None
        if (every_n_steps is None) == (every_n_secs is None):
            raise ValueError("exactly one of every_n_steps and every_n_secs should be provided.")
        self._schedule = StepSchedule(self, StepCounterHook, "every_n_", every_n_steps, every_n_secs)
        self._output = SharedWriter(output_dir, summary_writer)
        self.output_dir = self._output.directory
        self._tag: str
        self._last_step: int | None = None
        self._warned = False

    async def begin(self) -> None:
        require_global_step(self)
        graph = current_graph()
        step = None if graph is None else get_global_step(graph)
        self._tag = f"{'global_step' if step is None else step.op.name}/sec"

    async def after_create_session(self, session: Session, coord: Coordinator) -> None:
        step = global_step_of(self, session)
        self._output.start(step, created_session(coord).recorder)
        self._schedule.start(step)
        self._last_step = None

    async def after_run(self, run_context: SessionRunContext, run_values: SessionRunValues) -> None:
        step = step_after(run_values)
        last, self._last_step = self._last_step, step
        if step == last:
            self._did_not_advance(step)
            return
        self._schedule.restarts(step)
        if self._schedule.is_due(step):
            self._report(step)

    async def background(self, session: Session, coord: Coordinator) -> None:
        """Report at the interval in seconds, from the end of the first run."""
        await next_sample(coord, [])
        self._schedule.done(global_step_of(self, session))
        async for _ in coord.every(self._schedule.every_secs):
            step = global_step_of(self, session)
            if step != self._schedule.last_step:
                with log_errors(self, "a report"):
                    self._report(step)
                continue
            await next_sample(coord, [])
            if global_step_of(self, session) == step:
                self._did_not_advance(step)

    async def cleanup(self, error: BaseException | None) -> None:
        await self._output.close()

    def _report(self, step: int) -> None:
        secs, steps = self._schedule.done(step)
        if not secs or steps is None:
            return  # the first report after a start or a restore, or no time passed
        rate = steps / secs
        logger.info("global_step/sec: %g", rate)
        self._output.add_scalars({self._tag: rate}, step)

    def _did_not_advance(self, step: int) -> None:
        if not self._warned:
            self._warned = True
            logger.warning(
                "It seems that global step (tf.train.get_global_step) has not been increased. Current "
                "value: %s vs previous value: %s. You could increase the global step by passing it to "
                "Optimizer.apply_gradients or Optimizer.minimize. This is said once.",
                step,
                step,
            )


_SAMPLE_SECS = 1.0
_REFRESH_SECS = 0.25  # of a bar
_LINE_SECS = 10.0
_SMOOTHING = 0.3  # the weight of the newest interval in the rate


class ProgressHook(SessionRunHook):
    """Show steps, rate, remaining time and chosen values. Outside of notebooks: the extra ``progress``.

    On a terminal and in notebooks it draws a bar; elsewhere it prints one plain line per interval, in
    a background task and a thread. In a notebook the bar is plain HTML, without ipywidgets. Runs only
    fetch the values, once a second.

    Args:
        last_step: the last step of training. None: that of the session's :class:`StopAtStepHook`, the
            lowest of several; unknown without one.
        values: fetches by tag to show.
        description: the title of the bar or of the lines.
        every_secs: the interval in seconds. Default: 0.25 for a bar, 10 for lines.
        console: the console of rich to print to; if None, the cell of a notebook, or standard error.

    Raises:
        ImportError: rich is not installed, and this is no notebook.

    Example::

        hooks = [StopAtStepHook(last_step=10_000), ProgressHook(values={"loss": loss})]
    """

    def __init__(
        self,
        last_step: int | None = None,
        values: Mapping[str, Any] | None = None,
        *,
        description: str = "training",
        every_secs: float | None = None,
        console: Console | None = None,
    ) -> None:
        if every_secs is not None:
            positive("every_secs", every_secs)
        if last_step is not None:
            whole_number("last_step", last_step, least=1)
        self._given_last_step = last_step
        self._values = dict(values or {})
        self._display = _display_on(console, description)
        usual = _LINE_SECS if isinstance(self._display, _Lines) else _REFRESH_SECS
        self._every_secs = usual if every_secs is None else every_secs
        self._diagnostics = Diagnostics("The progress")
        self._is_closed = False  # the pipe of the console
        self._fetches: Mapping[str, Any]
        self._sampled: Mapping[str, Any] = {}
        self._rate: float | None = None
        self._mark = (0.0, 0)
        self._coord: Coordinator

    async def begin(self) -> None:
        self._fetches = {tag: named_tensor(fetch) for tag, fetch in self._values.items()}
        self._sampled, self._rate = {}, None

    async def after_create_session(self, session: Session, coord: Coordinator) -> None:
        self._coord = coord
        self._mark = clock.monotonic(), session.global_step or 0
        if self._values:
            coord.create_task(self._sample, coord, name="ProgressHook values", cancel_on_stop=True)

    async def background(self, session: Session, coord: Coordinator) -> None:
        async for _ in coord.every(self._every_secs):
            with log_errors(self, "a report"):
                await self._show(session.global_step or 0)

    async def end(self, session: Session) -> None:
        await self._show(session.global_step or 0)

    async def cleanup(self, error: BaseException | None) -> None:
        await self._draw(self._display.stop)

    async def _sample(self, coord: Coordinator) -> None:
        async for values, _ in samples_every(coord, _SAMPLE_SECS, self._fetches):
            self._sampled = values

    async def _show(self, step: int) -> None:
        now, (before, mark) = clock.monotonic(), self._mark
        if now > before:
            rate = max(0, step - mark) / (now - before)
            self._rate = rate if self._rate is None else self._rate + _SMOOTHING * (rate - self._rate)
            self._mark = now, step
        last_step = self._given_last_step
        if last_step is None:
            last_step = last_step_of(created_session(self._coord).hooks())
        await self._draw(self._display.show, step, last_step, self._text(step, last_step))

    async def _draw(self, draw: Callable[..., None], *args: Any) -> None:
        with self._diagnostics.tolerated("the console"):
            if not self._is_closed:
                await files.in_thread(self._draw_now, draw, *args)

    def _draw_now(self, draw: Callable[..., None], *args: Any) -> None:
        try:
            draw(*args)
        except (BrokenPipeError, SystemExit):  # the second: how rich reacts, in a given console
            self._is_closed = True
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE)) from None

    def _text(self, step: int, last_step: int | None) -> str:
        parts = [f"step {step}" if last_step is None else f"step {step}/{last_step}"]
        if self._rate is not None:
            parts.append(f"{self._rate:.3g} steps/s")
        if last_step is not None and self._rate:
            left = datetime.timedelta(seconds=round(max(0, last_step - step) / self._rate))
            parts.append(f"{left} left")
        parts += [f"{tag} = {_brief(value)}" for tag, value in self._sampled.items()]
        return ", ".join(parts)


def _display_on(console: Console | None, description: str) -> _Bar | _CellBar | _Lines:
    if console is None and in_notebook():
        return _CellBar(description)
    try:
        from rich.console import Console
    except ImportError as error:
        raise ImportError("ProgressHook needs rich: pip install 'asyncmon[progress]'") from error

    class OwnConsole(Console):
        def on_broken_pipe(self) -> None:
            # That of rich redirects the program's stdout to /dev/null, and exits.
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    console = console or OwnConsole(stderr=True)
    if console.is_jupyter:
        return _CellBar(description)
    return (_Bar if console.is_terminal else _Lines)(description, console)


class _CellBar:
    """A bar in the cell of a notebook. That of rich is an empty cell without ipywidgets."""

    def __init__(self, description: str) -> None:
        self._description = description
        self._cell = Cell()

    def show(self, step: int, last_step: int | None, text: str) -> None:
        self._cell.show(progress_bar(step, last_step, f"{self._description}: {text}"))

    def stop(self) -> None:
        """Leave the last bar in the cell."""


class _Bar:
    def __init__(self, description: str, console: Console) -> None:
        from rich.progress import BarColumn, Progress, TextColumn

        self._progress = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[text]}", markup=False),
            console=console,
            auto_refresh=False,
        )
        self._task = self._progress.add_task(description, total=None, text="")

    def show(self, step: int, last_step: int | None, text: str) -> None:
        self._progress.update(self._task, completed=step, total=last_step, text=text)
        self._progress.start()  # a second start does nothing
        self._progress.refresh()

    def stop(self) -> None:
        self._progress.stop()


class _Lines:
    def __init__(self, description: str, console: Console) -> None:
        self._description = description
        self._console = console

    def show(self, step: int, last_step: int | None, text: str) -> None:
        line = f"{self._description}: {text}"
        self._console.print(line, soft_wrap=True, markup=False, highlight=False)

    def stop(self) -> None:
        """Do nothing: no terminal is in use."""


def _brief(value: Any) -> str:
    try:
        return f"{float(value):.4g}"
    except (TypeError, ValueError):
        return str(value)
