"""``tf.make_template``."""

from __future__ import annotations

from typing import Any

import pytest

import asyncmon.tf1 as tf


@pytest.fixture(autouse=True)
def _graph() -> None:
    tf.reset_default_graph()


def scaled(x: Any, by: float = 1.0) -> Any:
    weight = tf.get_variable("weight", [], initializer=tf.constant_initializer(by))
    return weight * x


@pytest.mark.asyncio
async def test_calls_share_the_variables_of_the_first_one() -> None:
    scale = tf.make_template("scale", scaled, by=3.0)
    assert (scale.variables, scale.variable_scope) == ([], None)
    first, second = scale(1.0), scale(2.0)
    other = tf.make_template("scale", scaled)(1.0)
    assert [v.name for v in tf.trainable_variables()] == ["scale/weight:0", "scale_1/weight:0"]
    assert scale.trainable_variables == scale.variables == [tf.trainable_variables()[0]]
    assert (scale.variable_scope.name, scale.name) == ("scale", "scale")
    async with tf.Session() as sess:
        await sess.run(tf.global_variables_initializer())
        assert await sess.run([first, second, other]) == [3, 6, 1]


def test_the_scope_is_chosen_at_the_first_call_or_now() -> None:
    late = tf.make_template("s", scaled)
    now = tf.make_template("s", scaled, create_scope_now_=True)
    assert now.variable_scope.name == "s"
    now(1.0)
    now(1.0)
    late(1.0)
    assert [v.name for v in tf.trainable_variables()] == ["s/weight:0", "s_1/weight:0"]


def test_a_unique_name_is_taken_as_it_is() -> None:
    with tf.variable_scope("outer"):
        tf.make_template("x", scaled, unique_name_="mine")(1.0)
    assert [v.name for v in tf.trainable_variables()] == ["outer/mine/weight:0"]
    again = tf.make_template("x", scaled, unique_name_="mine")
    with tf.variable_scope("outer"), pytest.raises(ValueError, match="already exists"):
        again(1.0)


def test_a_custom_getter_is_called() -> None:
    names: list[str] = []

    def getter(get: Any, name: str, *args: Any, **kwargs: Any) -> Any:
        names.append(name)
        return get(name, *args, **kwargs)

    tf.make_template("t", scaled, custom_getter_=getter)(1.0)
    assert names == ["t/weight"]


def test_a_variable_made_in_each_call_is_refused() -> None:
    template = tf.make_template("t", lambda: tf.Variable(1.0))
    template()
    with pytest.raises(ValueError, match=r"perhaps you used tf\.Variable"):
        template()


def test_a_first_call_that_fails_can_be_repeated() -> None:
    calls: list[int] = []

    def body() -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise KeyError("once")
        return tf.get_variable("v", [])

    template = tf.make_template("t", body)
    with pytest.raises(KeyError):
        template()
    assert template().name == "t/v:0"
    with pytest.raises(ValueError, match="name cannot be None"):
        tf.make_template(None, body)  # type: ignore[arg-type]  # refused


def test_the_calls_number_the_names_of_ops() -> None:
    def build() -> Any:
        return tf.add(tf.get_variable("w", []), 1.0, name="r")

    now = tf.make_template("t", build, create_scope_now_=True)
    assert [now().name, now().name] == ["t/r:0", "t_1/r:0"]
    assert tf.make_template("t", build)().name == "t_2/r:0"
    assert [v.name for v in tf.global_variables()] == ["t/w:0", "t_1/w:0"]
