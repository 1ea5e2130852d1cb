"""The leases of a pipeline over HTTP, as an ASGI application."""

from __future__ import annotations

import asyncio
import json
import math
import secrets
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, Protocol

import numpy as np
import safetensors.numpy

from asyncmon.errors import CancelledError
from asyncmon.runtime.pipelines.lease import Lease
from asyncmon.runtime.pipelines.newest import Newest
from asyncmon.system.asgi import (
    Answer,
    Failure,
    Receive,
    Scope,
    Send,
    Token,
    bearer,
    check_method,
    chunks_of,
    header,
    missing_token,
    path_of,
    read_object,
)
from asyncmon.system.cancellation import outlast

MOST_VALUE_BYTES = 1024 * 1024
"""The bound of the body of a completion: decoding it holds the event loop, 15 ms for numbers."""
MOST_WAIT_SECS = 60.0
"""The longest wait of a request, for a call to make or for the commit of a checkpoint."""

_WAIT_SECS = 20.0
_MOST_ACKS = 10_000


class Leases(Protocol):
    """The part of a pipeline that the application uses."""

    async def lease(self) -> Lease | None: ...
    def complete(self, lease: Lease, value: Any) -> bool: ...
    def fail(self, lease: Lease, error: Exception) -> bool: ...
    def release(self, lease: Lease) -> bool: ...
    async def wait_commit(self) -> None: ...


