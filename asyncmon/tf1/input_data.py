"""MNIST and data sets in its format: TF1: ``tensorflow.examples.tutorials.mnist.input_data``.

The files are read, never downloaded: put ``train-images-idx3-ubyte.gz``,
``train-labels-idx1-ubyte.gz``, ``t10k-images-idx3-ubyte.gz`` and ``t10k-labels-idx1-ubyte.gz``,
compressed or not, in the folder.
The calls block, as in TF1.
"""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from asyncmon.graph import as_dtype

__all__ = ["DataSet", "Datasets", "dense_to_one_hot", "read_data_sets"]

_MAGIC = {3: 2051, 1: 2049}  # images have three dimensions, labels one


class DataSet:
    """Images and labels, given in batches. TF1: same name.

    Args:
        images: ``[n, height, width, 1]``, or ``[n, pixels]`` with ``reshape=False``.
        labels: ``[n]``, or ``[n, classes]``.
        fake_data: give pixels of 1 and labels of 0 instead.
        one_hot: with ``fake_data``, labels ``[n, 10]``.
        dtype: float32 scales pixels to [0, 1]; uint8 leaves them.
        reshape: make the images ``[n, height * width]``.
        seed: of the shuffles.

    ValueError for other numbers of images than of labels, TypeError for another dtype.
    """

    def __init__(
        self, images: Any, labels: Any, fake_data: bool = False, one_hot: bool = False,
        dtype: Any = "float32", reshape: bool = True, seed: int | None = None,
    ) -> None:  # fmt: skip
        kind = as_dtype(dtype).name
        if kind not in ("uint8", "float32"):
            raise TypeError(f"Invalid image dtype {kind!r}, expected uint8 or float32")
        if not fake_data and len(images) != len(labels):
            raise ValueError(f"images.shape: {images.shape} labels.shape: {labels.shape}")
        if reshape and not fake_data:
            images = images.reshape(len(images), int(np.prod(images.shape[1:])))
        if kind == "float32" and not fake_data:
            images = images.astype(np.float32) / np.float32(255.0)
        self._fake, self._one_hot = fake_data, one_hot
        self._random = np.random.RandomState(seed)
        self._images, self._labels = images, labels
        self._epochs = self._at = 0

    images = property(lambda self: self._images, doc="The images, in the order of the epoch.")
    labels = property(lambda self: self._labels, doc="The labels, in the order of the epoch.")
    num_examples = property(
        lambda self: 10000 if self._fake else len(self._images), doc="The number of images."
    )
    epochs_completed = property(lambda self: self._epochs, doc="The number of complete epochs.")

    def next_batch(
        self, batch_size: int, fake_data: bool = False, shuffle: bool = True
    ) -> tuple[Any, Any]:
        """Return the next images and labels; a batch at the end of an epoch continues in the next."""
        if fake_data or self._fake:
            label: Any = [1] + [0] * 9 if self._one_hot else 0
            return [[1] * 784 for _ in range(batch_size)], [label] * batch_size
        if self._at == 0 and self._epochs == 0 and shuffle:
            self._shuffle()
        start, self._at = self._at, self._at + batch_size
        if self._at <= self.num_examples:
            return self._images[start : self._at], self._labels[start : self._at]
        self._epochs += 1
        rest = self._images[start:], self._labels[start:]
        if shuffle:
            self._shuffle()
        self._at = batch_size - len(rest[0])
        ours = self._images[: self._at], self._labels[: self._at]
        return np.concatenate([rest[0], ours[0]]), np.concatenate([rest[1], ours[1]])

    def _shuffle(self) -> None:
        order = self._random.permutation(self.num_examples)
        self._images, self._labels = self._images[order], self._labels[order]


class Datasets(NamedTuple):
    """The three parts of a data set. TF1: same name."""

    train: DataSet
    validation: DataSet
    test: DataSet


def read_data_sets(
    train_dir: str | os.PathLike[str], fake_data: bool = False, one_hot: bool = False,
    dtype: Any = "float32", reshape: bool = True, validation_size: int = 5000,
    seed: int | None = None, source_url: str = "",
) -> Datasets:  # fmt: skip
    """Read the four files of MNIST in a folder. TF1: same name, which downloads them.

    Args:
        train_dir: the folder.
        fake_data: read nothing: see :class:`DataSet`.
        one_hot: return labels ``[n, 10]``.
        dtype: see :class:`DataSet`.
        reshape: see :class:`DataSet`.
        validation_size: how many of the first training images are the validation set.
        seed: of the shuffles.
        source_url: where the files are, for the error if one is missing.

    Raises:
        FileNotFoundError: a file is missing; the error has its name.
        ValueError: a file is not of the idx format, or ``validation_size`` is out of range.
    """
    options = {"dtype": dtype, "reshape": reshape, "seed": seed}
    if fake_data:
        none = [DataSet([], [], fake_data=True, one_hot=one_hot, dtype=dtype) for _ in range(3)]
        return Datasets(*none)
    folder, parts = Path(train_dir), []
    for prefix in ("train", "t10k"):
        images = _idx(folder, f"{prefix}-images-idx3-ubyte", 3, source_url)[..., None]
        labels = _idx(folder, f"{prefix}-labels-idx1-ubyte", 1, source_url)
        parts.append((images, dense_to_one_hot(labels, 10) if one_hot else labels))
    (images, labels), test = parts
    if not 0 <= validation_size <= len(images):
        raise ValueError(
            f"Validation size should be between 0 and {len(images)}. Received: {validation_size}."
        )
    n = validation_size
    return Datasets(
        DataSet(images[n:], labels[n:], **options),
        DataSet(images[:n], labels[:n], **options),
        DataSet(*test, **options),
    )


def dense_to_one_hot(labels_dense: Any, num_classes: int) -> NDArray[Any]:
    """Return rows with a 1.0 at the label. TF1: same name."""
    return np.asarray(np.eye(num_classes)[labels_dense])


def _idx(folder: Path, name: str, dimensions: int, url: str) -> NDArray[np.uint8]:
    path = next((p for p in (folder / f"{name}.gz", folder / name) if p.exists()), None)
    if path is None:
        place = url or "the site of the data set"
        raise FileNotFoundError(
            f"{folder / name}.gz is missing: download it from {place}; asyncmon reads local files only."
        )
    content = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    header = np.frombuffer(content[: 4 * (1 + dimensions)], ">i4")
    if not len(header) or header[0] != _MAGIC[dimensions]:
        found = header[0] if len(header) else "nothing"
        raise ValueError(f"Invalid magic number {found} in {path}: it is no idx file of this kind.")
    values = np.frombuffer(content, np.uint8, offset=4 * (1 + dimensions))
    return values.reshape([int(size) for size in header[1:]])
