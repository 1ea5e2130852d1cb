"""JAX behind the session protocol: ``pip install 'asyncmon[jax]'``.

:class:`JaxProgram` makes a program of jitted steps over a pytree; hooks, checkpoints, recovery,
summaries and the data position work as with a graph::

    program = JaxProgram({"params": params, "opt": optimizer.init(params)})

    @program.step
    def train(state, batch):
        loss, gradient = jax.value_and_grad(loss_of)(state["params"], batch)
        updates, opt = optimizer.update(gradient, state["opt"])
        params = optax.apply_updates(state["params"], updates)
        return {"params": params, "opt": opt}, {"loss": loss}

    async with MonitoredTrainingSession(program=program, checkpoint_dir="runs") as sess:
        await sess.run("train", {"batch": batch})
"""

from importlib import import_module as _import

try:
    _import("jax")
except ImportError as error:
    raise ImportError("JaxProgram needs JAX: pip install 'asyncmon[jax]'") from error

# fmt: off
# isort: off
from asyncmon.programs.jax.program import JaxProgram
from asyncmon.programs.jax.session import JaxSession

__all__ = [
    "JaxProgram", "JaxSession",
]
# fmt: on
# isort: on
__dir__ = __all__.copy
