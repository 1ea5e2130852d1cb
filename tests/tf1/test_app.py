"""``tf.app.run`` and ``tf.flags``, in processes of their own: they end the program."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from absl import flags as absl_flags

import asyncmon.tf1 as tf
from tests import forked

FLAGS = """
import asyncmon.tf1 as tf
tf.app.flags.DEFINE_string("name", "world", "who is greeted")
tf.flags.DEFINE_integer("count", default_value=2, docstring="how often")
tf.flags.DEFINE_float("rate", 0.5, "a rate")
tf.flags.DEFINE_bool("loud", False, "in capitals")
tf.flags.DEFINE_enum("kind", "a", ["a", "b"], "a kind")
tf.flags.DEFINE_list("layers", "1,2", "sizes")
FLAGS = tf.flags.FLAGS
"""
NO_ABSL = "import sys\nsys.modules['absl'] = None\n"


def program(code: str, *arguments: str, before: str = "") -> subprocess.CompletedProcess[str]:
    return forked.run("-c", before + textwrap.dedent(code), *arguments, options=("-W", "error"))


ASYNC = f"""{FLAGS}
async def main(argv):
    print(
        sorted(argv[1:]), FLAGS.name, FLAGS.count, FLAGS.rate, FLAGS.loud, FLAGS.kind, FLAGS.layers
    )
    return FLAGS.count

tf.app.run()
"""


def test_an_async_main_gets_what_is_no_flag_and_its_result_is_the_status() -> None:
    done = program(ASYNC, "--name=you", "--count", "3", "--loud", "rest", "--unknown=1")
    assert done.stdout == "['--unknown=1', 'rest'] you 3 0.5 True a ['1', '2']\n", done.stderr
    assert (done.returncode, done.stderr) == (3, "")


def test_a_plain_main_is_run_too_and_arguments_may_be_given() -> None:
    code = FLAGS + "tf.app.run(lambda argv: print(argv, FLAGS.name), ['x', '--name=me', 'y'])"
    done = program(code)
    assert (done.returncode, done.stdout) == (0, "['x', 'y'] me\n"), done.stderr


@pytest.mark.parametrize("bad", [["--count=x"], ["--kind=c"], ["--name"]])
def test_wrong_flags_are_an_error_without_a_traceback(bad: list[str]) -> None:
    done = program(ASYNC, *bad)
    assert done.returncode == 1
    assert done.stderr.startswith("FATAL Flags parsing error: ")
    assert "Traceback" not in done.stderr


def test_help_lists_the_flags_of_the_program(tmp_path: Path) -> None:
    path = tmp_path / "greet.py"
    path.write_text(textwrap.dedent(ASYNC))
    done = forked.run(path, "--help")
    assert done.returncode == 1  # as absl has it
    assert "--name: who is greeted\n    (default: 'world')" in done.stdout


def test_an_error_of_main_leaves_with_its_traceback() -> None:
    code = "import asyncmon.tf1 as tf\nasync def main(_):\n    raise ValueError('no')\ntf.app.run(main)"
    done = program(code)
    assert done.returncode == 1
    assert done.stderr.endswith("ValueError: no\n")


def test_values_that_are_read_before_run_parse_the_command_line() -> None:
    code = f"""{FLAGS}
print(FLAGS.is_parsed(), FLAGS.name, FLAGS.is_parsed())
FLAGS.name = "set"
print(FLAGS.name, "name" in FLAGS, "nothing" in FLAGS, FLAGS["count"].value)
FLAGS._parse_flags()
print(FLAGS.name, sorted(FLAGS)[-1], len(FLAGS) >= 6, FLAGS.__flags["rate"].value)
"""
    done = program(code, "--name=you")
    assert done.stdout == "False you True\nset True False 2\nyou rate True 0.5\n", done.stderr


def test_a_flag_that_is_not_defined_is_named() -> None:
    done = program(FLAGS + "print(FLAGS.naem)")
    assert "AttributeError: naem" in done.stderr
    done = program(FLAGS + "tf.flags.DEFINE_strnig('x', '', '')")
    assert "did you mean 'DEFINE_string'" in done.stderr


def test_without_absl_flags_say_what_to_install_and_main_has_all_arguments() -> None:
    done = program(FLAGS, before=NO_ABSL)
    assert "ImportError: tf.flags.DEFINE_string needs absl: pip install 'asyncmon[tf1]'" in done.stderr
    code = (
        "import asyncmon.tf1 as tf\nasync def main(argv):\n    print(argv)\n    return 4\ntf.app.run()"
    )
    done = program(code, "--x=1", "y", before=NO_ABSL)
    assert (done.returncode, done.stdout, done.stderr) == (4, "['-c', '--x=1', 'y']\n", "")


TRAINING = """
    import asyncmon.tf1 as tf

    async def main(_):
        step = tf.train.get_or_create_global_step()
        train_op = tf.assign_add(step, 1)
        async with tf.train.MonitoredTrainingSession(checkpoint_dir="run") as sess:
            while not sess.should_stop():
                if await sess.run(train_op) == 5:
                    print("ready", flush=True)
        print(sess.stop_reason)

    tf.app.run()
