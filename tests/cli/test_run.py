"""``asyncmon run``: a function of a module, its options, and the exit status."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests import forked

MODULE = """
import asyncio
import logging
import sys
import asyncmon as am

program = am.programs.FunctionProgram(state={"weight": 0.0})

@program.step
async def train(state):
    await asyncio.sleep(0.001)
    state["weight"] += 1

def session(resume="auto", steps=5):
    hooks = [am.StopAtStepHook(num_steps=steps)]
    return am.MonitoredTrainingSession(
        checkpoint_dir="runs", program=program, hooks=hooks, resume=resume
    )

async def main(resume="auto", stop_grace_period_secs=None):
    print("arguments", resume, stop_grace_period_secs, flush=True)
    async with session(resume) as sess:
        print("began at", sess.global_step, flush=True)
        while not sess.should_stop():
            await sess.run("train")

def factory():
    return session(), "train"

async def endless():
    print("ready", flush=True)
    return session(steps=10**9), "train"

async def plain():
    print("plain")

async def fails():
    raise ValueError("this one")

def returns_five():
    return 5

class Namespace:
    main = plain

seen = list(sys.argv)

async def own():
    assert seen == sys.argv
    print(*sys.argv)

async def takes(rate, layers=(), *, resume="auto"):
    print(rate, layers, resume)

async def takes_all(**arguments):
    print(sorted(arguments.items()))

async def with_session(session):
    print(sorted(session.items()))
    print(logging.getLogger().level)

async def with_both(session, resume="auto"):
    print(resume, sorted(session))

def of_settings(session):
    return am.MonitoredTrainingSession(program=program, **session), "train"

class Stop(am.StopAtStepHook):
    def __init__(self):
        super().__init__(num_steps=5)

number = 5
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "training").mkdir()
    (tmp_path / "training" / "digits.py").write_text(MODULE)
    (tmp_path / "broken.py").write_text("import nowhere_to_be_found")
    return tmp_path


def run(folder: Path, *arguments: str, target: str = "main") -> subprocess.CompletedProcess[str]:
    place = target if ":" in target or not target else f"training.digits:{target}"
    process = forked.Process("asyncmon", "run", place, *arguments, cwd=folder)
    out, err = process.communicate(timeout=40)
    return subprocess.CompletedProcess(place, process.wait(), out, err)


def test_a_function_gets_its_options_and_continues_where_it_ended(folder: Path) -> None:
    first, second = run(folder, "--grace", "25"), run(folder)
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert first.stdout.splitlines()[:2] == ["arguments auto 25.0", "began at 0"]
    assert second.stdout.splitlines()[:2] == ["arguments auto None", "began at 5"]
    assert "INFO Session ended at step 5: StopAtStepHook" in first.stderr


def test_resume_begins_again_or_with_a_given_checkpoint(folder: Path) -> None:
    for _ in range(2):
        run(folder)
    path = "runs/model.ckpt-5"
    third = run(folder, "--resume", path)
    assert "began at 5\n" in third.stdout, third.stderr
    assert "began at 10\n" in run(folder).stdout
    fourth = run(folder, "--resume", "never")
    assert "began at 0\n" in fourth.stdout, fourth.stderr
    assert "began at 5\n" in run(folder).stdout


def test_a_session_that_is_returned_is_run(folder: Path) -> None:
    done = run(folder, target="factory")
    assert done.returncode == 0, done.stderr
    assert "Session ended at step 5: StopAtStepHook" in done.stderr


def test_a_signal_ends_it_with_75(folder: Path) -> None:
    command = [sys.executable, "-m", "asyncmon", "run", "training.digits:endless", "--grace", "10"]
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGTERM)
        try:
            _, err = process.communicate(timeout=40)
        finally:
            process.kill()
    assert process.returncode == 75, err
    assert "WARNING Stopped by SIGTERM, everything is saved." in err


@pytest.mark.parametrize("target", ["plain", "Namespace.main"])
def test_functions_without_options_are_run_too(folder: Path, target: str) -> None:
    done = run(folder, target=target)
    assert (done.returncode, done.stdout) == (0, "plain\n"), done.stderr


