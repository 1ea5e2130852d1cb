"""TF1: ``tf.initializers``: initial values of variables."""

# fmt: off
# isort: off
from asyncmon.system.missing_names import lacking
from asyncmon.graph import (
    global_variables_initializer as global_variables,
    local_variables_initializer as local_variables,
    uniform_unit_scaling_initializer as uniform_unit_scaling, variables_initializer as variables,
)
from asyncmon.graph.variables.initializers import (
    constant, glorot_normal, glorot_uniform, he_normal, he_uniform, identity, lecun_normal,
    lecun_uniform, ones, orthogonal, random_normal, random_uniform, truncated_normal,
    variance_scaling, zeros,
)
from asyncmon.tf1.old_names import tables_initializer
# isort: on

__all__ = [
    "constant", "global_variables", "glorot_normal", "glorot_uniform", "he_normal", "he_uniform",
    "identity", "lecun_normal", "lecun_uniform", "local_variables", "ones", "orthogonal",
    "random_normal", "random_uniform", "tables_initializer", "truncated_normal",
    "uniform_unit_scaling", "variables", "variance_scaling", "zeros",
]
# fmt: on

__getattr__ = lacking(__name__, "initializers.", globals())
