"""Errors as plain data, and back: the class by name, the text, the operation that failed."""

from __future__ import annotations

import builtins
from typing import Any

from asyncmon import errors
from asyncmon.distributed.wire import Message, encode
from asyncmon.errors import InternalError, OpError
from asyncmon.graph.core.graph import Graph
from asyncmon.system.error_text import add_note, phrase, text_of

_BUILTINS = ("MemoryError", "NotImplementedError", "RuntimeError", "TypeError", "ValueError")


def error_data(error: BaseException) -> dict[str, Any]:
    """Return an error as plain data; an error of an unknown class becomes an InternalError."""
    kind, text = type(error).__name__, text_of(error)
    if not isinstance(error, OpError) and kind not in _BUILTINS:
        kind, text = "InternalError", phrase(error)
    elif isinstance(error, OpError) and getattr(errors, kind, None) is not type(error):
        kind = "OpError"
    cause = error.__cause__
    return {
        "type": kind,
        "message": text,
        "code": getattr(error, "error_code", None),
        "op": getattr(getattr(error, "op", None), "name", None),
        "cause": None if cause is None else phrase(cause),
        "notes": [str(note) for note in getattr(error, "__notes__", ())],
    }


def failure(error: BaseException) -> Message:
    """Return an error as a response."""
    return encode({"error": error_data(error)})


def error_of(data: Any, graph: Graph) -> Exception:
    """Return the error that plain data describes, with the operation of a graph.

    Malformed data gives an InternalError.
    """
    try:
        kind, message = str(data["type"]), str(data["message"])
        found = getattr(builtins, kind) if kind in _BUILTINS else getattr(errors, kind, None)
        if not (isinstance(found, type) and issubclass(found, Exception)):
            return InternalError(f"An error of the unknown class {kind!r} was sent: {message}")
        error = found(message)
        if isinstance(error, OpError):
            if found is OpError:
                error.error_code = int(data["code"])
            error.op = graph._operations.get(data["op"])
        for note in data["notes"]:
            add_note(error, str(note))
        if data["cause"] is not None:
            add_note(error, f"Its cause, in the other process: {data['cause']}")
    except (KeyError, TypeError, ValueError) as problem:
        return InternalError(f"An error was sent that cannot be read: {problem!r}.")
    return error
