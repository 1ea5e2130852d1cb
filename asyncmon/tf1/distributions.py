"""TF1: ``tf.distributions``: Normal and Categorical."""

from __future__ import annotations

import math
from typing import Any

from asyncmon import graph as g

__all__ = ["Categorical", "Normal"]


class Normal:
    """The normal distribution of each element. TF1: same name.

    Args:
        loc: the mean, a float or a tensor.
        scale: the standard deviation, which must be positive and is broadcast with ``loc``.
        validate_args: fail in the run unless ``scale`` is positive.
        allow_nan_stats: accepted for TF1; the statistics are defined for all parameters.
        name: the name scope.
    """

    def __init__(
        self, loc: Any, scale: Any, validate_args: bool = False, allow_nan_stats: bool = True,
        name: str = "Normal",
    ) -> None:  # fmt: skip
        self.name = name
        with g.name_scope(name):
            self.loc = g.convert_to_tensor(loc)
            self.scale = g.convert_to_tensor(scale, self.loc.dtype)
            if validate_args:
                positive = g.Assert(
                    g.reduce_all(self.scale > 0), ["scale must be positive", self.scale]
                )
                with g.control_dependencies([positive]):
                    self.scale = g.identity(self.scale)
        self.dtype = self.loc.dtype
        self.allow_nan_stats = allow_nan_stats

    def sample(self, sample_shape: Any = (), seed: int | None = None, name: str = "sample") -> g.Tensor:
        """Return draws of shape ``sample_shape + batch``; gradients flow into the parameters."""
        with g.name_scope(f"{self.name}/{name}"):
            before = g.reshape(g.convert_to_tensor(sample_shape, g.int32), [-1])
            batch = g.shape(self.loc + self.scale)
            noise = g.random_normal(g.concat([before, batch], 0), dtype=self.dtype, seed=seed)
            return self.loc + self.scale * noise

    def log_prob(self, value: Any, name: str = "log_prob") -> g.Tensor:
        """Return the logarithm of the density."""
        with g.name_scope(f"{self.name}/{name}"):
            z = (g.convert_to_tensor(value, self.dtype) - self.loc) / self.scale
            return -0.5 * g.square(z) - (0.5 * math.log(2.0 * math.pi) + g.log(self.scale))

    def prob(self, value: Any, name: str = "prob") -> g.Tensor:
        """Return the density."""
        return g.exp(self.log_prob(value), name=f"{self.name}/{name}")

    def entropy(self, name: str = "entropy") -> g.Tensor:
        """Return the entropy in nats."""
        with g.name_scope(f"{self.name}/{name}"):
            scale = self.scale * g.ones_like(self.loc)
            return 0.5 + 0.5 * math.log(2.0 * math.pi) + g.log(scale)

    def mean(self, name: str = "mean") -> g.Tensor:
        """Return the mean."""
        return g.multiply(self.loc, g.ones_like(self.scale), name=f"{self.name}/{name}")

    mode = mean

    def stddev(self, name: str = "stddev") -> g.Tensor:
        """Return the standard deviation."""
        return g.multiply(self.scale, g.ones_like(self.loc), name=f"{self.name}/{name}")

    def variance(self, name: str = "variance") -> g.Tensor:
        """Return the variance."""
        return g.square(self.stddev(), name=f"{self.name}/{name}")


class Categorical:
    """One of several classes. TF1: same name.

    Args:
        logits: unscaled log probabilities, the classes along the last dimension.
        probs: probabilities in the same layout, in place of ``logits``.
        dtype: of the classes: int32 or int64.
        validate_args: accepted for TF1; wrong logits have no effect before the run.
        allow_nan_stats: accepted for TF1; the statistics are defined for all parameters.
        name: the name scope.

    ValueError unless one of ``logits`` and ``probs`` is given.
    """

    def __init__(
        self, logits: Any = None, probs: Any = None, dtype: Any = g.int32, validate_args: bool = False,
        allow_nan_stats: bool = True, name: str = "Categorical",
    ) -> None:  # fmt: skip
        if (logits is None) == (probs is None):
            raise ValueError("Must pass probs or logits, but not both.")
        self.name, self.dtype = name, g.as_dtype(dtype)
        self.validate_args, self.allow_nan_stats = validate_args, allow_nan_stats
        with g.name_scope(name):
            if logits is None:
                self.probs = g.convert_to_tensor(probs)
                self.logits = g.log(self.probs)
            else:
                self.logits = g.convert_to_tensor(logits)
                self.probs = g.nn.softmax(self.logits)

    def sample(self, sample_shape: Any = (), seed: int | None = None, name: str = "sample") -> g.Tensor:
        """Return drawn classes of shape ``sample_shape + batch``."""
        with g.name_scope(f"{self.name}/{name}"):
            before = g.reshape(g.convert_to_tensor(sample_shape, g.int32), [-1])
            sizes = g.shape(self.logits)
            rows = g.reshape(self.logits, g.stack([-1, sizes[-1]]))
            draws = g.transpose(g.multinomial(rows, g.reduce_prod(before), seed=seed))
            found = g.cast(g.reshape(draws, g.concat([before, sizes[:-1]], 0)), self.dtype)
            if self.logits.shape.ndims is not None and before.shape.as_list() == [0]:
                found.set_shape(self.logits.shape[:-1])
            return found

    def log_prob(self, value: Any, name: str = "log_prob") -> g.Tensor:
        """Return the logarithm of the probability of classes, which are broadcast with the batch."""
        with g.name_scope(f"{self.name}/{name}"):
            classes = g.cast(g.convert_to_tensor(value), g.int32)
            batch = g.shape(self.logits)[:-1]
            classes = g.broadcast_to(classes, g.shape(classes + g.zeros(batch, g.int32)))
            sizes = g.concat([g.shape(classes), g.shape(self.logits)[-1:]], 0)
            logits = g.broadcast_to(self.logits, sizes)
            return -g.nn.sparse_softmax_cross_entropy_with_logits(labels=classes, logits=logits)

    def prob(self, value: Any, name: str = "prob") -> g.Tensor:
        """Return the probability of classes."""
        return g.exp(self.log_prob(value), name=f"{self.name}/{name}")

    def entropy(self, name: str = "entropy") -> g.Tensor:
        """Return the entropy in nats."""
        with g.name_scope(f"{self.name}/{name}"):
            logs = g.nn.log_softmax(self.logits)
            return -g.reduce_sum(g.nn.softmax(self.logits) * logs, -1)

    def mode(self, name: str = "mode") -> g.Tensor:
        """Return the most probable class."""
        return g.cast(g.argmax(self.logits, -1), self.dtype, name=f"{self.name}/{name}")
