"""Show the progress: a bar, or lines where there is no terminal."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from asyncmon.hooks.hook_support import (
    created_session,
    log_errors,
    named_tensor,
    positive,
    samples_every,
    whole_number,
)
from asyncmon.hooks.stop_at_step import StopAtStepHook
from asyncmon.runtime import Coordinator, Session, SessionRunHook
from asyncmon.system import clock, files

if TYPE_CHECKING:
    from rich.console import Console

_SAMPLE_SECS = 1.0
_SMOOTHING = 0.3  # the weight of the newest interval in the rate


class ProgressHook(SessionRunHook):
    """Show how far training is: steps, rate, time left and chosen values. Needs the extra ``progress``.

    On a terminal and in notebooks it draws a bar; elsewhere it prints one plain line per interval. A
    background task does it, and a thread prints; a run costs nothing, but for the values once a second.

    Args:
        last_step: the step at which training is over. None: that of the session's
            :class:`StopAtStepHook`, the lowest of several; unknown without one.
        values: fetches by tag to be shown.
        description: a title for the bar or the lines.
        refresh_secs: how often the bar is drawn.
        line_secs: how often a line is printed where there is no bar.
        console: where to print; standard error if None.

    Raises:
        ImportError: rich is not installed.

    Example::

        hooks = [StopAtStepHook(last_step=10_000), ProgressHook(values={"loss": loss})]
    """

    def __init__(
        self,
        last_step: int | None = None,
        values: Mapping[str, Any] | None = None,
        *,
        description: str = "training",
        refresh_secs: float = 0.25,
        line_secs: float = 10.0,
        console: Console | None = None,
    ) -> None:
        positive("refresh_secs", refresh_secs)
        positive("line_secs", line_secs)
        if last_step is not None:
            whole_number("last_step", last_step, least=1)
        try:
            from rich.console import Console
        except ImportError as error:
            raise ImportError("ProgressHook needs rich: pip install 'asyncmon[progress]'") from error
        self._given_last_step = last_step
        self._values = dict(values or {})
        console = console or Console(stderr=True)
        interactive = console.is_terminal or console.is_jupyter
        self._display = (_Bar if interactive else _Lines)(description, console)
        self._every_secs = refresh_secs if interactive else line_secs
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
        await files.in_thread(self._display.stop)

    async def _sample(self, coord: Coordinator) -> None:
        async for values, _ in samples_every(coord, _SAMPLE_SECS, self._fetches):
            self._sampled = values

    async def _show(self, step: int) -> None:
        now, (before, mark) = clock.monotonic(), self._mark
        if now > before:
            rate = max(0, step - mark) / (now - before)
            self._rate = rate if self._rate is None else self._rate + _SMOOTHING * (rate - self._rate)
            self._mark = now, step
        last_step = self._last_step()
        await files.in_thread(self._display.show, step, last_step, self._text(step, last_step))

    def _last_step(self) -> int | None:
        if self._given_last_step is not None:
            return self._given_last_step
        hooks = created_session(self._coord).hooks()
        stops = [hook.last_step for hook in hooks if isinstance(hook, StopAtStepHook)]
        return min((step for step in stops if step is not None), default=None)

    def _text(self, step: int, last_step: int | None) -> str:
        parts = [f"step {step}" if last_step is None else f"step {step}/{last_step}"]
        if self._rate is not None:
            parts.append(f"{self._rate:.3g} steps/s")
        if last_step is not None and self._rate:
            left = datetime.timedelta(seconds=round(max(0, last_step - step) / self._rate))
            parts.append(f"{left} left")
        parts += [f"{tag} = {_brief(value)}" for tag, value in self._sampled.items()]
        return ", ".join(parts)


class _Bar:
    """A bar that is drawn over itself."""

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
    """One line after another."""

    def __init__(self, description: str, console: Console) -> None:
        self._description = description
        self._console = console

    def show(self, step: int, last_step: int | None, text: str) -> None:
        line = f"{self._description}: {text}"
        self._console.print(line, soft_wrap=True, markup=False, highlight=False)

    def stop(self) -> None:
        """Do nothing: no terminal is held."""


def _brief(value: Any) -> str:
    try:
        return f"{float(value):.4g}"
    except (TypeError, ValueError):
        return str(value)
