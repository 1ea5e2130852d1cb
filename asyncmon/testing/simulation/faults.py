"""Random faults, decided by the seed of a simulation."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from asyncmon.testing.simulation import actions
from asyncmon.testing.simulation.actions import Action, Event


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
    return actions.disturb(secs, **{kind: rate})


_JUMPS = (-7200.0, -1.5, 600.0)

_KINDS: dict[str, Callable[[random.Random, str, float], Action]] = {
    "kill": lambda _draw, name, secs: actions.kill(name, secs),
    "crash": lambda _draw, name, secs: actions.crash(name, secs),
    "crash_at_write": lambda draw, name, secs: actions.crash_at_write(name, draw.randint(0, 60), secs),
    "terminate": lambda _draw, name, secs: actions.terminate(name, secs),
    "suspend": lambda _draw, name, secs: actions.suspend(name, secs),
    "partition": lambda _draw, name, secs: actions.partition(name, secs),
    "disturb": _disturb,
    "jump_clock": lambda draw, name, _secs: actions.jump_clock(name, draw.choice(_JUMPS)),
    "fill_disk": lambda draw, _name, secs: actions.fill_disk(secs, draw.randint(0, 2000)),
    "slow_disk": lambda draw, _name, secs: actions.slow_disk(draw.choice([0.002, 0.05]), secs),
}
