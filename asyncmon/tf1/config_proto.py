"""``tf.ConfigProto`` and the messages in it."""

from asyncmon.session_config import RPCOptions, SessionConfig, UnusedOptions

__all__ = ["ConfigProto", "GPUOptions", "GraphOptions", "OptimizerOptions", "RPCOptions"]

ConfigProto = SessionConfig
GPUOptions = GraphOptions = UnusedOptions


class OptimizerOptions(UnusedOptions):
    """TF1: ``tf.OptimizerOptions``. Without effect: plans are always optimised."""

    L1 = DEFAULT = 0
    L0 = OFF = -1
    ON_1 = 1
    ON_2 = 2
