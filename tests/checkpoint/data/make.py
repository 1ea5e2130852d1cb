"""Wrote the TensorFlow checkpoints beside it, with TensorFlow 2.21.0: ``python make.py``.

It also wrote their content to ``expected.json``, as read by TensorFlow's own reader.
"""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

tf1 = tf.compat.v1
tf1.disable_eager_execution()
os.chdir(Path(__file__).parent)


def save(name: str, build: Callable[[], None], **saver_args: Any) -> None:
    config = tf1.ConfigProto(device_count={"CPU": 2})
    with tf1.Graph().as_default(), tf1.Session(config=config) as session:
        tf1.set_random_seed(1)
        build()
        session.run(tf1.global_variables_initializer())
        tf1.train.Saver(**saver_args).save(session, name, write_meta_graph=False)


def variable(name: str, value: Any, dtype: str) -> None:
    tf1.get_variable(name, initializer=tf.constant(value, dtype=dtype), use_resource=True)


def dtypes() -> None:
    kinds = ["float16", "float32", "float64", "bfloat16", "int8", "int16", "int32", "int64"]
    kinds += ["uint8", "uint16", "uint32", "uint64"]
    for kind in kinds:
        variable(f"of/{kind}", [[0, 1, 2], [3, 100, 7]], kind)
    variable("of/bool", [True, False, True], "bool")
    variable("of/complex64", [1 + 2j, -3.5j], "complex64")
    variable("of/complex128", [1 + 2j, -3.5j], "complex128")
    variable("of/string", [["one", ""], ["zwei" * 50, "drei"]], "string")
    variable("empty", np.zeros((0, 3)), "float32")
    variable("global_step", 1000, "int64")


def partitioned() -> None:
    tf1.get_variable(
        "embedding", (7, 3), partitioner=tf1.fixed_size_partitioner(3),
        initializer=tf1.random_normal_initializer(seed=3),
    )  # fmt: skip
    tf1.get_variable(
        "wide", (2, 300), partitioner=tf1.fixed_size_partitioner(2, axis=1),
        initializer=tf1.random_normal_initializer(seed=4),
    )  # fmt: skip


def many() -> None:
    for number in range(60):
        variable(f"tower_{number % 4}/layer_{number:03d}/kernel", np.full((2, 2), number), "float32")


def on_two_devices() -> None:
    with tf.device("/cpu:0"):
        variable("first", np.arange(5), "float32")
    with tf.device("/cpu:1"):
        variable("second", np.arange(7), "int32")


def expected(name: str) -> dict[str, Any]:
    reader = tf1.train.NewCheckpointReader(name)
    out = {}
    for key, shape in sorted(reader.get_variable_to_shape_map().items()):
        value = reader.get_tensor(key)
        if value.dtype == object:
            values = [text.decode() for text in np.ravel(value)]
        elif value.dtype.kind == "c":
            values = [[float(number.real), float(number.imag)] for number in np.ravel(value)]
        else:
            values = np.ravel(value).astype(float if value.dtype.kind in "fV" else int).tolist()
        out[key] = {"dtype": value.dtype.name, "shape": shape, "values": values}
    return out


save("dtypes.ckpt", dtypes)
save("partitioned.ckpt", partitioned)
save("many.ckpt", many)
save("sharded.ckpt", on_two_devices, sharded=True)
names = ["dtypes.ckpt", "partitioned.ckpt", "many.ckpt", "sharded.ckpt"]
found = {name: expected(name) for name in names}
Path("expected.json").write_text(json.dumps(found) + "\n")
Path("checkpoint").rename("state.txt")

# Part of a partitioned variable, and a checkpoint in the V1 format.
tf.raw_ops.SaveV2(
    prefix="hole", tensor_names=["a"], shape_and_slices=["4 3 0,2:-"], tensors=[tf.ones([2, 3])]
)
save("v1.ckpt", lambda: variable("w", [1, 1, 1], "float32"), write_version=1)
