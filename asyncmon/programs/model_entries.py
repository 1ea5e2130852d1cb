"""The state dict of one module in a checkpoint of any kind."""

from __future__ import annotations

from collections.abc import Mapping

from asyncmon.checkpoint.dtypes import Array
from asyncmon.checkpoint.manifest_reader import AVERAGE
from asyncmon.checkpoint.reader import CheckpointReader
from asyncmon.checkpoint.saveable_session import RESERVED
from asyncmon.errors import NotFoundError
from asyncmon.system.files import in_thread


async def read_model(reader: CheckpointReader, name: str | None, *, ema: bool) -> dict[str, Array]:
    """Return the state dict of a module in a checkpoint, see :func:`export`."""
    facts = reader.facts
    modules = modules_of(reader)
    found = {
        entry: entry
        for entry, dtype in facts.dtypes.items()
        if not (entry.startswith(RESERVED) or entry in facts.averages or dtype.hasobject)
        and entry != "global_step"
    }
    if name is None and len(modules) > 1:
        raise ValueError(f"The checkpoint {reader.path!r} has the modules {modules}: give one by name.")
    if name is not None or modules:
        chosen = modules[0] if name is None else name
        prefix = f"{chosen}/"
        found = {one.removeprefix(prefix): one for one in found if one.startswith(prefix)}
        if not found and facts.program is None:
            raise NotFoundError(
                f"{reader.path!r} is the state dict of one module and not of a program: give the "
                f"module alone, without the name {chosen!r}."
            )
        if not found:
            raise NotFoundError(
                f"The checkpoint {reader.path!r} has no module {chosen!r}; it has {modules}."
            )
    read = found
    if ema:
        averaged = {key for key, one in found.items() if one + AVERAGE in facts.shapes}
        if not averaged:
            raise NotFoundError(
                f"The checkpoint {reader.path!r} has no moving averages of {sorted(found)[:8]}: they "
                "come from a MovingAverageHook."
            )
        read = {key: one + AVERAGE if key in averaged else one for key, one in found.items()}
    arrays = await reader.get_tensors(read.values())

    def converted() -> dict[str, Array]:  # an average of bfloat16 is float32
        kept = read.items()
        return {key: arrays[one].astype(facts.dtypes[found[key]], copy=False) for key, one in kept}

    return await in_thread(converted)


def modules_of(reader: CheckpointReader) -> list[str]:
    """Return the names of the modules of the program that was saved."""
    program = reader.facts.program if isinstance(reader.facts.program, Mapping) else {}
    entries = set(reader.facts.shapes)
    modules = program.get("modules")
    if modules is None:  # of an earlier version; those with a state that is no tensor are not found
        modules = [name for name in program.get("state", ()) if f"{name}.json" not in entries]
    return [name for name in modules if any(entry.startswith(f"{name}/") for entry in entries)]
