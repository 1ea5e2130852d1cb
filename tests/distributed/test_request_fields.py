"""Requests with wrong fields are refused as invalid arguments, and disturb no session."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import enum
import random
from collections.abc import AsyncIterator
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from msgspec import msgpack

from asyncmon import errors, graph
from asyncmon.distributed import wire
from asyncmon.distributed.error_data import error_data, error_of
from asyncmon.distributed.wire import Decoder, Encoder, Message, decode, encode, frame, unframe
from tests.distributed.in_process import InProcessChannel, InProcessCluster, remote_session

WRONG = [
    None, True, -1, 1 << 63, 1.5, float("nan"), float("inf"), "", "x", b"x", [], [1], [[1]], ["array"],
    ["buffer", -1], ["object", "asyncmon.graph.nope", "X"], ["int", "f" * 5000], {}, {"a": 1},
]  # fmt: skip
ALLOWED = {"InvalidArgumentError", "AbortedError", "FailedPreconditionError", "NotFoundError"}


class Recorded(InProcessChannel):
    """Notes the requests."""

    messages: list[Message]

    async def call(self, request: Message, timeout: float) -> Message:
        self.messages.append(request)
        return await super().call(request, timeout)


@pytest_asyncio.fixture
async def channel() -> AsyncIterator[Recorded]:
    cluster = InProcessCluster({"ps": ["a:1"]})
    channel = Recorded(cluster.services["/job:ps/task:0"])
    channel.messages = []
    yield channel
    await cluster.close()


async def recorded(channel: Recorded) -> Any:
    """Return a session that keeps running, after one request of each kind."""
    v = graph.get_variable("v", initializer=np.zeros(3, np.float32))
    x = graph.placeholder(graph.float32, [3])
    queue = graph.FIFOQueue(3, [graph.float32], name="q")
    called = graph.py_func(lambda a: a + 1, [x], graph.float32)
    sess = remote_session(channel)
    await sess.run(v.initializer)
    await sess.run(v.assign_add(x), {x: np.ones(3, np.float32)})
    await sess.run(called, {x: np.ones(3, np.float32)})
    await sess.peek(v)
    with await sess.snapshot():
        pass
    await sess.load({"v": np.zeros(3, np.float32)})
    waiting = asyncio.create_task(sess.run(queue.dequeue()))
    await asyncio.sleep(0)
    await sess.queues()
    waiting.cancel()
    await asyncio.wait([waiting])
    backend: Any = sess.backend
    await backend.cluster_run.begin("runs")
    await backend.cluster_run.join("a session", is_chief=True)
    return sess


def mutations(content: dict[str, Any]) -> list[dict[str, Any]]:
    found = []
    for name in content:
        found.append({key: value for key, value in content.items() if key != name})
        found += [{**content, name: wrong} for wrong in WRONG]
        if isinstance(content[name], dict):
            found += [{**content, name: one} for one in mutations(content[name])]
        if isinstance(content[name], list) and content[name]:
            first, *rest = content[name]
            pair = [[first[0], 99]] if isinstance(first, list) else []  # an output that is not there
            found += [{**content, name: [wrong, *rest]} for wrong in [*WRONG, *pair]]
    return found


@pytest.mark.asyncio
async def test_a_request_with_a_wrong_field_is_an_invalid_argument(channel: Recorded) -> None:
    sess = await recorded(channel)
    seen = {}
    for message in channel.messages:
        content = Decoder(message).content
        seen[content["do"], content.get("job")] = content, message.buffers
    requests = {"attend", "open", "start", "resume", "cancel", "queues", "cluster_run"}
    assert {do for do, _ in seen} == requests
    assert {job for _, job in seen} >= {"run", "peek", "extend", "load", "snapshot"}
    service, last = channel.service, 1000
    for (do, _), (content, buffers) in seen.items():
        for wrong in mutations({**content, **({"wait": 0.0} if "wait" in content else {})}):
            if isinstance(wrong.get("sequence"), int) and wrong["sequence"] == content.get("sequence"):
                last += 1
                if do == "start":
                    is_same = wrong.get("plan") == content.get("plan")  # a known plan is not read
                    plan = last if is_same else wrong.get("plan", 0)
                    wrong = {**wrong, "sequence": last, "plan": plan}
            answering = service.answer(Message(msgpack.encode(wrong), copy.copy(buffers)))
            try:
                response = await asyncio.wait_for(answering, 0.02 if do == "attend" else 20)
            except TimeoutError:
                assert do == "attend", wrong  # it stays pending as long as its client is connected
                continue
            answer = Decoder(response).content
            if "error" in answer:
                assert answer["error"]["type"] in ALLOWED, (wrong, answer)
    assert (await sess.run("v:0")).shape == (3,)
    await sess.close()


class Text(str):
    __slots__ = ()


class Number(enum.IntEnum):
    LARGE = 1 << 70


@pytest.mark.parametrize(
    "value", [Text("a"), Number.LARGE, 1 << 200, -(1 << 63), (1 << 64) - 1, b"\0" * 3]
)
def test_values_of_any_size_and_subclass_are_sent(value: Any) -> None:
    assert decode(encode(value)) == value


def test_a_text_that_is_no_utf8_is_sent_readable() -> None:
    assert decode(encode({"file": "a\udc80", "same": ["b"]})) == {"file": "a\\udc80", "same": ["b"]}


@pytest.mark.parametrize(
    "data",
    [b"", b"\x93\x01", b"\xa1\xff", b"\xd4\x05\x00", b"\xd6\xff\0\0\0\1", b"\x91" * 100_000, b"\xc1"],
)
def test_bytes_that_are_no_plain_data_are_an_invalid_argument(data: bytes) -> None:
    with pytest.raises(errors.InvalidArgumentError):
        decode(Message(data))


@pytest.mark.parametrize("buffers", [[], [b"x" * 64]])
def test_a_header_above_the_limit_is_an_invalid_argument(
    monkeypatch: pytest.MonkeyPatch, buffers: list[bytes]
) -> None:
    monkeypatch.setattr(wire, "MAX_HEADER", 1000)
    whole = b"".join(frame(Message(bytes(1000), buffers)))
    assert unframe(whole).header == bytes(1000)
    with pytest.raises(errors.InvalidArgumentError, match="a header of 1001"):
        unframe(b"".join(frame(Message(bytes(1001), buffers))))


@pytest.mark.parametrize(
    "value", [graph.IndexedSlicesValue(1, 2, None), graph.random_uniform_initializer(0.0, 1.0)]
)
def test_an_object_with_another_number_of_fields_is_an_invalid_argument(value: Any) -> None:
    """Also where the last one has a default."""
    data = msgpack.decode(encode(value).header)
    assert repr(decode(Message(msgpack.encode(data)))) == repr(value)
    for wrong in (data[:-1], [*data, None]):
        with pytest.raises(errors.InvalidArgumentError):
            decode(Message(msgpack.encode(wrong)))


@pytest.mark.parametrize("kind", ["NopeError", "OK", "__class__"])
def test_an_error_of_an_unknown_class_is_an_internal_error(kind: str) -> None:
    data = {**error_data(ValueError("bad")), "type": kind}
    found = error_of(data, graph.Graph())
    assert type(found) is errors.InternalError
    assert str(found) == f"An error of the unknown class {kind!r} was sent: bad"


@pytest.mark.parametrize("value", WRONG[13:17])
def test_values_that_cannot_be_are_an_invalid_argument(value: Any) -> None:
    with pytest.raises(errors.InvalidArgumentError):
        decode(Message(msgpack.encode(value), [b"x"]))


def test_random_changes_of_messages_are_invalid_arguments_or_values() -> None:
    encoder = Encoder()
    value = {"a": [1, 2.5, (None, "text")], "b": np.arange(6).reshape(2, 3), "c": graph.float32}
    message, chance = encoder.message(value), random.Random(3)
    for _ in range(3000):
        header = bytearray(message.header)
        for _ in range(chance.randrange(1, 4)):
            header[chance.randrange(len(header))] = chance.randrange(256)
        with contextlib.suppress(errors.InvalidArgumentError):
            decode(Message(bytes(header), message.buffers))