def test_an_error_of_the_function_is_shown_whole(folder: Path) -> None:
    done = run(folder, target="fails")
    assert done.returncode == 1
    assert done.stderr.splitlines()[0] == "Traceback (most recent call last):"
    assert done.stderr.splitlines()[-1] == "ValueError: this one"


@pytest.mark.parametrize(
    ("target", "arguments", "sentence"),
    [
        (
            "training.digits:",
            [],
            "MODULE:FUNCTION is expected, training.digits:main, got 'training.digits:'.",
        ),
        ("nowhere.at:all", [], "There is no module 'nowhere' here nor in sys.path."),
        ("training.cifar:main", [], "There is no module 'training.cifar' here nor in sys.path."),
        ("mian", [], "The module 'training.digits' has no 'mian': 'mian' is missing."),
        ("number", [], "training.digits:number is no function but 5."),
        (
            "plain",
            ["--resume", "never"],
            "--resume never needs a function with the argument `resume`, to pass it on to "
            "MonitoredTrainingSession; training.digits:plain has none.",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(
    folder: Path, target: str, arguments: list[str], sentence: str
) -> None:
    done = run(folder, *arguments, target=target)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", f"{sentence}\n")


def test_grace_is_positive(folder: Path) -> None:
    done = run(folder, "--grace", "0")
    assert done.returncode == 2
    assert "a positive number of seconds is expected, got 0." in done.stderr


def test_what_a_module_lacks_is_not_taken_for_the_module(folder: Path) -> None:
    done = run(folder, target="broken:main")
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == "ModuleNotFoundError: No module named 'nowhere_to_be_found'"


def test_another_result_is_refused(folder: Path) -> None:
    done = run(folder, target="returns_five")
    assert done.returncode == 1
    assert "TypeError: returns_five returned 5; expected nothing, or a monitored" in done.stderr


def test_help_names_the_exit_statuses(folder: Path) -> None:
    done = run(folder, "--help", target="")
    assert done.returncode == 0
    assert "75 stopped by a signal and saved: run it again" in done.stdout


def test_what_follows_two_dashes_is_the_programs_own(folder: Path) -> None:
    done = run(folder, "--", "--rate", "0.1", "--", "watch", target="own")
    assert (done.returncode, done.stdout) == (0, "training.digits:own --rate 0.1 -- watch\n")
    assert run(folder, target="own").stdout == "training.digits:own\n"


def test_an_argument_before_the_dashes_is_refused(folder: Path) -> None:
    done = run(folder, "more", "--", "--rate", "0.1", target="own")
    assert done.returncode == 2
    assert "unrecognized arguments: more" in done.stderr


def configured(folder: Path, text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "settings.toml").write_text(text)
    process = forked.Process("asyncmon", "run", "--config", "settings.toml", *arguments, cwd=folder)
    out, err = process.communicate(timeout=40)
    return subprocess.CompletedProcess(text, process.wait(), out, err)


@pytest.mark.parametrize(
    ("text", "arguments", "printed"),
    [
        ("target = 'training.digits:own'\nargs = ['-v', 'a b']", [], "training.digits:own -v a b"),
        ("target = 'training.digits:own'\nargs = ['-v']", ["--", "-q"], "training.digits:own -q"),
        ("target = 'training.digits:own'\nargs = ['-v']", ["--"], "training.digits:own"),
        ("target = 'training.digits:own'", ["training.digits:plain"], "plain"),
        (
            "target = 'training.digits:takes'\n[arguments]\nrate = 0.5\nlayers = [3, 4]",
            [],
            "0.5 [3, 4] auto",
        ),
        ("target = 'training.digits:takes'\n[arguments]\nrate = 1\nresume = 'x'", [], "1 () x"),
        (
            "target = 'training.digits:takes'\n[arguments]\nrate = 1\nresume = 'x'",
            ["--resume", "never"],
            "1 () never",
        ),
        ("target = 'training.digits:takes_all'\n[arguments]\nrate = 1", [], "[('rate', 1)]"),
        (
            "target = 'training.digits:with_session'\nlog_level = 'ERROR'\n[session]\nname = 'a'",
            ["--resume", "never", "--grace", "20"],
            "[('name', 'a'), ('resume', 'never'), ('stop_grace_period_secs', 20.0)]\n40",
        ),
        ("target = 'training.digits:with_session'", [], "[]\n20"),
        (
            "target = 'training.digits:with_both'\n[session]\nresume = 'never'\nname = 'a'",
            [],
            "never ['name']",
        ),
    ],
)
def test_a_function_gets_what_the_file_and_the_command_line_say(
    folder: Path, text: str, arguments: list[str], printed: str
) -> None:
    done = configured(folder, text, *arguments)
    assert (done.returncode, done.stdout) == (0, f"{printed}\n"), done.stderr


def test_a_session_is_made_of_the_file(folder: Path) -> None:
    text = """
        target = "training.digits:of_settings"
        [session]
        checkpoint_dir = "runs/by_file"
        name = "filed"
        save_checkpoint_steps = 2
        stop_grace_period_secs = 25
        [[session.hooks]]
        name = "training.digits:Stop"
    """
    first, second = configured(folder, text), configured(folder, text, "--resume", "never")
    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert "Session ended at step 5: StopAtStepHook" in first.stderr
    listed = forked.run("asyncmon", "runs", cwd=folder)
    assert listed.stdout.splitlines()[1].startswith("filed")
    assert "model.ckpt-4" in first.stderr
    assert (folder / "runs" / "by_file" / "checkpoint").exists()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("target = ", "'settings.toml' is no TOML: Invalid value (at end of document)"),
        ("", "Give MODULE:FUNCTION, or the file of --config a `target`."),
        (
            "targt = 'a:b'",
            "settings.toml: there is no 'targt'. Known: target, args, log_level, arguments, session.",
        ),
        ("target = 3", "settings.toml: target must be a text, got 3."),
        ("args = '-v'", "settings.toml: args must be a list of texts, got '-v'."),
        ("args = [1]", "settings.toml: args must be texts, got [1]."),
        ("session = 1", "settings.toml: session must be a table, got 1."),
        ("log_level = 'LOUD'", "settings.toml: there is no log_level 'LOUD'. Known: CRITICAL, "),
        ("[session]\ndirectory = 'x'", "settings.toml, [session]: there is no 'directory'. Known: "),
        ("[session]\nprogram = 'x'", "settings.toml, [session]: there is no 'program'. Known: "),
        (
            "[session]\nstop_grace_period_secs = 0",
            "settings.toml, [session]: stop_grace_period_secs must be a positive number, got 0.",
        ),
        (
            "target = 'training.digits:takes'\n[arguments]\nrte = 1",
            "training.digits:takes, [arguments]: there is no 'rte'. Known: rate, layers, resume.",
        ),
        (
            "target = 'training.digits:with_session'\n[arguments]\nsession = 1",
            "training.digits:with_session, [arguments]: there is no 'session'. Known: none.",
        ),
        (
            "target = 'training.digits:takes'",
            "training.digits:takes cannot be called: missing a required argument: 'rate'.",
        ),
        (
            "target = 'training.digits:plain'\n[session]\nname = 'a'",
            "[session] name needs a function with the argument `session`, to pass it on to "
            "MonitoredTrainingSession(**session); training.digits:plain has none.",
        ),
    ],
)
def test_wrong_settings_are_refused_with_the_known_ones(folder: Path, text: str, sentence: str) -> None:
    done = configured(folder, text)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(sentence), done.stderr
    assert done.stderr.count("\n") == 1


def test_a_missing_file_of_settings_is_named(folder: Path) -> None:
    done = run(folder, "--config", "none.toml")
    assert done.returncode == 2
    assert done.stderr == "'none.toml' cannot be read: No such file or directory.\n"
