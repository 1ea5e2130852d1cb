"""What an event file holds: events, and the summaries in them. Names are protobuf's and TF1's.

Messages are frozen, but for :class:`Summary` and its values, which programs put together piece by
piece. ``Summary`` has its parts as attributes too, ``Summary.Value`` and so on, as ``tf.Summary`` has.
A graph and run metadata stay the bytes they are.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from asyncmon.summary.message import Kind, Message, proto

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class PluginData(Message):
    """Which TensorBoard plugin shows a value. ``tf.SummaryMetadata.PluginData``."""

    plugin_name: str = proto(1, Kind.TEXT)
    content: bytes = proto(2, Kind.BYTES)


class SummaryMetadata(Message):
    """How a value is shown. ``tf.SummaryMetadata``."""

    plugin_data: PluginData = proto(1, PluginData)
    display_name: str = proto(2, Kind.TEXT)
    summary_description: str = proto(3, Kind.TEXT)
    data_class: int = proto(4, Kind.INT)


class Image(Message):
    """An encoded image; ``colorspace`` is its number of channels. ``tf.Summary.Image``."""

    height: int = proto(1, Kind.INT)
    width: int = proto(2, Kind.INT)
    colorspace: int = proto(3, Kind.INT)
    encoded_image_string: bytes = proto(4, Kind.BYTES)


class Audio(Message):
    """Encoded sound. ``tf.Summary.Audio``."""

    sample_rate: float = proto(1, Kind.FLOAT)
    num_channels: int = proto(2, Kind.INT)
    length_frames: int = proto(3, Kind.INT)
    encoded_audio_string: bytes = proto(4, Kind.BYTES)
    content_type: str = proto(5, Kind.TEXT)


class HistogramProto(Message):
    """A histogram: ``bucket[i]`` values lie below ``bucket_limit[i]``. ``tf.HistogramProto``."""

    min: float = proto(1, Kind.DOUBLE)
    max: float = proto(2, Kind.DOUBLE)
    num: float = proto(3, Kind.DOUBLE)
    sum: float = proto(4, Kind.DOUBLE)
    sum_squares: float = proto(5, Kind.DOUBLE)
    bucket_limit: Sequence[float] = proto(6, Kind.DOUBLE, repeated=True)
    bucket: Sequence[float] = proto(7, Kind.DOUBLE, repeated=True)


class TensorShapeDim(Message):
    """One dimension. ``tf.TensorShapeProto.Dim``."""

    size: int = proto(1, Kind.INT)
    name: str = proto(2, Kind.TEXT)


class TensorShapeProto(Message):
    """The shape of a tensor. ``tf.TensorShapeProto``."""

    dim: Sequence[TensorShapeDim] = proto(2, TensorShapeDim, repeated=True)
    unknown_rank: bool = proto(3, Kind.BOOL)


class TensorProto(Message):
    """A tensor: raw bytes in ``tensor_content``, or one list of its type. ``tf.TensorProto``."""

    dtype: int = proto(1, Kind.INT)
    tensor_shape: TensorShapeProto = proto(2, TensorShapeProto)
    version_number: int = proto(3, Kind.INT)
    tensor_content: bytes = proto(4, Kind.BYTES)
    float_val: Sequence[float] = proto(5, Kind.FLOAT, repeated=True)
    double_val: Sequence[float] = proto(6, Kind.DOUBLE, repeated=True)
    int_val: Sequence[int] = proto(7, Kind.INT, repeated=True)
    string_val: Sequence[bytes] = proto(8, Kind.BYTES, repeated=True)
    int64_val: Sequence[int] = proto(10, Kind.INT, repeated=True)
    bool_val: Sequence[bool] = proto(11, Kind.BOOL, repeated=True)


class Value(Message, frozen=False):
    """One value of a summary: a tag and one of the kinds. ``tf.Summary.Value``.

    ``WhichOneof("value")`` names the kind; a value of no other kind is a scalar, ``simple_value``.
    """

    tag: str = proto(1, Kind.TEXT)
    simple_value: float = proto(2, Kind.FLOAT, oneof="value", fallback=True)
    obsolete_old_style_histogram: bytes = proto(3, Kind.BYTES, oneof="value")
    image: Image = proto(4, Image, oneof="value")
    histo: HistogramProto = proto(5, HistogramProto, oneof="value")
    audio: Audio = proto(6, Audio, oneof="value")
    node_name: str = proto(7, Kind.TEXT)
    tensor: TensorProto = proto(8, TensorProto, oneof="value")
    metadata: SummaryMetadata = proto(9, SummaryMetadata)


_Value = Value  # within Summary the name is an attribute


class Values(list[Value]):
    """The values of a summary."""

    def add(self, **fields: Any) -> Value:
        """Add a value with these fields, and return it. Protobuf's method."""
        value = Value(**fields)
        self.append(value)
        return value

    def __eq__(self, other: object) -> bool:
        return super().__eq__(list(other) if isinstance(other, tuple) else other)


