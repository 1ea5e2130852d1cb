"""The responses of a service: results of runs, snapshots, errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from asyncmon.distributed.error_data import error_data
from asyncmon.distributed.job import off_loop
from asyncmon.distributed.wire import Decoder, Encoder, Message
from asyncmon.graph.session.backend import Backend
from asyncmon.protobuf.run_options import RunMetadata
from asyncmon.system.snapshot import Snapshot


def answer(value: dict[str, Any]) -> Message:
    """Return values as a response."""
    return Encoder().message(value)


def results_of(backend: Backend, results: list[Any], metadata: RunMetadata | None = None) -> Message:
    """Return the response of a run."""
    content = {"values": results, "step": backend.global_step}
    if metadata is not None:
        content["metadata"] = [list(metadata.nodes), metadata.duration]
    return Encoder().message(content)


def failure(error: BaseException) -> Message:
    """Return an error as a response."""
    return Encoder().message({"error": error_data(error)})


def take_snapshot(backend: Backend, _decoder: Decoder) -> Callable[[], Awaitable[Message]]:
    """Order a snapshot; return a function that awaits it and makes the response."""
    ordered = backend.snapshot()  # before later requests

    async def take() -> Message:
        snapshot = await ordered
        content = {"values": dict(snapshot), "step": snapshot.step}
        try:
            message = await off_loop(len(snapshot), Encoder().message, content)
        except BaseException:
            snapshot.release()
            raise
        message.sent = snapshot.release
        return message

    return take


async def lent_results(backend: Backend, ordered: Awaitable[Snapshot]) -> Message:
    """Return the results of a run that only reads, in the memory of the state until they are sent."""
    snapshot = await ordered
    message = results_of(backend, [value[()] for value in snapshot.values()])
    message.sent = snapshot.release
    return message
