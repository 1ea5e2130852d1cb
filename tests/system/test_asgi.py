"""The parts that the ASGI applications share, without a web framework."""

from __future__ import annotations

from typing import Any

import pytest

from asyncmon.system.asgi import (
    MOST_BODY_BYTES,
    Answer,
    Failure,
    Token,
    bearer,
    check_method,
    chunks_of,
    path_of,
    read_body,
    read_object,
)

pytestmark = pytest.mark.asyncio

SECRET = "sixteen letters!"


def body(*parts: bytes, end: str = "http.request") -> Any:
    """Return the ``receive`` of a request with this body."""
    messages = [{"type": "http.request", "body": part, "more_body": True} for part in parts]
    messages.append({"type": end})

    async def receive() -> Any:
        return messages.pop(0)

    return receive


async def test_an_answer_is_sent_with_its_length() -> None:
    sent: list[Any] = []

    async def send(message: Any) -> None:
        sent.append(message)

    await Answer(b"{}", 201, {"location": "/a"})({}, body(), send)
    assert sent[0]["status"] == 201
    assert dict(sent[0]["headers"]) == {
        b"content-length": b"2",
        b"content-type": b"application/json",
        b"location": b"/a",
    }
    assert sent[1]["body"] == b"{}"


async def test_a_failure_says_why() -> None:
    answer = Failure(409, 'no "more"', {"retry-after": "1"}).answer()
    assert (answer.status, answer.body) == (409, b'{"error": "no \\"more\\""}')
    assert answer.headers["retry-after"] == "1"


@pytest.mark.parametrize("secret", ["short", "sixteen letters\u00e9", "sixteen letters\n"])
async def test_a_weak_token_is_refused(secret: str) -> None:
    with pytest.raises(ValueError, match="16 printable ASCII"):
        Token(secret)


@pytest.mark.parametrize("given", ["", "sixteen letters", SECRET + "!", "\udc80", SECRET.upper()])
async def test_another_token_is_refused(given: str) -> None:
    with pytest.raises(Failure) as caught:
        Token(SECRET).check(given)
    assert caught.value.status == 401
    assert caught.value.headers == {"www-authenticate": "Bearer"}


async def test_the_token_of_a_request() -> None:
    scope = {"headers": [(b"authorization", b"bearer  " + SECRET.encode())]}
    Token(SECRET).check(bearer(scope))
    assert bearer({"headers": [(b"authorization", b"Basic eA==")]}) == ""
    assert bearer({"headers": []}) == ""


@pytest.mark.parametrize(
    ("path", "root", "inside"),
    [
        ("/a/b", "", "/a/b"),
        ("/a/b", "/a", "/b"),
        ("/a", "/a", "/"),
        ("/ab", "/a", "/ab"),
        ("/b", "/a/", "/b"),
        ("/", "", "/"),
    ],
)
async def test_the_path_below_the_mount(path: str, root: str, inside: str) -> None:
    assert path_of({"path": path, "root_path": root}) == inside


async def test_another_method_is_refused() -> None:
    check_method({"method": "POST"}, ["POST"])
    with pytest.raises(Failure, match="PUT is not allowed here, but: GET, POST") as caught:
        check_method({"method": "PUT"}, ["POST", "GET"])
    assert (caught.value.status, caught.value.headers) == (405, {"allow": "GET, POST"})


async def test_a_body_is_an_object() -> None:
    assert await read_object(chunks_of(body())) == {}
    assert await read_object(chunks_of(body(b'{"a"', b": 1}"))) == {"a": 1}


@pytest.mark.parametrize("wrong", [b"[]", b"{", b"\xff", b"[" * 60_000])
async def test_another_body_is_refused(wrong: bytes) -> None:
    with pytest.raises(Failure, match="must be a JSON object") as caught:
        await read_object(chunks_of(body(wrong)))
    assert caught.value.status == 400


async def test_a_body_is_bounded() -> None:
    assert len(await read_body(chunks_of(body(b"x" * MOST_BODY_BYTES)))) == MOST_BODY_BYTES
    endless = body(*[b"x" * 60] * 10)
    with pytest.raises(Failure, match="may have 100 bytes") as caught:
        await read_body(chunks_of(endless), 100)
    assert caught.value.status == 413
    assert (await endless())["body"], "the rest was not received"


async def test_a_client_that_leaves_sends_no_body() -> None:
    with pytest.raises(Failure, match="ended too early"):
        await read_body(chunks_of(body(b"{", end="http.disconnect")))
