"""Connections with certificates, which these tests make."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

import asyncmon as am
from asyncmon import errors, graph
from asyncmon.distributed.grpc_transport import TOKEN
from asyncmon.distributed.own_token import own_token
from asyncmon.distributed.server import Server
from tests.distributed.over_grpc import make_certificates, rpc_config

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the command openssl")


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with two authorities, and a server's and a client's certificate of the first."""
    place = tmp_path_factory.mktemp("certificates")
    make_certificates(place)
    return place


def config(place: Path, name: str = "", authority: str = "", **options: Any) -> am.SessionConfig:
    """Return a config with the certificate and the authority of these names."""
    files = {}
    if name:
        files = {"certificate": str(place / f"{name}.pem"), "private_key": str(place / f"{name}.key")}
    if authority:
        files["authority"] = str(place / f"{authority}.pem")
    return rpc_config(**files, **options)


async def result(server: Server, client: am.SessionConfig) -> float:
    async with graph.Session(server.target, config=client) as sess:
        found: float = await sess.run(graph.constant(2.0) * 3.0)
        return found


@pytest.mark.asyncio
async def test_a_server_with_a_certificate(certificates: Path, caplog: Any) -> None:
    caplog.set_level("INFO", "asyncmon")
    async with Server.create_local_server(config(certificates, "server")) as server:
        assert await result(server, config(certificates, authority="authority")) == 6.0
        with pytest.raises(errors.UnauthenticatedError, match=r"authority='.*stranger.pem'"):
            await result(server, config(certificates, authority="stranger"))
        with pytest.raises(errors.UnavailableError):
            await result(server, rpc_config())
    assert "neither a token nor a certificate" not in caplog.text


@pytest.mark.asyncio
async def test_a_server_that_requires_certificates(certificates: Path) -> None:
    async with Server.create_local_server(config(certificates, "server", "authority")) as server:
        assert await result(server, config(certificates, "client", "authority")) == 6.0
        for client in (
            config(certificates, authority="authority"),
            config(certificates, "stranger", "authority"),
            rpc_config(),
        ):
            with pytest.raises(errors.UnavailableError):
                await result(server, client)


@pytest.mark.asyncio
async def test_certificates_and_a_token(certificates: Path) -> None:
    both = config(certificates, "server", token="secret")
    async with Server.create_local_server(both) as server:
        client = config(certificates, authority="authority", token="secret")
        assert await result(server, client) == 6.0
        with pytest.raises(errors.UnauthenticatedError):
            await result(server, config(certificates, authority="authority"))


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "files", [{"authority": "authority"}, {"name": "client", "authority": "authority"}]
)
async def test_the_secret_of_this_user_is_not_sent_to_a_server_with_a_certificate(
    certificates: Path, files: dict[str, str]
) -> None:
    seen = []

    class Recorder(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpcio has no types
        async def intercept_service(self, continuation: Any, details: Any) -> Any:
            seen.extend(name for name, _ in details.invocation_metadata)

    server = grpc.aio.server(interceptors=[Recorder()])
    pair = [(certificates / f"server.{kind}").read_bytes() for kind in ("key", "pem")]
    port = server.add_secure_port("localhost:0", grpc.ssl_server_credentials([tuple(pair)]))
    await server.start()
    assert own_token(port)  # there is one
    async with graph.Session(f"grpc://localhost:{port}", config=config(certificates, **files)) as sess:
        with pytest.raises(errors.UnimplementedError):
            await sess.run(graph.constant(2.0) * 3.0)
    await server.stop(None)
    assert "user-agent" in seen
    assert TOKEN not in seen


@pytest.mark.asyncio
async def test_certificates_that_are_not_whole(certificates: Path) -> None:
    pair = {"certificate": "server.pem", "private_key": "server.key"}
    for client in (
        config(certificates, authority="authority"),
        *(rpc_config(**{option: str(certificates / name)}) for option, name in pair.items()),
    ):
        with pytest.raises(
            ValueError, match=r"needs rpc_options.certificate and rpc_options.private_key"
        ):
            Server.create_local_server(client)
    with pytest.raises(FileNotFoundError):
        Server.create_local_server(config(certificates, "nobody"))
    async with Server.create_local_server() as server:
        with pytest.raises(FileNotFoundError):
            await result(server, config(certificates, authority="nobody"))
