"""Device names, and the device scopes of new operations. TF1: ``tf.DeviceSpec``, ``tf.device``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, NamedTuple, Self

_TYPES = frozenset({"CPU", "GPU", "TPU", "CUSTOM", "EPU"})


_FIELDS: Mapping[str, Callable[[Any], Any]] = {
    "job": str, "replica": int, "task": int,
    "device_type": lambda value: value.upper() if value in ("cpu", "gpu") else str(value),
    "device_index": int,
}  # fmt: skip


class DeviceSpec:
    """A complete or partial device name; None leaves a part open. TF1: ``tf.DeviceSpec``.

    As in TF1, attributes can be set and are converted to str and int.

    Args:
        job: the name of a job, "ps".
        replica: a number without effect.
        task: the index of a task of the job.
        device_type: "CPU".
        device_index: the index among the devices of this type.

    Raises:
        ValueError: a number is not valid.

    Example:
        >>> DeviceSpec.from_string("/job:ps/task:0/cpu:0").to_string()
        '/job:ps/task:0/device:CPU:0'
    """

    __slots__ = tuple(_FIELDS)

    job: str | None
    replica: int | None
    task: int | None
    device_type: str | None
    device_index: int | None

    def __init__(
        self,
        job: Any = None,
        replica: Any = None,
        task: Any = None,
        device_type: Any = None,
        device_index: Any = None,
    ) -> None:
        self.job, self.replica, self.task = job, replica, task
        self.device_type, self.device_index = device_type, device_index

    def __setattr__(self, name: str, value: Any) -> None:
        convert = _FIELDS.get(name)
        super().__setattr__(name, value if value is None or convert is None else convert(value))

    @classmethod
    def from_string(cls, spec: str | None) -> Self:
        """Parse a name like ``"/job:ps/task:0/cpu:0"``; None and "" leave all parts open.

        Raises:
            ValueError: an unknown part, or two device types.
            TypeError: it is not a str.
        """
        return cls(*_parsed(spec or ""))

    def parse_from_string(self, spec: str | None) -> Self:
        """Set all parts from a name, and return self. See :meth:`from_string`. TF1: same name."""
        for name, value in zip(_FIELDS, _parsed(spec or ""), strict=True):
            setattr(self, name, value)
        return self

    def to_string(self) -> str:
        """Return the name, ``"/job:ps/replica:0/task:1/device:CPU:0"``, without the open parts."""
        parts = [("job", self.job), ("replica", self.replica), ("task", self.task)]
        text = "".join([f"/{name}:{value}" for name, value in parts if value is not None])
        if self.device_type is None:
            return text
        index = "*" if self.device_index is None else self.device_index
        return f"{text}/device:{self.device_type}:{index}"

    def make_merged_spec(self, dev: DeviceSpec) -> DeviceSpec:
        """Return a copy of ``dev`` with its open parts taken from here. TF1: same name."""
        pairs = [(getattr(dev, name), getattr(self, name)) for name in _FIELDS]
        return DeviceSpec(*[mine if theirs is None else theirs for theirs, mine in pairs])

    def merge_from(self, dev: DeviceSpec) -> None:
        """Set the parts that ``dev`` does not leave open. TF1: same name."""
        for name in _FIELDS:
            if (value := getattr(dev, name)) is not None:
                setattr(self, name, value)

    def replace(self, **kwargs: Any) -> DeviceSpec:
        """Return a copy with some parts changed. TF1: same name."""
        return DeviceSpec(**{**{name: getattr(self, name) for name in _FIELDS}, **kwargs})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceSpec) and self.to_string() == other.to_string()

    def __hash__(self) -> int:
        return hash(self.to_string())

    def __repr__(self) -> str:
        return f"<DeviceSpec({', '.join(f'{name}={getattr(self, name)}' for name in _FIELDS)})>"


@lru_cache(maxsize=1000)
def _parsed(spec: str) -> tuple[Any, ...]:
    if not isinstance(spec, str):
        raise TypeError(f"A device is text, as '/job:ps/task:0', or a DeviceSpec, got {spec!r}.")
    found: dict[str, Any] = dict.fromkeys(_FIELDS)
    for part in spec.split("/"):
        match part.split(":"):
            case ["job" | "replica" | "task" as name, value]:
                found[name] = value
                continue
            case [kind, *number] if kind.upper() in _TYPES and len(number) < 2:
                kind, index = kind.upper(), "".join(number) if number else "*"
            case ["device", kind, index]:
                pass
            case ["", *_]:
                continue
            case [name, *_]:
                raise ValueError(
                    f"Unknown attribute '{name}' is encountered while parsing the device spec: "
                    f"'{spec}'."
                )
        if found["device_type"] is not None:
            raise ValueError(
                f"Multiple device types are not allowed while parsing the device spec: {spec}."
            )
        found["device_type"], found["device_index"] = kind, None if index == "*" else int(index)
    return tuple(found.values())


@lru_cache(maxsize=10_000)
def _merged(outer: tuple[Any, ...], inner: str) -> str:
    # the inner name overrides the parts of the outer spec
    return DeviceSpec(*outer).make_merged_spec(DeviceSpec.from_string(inner)).to_string()


class _Colocated(NamedTuple):
    """The outermost scope inside ``colocate_with`` an op that has a device."""

    device: str


def with_device(scopes: tuple[Any, ...], name_or_function: Any) -> tuple[Any, ...]:
    """Return device scopes, outermost first, with another one added inside."""
    if name_or_function is None:  # ignore outer scopes, but not colocation
        return tuple([scope for scope in scopes[:1] if isinstance(scope, _Colocated)])
    if callable(name_or_function):
        return (*scopes, name_or_function)
    if not isinstance(name_or_function, DeviceSpec):
        name_or_function = DeviceSpec.from_string(name_or_function)
    if not name_or_function.to_string():
        return scopes
    return (*scopes, tuple([getattr(name_or_function, field) for field in _FIELDS]))


def with_colocation(scopes: tuple[Any, ...], op: Any, ignore_existing: bool) -> tuple[Any, ...]:
    """Return the device scopes inside ``colocate_with``, which replaces all others."""
    if op is None and not ignore_existing:
        raise ValueError("Trying to reset colocation (op is None) but ignore_existing is not True")
    if op is not None and not hasattr(op, "op"):
        raise TypeError(f"colocate_with() takes an operation, a tensor or a variable, got {op!r}.")
    device = "" if op is None else op.op.device
    if not device and not ignore_existing:
        device = next((scope.device for scope in scopes[:1] if isinstance(scope, _Colocated)), "")
    return (_Colocated(device),) if device else ()


def apply_devices(scopes: tuple[Any, ...], op: Any) -> None:
    """Set the device of a new op: from the innermost scope outwards, each fills the open parts.

    ValueError if a device function returned an invalid name. TypeError if a device function returned
    neither a name nor a DeviceSpec.
    """
    for scope in reversed(scopes):
        if isinstance(scope, _Colocated):
            op.device = scope.device
        elif isinstance(scope, tuple):
            op.device = _merged(scope, op.device)
        else:
            op.device = _name(scope(op))


def _name(device: Any) -> str:
    if isinstance(device, DeviceSpec):
        return device.to_string()
    if isinstance(device, bytes):
        return device.decode()
    if not isinstance(device, str):
        raise TypeError(f"Expected binary or unicode string, got {device!r}")
    return device
