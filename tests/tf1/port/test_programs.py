"""Programs of TensorFlow 1, ported by the tool alone, run to their end.

Each of them was run with TensorFlow 2.15 too, and printed the text expected here. To do so, replace
``import tensorflow as tf`` by ``import tensorflow.compat.v1 as tf; tf.disable_v2_behavior()``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("absl", reason="tf.app and tf.flags need absl-py: pip install 'asyncmon[tf1]'")

from asyncmon.tf1.port.porting import port
from tests import forked

PROGRAMS = Path(__file__).parent / "programs"

EXPECTED = {
    "actor_critic": "result policy [0 1 2] after enough episodes: True",
    "evaluation_loop": "result runs=30 last loss 0.00000, evaluated at 30: 0.0000",
    "gan_step_fn": "result steps=250",
    "hooks_library": "result steps=8 stopped_early=True w0=1.00",
    "linear_regression": "result W=2.989 b=-0.507",
    "queue_coordinator": "result weights are positive: True",
    "supervisor_services": "result w=[3.00, -1.00] restored at a multiple of 20: True, loss 0.000",
    "train_loop": "result failed=1 saved step 10 w=0.007812",
}

ALSO = {
    "linear_regression": ["Kept: ['regression-40', 'regression-60']", "Testing cost= 0.00018"],
    "train_loop": ["calls [1, 2, 3, 4, 5, 6] ... 12"],
    "hooks_library": ["checkpoints [0, 8] True"],
    "supervisor_services": ["watched True True", "failed (True, 'it broke')"],
    "evaluation_loop": ["variables ['b', 'global_step', 'w']", "latest model.ckpt-30"],
}


LOGS_ERRORS = {"supervisor_services", "train_loop"}


def test_each_program_is_run() -> None:
    assert sorted(EXPECTED) == sorted(path.stem for path in PROGRAMS.glob("*.py"))


@pytest.mark.parametrize("name", EXPECTED)
def test_a_program_ported_by_the_tool_runs_to_its_end(name: str, tmp_path: Path) -> None:
    ported = port((PROGRAMS / f"{name}.py").read_bytes())
    assert ported.notes == (), "nothing is left to do by hand"
    assert port(ported.source).source == ported.source
    (tmp_path / "new.py").write_bytes(ported.source)
    options = ("-W", "error::RuntimeWarning")
    process = forked.Process(tmp_path / "new.py", cwd=tmp_path, options=options)
    out, err = process.communicate()
    assert process.returncode == 0, err
    assert "never awaited" not in err
    assert "Traceback" not in err or name in LOGS_ERRORS, err
    lines = out.splitlines()
    assert lines[-1] == EXPECTED[name], out
    assert [line for line in ALSO.get(name, []) if not any(line in shown for shown in lines)] == []
