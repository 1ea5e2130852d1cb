"""Snapshots that stay in the process of a session, which writes the tensor files of a save itself.

Only names, shapes and small values are sent. The saver sends the file name and header, receives the
checksums, and commits.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from asyncmon.checkpoint import commit
from asyncmon.checkpoint.tensor_file import Part
from asyncmon.checkpoint.throttle import Control
from asyncmon.distributed.wire import Decoder, Encoder, Message
from asyncmon.errors import InvalidArgumentError, OpError
from asyncmon.graph.session.backend import Backend
from asyncmon.system.files import in_thread
from asyncmon.system.snapshot import HeldArray, Snapshot

Work = Callable[[], Awaitable[Message]]
Ask = Callable[[dict[str, Any], Encoder], Awaitable[dict[str, Any]]]

_SMALL = 1 << 16  # bytes: smaller arrays are sent


# --- the saver's side ------------------------------------------------------------------------
async def held_snapshot(ask: Ask, answered: Awaitable[dict[str, Any]]) -> Snapshot:
    """Return a snapshot that is held in the other process, except small arrays, until its release.

    Args:
        ask: executes a job there; AbortedError once the session is closed.
        answered: the response to the job ``"hold"``.
    """
    answer = await answered
    held = {
        name: HeldArray(name, np.dtype(dtype), tuple(shape))
        for name, (dtype, shape) in answer["held"].items()
    }
    values = {name: held.get(name, answer["values"].get(name)) for name in answer["names"]}
    loop, number, step = asyncio.get_running_loop(), answer["snapshot"], answer["step"]
    release = partial(_release, loop, ask, number)
    return Snapshot(values, step, release, _Held(loop, ask, number, values, step))


def _release(loop: asyncio.AbstractEventLoop, ask: Ask, number: int) -> None:
    async def send() -> None:
        with contextlib.suppress(OpError):  # closed: the snapshot is gone
            await ask({"job": "release", "snapshot": number}, Encoder())

    def start() -> None:
        task = loop.create_task(send())
        _releases.add(task)
        task.add_done_callback(_releases.discard)

    with contextlib.suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(start)


_releases: set[asyncio.Task[None]] = set()


@dataclass(frozen=True)
class _Held:
    """The other process, a :class:`~asyncmon.system.snapshot.Holder` of one snapshot."""

    _loop: asyncio.AbstractEventLoop
    _ask: Ask
    _number: int
    _values: Mapping[str, Any]
    _step: int | None

    def write_file(
        self, path: str, header: bytes, arrays: Mapping[str, Any], control: Control
    ) -> dict[str, int]:
        writing = self._write(path, header, arrays, control)
        return asyncio.run_coroutine_threadsafe(writing, self._loop).result()

    async def pull(self) -> Snapshot:
        answer = await self._ask({"job": "pull", "snapshot": self._number}, Encoder())
        return Snapshot({**self._values, **answer["values"]}, self._step)

    async def _write(
        self, path: str, header: bytes, arrays: Mapping[str, Any], control: Control
    ) -> dict[str, int]:
        encoder = Encoder()
        request = {
            "job": "write",
            "snapshot": self._number,
            "path": path,
            "header": encoder.encode(header),
            "arrays": {
                name: {"held": one.name} if isinstance(one, HeldArray) else encoder.encode(one)
                for name, one in arrays.items()
            },
            "urgent": control.is_urgent,
            "due": None if control.due is None else control.due - time.perf_counter(),
        }
        changed = asyncio.Event()
        control.on_change(lambda: self._loop.call_soon_threadsafe(changed.set))
        job = asyncio.ensure_future(self._ask(request, encoder))
        try:
            while not job.done():
                change = asyncio.create_task(changed.wait())
                await asyncio.wait((job, change), return_when=asyncio.FIRST_COMPLETED)
                change.cancel()
                if control.stopped:
                    job.cancel()
                    await asyncio.wait((job,))
                    control.check()
                elif changed.is_set():
                    changed.clear()
                    hurry = {"job": "hurry", "snapshot": self._number}
                    await self._ask(hurry, Encoder())
        finally:
            control.on_change(None)
            job.cancel()
        checksums: dict[str, int] = (await job)["checksums"]
        return checksums


# --- the session's side ----------------------------------------------------------------------
class HeldSnapshots:
    """The snapshots that this process holds for savers.

    Attributes:
        jobs: jobs to add to a :class:`.SessionService`.
    """

    def __init__(self) -> None:
        self._held: dict[int, tuple[Snapshot, list[Control]]] = {}
        self._numbers = itertools.count(1)
        self.jobs: dict[str, Callable[[Backend, Decoder], Work]] = {
            "hold": self._hold,
            "write": self._write,
            "hurry": self._hurry,
            "pull": self._pull,
            "release": self._release,
        }

    def _hold(self, backend: Backend, _decoder: Decoder) -> Work:
        ordered = backend.snapshot()  # before later requests

        async def take() -> Message:
            snapshot = await ordered
            number = next(self._numbers)
            self._held[number] = snapshot, []
            held = [name for name, one in snapshot.items() if _stays(one)]
            answer = {
                "snapshot": number,
                "names": list(snapshot),
                "held": {name: (snapshot[name].dtype.str, snapshot[name].shape) for name in held},
                "values": {name: one for name, one in snapshot.items() if name not in held},
                "step": snapshot.step,
            }
            return Encoder().message(answer)

        return take

    def _write(self, backend: Backend, decoder: Decoder) -> Work:
        content = decoder.content
        snapshot, controls = self._found(content["snapshot"])
        due = content["due"]
        control = Control(None if due is None else time.perf_counter() + due)
        if content["urgent"]:
            control.unthrottle()
        arrays = {}
        for name, one in content["arrays"].items():
            is_held = isinstance(one, dict)
            arrays[name] = snapshot[one["held"]] if is_held else decoder.decode(one)
        part = Part(decoder.decode(content["header"]), arrays)
        path = content["path"]

        async def write() -> Message:
            controls.append(control)
            try:
                checksums = await in_thread(
                    commit.write_part, path, part, control, on_cancel=control.stop
                )
            finally:
                controls.remove(control)
            return Encoder().message({"checksums": checksums, "step": backend.global_step})

        return write

    def _hurry(self, backend: Backend, decoder: Decoder) -> Work:
        for control in self._found(decoder.content["snapshot"])[1]:
            control.unthrottle()
        return partial(_nothing, backend)

    def _pull(self, backend: Backend, decoder: Decoder) -> Work:
        snapshot = self._found(decoder.content["snapshot"])[0]
        values = {name: one for name, one in snapshot.items() if _stays(one)}

        async def pull() -> Message:
            return Encoder().message({"values": values, "step": backend.global_step})

        return pull

    def _found(self, number: int) -> tuple[Snapshot, list[Control]]:
        if number not in self._held:
            raise InvalidArgumentError(f"There is no snapshot {number} any more.")
        return self._held[number]

    def _release(self, backend: Backend, decoder: Decoder) -> Work:
        found = self._held.pop(decoder.content["snapshot"], None)
        if found is not None:
            found[0].release()
        return partial(_nothing, backend)


async def _nothing(backend: Backend) -> Message:
    return Encoder().message({"step": backend.global_step})


def _stays(array: Any) -> bool:
    return bool(array.nbytes >= _SMALL and array.dtype.kind != "O")
