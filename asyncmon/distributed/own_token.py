"""The secret that processes of one user share on a machine, for servers without a token of their own.

It is in a file that only the user can read, in a directory that only the user can change: ``asyncmon``
in ``$XDG_RUNTIME_DIR``, else ``asyncmon-UID`` in the directory for temporary files. A token is derived
from it for each port: a process of another user that listens at one learns nothing of other servers.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import secrets
import socket
import stat
import tempfile
from pathlib import Path

from asyncmon.errors import PermissionDeniedError
from asyncmon.system import portable

_NBYTES = 32


def own_token(port: int) -> bytes:
    """Return the token of this user's servers at a port. Blocking; makes the secret if there is none.

    Raises:
        PermissionDeniedError: others may read or change the file, or it cannot be made.
    """
    try:
        return _derived(_secret(_directory(make=True), make=True), port)
    except OSError as error:
        raise PermissionDeniedError(
            f"The secret of this user's servers cannot be made or read: {error}. Repair that, or set "
            "rpc_options.token."
        ) from error


def token_for(address: str) -> bytes | None:
    """Return the token for a server at ``host:port``, if that is this machine. Blocking."""
    host, _, port = address.rpartition(":")
    try:
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        if all(ipaddress.ip_address(str(place[0])).is_loopback for *_, place in found):
            return _derived(_secret(_directory(make=False), make=False), int(port))
    except (OSError, ValueError):
        pass  # the server refuses the connection, and says why
    return None


def _derived(secret: bytes, port: int) -> bytes:
    return hmac.digest(secret, b"asyncmon server at port %d" % port, hashlib.sha256)


def _directory(*, make: bool) -> Path:
    user = portable.user_id()
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and user is not None and Path(runtime).is_dir() and os.stat(runtime).st_uid == user:
        path = Path(runtime, "asyncmon")
    else:
        path = Path(tempfile.gettempdir(), f"asyncmon-{'own' if user is None else user}")
    if make:
        path.mkdir(mode=0o700, exist_ok=True)
    _check(path, os.lstat(path), stat.S_ISDIR)
    return path


def _secret(directory: Path, *, make: bool) -> bytes:
    path = directory / "secret"
    if make and not path.exists():
        descriptor, name = tempfile.mkstemp(dir=directory)  # readable by its owner only
        with os.fdopen(descriptor, "wb") as file:
            file.write(secrets.token_bytes(_NBYTES))
        try:
            os.link(name, path)  # whole, and not over that of another process
        except FileExistsError:
            pass
        finally:
            os.unlink(name)
    descriptor = os.open(path, os.O_RDONLY | portable.NO_FOLLOW | portable.NO_WAIT)
    with os.fdopen(descriptor, "rb") as file:
        _check(path, os.fstat(descriptor), stat.S_ISREG)
        secret = file.read(_NBYTES + 1)
    if len(secret) != _NBYTES:
        raise OSError(f"{path} does not have {_NBYTES} bytes; delete it")
    return secret


def _check(path: Path, found: os.stat_result, is_right: object) -> None:
    user = portable.user_id()
    if not callable(is_right) or not is_right(found.st_mode):
        raise OSError(f"{path} is not a plain file or directory")
    if user is not None and (found.st_uid != user or found.st_mode & 0o077):
        raise OSError(
            f"{path} belongs to user {found.st_uid} with mode {found.st_mode & 0o777:o}, and must be "
            f"readable by user {user} only"
        )
