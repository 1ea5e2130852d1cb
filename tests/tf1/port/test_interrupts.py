"""A handler of KeyboardInterrupt catches Ctrl-C in a coroutine, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from asyncmon.tf1.port.porting import port
from tests import forked

BOTH = "(KeyboardInterrupt, asyncio.CancelledError)"


@pytest.mark.parametrize(
    ("body", "caught", "after"),
    [
        ("sess.run(1)", "KeyboardInterrupt", BOTH),
        ("sess.run(1)", "KeyboardInterrupt as e", f"{BOTH} as e"),
        ("sess.run(1)", "(KeyboardInterrupt, OSError)", BOTH.replace(",", ", OSError,")),
        ("with tf.Session(): pass", "KeyboardInterrupt", BOTH),
        ("print(1)", "KeyboardInterrupt", "KeyboardInterrupt"),
        ("sess.run(1)", "ValueError", "ValueError"),
    ],
)
def test_handlers_of_statements_that_await(body: str, caught: str, after: str) -> None:
    text = f"import tensorflow as tf\ndef f(sess):\n    sess.run(2)\n    try:\n        {body}\n"
    ported = port(f"{text}    except {caught}:\n        pass\n")
    assert f"    except {after}:" in ported.source.decode()
    assert ported.notes == ()
    assert port(ported.source).source == ported.source


def test_a_handler_around_asyncio_run_stays() -> None:
    text = "import tensorflow as tf\ndef f():\n    tf.Session().run(1)\ntry:\n    f()\n"
    made = port(f"{text}except KeyboardInterrupt:\n    pass\n").source.decode()
    assert "    asyncio.run(f())\nexcept KeyboardInterrupt:" in made


def test_ctrl_c_reaches_the_handler(tmp_path: Path) -> None:
    (tmp_path / "new.py").write_bytes(
        port(
            "import os, signal\nimport tensorflow as tf\nv = tf.Variable(1.0)\n"
            "count = v.assign_add(1.0)\n"
            "with tf.Session() as sess:\n    sess.run(tf.global_variables_initializer())\n    try:\n"
            "        while sess.run(count) < 3:\n            pass\n"
            "        os.kill(os.getpid(), signal.SIGINT)\n"
            "        while True:\n            sess.run(count)\n"
            "    except KeyboardInterrupt:\n        print('saved', sess.run(v) >= 3)\nprint('end')\n"
        ).source
    )
    ran = forked.run(tmp_path / "new.py", cwd=tmp_path)
    assert (ran.returncode, ran.stdout) == (0, "saved True\nend\n"), ran.stderr
