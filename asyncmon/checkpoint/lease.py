"""The lease of a prefix of an object store, so that only one process saves there.

A process that saves below a prefix holds the object ``.asyncmon.lock`` there. It has the nonce of its
owner, which renews it every few seconds by a put that fails if the object is another one. A second
process waits until the lease is renewed, and is refused, or until it has expired by the clock of the
store. So the clocks of the processes play no part. The files of a killed process are cleaned up when
its lease has expired, at once if it ran on this machine.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import threading
import time
from typing import Any

from asyncmon.checkpoint.cloud import ObjectStore
from asyncmon.checkpoint.throttle import Control, current
from asyncmon.errors import FailedPreconditionError
from asyncmon.system import clock, portable

LEASE_NAME = ".asyncmon.lock"
RENEW_SECS = 5.0
EXPIRE_SECS = 30.0  # a store that fails for so long lets another process take over
_POLL_SECS = 1.0

logger = logging.getLogger(__name__)


class Lease:
    """The lease of one prefix, held by this process until :meth:`release`. Methods block.

    Raises:
        FailedPreconditionError: another process holds it.
        OSError: the store fails.
    """

    def __init__(self, url: str) -> None:
        self._store = ObjectStore(url)
        self._owner = {
            "nonce": clock.random_bytes(8).hex(),
            "pid": os.getpid(),
            "host": socket.gethostname(),
            "machine": portable.machine_id(),
            "since": clock.local_text(clock.wall()),
        }
        self._version: Any = self._acquire()
        self._lost: str | None = None
        self._ended = threading.Event()
        self._lock = threading.Lock()
        threading.Thread(target=self._renew, name=f"lease of {url}", daemon=True).start()

    @property
    def is_lost(self) -> bool:
        """Whether another process has taken over."""
        return self._lost is not None

    def check(self) -> None:
        """Raise FailedPreconditionError if another process has taken over from a suspended one."""
        if time.perf_counter() - self._renewed > EXPIRE_SECS / 2:
            self._renew_now()
        if self._lost is not None:
            raise self._refusal(self._lost)

    def release(self) -> None:
        """Stop renewing, and delete the object."""
        self._ended.set()
        control = Control()
        control.stop()  # a store that does not answer delays no exit: the lease expires
        if not self._lock.acquire(timeout=0.5):  # a renewal hangs
            return
        token = current.set(control)
        try:
            found = self._store.read_version(LEASE_NAME)
            if found is not None and _owner_in(found.data).get("nonce") == self._owner["nonce"]:
                self._store.delete(LEASE_NAME)
        except OSError as error:
            logger.warning("The lease of %r was not deleted: %s", self._store.directory, error)
        finally:
            current.reset(token)
            self._lock.release()

    def forget(self) -> None:
        """Stop renewing in a forked child: the object is the parent's."""
        self._ended.set()

    def _acquire(self) -> Any:
        deadline: float | None = None
        first = None
        while True:
            self._renewed = time.perf_counter()
            found = self._store.read_version(LEASE_NAME)
            with contextlib.suppress(FileExistsError):  # another process was faster
                if found is None:
                    return self._store.put_version(LEASE_NAME, self._content(), None)
                holder = _owner_in(found.data)
                now = time.perf_counter()
                if first is None:
                    first = found.version
                    deadline = now + EXPIRE_SECS - self._store.age(LEASE_NAME)
                if found.version != first:
                    raise self._refusal(found.data.decode(errors="replace"))
                if portable.has_ended(holder.get("machine"), holder.get("pid")) or (
                    deadline is not None and now >= deadline
                ):
                    logger.warning(
                        "The lease of %r is taken over from a process that has ended: %s.",
                        self._store.directory,
                        found.data.decode(errors="replace"),
                    )
                    return self._store.put_version(LEASE_NAME, self._content(), found.version)
            portable.pause(min(_POLL_SECS, EXPIRE_SECS / 10))

    def _content(self) -> bytes:
        return json.dumps({**self._owner, "renewed": clock.wall()}).encode()

    def _renew(self) -> None:
        while not self._ended.wait(RENEW_SECS):
            self._renew_now()
            if self._lost is not None:
                return

    def _renew_now(self) -> None:
        with self._lock:
            if self._ended.is_set():
                return
            began = time.perf_counter()
            try:
                self._version = self._store.put_version(LEASE_NAME, self._content(), self._version)
            except FileExistsError:
                self._read_owner()
            except OSError as error:  # tried again, until the lease expires
                logger.warning("The lease of %r was not renewed: %s", self._store.directory, error)
            else:
                self._renewed = began

    def _read_owner(self) -> None:
        with contextlib.suppress(OSError):  # the next renewal looks again
            found = self._store.read_version(LEASE_NAME)
            if found is None:
                self._version = None  # deleted by hand: made again
            elif _owner_in(found.data).get("nonce") == self._owner["nonce"]:
                self._version = found.version  # the answer to an earlier renewal was lost
            else:
                self._lost = found.data.decode(errors="replace")

    def _refusal(self, holder: str) -> FailedPreconditionError:
        return FailedPreconditionError(
            f"Another process saves checkpoints into {self._store.directory!r}: {holder}."
            " Two of them would delete each other's: save into another directory, or stop that process."
        )


def _owner_in(data: bytes) -> dict[str, Any]:
    with contextlib.suppress(ValueError):
        owner = json.loads(data)
        if isinstance(owner, dict):
            return owner
    return {}
