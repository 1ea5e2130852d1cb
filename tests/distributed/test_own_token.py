"""A server without a token serves the processes of its own user on its own machine."""

from __future__ import annotations

import asyncio
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import asyncmon as am
from asyncmon import errors, graph
from asyncmon.distributed import own_token
from tests import forked
from tests.distributed.over_grpc import rpc_config

STRANGER = """
import asyncio, encodings.idna, os, sys  # all that the other user cannot read, perhaps
import asyncmon as am
from asyncmon import errors, graph as g
from asyncmon.distributed import grpc_transport
os.setgroups([])
os.setgid(65534)
os.setuid(65534)


async def main():
    async with am.Session(sys.argv[1]) as sess:
        await sess.run(g.constant(1.0) + 1.0)


try:
    asyncio.run(main())
except errors.UnauthenticatedError as error:
    print(error)
"""


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the directory of the secret."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    return tmp_path / "asyncmon"


async def result(server: am.Server) -> float:
    async with graph.Session(server.target, config=rpc_config()) as sess:
        found: float = await sess.run(graph.constant(2.0) * 3.0)
        return found


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


@pytest.mark.asyncio
async def test_a_process_of_the_same_user_needs_no_token(place: Path) -> None:
    async with am.Server.create_local_server() as server:
        assert await result(server) == 6.0
    assert (mode(place), mode(place / "secret")) == (0o700, 0o600)


@pytest.mark.asyncio
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="needs a second user")
async def test_a_process_of_another_user_is_refused() -> None:
    async with am.Server.create_local_server() as server:
        stranger = await asyncio.to_thread(forked.run, "-c", STRANGER, server.target)
    assert "The token is missing or wrong" in stranger.stdout, stranger.stderr


@pytest.mark.asyncio
async def test_a_client_that_cannot_find_the_secret_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with am.Server.create_local_server() as server:
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "elsewhere"))
        with pytest.raises(errors.UnauthenticatedError, match="processes of the same user"):
            await result(server)


def test_processes_that_start_together_make_one_secret() -> None:
    with ThreadPoolExecutor(8) as pool:
        tokens = set(pool.map(own_token.own_token, [2222] * 32))
    assert len(tokens) == 1
    assert own_token.own_token(2223) not in tokens


def expose(place: Path, fault: str) -> None:
    secret = place / "secret"
    match fault:
        case "file":
            secret.chmod(0o644)
        case "directory":
            place.chmod(0o755)
        case "link":
            secret.rename(place.parent / "secret")
            secret.symlink_to(place.parent / "secret")
        case "short":
            secret.write_bytes(b"")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (
            "file",
            "secret belongs to user [0-9]+ with mode 644, and must be readable by user [0-9]+ only",
        ),
        ("directory", "asyncmon belongs to user [0-9]+ with mode 755"),
        ("link", "secret"),
        ("short", "secret does not have 32 bytes; delete it"),
    ],
)
async def test_a_secret_that_others_can_read_is_refused(place: Path, fault: str, reason: str) -> None:
    own_token.own_token(2222)
    expose(place, fault)
    server = am.Server.create_local_server()
    with pytest.raises(errors.PermissionDeniedError, match=rf"{reason}.*set rpc_options\.token"):
        await server.start()
    await server.stop()
    assert own_token.token_for("localhost:2222") is None


def test_the_secret_is_for_this_machine_only() -> None:
    own_token.own_token(2222)
    assert own_token.token_for("127.0.0.1:2222") == own_token.token_for("localhost:2222") is not None
    assert own_token.token_for("192.0.2.1:2222") is None
    assert own_token.token_for("nonsense") is None