class LeaseApp:
    """The leases of a pipeline over HTTP. Made by ``Pipeline.app``.

    docs/pipeline_workers.md has the requests.

    Elements and values are JSON. Weights are a safetensors file: arrays in a form that any language
    reads, and that runs no code.
    """

    def __init__(self, pipeline: Leases, token: str, lease_secs: float, *, keeps_results: bool) -> None:
        if not 0 < lease_secs < math.inf:
            raise ValueError(f"app(lease_secs=...) must be more than 0, got {lease_secs!r}.")
        self._pipeline = pipeline
        self._token = Token(token)
        self._lease_secs = lease_secs
        self._keeps_results = keeps_results
        self._loop = asyncio.get_running_loop()
        self._leases: dict[str, tuple[Lease, asyncio.TimerHandle]] = {}
        self._acks: dict[str, asyncio.Task[None]] = {}  # waits for the commits of completions
        self._files = Newest(_file)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        if scope["type"] != "http":  # "lifespan" too: a server then serves without one
            raise ValueError(f"The leases of a pipeline are for HTTP, not for {scope['type']!r}.")
        if asyncio.get_running_loop() is not self._loop:
            raise RuntimeError("The application must run in the event loop of its session.")
        try:
            answer = await self._answer(scope, receive)
        except Failure as failure:
            answer = failure.answer()
        await answer(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Answer:
        given = bearer(scope)
        if not given:
            raise missing_token()
        self._token.check(given)
        match path_of(scope).strip("/").split("/"):
            case ["lease"]:
                check_method(scope, ["POST"])
                return await self._lease(await _body(receive, "wait_secs"), receive)
            case ["leases", key, "weights"]:
                check_method(scope, ["GET"])
                return await self._weights(self._lease_of(key), header(scope, "if-none-match"))
            case ["leases", key, ("complete" | "fail" | "release" | "renew") as action]:
                check_method(scope, ["POST"])
                calls: Mapping[str, Callable[[str, Receive], Awaitable[Answer]]] = {
                    "complete": self._complete,
                    "fail": self._fail,
                    "release": self._release,
                    "renew": self._renew,
                }
                return await calls[action](key, receive)
        raise Failure(404, "There are POST lease, POST leases/ID/complete, fail, release, renew, and "
                           "GET leases/ID/weights.")  # fmt: skip

    # -- leases

    async def _lease(self, body: Mapping[str, Any], receive: Receive) -> Answer:
        secs = _wait_secs(body)
        leasing = asyncio.ensure_future(self._pipeline.lease())
        gone = asyncio.ensure_future(receive())  # the client has closed the connection
        try:
            await asyncio.sleep(0)  # both have begun
            await asyncio.wait([leasing, gone], timeout=secs, return_when=asyncio.FIRST_COMPLETED)
            if not leasing.done():
                return Answer(b"", 204)
            lease = leasing.result()
            if lease is None:
                raise Failure(410, "The session stops: there are no more calls.")
            if gone.done():
                self._pipeline.release(lease)
                return Answer(b"", 204)
            return self._opened(lease)
        except asyncio.CancelledError:
            if leasing.done() and not leasing.cancelled() and (lease := leasing.result()) is not None:
                self._pipeline.release(lease)
            raise
        finally:
            leasing.cancel()
            gone.cancel()
            await outlast(asyncio.gather(leasing, gone, return_exceptions=True))

    def _opened(self, lease: Lease) -> Answer:
        key = secrets.token_hex(16)
        found = {
            "lease": key,
            "element": lease.element,
            "ordinal": lease.ordinal,
            "member": lease.member,
            "attempt": lease.attempt,
            "version": lease.version,
            "lease_secs": self._lease_secs,
        }
        try:
            answer = _json(found)
        except (TypeError, ValueError) as error:
            text = (
                f"Element {lease.ordinal} cannot be sent to an HTTP worker, as it is no JSON: {error}. "
                "Let the source have values that JSON has."
            )
            self._pipeline.fail(lease, TypeError(text))
            raise Failure(500, text) from None
        self._leases[key] = lease, self._timer(key)
        return answer

    def _timer(self, key: str) -> asyncio.TimerHandle:
        return self._loop.call_later(self._lease_secs, self._expire, key)

    def _expire(self, key: str) -> None:
        lease, _ = self._leases.pop(key)
        self._pipeline.release(lease)

    def _lease_of(self, key: str) -> Lease:
        found = self._leases.get(key)
        if found is None or not found[0].is_open:
            raise Failure(409, "The lease has ended: its result is not wanted any more.")
        return found[0]

    def _end(self, key: str, end: Callable[[Lease], bool]) -> None:
        lease = self._lease_of(key)
        self._leases.pop(key)[1].cancel()
        end(lease)

    async def _renew(self, key: str, receive: Receive) -> Answer:
        await _body(receive)
        lease = self._lease_of(key)
        self._leases[key][1].cancel()
        self._leases[key] = lease, self._timer(key)
        return _json({"lease_secs": self._lease_secs})

    async def _release(self, key: str, receive: Receive) -> Answer:
        await _body(receive)
        self._end(key, self._pipeline.release)
        return _json({})

    async def _fail(self, key: str, receive: Receive) -> Answer:
        text = (await _body(receive, "error")).get("error")
        if not isinstance(text, str):
            raise Failure(400, 'Expected {"error": "what has failed"}.')
        error = RuntimeError(f"An HTTP worker has failed: {text}")
        self._end(key, lambda lease: self._pipeline.fail(lease, error))
        return _json({})

    async def _complete(self, key: str, receive: Receive) -> Answer:
        body = await _body(receive, "value", "ack", "wait_secs", most=MOST_VALUE_BYTES)
        secs, ack = _wait_secs(body), body.get("ack")
        if "value" not in body or ack not in (None, "commit"):
            raise Failure(400, 'Expected {"value": ...}, and maybe "ack": "commit", "wait_secs": 20.')
        if ack is not None and not self._keeps_results:
            raise Failure(
                400, '"ack": "commit" needs produce(keep="results"): no checkpoint has values.'
            )
        if ack is None or key not in self._acks:
            self._end(key, lambda lease: self._pipeline.complete(lease, body["value"]))
        if ack is None:
            return _json({})
        if key not in self._acks:
            self._acks[key] = waiting = asyncio.create_task(self._pipeline.wait_commit())
            waiting.add_done_callback(lambda done: done.cancelled() or done.exception())
            if len(self._acks) > _MOST_ACKS:  # of workers that did not ask again
                self._acks.pop(next(iter(self._acks)))
        waiting = self._acks[key]
        await asyncio.wait([waiting], timeout=secs)
        if not waiting.done():
            return _json({"committed": False}, 202)
        try:
            waiting.result()
        except CancelledError as error:
            raise Failure(410, str(error)) from None
        return _json({"committed": True})

    async def _weights(self, lease: Lease, known: str | None) -> Answer:
        if not lease.policy.has_weights:
            raise Failure(404, "The pipeline has no weights: produce(..., weights=...) has them.")
        weights = await lease.policy.weights()
        data = await self._files.of(weights)
        version, tag = str(lease.policy.version), f'"{self._files.number}"'
        headers = {"etag": tag, "x-version": version, "content-type": "application/octet-stream"}
        if known == tag:
            return Answer(b"", 304, headers)
        return Answer(data, headers=headers)


async def _body(receive: Receive, *keys: str, most: int = 1 << 16) -> Mapping[str, Any]:
    body = await read_object(chunks_of(receive), most)
    if unknown := body.keys() - set(keys):
        raise Failure(400, f"Unknown: {sorted(unknown)}; there are {sorted(keys)}.")
    return body


def _wait_secs(body: Mapping[str, Any]) -> float:
    secs = body.get("wait_secs", _WAIT_SECS)
    if isinstance(secs, bool) or not isinstance(secs, int | float) or not 0 <= secs <= MOST_WAIT_SECS:
        raise Failure(400, f"wait_secs must be a number from 0 to {MOST_WAIT_SECS:g}, not {secs!r}.")
    return secs


def _json(value: Any, status: int = 200) -> Answer:
    return Answer(json.dumps(value, allow_nan=False).encode(), status)


def _file(weights: Any) -> bytes:
    """Return weights as a safetensors file, and name nested arrays like ``layer/0``."""
    arrays = {name: np.asarray(one, order="C") for name, one in _named("", weights)}
    return safetensors.numpy.save(arrays)


def _named(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, list | tuple):
        value = dict(enumerate(value))
    if not isinstance(value, Mapping):
        yield name or "weights", value
        return
    for key, one in value.items():
        yield from _named(f"{name}/{key}" if name else str(key), one)
