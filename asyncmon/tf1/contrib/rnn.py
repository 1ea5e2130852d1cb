"""TF1: ``tf.contrib.rnn``: the cells and networks that moved to ``tf.nn``."""

from typing import Any

from asyncmon.tf1.rnn import *
from asyncmon.tf1.rnn_cell import *

__all__ = [
    "BasicLSTMCell", "BasicRNNCell", "DropoutWrapper", "GRUCell", "LSTMBlockCell", "LSTMCell",
    "LSTMStateTuple", "MultiRNNCell", "RNNCell", "ResidualWrapper", "static_bidirectional_rnn",
    "static_rnn",
]  # fmt: skip


# fmt: off
def LSTMBlockCell(
    num_units: int, forget_bias: float = 1.0, cell_clip: float | None = None,
    use_peephole: bool = False, dtype: Any = None, reuse: Any = None, name: str = "lstm_cell",
) -> LSTMCell:
    """Return an LSTMCell with the names and the order of TF1's fused cell. TF1: same name.

    ``cell_clip`` that is not positive clips nothing. Peepholes have the variables of the LSTMCell.
    """
    clip = cell_clip if cell_clip is not None and cell_clip > 0 else None
    given = {"forget_bias": forget_bias, "reuse": reuse, "name": name, "dtype": dtype}
    return LSTMCell(num_units, use_peephole, clip, **given)
# fmt: on
