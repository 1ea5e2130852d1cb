"""Several hosts on one machine: network namespaces on one bridge, whose links can be disturbed."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import uuid
from typing import Self


def why_none() -> str | None:
    """Return why this machine cannot have hosts, or None."""
    if os.geteuid() != 0 or not (shutil.which("ip") and shutil.which("tc")):
        return "network namespaces need root, and the commands ip and tc"
    name = f"try{uuid.uuid4().hex[:6]}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False)
    if made.returncode:
        return f"no network namespace can be made: {made.stderr.decode().strip()}"
    subprocess.run(["ip", "netns", "delete", name], check=True)
    return None


class Hosts:
    """Hosts with the addresses 10.77.0.1, 10.77.0.2 and so on.

    Args:
        count: the number of hosts.
    """

    def __init__(self, count: int) -> None:
        key = uuid.uuid4().hex[:6]
        self._switch = f"switch{key}"
        self.names = [f"host{key}{number}" for number in range(count)]
        self.addresses = [f"10.77.0.{number + 1}" for number in range(count)]

    async def __aenter__(self) -> Self:
        try:
            await self._build()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def _build(self) -> None:
        await _run("ip", "netns", "add", self._switch)
        await self._in(self._switch, "ip link add name bridge type bridge")
        await self._in(self._switch, "ip link set bridge up")
        for number, (name, address) in enumerate(zip(self.names, self.addresses, strict=True)):
            await _run("ip", "netns", "add", name)
            await self._in(
                name, f"ip link add name eth0 type veth peer name port{number} netns {self._switch}"
            )
            await self._in(name, f"ip address add {address}/24 dev eth0")
            await self._in(name, "ip link set eth0 up")
            await self._in(name, "ip link set lo up")
            await self._in(self._switch, f"ip link set port{number} master bridge up")

    async def __aexit__(self, *exc_info: object) -> None:
        for name in (*self.names, self._switch):
            await _run("ip", "netns", "delete", name, check=False)

    async def _in(self, name: str, command: str) -> None:
        await _run("ip", "netns", "exec", name, *command.split())

    def command(self, host: int) -> list[str]:
        """Return the beginning of a command that runs on a host."""
        return ["ip", "netns", "exec", self.names[host]]

    async def disturb(self, kind: str, host: int, other: int, secs: float) -> None:
        """Disturb the network of a host for some seconds.

        Args:
            kind: ``"partition"`` from all others, ``"split"`` from one; ``"one way"`` loses all that it
                sends, ``"deaf"`` all that it gets, ``"loss"`` a fifth; ``"delay"`` by 200 ms.
            host: the number of the host.
            other: the other host of a split.
            secs: how long.
        """
        name, port = self.names[host], f"port{host}"
        match kind:
            case "partition":
                await self._in(self._switch, f"ip link set {port} down")
                await asyncio.sleep(secs)
                await self._in(self._switch, f"ip link set {port} up")
            case "split":
                await self._in(name, f"ip route add blackhole {self.addresses[other]}/32")
                await asyncio.sleep(secs)
                await self._in(name, f"ip route delete blackhole {self.addresses[other]}/32")
            case _:
                place, device = (self._switch, port) if kind == "deaf" else (name, "eth0")
                effect = {"delay": "delay 200ms", "loss": "loss 20%"}.get(kind, "loss 100%")
                await self._in(place, f"tc qdisc add dev {device} root netem {effect}")
                await asyncio.sleep(secs)
                await self._in(place, f"tc qdisc delete dev {device} root")


async def _run(*command: str, check: bool = True) -> None:
    child = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
    )
    _, said = await child.communicate()
    if check and child.returncode:
        raise RuntimeError(f"{' '.join(command)} has ended with {child.returncode}: {said.decode()}")
