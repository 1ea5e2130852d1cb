"""Continuation lines keep their alignment to the bracket."""

from __future__ import annotations

import pytest


from asyncmon.tf1.port.porting import port

HEAD = "import tensorflow as tf\ndef f(sess, x, y):\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "    a, b = sess.run([x,\n                     y],  # c\n                    {x: 1})\n",
            "    a, b = await sess.run([x,\n                           y],  # c\n"
            "                          {x: 1})\n",
        ),
        ("    a = sess.run(\n        x,\n    )\n", "    a = await sess.run(\n        x,\n    )\n"),
        (
            "    a = sess.run(x,\n                 y)[0]\n",
            "    a = (await sess.run(x,\n                        y))[0]\n",
        ),
        (
            '    sess.run(x); a = ("""\n  text""",\n                      y)\n',
            '    await sess.run(x); a = ("""\n  text""",\n                            y)\n',
        ),
        (
            "    a = sess.run([x],\n                 feed_dict={\n                     x: y\n"
            "                 })\n",
            "    a = await sess.run([x],\n                       feed_dict={\n"
            "                           x: y\n                       })\n",
        ),
        (
            "    a, = sess.run([x],\n                  feed_dict={\n                x: y\n"
            "            })\n",
            "    a, = await sess.run([x],\n                        feed_dict={\n"
            "                      x: y\n                  })\n",
        ),
    ],
)
def test_lines_move_with_their_bracket(before: str, after: str) -> None:
    made = port((HEAD + before).encode()).source.decode()
    assert made == f"import asyncmon.tf1 as tf\nasync def f(sess, x, y):\n{after}"
    assert port(made.encode()).source.decode() == made


def test_parameters_move_with_the_name_of_an_async_function() -> None:
    text = "def f(sess,\r\n      x):\r\n    return sess.run(x)\r\n"
    after = "async def f(sess,\r\n            x):\r\n    return await sess.run(x)\r\n"
    assert port(text.encode()).source.decode() == after
