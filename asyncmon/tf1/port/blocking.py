"""Calls that block a thread: their async forms, or the reason why they are listed."""

from __future__ import annotations

import ast

from asyncmon.tf1.port.kinds import Foreign, Kinds
from asyncmon.tf1.port.source import argument, last_name

SLEEP = "asyncio.sleep"
TO_THREAD = "asyncio.to_thread"

# Methods that block for a limited time if they get a timeout.
_TIMED = frozenset({"get", "put", "wait", "join", "communicate", "result", "acquire"})

_QUEUE = frozenset({"get", "put", "join"})
_LOCK = frozenset({"acquire", "wait", "wait_for"})
_PROCESS = frozenset({"wait", "communicate", "join"})
_POOL = frozenset({"map", "starmap", "apply", "join", "imap", "imap_unordered"})
_SOCKET = frozenset(
    ["accept", "connect", "recv", "recv_into", "recvfrom", "send", "sendall", "sendto", "makefile"]
)
_HTTP = frozenset({"get", "post", "put", "delete", "head", "patch", "request", "send"})

_CLASSES = {
    "queue": {
        **dict.fromkeys(["Queue", "LifoQueue", "PriorityQueue"], _QUEUE),
        **dict.fromkeys(["SimpleQueue", "Unbounded"], _QUEUE - {"put"}),
    },
    "threading": {
        **dict.fromkeys(
            ["Event", "Condition", "Barrier", "Lock", "RLock", "Semaphore", "BoundedSemaphore"], _LOCK
        ),
        "Timer": _PROCESS,
    },
    "multiprocessing": {
        **dict.fromkeys(["Queue", "JoinableQueue", "SimpleQueue"], _QUEUE),
        **dict.fromkeys(
            ["Event", "Condition", "Barrier", "Lock", "RLock", "Semaphore", "BoundedSemaphore"], _LOCK
        ),
        "Process": _PROCESS,
        "Pool": _POOL,
    },
    "multiprocessing.dummy": {"Pool": _POOL},
    "multiprocessing.pool": {"ThreadPool": _POOL, "AsyncResult": frozenset({"get", "wait"})},
    "concurrent.futures": {
        "Future": frozenset({"result", "exception"}),
        **dict.fromkeys(["ThreadPoolExecutor", "ProcessPoolExecutor"], frozenset({"shutdown"})),
    },
    "subprocess": {"Popen": _PROCESS},
    "socket": dict.fromkeys(["socket", "create_connection", "create_server"], _SOCKET),
    "requests": dict.fromkeys(["Session", "session"], _HTTP),
    "select": dict.fromkeys(["poll", "epoll", "kqueue"], frozenset({"poll", "control"})),
    "selectors": {"DefaultSelector": frozenset({"select"})},
}
CLASSES = {f"{module}.{name}": names for module, of in _CLASSES.items() for name, names in of.items()}
"""Classes of other packages, each with its methods that block a thread."""

FINITE = frozenset(
    ["builtins.input", "os.system", "os.wait", "os.waitpid", "select.select", "urllib.request.urlopen"]
    + [f"sys.stdin.{name}" for name in ("read", "readline", "readlines")]
    + [f"subprocess.{n}" for n in ("call", "check_call", "check_output", "getoutput", "run")]
    + ["urllib.request.urlretrieve", "socket.create_connection", "concurrent.futures.wait"]
    + [f"requests.{name}" for name in _HTTP]
)
"""Functions of other packages that are run in a worker thread."""

# Methods of pools and executors, each with the class of its result.
_STARTS = {
    "submit": "concurrent.futures.Future",
    "apply_async": "multiprocessing.pool.AsyncResult",
    "map_async": "multiprocessing.pool.AsyncResult",
}

LISTED = {
    "signal.pause": "await an asyncio.Event that a signal handler sets",
    "signal.sigwait": "await an asyncio.Event that a signal handler sets",
}
"""Functions of other packages without an equivalent that is awaited."""

# Methods that probably block where the class of their object is unknown.
_UNKNOWN = frozenset(
    ["acquire", "accept", "communicate", "recv", "recvfrom", "sendall", "wait", "wait_for", "put"]
)


def canonical(path: str) -> str:
    """Return the path of a class or function where Python 2, or six, has it elsewhere."""
    for old, new in {"six.moves.queue.": "queue.", "Queue.": "queue.", "six.moves.": ""}.items():
        if path.startswith(old):
            path = new + path.removeprefix(old)
    owner, _, name = path.partition("().")
    if (start := _STARTS.get(name.partition("()")[0])) and "()." in name and owner in CLASSES:
        path = f"{start}().{name.partition('().')[2]}"
    return {"input": "builtins.input", "raw_input": "builtins.input"}.get(path, path)


def _paths(kinds: Kinds) -> list[str]:
    return [canonical(kind.path) for kind in kinds if isinstance(kind, Foreign)]


def form(kinds: Kinds, call: ast.Call) -> str:
    """Return the function that replaces a blocking call where it is awaited, or ""."""
    for path in _paths(kinds):
        if path == "time.sleep":
            return SLEEP
        owner, _, name = path.rpartition("().")
        if path in FINITE or (name in _TIMED & CLASSES.get(owner, frozenset()) and _is_timed(call)):
            return TO_THREAD
    return ""


def why(kinds: Kinds, call: ast.Call) -> str:
    """Return what to use instead of a blocking call, or "" if the call does not block."""
    for path in _paths(kinds):
        owner, _, name = path.rpartition("().")
        if path == "time.sleep":
            return "`await asyncio.sleep` in an async function"
        if path in LISTED:
            return LISTED[path]
        if (path in FINITE or name in CLASSES.get(owner, ())) and not _is_immediate(call, name):
            return _lock_hint(owner) if CLASSES.get(owner) is _LOCK else "await asyncio.to_thread"
    if not kinds and isinstance(call.func, ast.Attribute):
        name = call.func.attr
        words = {keyword.arg for keyword in call.keywords}
        taken = name == "get" and (not call.args or bool(words & {"timeout", "block"}))
        if (name in _UNKNOWN or taken) and not _is_immediate(call, name):
            return "if it blocks, await asyncio.to_thread"
    return ""


def _lock_hint(owner: str) -> str:
    name = owner.rpartition(".")[2]
    return f"use asyncio.{'Lock' if name == 'RLock' else name}, or await asyncio.to_thread"


def _is_timed(call: ast.Call) -> bool:
    """Return whether a call has a timeout that is no None."""
    place = {"get": 1, "put": 2, "acquire": 1}.get(last_name(call.func), 0)
    found = argument(call, place, "timeout")
    return found is not None and not (isinstance(found, ast.Constant) and found.value is None)


def _is_immediate(call: ast.Call, name: str) -> bool:
    """Return whether a call does not block: ``q.get(False)``, ``lock.acquire(blocking=False)``."""
    place = 1 if name == "put" else 0
    found = argument(call, place, "block") or argument(call, None, "blocking")
    return isinstance(found, ast.Constant) and found.value is False
