"""The wings: packages beside the core, which works without them. A wing is deleted with its folder.

A wing is a folder of ``asyncmon`` with a file ``wing.toml``, read at the first use and without an
import of the wing::

    advice = "asyncmon.NAME.names"   # a module like asyncmon.system.missing_names.Adviser
    wire = ["asyncmon.NAME."]        # the modules whose ops and objects a message may name

    [commands]                       # of the command line: module, summary
    convert = ["asyncmon.NAME.command", "convert old files"]
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache


@dataclass(frozen=True, slots=True)
class Wing:
    """What a wing registers.

    Attributes:
        name: the name of its package in ``asyncmon``.
        advice: the module with advice on missing names.
        wire: the beginnings of the names of modules whose ops and objects a message may name.
        commands: the module and the summary of each command.
    """

    name: str
    advice: str
    wire: list[str] = field(default_factory=list)
    commands: dict[str, list[str]] = field(default_factory=dict)


@cache
def wings() -> tuple[Wing, ...]:
    """Return the wings that are installed, by name."""
    import tomllib  # here, as most programs need no wing
    from importlib.resources import files

    found = [(folder.name, folder / "wing.toml") for folder in files("asyncmon").iterdir()]
    return tuple(
        Wing(name, **tomllib.loads(file.read_text("utf-8")))
        for name, file in sorted(found, key=lambda one: one[0])
        if file.is_file()
    )
