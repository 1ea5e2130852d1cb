"""Losses over samples of many classes: nce_loss, sampled_softmax_loss."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from asyncmon.graph.core import dtypes, rules
from asyncmon.graph.core.build import convert_to_tensor, create_ops, name_scope
from asyncmon.graph.core.node import Tensor
from asyncmon.graph.core.op import ZERO, RandomOpDef, Spec, register
from asyncmon.graph.core.shape import merge
from asyncmon.graph.nn.embedding import embedding_lookup
from asyncmon.graph.nn.losses import (
    sigmoid_cross_entropy_with_logits,
    softmax_cross_entropy_with_logits_v2,
)
from asyncmon.graph.numerics.arrays import Array
from asyncmon.graph.ops.basic import cast, stop_gradient
from asyncmon.graph.ops.create import ones_like, zeros_like
from asyncmon.graph.ops.elementwise import equal, log
from asyncmon.graph.ops.join import concat, split
from asyncmon.graph.ops.products import matmul
from asyncmon.graph.ops.reduce import reduce_any, reduce_sum
from asyncmon.graph.ops.shape_ops import expand_dims, reshape, shape

__all__ = ["log_uniform_candidate_sampler", "nce_loss", "sampled_softmax_loss"]

if TYPE_CHECKING:
    from numpy.random import Generator


class Candidates(NamedTuple):
    """The result of a sampler.

    Attributes:
        sampled_candidates: the sampled classes, int64, ``[num_sampled]``.
        true_expected_count: the expected number of samples of each true class.
        sampled_expected_count: the same for each sampled class, ``[num_sampled]``.
    """

    sampled_candidates: Tensor
    true_expected_count: Tensor
    sampled_expected_count: Tensor


# --- samplers -------------------------------------------------------------------------------------
def _draw(rng: Generator, count: int, classes_in_all: int) -> Array:
    values = np.exp(rng.random(count) * np.log1p(classes_in_all)).astype(np.int64) - 1
    return np.minimum(values, classes_in_all - 1)


def _sample(
    true_classes: Array, *, num_sampled: int, unique: bool, range_max: int, rng: Generator
) -> tuple[Array, Array, Array]:
    drawn = _draw(rng, num_sampled, range_max)
    sampled, tries = drawn, num_sampled
    if unique:
        while len(first := np.unique(drawn, return_index=True)[1]) < num_sampled:
            drawn = np.concatenate([drawn, _draw(rng, len(drawn), range_max)])
        first.sort()
        sampled, tries = drawn[first[:num_sampled]], int(first[num_sampled - 1]) + 1

    def expected(classes: Array) -> Array:
        x = np.asarray(classes, np.float64)
        each = np.log((x + 2) / (x + 1)) / np.log1p(range_max)
        if tries == num_sampled:
            return np.asarray(each * num_sampled, np.float32)
        return np.asarray(-np.expm1(tries * np.log1p(-each)), np.float32)

    return sampled, expected(true_classes), expected(sampled)


def _sample_rule(true_classes: Spec, *, num_sampled: int, seed: int | None = None, **_: Any) -> Any:
    rules.check_dtype(true_classes.dtype, (dtypes.int64,), "true_classes")
    counts = rules.with_rank(true_classes.shape, 2)
    return (
        Spec(dtypes.int64, (num_sampled,)),
        Spec(dtypes.float32, counts),
        Spec(dtypes.float32, (num_sampled,)),
    )


register(RandomOpDef("CandidateSampler", _sample, _sample_rule, ZERO))


def log_uniform_candidate_sampler(
    true_classes: Any,
    num_true: int,
    num_sampled: int,
    unique: bool,
    range_max: int,
    seed: int | None = None,
    name: str | None = None,
) -> Candidates:
    """Sample classes with the probability ``log((k + 2) / (k + 1)) / log(range_max + 1)``.

    TF1: ``tf.nn.log_uniform_candidate_sampler``. Lower classes are more likely: sort classes by
    falling frequency.

    Args:
        true_classes: int64, ``[batch, num_true]``.
        num_true: the number of true classes of an example.
        num_sampled: the number of samples for the batch.
        unique: sample each class at most once.
        range_max: the number of classes.
        seed: the random seed.
        name: the node's name.

    Raises:
        ValueError: inconsistent numbers, or ``true_classes`` of another shape or dtype.
    """
    classes = convert_to_tensor(true_classes, dtypes.int64)
    merge(classes.spec.shape, (None, num_true))
    if num_sampled < 1 or range_max < 1 or (unique and num_sampled > range_max):
        raise ValueError(
            f"num_sampled and range_max must be positive, and unique candidates at most range_max; got "
            f"num_sampled={num_sampled}, range_max={range_max}, unique={unique}"
        )
    attrs = {"num_sampled": int(num_sampled), "unique": bool(unique), "range_max": int(range_max)}
    node = name or "LogUniformCandidateSampler"
    return Candidates(*create_ops("CandidateSampler", (classes,), {**attrs, "seed": seed}, node))


# --- losses ---------------------------------------------------------------------------------------
def _sampled_logits(
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: int,
    num_classes: int,
    num_true: int,
    sampled_values: Any,
    remove_accidental_hits: bool,
    partition_strategy: str,
    name: str | None,
    seed: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Return the logits of the true and sampled classes, and their target probabilities."""
    with name_scope(name, "compute_sampled_logits"):
        x, classes = convert_to_tensor(inputs), cast(labels, dtypes.int64)
        if sampled_values is None:
            sampled_values = log_uniform_candidate_sampler(
                classes, num_true, num_sampled, True, num_classes, seed
            )
        drawn, true_expected, drawn_expected = (stop_gradient(v) for v in sampled_values)
        drawn = cast(drawn, dtypes.int64)
        flat = reshape(classes, [-1])
        ids, sizes = concat([flat, drawn], 0), [shape(flat)[0], shape(drawn)[0]]
        rows = embedding_lookup(weights, ids, partition_strategy)
        true_rows, drawn_rows = split(cast(rows, x.dtype), sizes, 0)
        added = embedding_lookup(biases, ids, partition_strategy)
        true_added, drawn_added = split(cast(added, x.dtype), sizes, 0)
        of_true = reshape(true_rows, [-1, num_true, shape(rows)[1]])
        true_logits = reduce_sum(expand_dims(x, 1) * of_true, 2) + reshape(true_added, [-1, num_true])
        logits = matmul(x, drawn_rows, transpose_b=True) + drawn_added
        if remove_accidental_hits:
            hits = reduce_any(equal(expand_dims(classes, 2), drawn), 1)
            lowest = float(np.finfo(np.float32).min)
            logits = logits + cast(cast(hits, dtypes.float32) * lowest, x.dtype)
        true_logits = true_logits - log(cast(true_expected, x.dtype))
        logits = logits - log(cast(drawn_expected, x.dtype))
        wanted = concat([ones_like(true_logits) / num_true, zeros_like(logits)], 1)
        return concat([true_logits, logits], 1), wanted


