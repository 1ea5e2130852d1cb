"""Errors, one class a code, with the names of ``tf.errors``.

::

    Exception
    └── OpError                     .message, .error_code, .op, .node_def
        ├── CancelledError          1   an operation (not a task) was cancelled
        ├── UnknownError            2
        ├── InvalidArgumentError    3   a feed, a shape, a dtype or a value
        ├── DeadlineExceededError   4   a timeout passed
        ├── NotFoundError           5   a name, a file or a key that is not there
        ├── AlreadyExistsError      6
        ├── PermissionDeniedError   7
        ├── ResourceExhaustedError  8
        ├── FailedPreconditionError 9   a variable that is not initialised
        ├── AbortedError           10   preempted: the session recovers
        │   └── RecoveredError          it has recovered, without repeating the run
        ├── OutOfRangeError        11   the end of the data: training ends cleanly
        ├── UnimplementedError     12
        ├── InternalError          13
        ├── UnavailableError       14   preempted: the session recovers
        │   └── StepTimeoutError        a run took longer than step_timeout_secs
        ├── DataLossError          15   a torn or corrupted file
        └── UnauthenticatedError   16

``CancelledError`` is TF1's error of an *operation*. It is an ordinary ``Exception`` and
unrelated to ``asyncio.CancelledError``, which asyncmon never suppresses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from asyncmon.system.missing_names import missing_name

__all__ = [
    "ABORTED", "ALREADY_EXISTS", "CANCELLED", "DATA_LOSS", "DEADLINE_EXCEEDED",
    "FAILED_PRECONDITION", "INTERNAL", "INVALID_ARGUMENT", "NOT_FOUND", "OK", "OUT_OF_RANGE",
    "PERMISSION_DENIED", "RESOURCE_EXHAUSTED", "UNAUTHENTICATED", "UNAVAILABLE", "UNIMPLEMENTED",
    "UNKNOWN", "AbortedError", "AlreadyExistsError", "CancelledError", "DataLossError",
    "DeadlineExceededError", "FailedPreconditionError", "InternalError", "InvalidArgumentError",
    "NotFoundError", "OpError", "OutOfRangeError", "PermissionDeniedError", "RecoveredError",
    "ResourceExhaustedError", "StepTimeoutError", "UnauthenticatedError", "UnavailableError",
    "UnimplementedError", "UnknownError", "error_code_from_exception_type",
    "exception_type_from_error_code",
]  # fmt: skip

# The values of ``error.error_code``.
OK = 0
CANCELLED = 1
UNKNOWN = 2
INVALID_ARGUMENT = 3
DEADLINE_EXCEEDED = 4
NOT_FOUND = 5
ALREADY_EXISTS = 6
PERMISSION_DENIED = 7
RESOURCE_EXHAUSTED = 8
FAILED_PRECONDITION = 9
ABORTED = 10
OUT_OF_RANGE = 11
UNIMPLEMENTED = 12
INTERNAL = 13
UNAVAILABLE = 14
DATA_LOSS = 15
UNAUTHENTICATED = 16


class OpError(Exception):
    """An operation failed. TF1: ``tf.errors.OpError``.

    Takes a message only, or TF1's arguments. It can be pickled, without the operation.

    Args:
        *args: ``message``, or ``node_def, op, message``, for ``OpError`` itself followed by
            ``error_code``. All are accepted by keyword.
        node_def: a description of the operation that failed.
        op: the operation; a run sets it if a node of the graph failed.
        message: a full sentence.
        error_code: the code of an ``OpError`` that is not of a subclass.

    Raises:
        TypeError: two positional arguments, or more than four.

    Example::

        raise OutOfRangeError("No more lines.")
        raise OutOfRangeError(None, None, "No more lines.")
    """

    error_code: int = 2
    """The gRPC status code of this class of error."""
    op: Any = None
    """The operation that failed, or None if it is unknown."""
    _node_def: Any = None
    _is_located = False  # whether a session has added the operation to the message

    def __init__(
        self,
        *args: Any,
        node_def: Any = None,
        op: Any = None,
        message: str = "",
        error_code: int | None = None,
    ) -> None:
        if len(args) == 1:
            message = args[0]
        elif 3 <= len(args) <= 4:
            node_def, op, message = args[:3]
            error_code = args[3] if len(args) == 4 else error_code
        elif args:
            raise TypeError(f"Expected (message) or (node_def, op, message), got {args!r}.")
        super().__init__(message)
        if op is not None:
            self.op = op
        if node_def is not None:
            self._node_def = node_def
        if error_code is not None:
            self.error_code = error_code

    def __reduce__(self) -> Any:
        state = {key: value for key, value in vars(self).items() if key not in ("op", "_node_def")}
        return type(self), self.args, state

    @property
    def node_def(self) -> Any:
        """The ``NodeDef`` of the operation that failed, or None if it is unknown. TF1: same name."""
        return self._node_def or getattr(self.op, "node_def", None)

    @property
    def message(self) -> str:
        """The message, a full sentence."""
        return str(self.args[0]) if self.args else ""


class CancelledError(OpError):
    """An operation was cancelled, for example an enqueue on a queue that was closed."""

    error_code = 1


class UnknownError(OpError):
    """An error of another system without a class of its own."""

    error_code = 2


class InvalidArgumentError(OpError):
    """A value, shape or dtype that the operation does not accept."""

    error_code = 3


class DeadlineExceededError(OpError):
    """A deadline passed before the operation was done. The session stays usable."""

    error_code = 4


class NotFoundError(OpError):
    """A requested object does not exist: a file, a checkpoint entry, a node."""

    error_code = 5


class AlreadyExistsError(OpError):
    """An object to be created exists already."""

    error_code = 6


class PermissionDeniedError(OpError):
    """The caller lacks a permission, for example to write into a read-only directory."""

    error_code = 7


class ResourceExhaustedError(OpError):
    """Memory, disk or another resource ran out."""

    error_code = 8


class FailedPreconditionError(OpError):
    """The state is not ready for the operation, for example a variable is not initialised."""

    error_code = 9


class AbortedError(OpError):
    """The operation was preempted. A monitored session recovers from it and repeats the run."""

    error_code = 10


class RecoveredError(AbortedError):
    """The session has recovered, and the interrupted run is not repeated. Continue with the next data.

    Raised by a run of a monitored session with ``Recovery(repeat_runs=False)``.
    """


class OutOfRangeError(OpError):
    """The end of the data. In the body of a monitored session, it ends training cleanly."""

    error_code = 11


class UnimplementedError(OpError):
    """The operation does not exist for these arguments."""

    error_code = 12


class InternalError(OpError):
    """An invariant of the system does not hold."""

    error_code = 13


class UnavailableError(OpError):
    """A peer cannot be reached. A monitored session recovers from it and repeats the run."""

    error_code = 14


class StepTimeoutError(UnavailableError):
    """A run took longer than ``MonitoredSession(step_timeout_secs=)``. The session recovers from it."""


class DataLossError(OpError):
    """Bytes are missing or do not match their checksum."""

    error_code = 15


class UnauthenticatedError(OpError):
    """The caller is not authenticated."""

    error_code = 16


PREEMPTION: tuple[type[Exception], ...] = (AbortedError, UnavailableError)
"""Errors that a monitored session recovers from."""

END_OF_DATA: tuple[type[Exception], ...] = (OutOfRangeError, StopAsyncIteration, StopIteration)
"""Exceptions that end the body of a monitored session cleanly."""

EXITS = (KeyboardInterrupt, SystemExit)
"""Exceptions that end the program; asyncio raises them out of the loop itself."""

_BY_CODE: dict[int, type[OpError]] = {cls.error_code: cls for cls in OpError.__subclasses__()}


def exception_type_from_error_code(error_code: int) -> type[OpError]:
    """Return the class of a gRPC status code. TF1: same name.

    Raises:
        KeyError: no class has this code.
    """
    return _BY_CODE[error_code]


def error_code_from_exception_type(cls: type[OpError]) -> int:
    """Return the gRPC status code of an error class. TF1: same name.

    Raises:
        TypeError: ``cls`` is no class of these errors. (TF1 returns an ``UnknownError``.)
    """
    if not issubclass(cls, OpError):
        raise TypeError(f"Only the classes of am.errors have a code, got {cls!r}.")
    return cls.error_code


if not TYPE_CHECKING:  # else a type checker would find every name here

    def __getattr__(name: str) -> Any:
        raise missing_name(__name__, name, ["errors."], __all__)


__dir__ = __all__.copy
