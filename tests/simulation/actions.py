"""The events of a simulation, scheduled or random: what happens to processes, network and disk."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple


@dataclass(frozen=True)
class Action:
    """What happens at a time of a simulation. Made by the functions of this module.

    Attributes:
        text: the line of the log.
        apply: does it in the :class:`.run.World` of a simulation.
        name: the process that it happens to, None for several.
        starts: whether it starts that process.
    """

    text: str
    apply: Callable[[Any], None]
    name: str | None = None
    starts: bool = False

    def __repr__(self) -> str:
        return self.text


class Event(NamedTuple):
    """An action at a time, in seconds since the beginning of the simulation."""

    time: float
    action: Action


def at(secs: float, action: Action) -> Event:
    """Schedule an action for a time in virtual seconds since the beginning."""
    return Event(secs, action)


def kill(name: str, restart_secs: float | None = None) -> Action:
    """End a process at once, as SIGKILL does. Files keep its writes.

    Args:
        name: the process.
        restart_secs: start it again after this time. None: it stays dead.
    """
    text = _ends("kill", name, restart_secs)
    return Action(text, lambda world: world.end(name, False, restart_secs), name)


def crash(name: str, restart_secs: float | None = None) -> Action:
    """Cut the power of a process's machine. Its unsynced writes are lost, and it answers nothing.

    Arguments as for :func:`kill`.
    """
    text = _ends("crash", name, restart_secs)
    return Action(text, lambda world: world.end(name, True, restart_secs), name)


def terminate(name: str, restart_secs: float | None = None) -> Action:
    """Send SIGTERM to a process. Its sessions stop, save and close; without one it ends at once.

    Args:
        name: the process.
        restart_secs: start it after this time, if it has ended by then. None: never.
    """
    text = _ends("terminate", name, restart_secs)
    return Action(text, lambda world: world.terminate(name, restart_secs), name)


def _ends(what: str, name: str, restart_secs: float | None) -> str:
    return f"{what} {name}" + ("" if restart_secs is None else f", start again in {restart_secs:g} s")


def start(name: str) -> Action:
    """Start a process that is dead or has ended."""
    return Action(f"start {name}", lambda world: world.start(name), name, True)


def suspend(name: str, secs: float) -> Action:
    """Stop a process for some time, as SIGSTOP and SIGCONT do."""
    return Action(f"suspend {name} for {secs:g} s", lambda world: world.suspend(name, secs), name)


def partition(names: str | set[str], secs: float, others: set[str] | None = None) -> Action:
    """Lose all messages between processes for some time.

    Args:
        names: a process, or several.
        secs: the duration.
        others: the processes on the other side. Default: all others.
    """
    some = frozenset({names} if isinstance(names, str) else names)
    text = f"cut {', '.join(sorted(some))} off for {secs:g} s"
    rest = None if others is None else frozenset(others)
    return Action(text, lambda world: world.cut(some, rest, secs))


def jump_clock(name: str, secs: float) -> Action:
    """Move the wall clock of a machine. The monotonic clock does not jump."""
    return Action(f"move the clock of {name} by {secs:g} s", lambda world: world.jump(name, secs), name)


def crash_at_write(name: str, changes: int, restart_secs: float | None = None) -> Action:
    """Crash a machine in the midst of its file calls, for example of a save.

    ``changes`` is the number of writes, flushes, renames and deletions that it still executes. Other
    arguments as for :func:`kill`.
    """
    text = _ends(f"after {changes} more changes of files, crash", name, restart_secs)
    return Action(text, lambda world: world.crash_at_write(name, changes, restart_secs), name)


def fill_disk(secs: float, free: int = 0) -> Action:
    """Leave only some bytes free on the disk, for some time. Deletions make room."""
    return Action(f"leave {free} bytes free for {secs:g} s", lambda world: world.fill(free, secs))


def slow_disk(call_secs: float, secs: float) -> Action:
    """Let each file call take some seconds, for some time."""
    text = f"file calls take {call_secs:g} s for {secs:g} s"
    return Action(text, lambda world: world.slow(call_secs, secs))


def disturb(secs: float, **rates: Any) -> Action:
    """Change the network for some time. See :class:`.network.Link` for the rates."""
    text = ", ".join(f"{name}={value!r}" for name, value in rates.items())
    return Action(f"messages for {secs:g} s: {text}", lambda world: world.disturb(secs, rates))


# --- random faults --------------------------------------------------------------------------------
@dataclass(frozen=True)
class Faults:
    """The number, the time and the kinds of random faults of :func:`simulate`.

    Faults of services happen only while all programs run, as a program may need them for its end.

    Args:
        secs: they happen in this time from the beginning, in virtual seconds.
        count: the largest number of faults. The seed decides how many happen.
        kinds: some of ``kill``, ``crash``, ``crash_at_write``, ``terminate``, ``suspend``,
            ``partition``, ``disturb``, ``jump_clock``, ``fill_disk``, ``slow_disk``. A kind that comes
            twice is twice as frequent.
        names: the processes that they happen to. Default: all.
        longest: the longest duration of a suspension, of a partition, or of a restart, in seconds.
    """

    secs: float = 10.0
    count: int = 6
    kinds: Sequence[str] = (
        "kill", "kill", "crash", "crash_at_write", "suspend", "suspend", "partition", "disturb",
        "disturb", "jump_clock", "slow_disk",
    )  # fmt: skip
    names: Sequence[str] | None = None
    longest: float = 12.0

    def __post_init__(self) -> None:
        unknown = sorted(set(self.kinds) - set(_KINDS))
        if unknown:
            raise ValueError(
                f"There is no kind of fault {unknown[0]!r}; expected one of {list(_KINDS)}."
            )

    def events(self, seed: str, names: Sequence[str]) -> list[Event]:
        """Return the faults of a seed, in order."""
        draw = random.Random(seed)
        found = [self._event(draw, self.names or names) for _ in range(draw.randint(1, self.count))]
        return sorted(found, key=lambda event: event.time)

    def _event(self, draw: random.Random, names: Sequence[str]) -> Event:
        time, kind = draw.uniform(0, self.secs), draw.choice(self.kinds)
        name, secs = (
            draw.choice(names),
            round(draw.uniform(0.1, self.longest) ** draw.choice([0.5, 1]), 2),
        )
        return Event(round(time, 4), _KINDS[kind](draw, name, secs))


def _disturb(draw: random.Random, _name: str, secs: float) -> Action:
    rate = draw.choice([0.003, 0.01, 0.03])
    kind = draw.choice(["slow", "lost", "repeated", "broken"])
    return disturb(secs, **{kind: rate})


_JUMPS = (-7200.0, -1.5, 600.0)

_KINDS: dict[str, Callable[[random.Random, str, float], Action]] = {
    "kill": lambda _draw, name, secs: kill(name, secs),
    "crash": lambda _draw, name, secs: crash(name, secs),
    "crash_at_write": lambda draw, name, secs: crash_at_write(name, draw.randint(0, 60), secs),
    "terminate": lambda _draw, name, secs: terminate(name, secs),
    "suspend": lambda _draw, name, secs: suspend(name, secs),
    "partition": lambda _draw, name, secs: partition(name, secs),
    "disturb": _disturb,
    "jump_clock": lambda draw, name, _secs: jump_clock(name, draw.choice(_JUMPS)),
    "fill_disk": lambda draw, _name, secs: fill_disk(secs, draw.randint(0, 2000)),
    "slow_disk": lambda draw, _name, secs: slow_disk(draw.choice([0.002, 0.05]), secs),
}