class Summary(Message, frozen=False):
    """Values that belong together. ``tf.Summary``.

    Example::

        summary = Summary(value=[Summary.Value(tag="loss", simple_value=0.5)])
        summary.value.add(tag="rate", simple_value=0.1)
        writer.add_summary(summary, step)
    """

    Value: ClassVar[type[Value]] = Value
    Image: ClassVar[type[Image]] = Image
    Audio: ClassVar[type[Audio]] = Audio

    value: Values = proto(1, Value, repeated=True)

    def __init__(self, value: Iterable[_Value] = ()) -> None:
        self.value = Values(value)

    def ParseFromString(self, serialized: bytes) -> int:
        """Take the values of a serialized summary, such as running a summary op returned.

        Returns:
            How many bytes these are.

        Raises:
            WireError: the bytes are no summary.
        """
        self.value = Summary.FromString(serialized).value
        return len(serialized)


class LogMessage(Message):
    """A line of a log. ``tf.LogMessage``; read back, not written by asyncmon."""

    level: int = proto(1, Kind.INT)
    message: str = proto(2, Kind.TEXT)


class SessionLog(Message):
    """The begin or the end of a session, or a checkpoint. ``tf.SessionLog``."""

    STATUS_UNSPECIFIED: ClassVar[int] = 0
    START: ClassVar[int] = 1
    STOP: ClassVar[int] = 2
    CHECKPOINT: ClassVar[int] = 3

    status: int = proto(1, Kind.INT)
    checkpoint_path: str = proto(2, Kind.TEXT)
    msg: str = proto(3, Kind.TEXT)


class TaggedRunMetadata(Message):
    """How long the operations of one step took, under a tag. ``tf.TaggedRunMetadata``."""

    tag: str = proto(1, Kind.TEXT)
    run_metadata: bytes = proto(2, Kind.BYTES)


class SourceMetadata(Message):
    """Which program wrote the file. ``tensorflow.SourceMetadata``."""

    writer: str = proto(1, Kind.TEXT)


class Event(Message):
    """One record of an event file. ``tf.Event``.

    ``wall_time`` is in seconds since 1970. ``WhichOneof("what")`` names what it holds.
    """

    wall_time: float = proto(1, Kind.DOUBLE)
    step: int = proto(2, Kind.INT)
    file_version: str = proto(3, Kind.TEXT, oneof="what")
    graph_def: bytes = proto(4, Kind.BYTES, oneof="what")
    summary: Summary = proto(5, Summary, oneof="what")
    log_message: LogMessage = proto(6, LogMessage, oneof="what")
    session_log: SessionLog = proto(7, SessionLog, oneof="what")
    tagged_run_metadata: TaggedRunMetadata = proto(8, TaggedRunMetadata, oneof="what")
    meta_graph_def: bytes = proto(9, Kind.BYTES, oneof="what")
    source_metadata: SourceMetadata = proto(10, SourceMetadata)
