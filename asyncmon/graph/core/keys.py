"""Names of collections. TF1: ``tf.GraphKeys``."""

from __future__ import annotations

from typing import Final


class GraphKeys:
    """Standard names of a graph's collections. TF1: ``tf.GraphKeys``."""

    GLOBAL_VARIABLES: Final = "variables"
    VARIABLES: Final = "variables"
    LOCAL_VARIABLES: Final = "local_variables"
    MODEL_VARIABLES: Final = "model_variables"
    TRAINABLE_VARIABLES: Final = "trainable_variables"
    MOVING_AVERAGE_VARIABLES: Final = "moving_average_variables"
    METRIC_VARIABLES: Final = "metric_variables"
    SUMMARIES: Final = "summaries"
    SUMMARY_OP: Final = "summary_op"
    QUEUE_RUNNERS: Final = "queue_runners"
    TABLE_INITIALIZERS: Final = "table_initializer"
    ASSET_FILEPATHS: Final = "asset_filepaths"
    REGULARIZATION_LOSSES: Final = "regularization_losses"
    LOSSES: Final = "losses"
    WEIGHTS: Final = "weights"
    BIASES: Final = "biases"
    ACTIVATIONS: Final = "activations"
    UPDATE_OPS: Final = "update_ops"
    TRAIN_OP: Final = "train_op"
    INIT_OP: Final = "init_op"
    LOCAL_INIT_OP: Final = "local_init_op"
    READY_OP: Final = "ready_op"
    READY_FOR_LOCAL_INIT_OP: Final = "ready_for_local_init_op"
    SAVERS: Final = "savers"
    SAVEABLE_OBJECTS: Final = "saveable_objects"
    RESOURCES: Final = "resources"
    LOCAL_RESOURCES: Final = "local_resources"
    CONCATENATED_VARIABLES: Final = "concatenated_variables"
    GLOBAL_STEP: Final = "global_step"
    EVAL_STEP: Final = "eval_step"
    COND_CONTEXT: Final = "cond_context"
    WHILE_CONTEXT: Final = "while_context"
