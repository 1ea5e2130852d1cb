"""The messages of event files, with the names of protobuf and TF1.

``Summary.Value``, ``Summary.Image`` and so on work as in ``tf.Summary``. Graphs and run metadata stay
serialized.
"""

from __future__ import annotations

from typing import ClassVar

from asyncmon.protobuf.field import Kind
from asyncmon.protobuf.message import Map, Message, Repeated, proto
from asyncmon.protobuf.tensors import TensorProto as TensorProto


class PluginData(Message):
    """The TensorBoard plugin that displays a value. ``tf.SummaryMetadata.PluginData``."""

    plugin_name: str = proto(1, Kind.TEXT)
    content: bytes = proto(2, Kind.BYTES)


_PluginData = PluginData  # within SummaryMetadata the name is an attribute


class SummaryMetadata(Message):
    """How TensorBoard displays a value. ``tf.SummaryMetadata``."""

    PluginData: ClassVar[type[PluginData]] = PluginData

    plugin_data: _PluginData = proto(1, PluginData)
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
    """A histogram: ``bucket[i]`` counts values below ``bucket_limit[i]``. ``tf.HistogramProto``."""

    min: float = proto(1, Kind.DOUBLE)
    max: float = proto(2, Kind.DOUBLE)
    num: float = proto(3, Kind.DOUBLE)
    sum: float = proto(4, Kind.DOUBLE)
    sum_squares: float = proto(5, Kind.DOUBLE)
    bucket_limit: Repeated[float] = proto(6, Kind.DOUBLE, repeated=True)
    bucket: Repeated[float] = proto(7, Kind.DOUBLE, repeated=True)


class Value(Message):
    """One value of a summary, with a tag. ``tf.Summary.Value``.

    ``WhichOneof("value")`` names its kind: ``simple_value`` for a scalar, ``image`` and so on.
    """

    tag: str = proto(1, Kind.TEXT)
    simple_value: float = proto(2, Kind.FLOAT, oneof="value")
    obsolete_old_style_histogram: bytes = proto(3, Kind.BYTES, oneof="value")
    image: Image = proto(4, Image, oneof="value")
    histo: HistogramProto = proto(5, HistogramProto, oneof="value")
    audio: Audio = proto(6, Audio, oneof="value")
    node_name: str = proto(7, Kind.TEXT)
    tensor: TensorProto = proto(8, TensorProto, oneof="value")
    metadata: SummaryMetadata = proto(9, SummaryMetadata)


_Value = Value  # within Summary the name is an attribute


class Summary(Message):
    """A list of values. ``tf.Summary``.

    Example::

        summary = Summary(value=[Summary.Value(tag="loss", simple_value=0.5)])
        summary.value.add(tag="rate", simple_value=0.1)
        writer.add_summary(summary, step)
    """

    Value: ClassVar[type[Value]] = Value
    Image: ClassVar[type[Image]] = Image
    Audio: ClassVar[type[Audio]] = Audio

    value: Repeated[_Value] = proto(1, Value, repeated=True)


class HParamValue(Message):
    """A hyperparameter, a ``google.protobuf.Value``."""

    number_value: float = proto(2, Kind.DOUBLE, oneof="kind")
    string_value: str = proto(3, Kind.TEXT, oneof="kind")
    bool_value: bool = proto(4, Kind.BOOL, oneof="kind")


class SessionStartInfo(Message):
    """The hyperparameters of a run. ``tensorboard.hparams.SessionStartInfo``."""

    hparams: Map[HParamValue] = proto(1, HParamValue, key=Kind.TEXT)
    group_name: str = proto(4, Kind.TEXT)
    start_time_secs: float = proto(5, Kind.DOUBLE)


class HParamsPluginData(Message):
    """The content of the plugin data of TensorBoard's HParams page."""

    session_start_info: SessionStartInfo = proto(3, SessionStartInfo)


class LogMessage(Message):
    """A log line, which other programs write. ``tf.LogMessage``."""

    level: int = proto(1, Kind.INT)
    message: str = proto(2, Kind.TEXT)


_STATUS = {0: "STATUS_UNSPECIFIED", 1: "START", 2: "STOP", 3: "CHECKPOINT"}


class SessionLog(Message):
    """The start or stop of a session, or a checkpoint. ``tf.SessionLog``."""

    STATUS_UNSPECIFIED: ClassVar[int] = 0
    START: ClassVar[int] = 1
    STOP: ClassVar[int] = 2
    CHECKPOINT: ClassVar[int] = 3

    status: int = proto(1, Kind.INT, enum=_STATUS)
    checkpoint_path: str = proto(2, Kind.TEXT)
    msg: str = proto(3, Kind.TEXT)


class TaggedRunMetadata(Message):
    """Serialized ``RunMetadata`` of one step, with a tag. ``tf.TaggedRunMetadata``."""

    tag: str = proto(1, Kind.TEXT)
    run_metadata: bytes = proto(2, Kind.BYTES)


class SourceMetadata(Message):
    """The program that wrote the file. ``tensorflow.SourceMetadata``."""

    writer: str = proto(1, Kind.TEXT)


class Event(Message):
    """One record of an event file. ``tf.Event``.

    ``wall_time`` is in seconds since 1970. ``WhichOneof("what")`` names its content.
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
