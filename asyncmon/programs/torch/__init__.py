"""PyTorch behind the session protocol: ``pip install 'asyncmon[torch]'``.

:class:`TorchProgram` makes a program of modules, optimizers and named steps; hooks, checkpoints,
recovery, summaries and the data position work as with a graph::

    program = TorchProgram({"model": model, "optimizer": torch.optim.Adam(model.parameters())})

    @program.training_step(clip_norm=1.0)
    def train(state, batch):
        return {"loss": cross_entropy(state["model"](batch["x"]), batch["y"])}

    async with MonitoredTrainingSession(program=program, checkpoint_dir="runs") as sess:
        await sess.run("train", {"batch": batch})
"""

from importlib import import_module as _import

try:
    _import("torch")
except ImportError as error:
    raise ImportError("TorchProgram needs PyTorch: pip install 'asyncmon[torch]'") from error

# fmt: off
# isort: off
from asyncmon.programs.torch.model_files import import_state_dict
from asyncmon.programs.torch.program import TorchProgram
from asyncmon.programs.torch.session import TorchSession
from asyncmon.programs.torch.training import MixedPrecision

__all__ = [
    "MixedPrecision", "TorchProgram", "TorchSession", "import_state_dict",
]
# fmt: on
# isort: on
__dir__ = __all__.copy
