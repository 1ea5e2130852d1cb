"""TF1: ``tf.metrics``: values that are gathered from run to run in local variables.

::

    accuracy, update = tf.metrics.accuracy(labels, predictions)
    await sess.run(tf.local_variables_initializer())
    async for batch in batches:
        await sess.run(update, {images: batch})
    print(await sess.run(accuracy))

Each function returns the value of all batches so far and an op, or a tensor, that adds a batch. The
value and the update fetched in one run: the value is that before the batch.

The functions have these arguments in common:

* ``weights``: one for each value, of the same rank with sizes of 1 where they are shared, or a scalar.
* ``metrics_collections``, ``updates_collections``: the value, and the update, join these.
* ``name``: the scope of the ops and the variables. Those are in ``GraphKeys.LOCAL_VARIABLES`` and
  ``GraphKeys.METRIC_VARIABLES``, zeros at first.

ValueError where shapes do not fit; InvalidArgumentError in the run, where they are not known before.
"""

from typing import Any

from asyncmon.missing_names import missing_name
from asyncmon.tf1.metrics.counts import false_negatives as false_negatives
from asyncmon.tf1.metrics.counts import false_positives as false_positives
from asyncmon.tf1.metrics.counts import precision as precision
from asyncmon.tf1.metrics.counts import recall as recall
from asyncmon.tf1.metrics.counts import true_negatives as true_negatives
from asyncmon.tf1.metrics.counts import true_positives as true_positives
from asyncmon.tf1.metrics.means import accuracy as accuracy
from asyncmon.tf1.metrics.means import mean as mean
from asyncmon.tf1.metrics.means import mean_absolute_error as mean_absolute_error
from asyncmon.tf1.metrics.means import mean_cosine_distance as mean_cosine_distance
from asyncmon.tf1.metrics.means import mean_relative_error as mean_relative_error
from asyncmon.tf1.metrics.means import mean_squared_error as mean_squared_error
from asyncmon.tf1.metrics.means import mean_tensor as mean_tensor
from asyncmon.tf1.metrics.means import percentage_below as percentage_below
from asyncmon.tf1.metrics.means import root_mean_squared_error as root_mean_squared_error
from asyncmon.tf1.metrics.per_class import mean_iou as mean_iou
from asyncmon.tf1.metrics.per_class import mean_per_class_accuracy as mean_per_class_accuracy
from asyncmon.tf1.metrics.thresholds import auc as auc
from asyncmon.tf1.metrics.thresholds import (
    false_negatives_at_thresholds as false_negatives_at_thresholds,
)
from asyncmon.tf1.metrics.thresholds import (
    false_positives_at_thresholds as false_positives_at_thresholds,
)
from asyncmon.tf1.metrics.thresholds import precision_at_thresholds as precision_at_thresholds
from asyncmon.tf1.metrics.thresholds import recall_at_thresholds as recall_at_thresholds
from asyncmon.tf1.metrics.thresholds import sensitivity_at_specificity as sensitivity_at_specificity
from asyncmon.tf1.metrics.thresholds import specificity_at_sensitivity as specificity_at_sensitivity
from asyncmon.tf1.metrics.thresholds import true_negatives_at_thresholds as true_negatives_at_thresholds
from asyncmon.tf1.metrics.thresholds import true_positives_at_thresholds as true_positives_at_thresholds


def __getattr__(name: str) -> Any:
    raise missing_name(__name__, name, "metrics.", globals())
