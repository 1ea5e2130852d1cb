"""A client that sends a bounded load over HTTP/1.1, each request at its time."""

import asyncio
import time
from collections import Counter
from typing import Any


class Client:
    """Up to 16 connections, each with one request at a time.

    A request whose connection is closed before the first byte of an answer is sent again, on a new one.

    Attributes:
        counts: of requests: by the status of the answer, ``refused`` (no connection), ``lost`` (else).
        latencies: seconds from when a request was due to its answer.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.counts: Counter[Any] = Counter()
        self.latencies: list[float] = []

    async def load(
        self, path: str, bodies: list[bytes], per_second: float, secs: float
    ) -> list[bytes | None]:
        """Send bodies in turns at a rate; return the answers, None for a missing one."""
        requests = [
            f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body
            for body in bodies
        ]
        count, start = int(per_second * secs), time.perf_counter()
        numbers = iter(range(count))
        answers: list[bytes | None] = [None] * count

        async def connection() -> None:
            streams: list[Any] = []
            for number in numbers:
                due = start + number / per_second
                await asyncio.sleep(due - time.perf_counter())
                try:
                    status, text = await self._answer(streams, requests[number % len(requests)])
                except ConnectionRefusedError:
                    self.counts["refused"] += 1
                except (OSError, EOFError):
                    self.counts["lost"] += 1
                else:
                    self.latencies.append(time.perf_counter() - due)
                    self.counts[status] += 1
                    answers[number] = text
            for writer in streams[1:]:
                writer.close()

        await asyncio.gather(*[connection() for _ in range(16)])
        return answers

    async def _answer(self, streams: list[Any], request: bytes) -> tuple[int, bytes]:
        first = b""
        while not first:
            if not streams:
                streams[:] = await asyncio.open_connection("127.0.0.1", self.port)
            try:
                streams[1].write(request)
                first = await streams[0].readline()
            except ConnectionResetError:
                pass
            if not first:
                streams[1].close()
                streams.clear()
        headers = (await streams[0].readuntil(b"\r\n\r\n")).lower()
        length = int(headers.partition(b"content-length:")[2].partition(b"\r")[0])
        return int(first.split()[1]), await streams[0].readexactly(length)
