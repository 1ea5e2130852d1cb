"""What the wing registers: its hints, its commands, and the modules that a message may name."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import asyncmon.tf1 as tf
from asyncmon.cli.main import all_commands
from asyncmon.distributed import wire
from asyncmon.tf1.readers import ReaderSpec


@pytest.mark.asyncio
async def test_a_process_that_did_not_import_the_wing_runs_its_ops(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a\nb\n")
    with tf.Graph().as_default():
        names = tf.FIFOQueue(1, [tf.string], shapes=[[]])
        put = names.enqueue(str(tmp_path / "file"))
        line = tf.TextLineReader().read(names).value
        angle = tf.asin(tf.placeholder_with_default(1.0, []))  # its rule is one of the core
        async with tf.Session("local") as sess:
            await sess.run(put)
            assert await sess.run(line) == b"a"
            assert await sess.run(angle) == pytest.approx(1.5708, abs=1e-4)


def test_a_message_has_objects_of_the_wing() -> None:
    assert wire.is_of_engine("asyncmon.tf1.readers")
    assert not wire.is_of_engine("asyncmon.tf10")
    spec = ReaderSpec("TextLine", "r")
    assert wire.decode(wire.encode(spec)) == spec


def test_its_command_is_listed() -> None:
    assert all_commands()["port"][0] == "asyncmon.tf1.port.command"
    code = "import sys; from asyncmon.cli import main; main(['port', '--help'])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "Port a program that uses TensorFlow 1's sessions" in out.stdout
