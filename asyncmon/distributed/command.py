"""``python -m asyncmon server``: its options, and a server until a signal."""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import logging
import os
import signal
import sys
from pathlib import Path

from asyncmon.distributed.cluster_spec import ClusterSpec
from asyncmon.distributed.server import Server
from asyncmon.errors import OpError
from asyncmon.protobuf.cluster_def import ServerDef
from asyncmon.session_config import SessionConfig
from asyncmon.system import portable
from asyncmon.system.usage_error import UsageError

DESCRIPTION = """\
Run a task of a cluster until SIGTERM or SIGINT. Its target, grpc://host:port, is printed once it takes
sessions. Without a token and a certificate it takes only connections of this machine and user."""

TOKEN = "ASYNCMON_TOKEN"


def add_options(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--cluster", required=True, metavar="JSON", help='{"ps": ["host:2222"], "worker": [...]}')
    add("--job", help="the job of this task; may be left out where there is one")
    add("--task", type=int, help="its index; may be left out where the job has one task")
    add(
        "--elastic", action="append", metavar="JOB",
        help="tasks of this job join and leave a run; may be given more than once",
    )  # fmt: skip
    add("--port", type=int, default=0, help="listen at another port than that of the cluster")
    add(
        "--token-file", type=Path, metavar="FILE", help=f"has the secret; else {TOKEN} is, if it is set"
    )
    add("--certificate", metavar="PEM", help="the server's certificates, to encrypt connections")
    add("--private-key", metavar="PEM", help="the key of the first one")
    add("--authority", metavar="PEM", help="take only clients with a certificate that this one signed")
    add(
        "--timeout-secs", type=float, default=10.0, metavar="SECS",
        help="a connection that is silent for so long is given up (default: %(default)s)",
    )  # fmt: skip
    add(
        "--import", dest="modules", action="append", default=[], metavar="MODULE",
        help="import a module first, one that registers ops; may be given more than once",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Run a server as the options say, and return the exit status.

    Raises:
        UsageError: the cluster is none, or does not have the task.
        OSError: a file cannot be read.
        OpError: the port is taken.
    """
    try:
        cluster = ClusterSpec(json.loads(options.cluster), elastic=options.elastic)
    except (ValueError, TypeError) as error:
        raise UsageError(f"--cluster: {error}") from error
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    config = SessionConfig()
    rpc = config.rpc_options
    rpc.timeout_secs = options.timeout_secs
    rpc.token = os.environ.get(TOKEN) or None
    if options.token_file is not None:
        rpc.token = options.token_file.read_text().strip()
    rpc.certificate, rpc.private_key = options.certificate, options.private_key
    rpc.authority = options.authority
    try:
        for module in options.modules:
            importlib.import_module(module)
        try:
            server = Server(cluster, options.job, options.task, config=config, start=False)
        except (ValueError, OpError) as error:  # it is not started: only the options can be wrong
            raise UsageError(str(error)) from error
        if options.port:
            moved = ServerDef()
            moved.CopyFrom(server.server_def)
            moved.port = options.port
            server = Server(moved, config=config, start=False)
        portable.allow_descriptors()
        asyncio.run(_serve(server))
    except ModuleNotFoundError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


async def _serve(server: Server) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: loop.call_soon_threadsafe(stopping.set))
    async with server:
        sys.stdout.write(f"{server.target}\n")
        sys.stdout.flush()
        await stopping.wait()