def nce_loss(
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: int,
    num_classes: int,
    num_true: int = 1,
    sampled_values: Any = None,
    remove_accidental_hits: bool = False,
    partition_strategy: str = "mod",
    name: str = "nce_loss",
) -> Tensor:
    """Return the cross entropy of each example's classes against sampled noise classes.

    TF1: ``tf.nn.nce_loss``, the noise contrastive estimate.

    Args:
        weights: ``[num_classes, dim]``, or a list of tables with parts of these rows.
        biases: ``[num_classes]``.
        labels: the true classes, ``[batch, num_true]``.
        inputs: ``[batch, dim]``.
        num_sampled: the number of sampled classes for the batch.
        num_classes: the number of classes.
        num_true: the number of true classes of an example.
        sampled_values: the result of a sampler; by default :func:`log_uniform_candidate_sampler` with
            unique candidates.
        remove_accidental_hits: exclude samples that are true classes of the example.
        partition_strategy: as for :func:`embedding_lookup`.
        name: the scope of the ops.
    """
    logits, wanted = _sampled_logits(
        weights, biases, labels, inputs, num_sampled, num_classes, num_true, sampled_values,
        remove_accidental_hits, partition_strategy, name,
    )  # fmt: skip
    losses = sigmoid_cross_entropy_with_logits(labels=wanted, logits=logits, name="sampled_losses")
    return reduce_sum(losses, 1)


def sampled_softmax_loss(
    weights: Any,
    biases: Any,
    labels: Any,
    inputs: Any,
    num_sampled: int,
    num_classes: int,
    num_true: int = 1,
    sampled_values: Any = None,
    remove_accidental_hits: bool = True,
    partition_strategy: str = "mod",
    name: str = "sampled_softmax_loss",
    seed: int | None = None,
) -> Tensor:
    """Return the cross entropy of each example among its classes and sampled ones.

    TF1: ``tf.nn.sampled_softmax_loss``; for training only. Arguments as :func:`nce_loss`, and a random
    ``seed``.
    """
    logits, wanted = _sampled_logits(
        weights, biases, labels, inputs, num_sampled, num_classes, num_true, sampled_values,
        remove_accidental_hits, partition_strategy, name, seed,
    )  # fmt: skip
    return softmax_cross_entropy_with_logits_v2(labels=stop_gradient(wanted), logits=logits)
