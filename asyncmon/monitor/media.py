"""Histograms, images and texts of a run in memory, bounded by bytes, and how events hold them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asyncmon.monitor.quota import Bounded
from asyncmon.protobuf import WireError
from asyncmon.protobuf.tensors import TensorProto
from asyncmon.summary.events import Event, HistogramProto, HParamsPluginData, Value

Kind = Literal["histogram", "image", "text"]

MOST_RECORDS: dict[Kind, int] = {"histogram": 100, "image": 20, "text": 50}
"""Records of one tag. Beyond this limit every second one is dropped, and of later ones, too."""

MOST_TAGS = 1_000
MOST_BYTES = 24 << 20
MOST_BYTES_IN_ALL_RUNS = 128 << 20
_LARGEST = 4 << 20  # bytes of one record
_LONGEST = 64 << 10  # bytes of a text
_OVERHEAD = 200  # bytes of a record besides its content
_PLUGINS = {"histograms": "histogram", "images": "image", "text": "text"}  # of TensorFlow 2


class Histogram(NamedTuple):
    """A distribution: ``counts[i]`` values between ``limits[i]`` and ``limits[i + 1]``."""

    limits: NDArray[np.float64]
    counts: NDArray[np.float64]

    def rebinned(self, edges: NDArray[np.float64]) -> list[float]:
        """Return the counts between other edges; within a bucket values count as evenly spread."""
        below = np.concatenate([[0.0], np.cumsum(self.counts)])
        if edges[0] == edges[-1]:  # all values are equal
            return [float(below[-1])] + [0.0] * (len(edges) - 2)
        at, first, repeated = np.unique(self.limits, return_index=True, return_counts=True)
        last = first + repeated - 1
        inside = np.interp(edges, at, below[last], left=0.0)
        # Buckets without width at an edge are above it, apart from the highest edge.
        _, edge, bucket = np.intersect1d(edges[:-1], at, return_indices=True)
        inside[edge] -= (below[last] - below[first])[bucket]
        found: list[float] = np.diff(inside).tolist()
        return found


class Picture(NamedTuple):
    """An encoded image; the sizes are 0 if unknown."""

    data: bytes
    width: int
    height: int


class Record(NamedTuple):
    """The content of a tag at a step; ``id`` is unique within the run."""

    id: int
    step: int
    wall_time: float
    content: Histogram | Picture | str


class LastRecord(NamedTuple):
    """A tag, its kind, the number of its records, and step and time of the last one."""

    tag: str
    kind: Kind
    records: int
    step: int
    wall_time: float


class _Tag:
    """The records of one tag: every ``stride``-th one that came, and the last one."""

    def __init__(self, kind: Kind) -> None:
        self.kind = kind
        self.records: list[Record] = []
        self.bytes = 0
        self._numbers: list[int] = []  # of the records, in the order in which they came
        self._came = 0
        self._stride = 1

    def add(self, record: Record) -> None:
        if self._numbers and self._numbers[-1] % self._stride:
            self._keep(range(len(self.records) - 1))
        self.records.append(record)
        self._numbers.append(self._came)
        self._came += 1
        self.bytes += _bytes_of(record)
        if len(self.records) > MOST_RECORDS[self.kind]:
            self.thin()

    def thin(self) -> None:
        """Drop every second record; the last one of a single or of two."""
        last = len(self.records) - 1
        if last < 2:
            self._keep(range(last, max(last, 1)))
            return
        self._stride *= 2
        even = [i for i in range(last) if self._numbers[i] % self._stride == 0]
        self._keep([*(even if len(even) < last else even[::2]), last])

    def purge(self, step: int) -> None:
        self._keep([i for i, one in enumerate(self.records) if one.step < step])

    def _keep(self, kept: Sequence[int]) -> None:
        self.records = [self.records[i] for i in kept]
        self._numbers = [self._numbers[i] for i in kept]
        self.bytes = sum(map(_bytes_of, self.records))


class Media(Bounded):
    """The histograms, images and texts of one run, by tag. Not thread-safe."""

    def __init__(self, most_bytes: int = MOST_BYTES, most_tags: int = MOST_TAGS) -> None:
        super().__init__("histograms, images and texts", most_tags)
        self._most_bytes = most_bytes
        self._tags: dict[str, _Tag] = {}
        self._added = 0

    @property
    def size(self) -> tuple[int, int]:
        """The numbers of bytes and tags."""
        return self._total, len(self._tags)

    def add(self, tag: str, step: int, wall_time: float, content: Histogram | Picture | str) -> None:
        """Add a record. One of more than 4 MiB is left out, with a warning."""
        kind = kind_of(content)
        record = Record(self._added, step, wall_time, content)
        one = self._tags.get(tag)
        if one is None and not self._has_place(tag):
            return
        if _bytes_of(record) > _LARGEST:
            self._leave_out(tag, f"A record has more than {_LARGEST} bytes")
            return
        self._added += 1
        if one is None or one.kind != kind:
            self._count(0 if one is None else -one.bytes)
            one = self._tags[tag] = _Tag(kind)
        self._change(one, one.add, record)
        self._fit(self._most_bytes)

    def thin_longest(self) -> None:
        """Drop every second record of the tag with most bytes."""
        one = max(self._tags.values(), key=lambda one: one.bytes)
        self._change(one, one.thin)

    def purge(self, step: int, tags: Iterable[str]) -> None:
        """Drop records from a step on: a session was restored there and repeats these steps."""
        for tag in tags:
            if one := self._tags.get(tag):
                self._change(one, one.purge, step)

    def _change(self, one: _Tag, change: Callable[..., None], *args: Any) -> None:
        before = one.bytes
        change(*args)
        self._count(one.bytes - before)

    def tags(self) -> list[LastRecord]:
        """Return the last record of each tag, sorted by tag."""
        return [
            LastRecord(tag, one.kind, len(one.records), last.step, last.wall_time)
            for tag, one in sorted(self._tags.items())
            for last in one.records[-1:]
        ]

    def records(self, tag: str) -> list[Record]:
        """Return the records of a tag, in the order in which they came; none for an unknown tag."""
        return list(self._tags[tag].records) if tag in self._tags else []


def kind_of(content: Histogram | Picture | str) -> Kind:
    """Return the kind of a content."""
    if isinstance(content, str):
        return "text"
    return "histogram" if isinstance(content, Histogram) else "image"


def _bytes_of(record: Record) -> int:
    content = record.content
    if isinstance(content, Histogram):
        return _OVERHEAD + content.limits.nbytes + content.counts.nbytes
    return _OVERHEAD + (len(content) if isinstance(content, str) else len(content.data))


def records_json(records: list[Record], bins: int) -> dict[str, Any]:
    """Return records for the API; histograms are rebinned between their least and greatest limit."""
    found: dict[str, Any] = {"kind": kind_of(records[-1].content)}
    histograms = [one.content for one in records if isinstance(one.content, Histogram)]
    edges = np.zeros(1)
    if histograms:
        low = min(float(one.limits[0]) for one in histograms)
        high = max(float(one.limits[-1]) for one in histograms)
        edges = np.linspace(low, high, bins + 1)
        found.update(low=low, high=high)
    found["records"] = [{**_facts(one), **_shown(one.content, edges)} for one in records]
    return found


def _facts(record: Record) -> dict[str, Any]:
    return {"id": record.id, "step": record.step, "wall_time": record.wall_time}


def _shown(content: Histogram | Picture | str, edges: NDArray[np.float64]) -> dict[str, Any]:
    if isinstance(content, Histogram):
        return {"counts": content.rebinned(edges)}
    if isinstance(content, Picture):
        return {"width": content.width, "height": content.height}
    return {"text": content}


_SIGNATURES = {
    b"\x89PNG\r\n\x1a\n": "image/png",
    b"\xff\xd8\xff": "image/jpeg",
    b"GIF8": "image/gif",
    b"BM": "image/bmp",
}


def image_type(data: bytes) -> str:
    """Return the media type of an encoded image. Never one that a browser runs scripts of, as SVG."""
    types = (found for start, found in _SIGNATURES.items() if data.startswith(start))
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next(types, "application/octet-stream")


# -- events


def media_of(event: Event) -> Iterator[tuple[str, Histogram | Picture | str]]:
    """Yield tag and content of the histograms, images and texts of an event, also of TensorFlow 2."""
    for value in event.summary.value:
        kind = value.WhichOneof("value")
        if kind == "histo":
            histogram = _histogram(value.histo)
            if histogram is not None:
                yield value.tag, histogram
        elif kind == "image":
            image = value.image
            yield value.tag, Picture(image.encoded_image_string, image.width, image.height)
        elif kind == "tensor":
            yield from _tensor_media(value)


def _histogram(proto: HistogramProto) -> Histogram | None:
    """Return a histogram whose outer limits are its minimum and maximum; None if it is empty."""
    counts = np.array(proto.bucket, np.float64)
    if not proto.num or len(counts) != len(proto.bucket_limit):
        return None
    inner = np.clip(np.array(proto.bucket_limit, np.float64), proto.min, proto.max)
    return Histogram(np.concatenate([[proto.min], inner]), counts)


def _tensor_media(value: Value) -> Iterator[tuple[str, Histogram | Picture | str]]:
    kind, tensor = _PLUGINS.get(value.metadata.plugin_data.plugin_name), value.tensor
    strings = tensor.string_val
    if kind == "text":
        text = "\n".join(one[:_LONGEST].decode(errors="replace") for one in strings[:200])
        yield value.tag, text[:_LONGEST]
    elif kind == "image" and len(strings) > 2:
        sizes = [int(one) if one.isdigit() else 0 for one in strings[:2]]
        for number, data in enumerate(strings[2:]):
            tag = value.tag if len(strings) == 3 else f"{value.tag}/{number}"
            yield tag, Picture(data, *sizes)
    elif kind == "histogram":
        rows = _doubles(tensor)
        if len(rows) and len(rows) % 3 == 0:
            left, right, counts = rows.reshape(-1, 3).T
            yield value.tag, Histogram(np.append(left, right[-1]), counts.copy())


def _doubles(tensor: TensorProto) -> NDArray[np.float64]:
    content = tensor.tensor_content
    return np.frombuffer(content, "<f8") if content else np.array(tensor.double_val, np.float64)


def config_of(event: Event) -> dict[str, Any]:
    """Return the hyperparameters of an event of TensorBoard's HParams page; else an empty dict."""
    for value in event.summary.value:
        plugin = value.metadata.plugin_data
        if plugin.plugin_name == "hparams":
            try:
                config = HParamsPluginData.FromString(plugin.content).session_start_info.hparams
            except (WireError, ValueError):
                return {}
            return {
                name: getattr(one, one.WhichOneof("kind") or "", None) for name, one in config.items()
            }
    return {}
