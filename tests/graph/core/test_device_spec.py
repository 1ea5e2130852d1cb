"""Names of devices: parsed, printed and merged as TensorFlow does."""

from __future__ import annotations

from string import ascii_lowercase
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asyncmon.graph import DeviceSpec


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("/job:ps/task:0/cpu:0", "/job:ps/task:0/device:CPU:0"),
        ("/job:worker", "/job:worker"),
        ("/device:CPU:0", "/device:CPU:0"),
        ("/replica:0", "/replica:0"),
        ("", ""),
        (None, ""),
        ("/", ""),
        ("//job:a//task:1/", "/job:a/task:1"),
        ("job:a/task:1", "/job:a/task:1"),
        ("cpu", "/device:CPU:*"),
        ("/cpu:*", "/device:CPU:*"),
        ("/GPU:1", "/device:GPU:1"),
        ("/tpu:1", "/device:TPU:1"),
        ("/device:cpu:0", "/device:CPU:0"),
        ("/device:Cpu:0", "/device:Cpu:0"),
        ("/device:foo:*", "/device:foo:*"),
        ("/device::0", "/device::0"),
        ("/job:ps/job:worker", "/job:worker"),
        ("/job:", "/job:"),
        ("/:a", ""),
        ("/task:007", "/task:7"),
        ("/task:1/replica:2/cpu:3/job:a", "/job:a/replica:2/task:1/device:CPU:3"),
    ],
)
def test_names(text: str | None, canonical: str) -> None:
    assert DeviceSpec.from_string(text).to_string() == canonical


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("/foo:1", "Unknown attribute 'foo' is encountered while parsing the device spec: '/foo:1'."),
        ("/job", "Unknown attribute 'job' is encountered while parsing the device spec: '/job'."),
        ("/job:a:b", "Unknown attribute 'job' is encountered"),
        ("/device:GPU", "Unknown attribute 'device' is encountered"),
        ("/xla_cpu:0", "Unknown attribute 'xla_cpu' is encountered"),
        ("/task:x", "invalid literal for int"),
        ("/task:*", "invalid literal for int"),
        ("/cpu:x", "invalid literal for int"),
        ("/device:CPU:", "invalid literal for int"),
        (
            "/cpu:0/gpu:0",
            "Multiple device types are not allowed while parsing the device spec: /cpu:0/gpu",
        ),
        ("/device:GPU:0/cpu:0", "Multiple device types are not allowed"),
    ],
)
def test_names_that_are_not_valid(text: str, error: str) -> None:
    with pytest.raises(ValueError, match=error):
        DeviceSpec.from_string(text)


@pytest.mark.parametrize("value", [5, b"/cpu:0"])
def test_a_name_is_text(value: Any) -> None:
    with pytest.raises(TypeError, match="A device is text, as '/job:ps/task:0', or a DeviceSpec, got"):
        DeviceSpec.from_string(value)


def test_fields() -> None:
    spec = DeviceSpec(job=5, replica="3", task="4", device_type="gpu", device_index="7")
    assert (spec.job, spec.replica, spec.task) == ("5", 3, 4)
    assert (spec.device_type, spec.device_index) == ("GPU", 7)
    text = "<DeviceSpec(job=5, replica=3, task=4, device_type=GPU, device_index=7)>"
    assert repr(spec) == text
    spec.job, spec.task, spec.device_type = 6, "8", "cpu"  # type: ignore[assignment]  # converted
    assert spec.to_string() == "/job:6/replica:3/task:8/device:CPU:7"
    with pytest.raises(ValueError, match="invalid literal for int"):
        spec.task = "q"  # type: ignore[assignment]  # refused
    with pytest.raises(AttributeError, match="has no attribute 'foo'"):
        spec.foo = 1


def test_merging() -> None:
    ps, one = DeviceSpec("ps", task=0, device_type="cpu"), DeviceSpec("worker", task=1, replica=2)
    assert ps.make_merged_spec(one).to_string() == "/job:worker/replica:2/task:1/device:CPU:*"
    assert one.make_merged_spec(ps).to_string() == "/job:ps/replica:2/task:0/device:CPU:*"
    assert ps.to_string() == "/job:ps/task:0/device:CPU:*"
    ps.merge_from(one)
    assert ps.to_string() == "/job:worker/replica:2/task:1/device:CPU:*"
    assert ps.replace(job=None, device_index=3).to_string() == "/replica:2/task:1/device:CPU:3"
    assert ps.parse_from_string("/task:4") is ps
    assert ps.to_string() == "/task:4"
    with pytest.raises(TypeError, match="nope"):
        ps.replace(nope=3)


def test_equality() -> None:
    assert DeviceSpec("a") == DeviceSpec("a") != DeviceSpec("b")
    assert DeviceSpec("a") != "/job:a"
    assert len({DeviceSpec("a", device_type="cpu"), DeviceSpec.from_string("/job:a/cpu:*")}) == 1


indices = st.none() | st.integers(0, 99)
specs = st.builds(
    DeviceSpec,
    st.none() | st.text(ascii_lowercase, min_size=1, max_size=3),
    indices,
    indices,
    st.sampled_from([None, "CPU", "GPU", "x"]),
).flatmap(
    lambda spec: (
        st.just(spec) | st.builds(lambda i: spec.replace(device_type="CPU", device_index=i), indices)
    )
)


@given(specs, specs)
def test_names_and_fields_are_the_same_thing(outer: DeviceSpec, inner: DeviceSpec) -> None:
    assert DeviceSpec.from_string(inner.to_string()) == inner
    merged = outer.make_merged_spec(inner)
    for name in ("job", "replica", "task", "device_type", "device_index"):
        asked, before = getattr(inner, name), getattr(outer, name)
        assert getattr(merged, name) == (before if asked is None else asked)
