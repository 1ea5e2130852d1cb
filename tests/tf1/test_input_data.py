"""The reader of MNIST's files, which downloads nothing."""

from __future__ import annotations

import gzip
import struct
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from asyncmon.tf1 import input_data

RNG = np.random.default_rng(3)


def idx(array: NDArray[np.uint8], magic: int) -> bytes:
    return struct.pack(f">{array.ndim + 1}i", magic, *array.shape) + array.tobytes()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for prefix, n in (("train", 30), ("t10k", 12)):
        images = RNG.integers(0, 256, (n, 4, 5)).astype(np.uint8)
        images[:, 0, 0] = np.arange(n)
        labels = (np.arange(n) % 10).astype(np.uint8)
        (tmp_path / f"{prefix}-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(images, 2051)))
        (tmp_path / f"{prefix}-labels-idx1-ubyte").write_bytes(idx(labels, 2049))
    return tmp_path


def test_the_three_parts(folder: Path) -> None:
    mnist = input_data.read_data_sets(folder, one_hot=True, validation_size=6)
    assert [part.num_examples for part in mnist] == [24, 6, 12]
    assert mnist.train.images.shape == (24, 20)
    assert mnist.train.images.dtype == np.float32
    assert mnist.test.labels.shape == (12, 10)
    np.testing.assert_allclose(mnist.validation.images[:, 0], np.arange(6) / 255, rtol=1e-6)
    raw = input_data.read_data_sets(folder, reshape=False, dtype="uint8", validation_size=0)
    assert (raw.train.images.shape, raw.train.images.dtype) == ((30, 4, 5, 1), np.uint8)
    assert raw.test.labels.tolist() == [i % 10 for i in range(12)]


def test_batches_continue_in_the_next_epoch_and_keep_images_with_their_labels(folder: Path) -> None:
    train = input_data.read_data_sets(folder, dtype="uint8", validation_size=0, seed=1).train
    seen = []
    for _ in range(4):
        images, labels = train.next_batch(20)
        assert (images[:, 0] % 10).tolist() == labels.tolist()
        seen += images[:, 0].tolist()
    assert train.epochs_completed == 2
    assert sorted(seen[:30]) == sorted(seen[30:60]) == list(range(30))
    assert seen[:30] != list(range(30))


def test_without_a_shuffle_the_order_is_that_of_the_file(folder: Path) -> None:
    test = input_data.read_data_sets(folder, dtype="uint8", validation_size=0).test
    assert test.next_batch(5, shuffle=False)[0][:, 0].tolist() == [0, 1, 2, 3, 4]


def test_fake_data_needs_no_files(tmp_path: Path) -> None:
    images, labels = input_data.read_data_sets(tmp_path, fake_data=True, one_hot=True).train.next_batch(
        2
    )
    assert images == [[1] * 784] * 2
    assert labels == [[1] + [0] * 9] * 2


def test_what_is_missing_or_wrong_is_named(folder: Path) -> None:
    with pytest.raises(ValueError, match="between 0 and 30"):
        input_data.read_data_sets(folder, validation_size=31)
    with pytest.raises(TypeError, match="Invalid image dtype 'int32'"):
        input_data.read_data_sets(folder, dtype="int32", validation_size=0)
    (folder / "t10k-labels-idx1-ubyte").write_bytes(b"\0\0\0\1")
    with pytest.raises(ValueError, match="Invalid magic number 1 in"):
        input_data.read_data_sets(folder)
    (folder / "t10k-labels-idx1-ubyte").unlink()
    with pytest.raises(FileNotFoundError, match=r"t10k-labels-idx1-ubyte.gz is missing: download it"):
        input_data.read_data_sets(folder, source_url="https://example.org/")