"""


def ended(process: forked.Process) -> tuple[str, str]:
    """Return what a program printed until its end, which comes in any case."""
    try:
        return process.communicate(timeout=15)
    finally:
        process.kill()


@pytest.mark.parametrize("before", ["", NO_ABSL])
def test_a_signal_stops_training_in_order(tmp_path: Path, before: str) -> None:
    code = before + textwrap.dedent(TRAINING)
    with forked.Process("-c", code, cwd=tmp_path, options=("-W", "error")) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        out, err = ended(process)
    assert (process.returncode, out) == (0, "signal SIGTERM\n"), err
    assert "INFO:tensorflow:Saving checkpoints for 0 into run/model.ckpt-0." in err
    assert err.count("Received SIGTERM") == 1


@pytest.mark.parametrize("before", ["", NO_ABSL])
def test_ctrl_c_outside_of_a_session_ends_the_program_as_an_interrupt(before: str) -> None:
    code = """
        import asyncio
        import asyncmon.tf1 as tf

        async def main(_):
            print("ready", flush=True)
            await asyncio.Event().wait()

        tf.app.run()
    """
    with forked.Process("-c", before + textwrap.dedent(code)) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        _, err = ended(process)
    assert process.returncode == -signal.SIGINT
    assert err.rstrip().endswith("KeyboardInterrupt")


@pytest.mark.asyncio
async def test_inside_of_an_event_loop_it_says_to_await_main() -> None:
    async def main(_argv: list[str]) -> None:
        raise AssertionError("not run")

    with pytest.raises(RuntimeError, match=r"running already: await main\(argv\)"):
        tf.app.run(main, ["program"])


def test_messages_below_info_are_shown_where_the_program_says_so() -> None:
    code = """
        import asyncmon.tf1 as tf

        def main(_):
            tf.logging.debug("debug")
            tf.logging.info("info")
            print(tf.logging.get_verbosity())
        tf.logging.set_verbosity({})
        tf.app.run()
    """
    assert program(code.format("tf.logging.ERROR")).stderr == ""
    done = program(code.format("tf.logging.DEBUG"))
    assert (done.stdout, done.stderr) == ("10\n", "DEBUG:tensorflow:debug\nINFO:tensorflow:info\n")


def test_absl_keeps_its_own_lines() -> None:
    code = """
        import asyncmon.tf1 as tf
        from absl import logging

        def main(_):
            logging.warning("absl's")
            tf.logging.warning("ours")
        tf.app.run()
    """
    first, second = program(code).stderr.splitlines()
    assert first.startswith("W")
    assert first.endswith("] absl's")
    assert second == "WARNING:tensorflow:ours"


@pytest.fixture
def _quiet_logger() -> Iterator[None]:
    logger = logging.getLogger("asyncmon")
    before, handlers = logger.level, list(logger.handlers)
    yield
    logger.setLevel(before)
    logger.handlers[:] = handlers


@pytest.mark.usefixtures("_quiet_logger")
@pytest.mark.parametrize("is_async", [False, True])
def test_the_result_of_main_is_the_status(monkeypatch: pytest.MonkeyPatch, is_async: bool) -> None:
    async def wait_for(argv: list[str]) -> int:
        return len(argv)

    monkeypatch.setitem(sys.modules, "absl", None)
    with pytest.raises(SystemExit) as caught:
        tf.app.run(wait_for if is_async else len, ["program", "--flag", "argument"])
    assert caught.value.code == 3
    assert tf.logging.get_verbosity() == tf.logging.INFO


@pytest.fixture
def values(monkeypatch: pytest.MonkeyPatch) -> absl_flags.FlagValues:
    """Return the values behind ``tf.flags.FLAGS``, empty for the test."""
    values = absl_flags.FlagValues()
    monkeypatch.setattr(absl_flags, "FLAGS", values)
    monkeypatch.setitem(vars(tf.flags), "FLAGS", None)
    del vars(tf.flags)["FLAGS"]  # the first access wraps the values
    return values


def test_flags_are_read_set_and_listed(values: absl_flags.FlagValues) -> None:
    absl_flags.DEFINE_string("name", "world", "who", flag_values=values)
    flags = tf.flags.FLAGS
    assert ("name" in flags, "other" in flags, list(flags), len(flags)) == (True, False, ["name"], 1)
    assert flags(["program", "--name=you", "rest"]) == ["program", "rest"]
    assert (flags.name, flags["name"].value) == ("you", "you")
    flags.name = "me"
    assert flags.flag_values_dict() == {"name": "me"}
    assert "name" in dir(flags)
    assert "--name: who" in str(flags)
    flags["again"] = flags["name"]
    assert flags.again == "me"
    del flags.name
    with pytest.raises(AttributeError):
        _ = flags.name


def test_flags_are_parsed_when_the_first_one_is_read(
    monkeypatch: pytest.MonkeyPatch, values: absl_flags.FlagValues
) -> None:
    tf.flags.DEFINE_integer(
        flag_name="count", default_value=1, docstring="how often", flag_values=values
    )
    flags = tf.flags.FLAGS
    monkeypatch.setattr(sys, "argv", ["program", "--count=5"])
    assert flags.count == 5
    monkeypatch.setattr(sys, "argv", ["program", "--count=6"])
    flags._parse_flags()
    assert flags.count == 6


KERNEL = """
import sys
from IPython.core.interactiveshell import InteractiveShell
InteractiveShell.instance().kernel = object()  # as that of a notebook
sys.argv = ["ipykernel_launcher.py", "-f", "kernel.json"]
import asyncmon.tf1 as tf
tf.flags.DEFINE_integer("n", 3, "")
print(tf.flags.FLAGS.n)
tf.app.run(print)
"""


def test_a_notebook_has_no_arguments_but_the_kernels(tmp_path: Path) -> None:
    pytest.importorskip("IPython", reason="IPython is not installed")
    done = subprocess.run(
        [sys.executable, "-c", KERNEL], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.stdout == "3\n['ipykernel_launcher.py']\n", done.stderr
