"""What variables start at and what pulls them to zero: initializers and regularizers under TF1's names.

Random draws are stateless and follow the model's seed and the variable's name. Penalties have TF-Slim's scales: l2 is
scale * sum(w^2) / 2, half of what Keras' `L2` gives.
"""

from __future__ import annotations

import math
import numbers
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from zoo import scoping

DType: TypeAlias = tf.DType | np.dtype | str | type
Regularizer = Callable[[tf.Variable], tf.Tensor | None]
_MODES = ("FAN_IN", "FAN_OUT", "FAN_AVG")


@dataclass(frozen=True)
class zeros_initializer:  # noqa: N801 (TF1's names, here and below)
    """All zeros.

    Args:
      dtype: type of the values where the variable names none, default float32.
    """

    dtype: DType = tf.float32

    def __call__(self, shape: Sequence[int], dtype: DType | None = None, partition_info: object = None) -> tf.Tensor:
        """Returns the values, of the given shape and type."""
        return tf.zeros(shape, dtype or self.dtype)


@dataclass(frozen=True)
class ones_initializer:  # noqa: N801
    """All ones.

    Args:
      dtype: type of the values where the variable names none, default float32.
    """

    dtype: DType = tf.float32

    def __call__(self, shape: Sequence[int], dtype: DType | None = None, partition_info: object = None) -> tf.Tensor:
        """Returns the values, of the given shape and type."""
        return tf.ones(shape, dtype or self.dtype)


@dataclass(frozen=True)
class constant_initializer:  # noqa: N801
    """Given values.

    Args:
      value: a number for every element, or a list or array with as many elements as the variable, in its order.
      dtype: type of the values where the variable names none, default float32.
      verify_shape: also refuse an array whose shape (not only its size) differs, default False.

    Raises:
      ValueError: when called, if the number of elements (or the shape, if verified) does not fit.
    """

    value: Any = 0
    dtype: DType = tf.float32
    verify_shape: bool = False

    def __call__(self, shape: Sequence[int], dtype: DType | None = None, partition_info: object = None) -> tf.Tensor:
        """Returns the values, of the given shape and type."""
        value = np.asarray(self.value)
        size = math.prod(shape)
        if self.verify_shape and value.shape != tuple(shape):
            raise ValueError(
                f"constant_initializer verifies shapes: the variable has {tuple(shape)}, got {value.shape}"
            )
        if value.size not in (1, size):
            raise ValueError(
                f"constant_initializer takes one number or {size} of them for shape {tuple(shape)}, got {value.size}: "
                "pass values of the variable's size"
            )
        if value.size == size:
            return tf.constant(value.reshape(tuple(shape)), dtype or self.dtype)
        return tf.fill(shape, tf.constant(value.item(), dtype or self.dtype))


@dataclass(frozen=True)
class random_normal_initializer:  # noqa: N801
    """Normal distribution.

    Args:
      mean: mean, default 0.
      stddev: standard deviation, default 1.
      seed: integer, or None (default) to follow the model's seed.
      dtype: type of the values where the variable names none, default float32.
    """

    mean: float = 0.0
    stddev: float = 1.0
    seed: int | None = None
    dtype: DType = tf.float32

    def __call__(self, shape: Sequence[int], dtype: DType | None = None, partition_info: object = None) -> tf.Tensor:
        """Returns the values, of the given shape and type."""
        seed = scoping.random_seed(self.seed)
        return tf.random.stateless_normal(shape, seed, self.mean, self.stddev, _floating(dtype or self.dtype))


@dataclass(frozen=True)
class truncated_normal_initializer:  # noqa: N801
    """Normal distribution without the values more than two standard deviations from the mean.

    Args:
      mean: mean of the distribution before truncation, default 0.
      stddev: its standard deviation, default 1; the values' own is 0.8796 times that.
      seed: integer, or None (default) to follow the model's seed.
      dtype: type of the values where the variable names none, default float32.
    """

    mean: float = 0.0
    stddev: float = 1.0
    seed: int | None = None
    dtype: DType = tf.float32

    def __call__(self, shape: Sequence[int], dtype: DType | None = None, partition_info: object = None) -> tf.Tensor:
        """Returns the values, of the given shape and type."""
        seed = scoping.random_seed(self.seed)
        return tf.random.stateless_truncated_normal(shape, seed, self.mean, self.stddev, _floating(dtype or self.dtype))


@dataclass(frozen=True)
class random_uniform_initializer:  # noqa: N801
    """Uniform distribution on [minval, maxval).

    Args:
      minval: lower bound, default 0.
      maxval: upper bound, default 1 for floats; needed for integers.
      seed: integer, or None (default) to follow the model's seed.
      dtype: type of the values where the variable names none, default float32.

    Raises:
      ValueError: when called, for integers without `maxval`.
    """

    minval: float = 0
    maxval: float | None = None
    seed: int | None = None
    dtype: DType = tf.float32

    def __call__(self, shape: Sequence[int], dtype: DType | None = None, partition_info: object = None) -> tf.Tensor:
        """Returns the values, of the given shape and type."""
        kind = tf.as_dtype(dtype or self.dtype)
        if self.maxval is None and not kind.is_floating:
            raise ValueError(f"random_uniform_initializer needs maxval for {kind.name} values, got None: pass one")
        maxval = 1 if self.maxval is None else self.maxval
        return tf.random.stateless_uniform(shape, scoping.random_seed(self.seed), self.minval, maxval, kind)


@dataclass(frozen=True)
class variance_scaling_initializer:  # noqa: N801
    """Keeps the variance of a layer's outputs near `factor` times that of its inputs.

    With n = fan_in, fan_out or their average: truncated normal of standard deviation sqrt(1.3 factor / n), or uniform
    on +-sqrt(3 factor / n). 1.3 is TF-Slim's correction for the truncation (the exact one is 1.2924).

    Args:
      factor: default 2, He's value for ReLU.
      mode: "FAN_IN" (default), "FAN_OUT" or "FAN_AVG".
      uniform: uniform instead of truncated normal, default False.
      seed: integer, or None (default) to follow the model's seed.
      dtype: type of the values where the variable names none, default float32.

    Raises:
      ValueError: unknown mode, or a type that is not floating.

    Source: He et al. 2015, section 2.2; Glorot and Bengio 2010, section 4.2.1.
    """

    factor: float = 2.0
    mode: str = "FAN_IN"
    uniform: bool = False
    seed: int | None = None
    dtype: DType = tf.float32

    def __post_init__(self) -> None:
        if self.mode not in _MODES:
            raise ValueError(f"variance_scaling_initializer's mode is one of {', '.join(_MODES)}, got {self.mode!r}")
        _floating(self.dtype)

    def __call__(self, shape: Sequence[int], dtype: DType | None = None, partition_info: object = None) -> tf.Tensor:
        """Returns the values, of the given shape and type."""
        fan_in, fan_out = _fans(shape)
        n = {"FAN_IN": fan_in, "FAN_OUT": fan_out, "FAN_AVG": (fan_in + fan_out) / 2}[self.mode]
        seed, dtype = scoping.random_seed(self.seed), _floating(dtype or self.dtype)
        if self.uniform:
            limit = math.sqrt(3.0 * self.factor / n)
            return tf.random.stateless_uniform(shape, seed, -limit, limit, dtype)
        return tf.random.stateless_truncated_normal(shape, seed, 0.0, math.sqrt(1.3 * self.factor / n), dtype)


def xavier_initializer(
    uniform: bool = True, seed: int | None = None, dtype: DType = tf.float32
) -> variance_scaling_initializer:
    """Glorot's initializer: uniform on +-sqrt(6 / (fan_in + fan_out)), or truncated normal of the same scale.

    Args:
      uniform: uniform (default) or truncated normal.
      seed: integer, or None (default) to follow the model's seed.
      dtype: type of the values where the variable names none, default float32.

    Returns:
      An initializer, called with a shape and a type.

    Source: Glorot and Bengio 2010, equation 16.
    """
    return variance_scaling_initializer(1.0, "FAN_AVG", uniform, seed, dtype)


def _floating(dtype: DType) -> tf.DType:
    floating = tf.as_dtype(dtype)
    if not floating.is_floating:
        raise ValueError(f"this initializer draws floating-point numbers, got {floating.name}: use a floating dtype")
    return floating


def _fans(shape: Sequence[int]) -> tuple[float, float]:
    """Connections into and out of one unit of a kernel [..., in, out]."""
    if not shape:
        return 1.0, 1.0
    area = math.prod(shape[:-2])
    return float(area * shape[max(len(shape) - 2, 0)]), float(area * shape[-1])


def l1_regularizer(scale: float | tf.Tensor, scope: str | None = None) -> Regularizer:
    """Penalty scale * sum(|w|).

    Args:
      scale: non-negative float or scalar tensor; 0.0 disables the penalty.
      scope: name scope of the ops, default "l1_regularizer".

    Returns:
      Function of a variable to its scalar penalty, or to None when disabled.

    Raises:
      ValueError: the scale is an integer or negative.
    """
    return _penalty(scale, scope, "l1_regularizer", lambda w: tf.reduce_sum(tf.abs(w)))


def l2_regularizer(scale: float | tf.Tensor, scope: str | None = None) -> Regularizer:
    """Penalty scale * sum(w^2) / 2.

    Args:
      scale: non-negative float or scalar tensor; 0.0 disables the penalty.
      scope: name scope of the ops, default "l2_regularizer".

    Returns:
      Function of a variable to its scalar penalty, or to None when disabled.

    Raises:
      ValueError: the scale is an integer or negative.
    """
    return _penalty(scale, scope, "l2_regularizer", tf.nn.l2_loss)


def l1_l2_regularizer(
    scale_l1: float | tf.Tensor = 1.0, scale_l2: float | tf.Tensor = 1.0, scope: str | None = None
) -> Regularizer:
    """Penalty scale_l1 * sum(|w|) + scale_l2 * sum(w^2) / 2.

    Args:
      scale_l1: non-negative float or scalar tensor, default 1; 0.0 leaves the first term out.
      scale_l2: non-negative float or scalar tensor, default 1; 0.0 leaves the second term out.
      scope: name scope of the ops, default "l1_l2_regularizer".

    Returns:
      Function of a variable to its scalar penalty, or to None when both are disabled.

    Raises:
      ValueError: a scale is an integer or negative.
    """
    l1, l2 = l1_regularizer(scale_l1), l2_regularizer(scale_l2)

    def penalty(weights: tf.Variable) -> tf.Tensor | None:
        with tf.name_scope(scope or "l1_l2_regularizer"):
            terms = [term for term in (l1(weights), l2(weights)) if term is not None]
            return tf.add_n(terms) if terms else None

    return penalty


def _penalty(
    scale: float | tf.Tensor, scope: str | None, name: str, norm: Callable[[tf.Variable], tf.Tensor]
) -> Regularizer:
    if isinstance(scale, numbers.Integral):
        raise ValueError(f"{name} takes a float scale, got the integer {scale!r}: write {scale}.0")
    if isinstance(scale, numbers.Real):
        if not float(scale) >= 0:
            raise ValueError(f"{name} takes a scale of 0 or more, got {scale!r}")
        if float(scale) == 0:
            return lambda weights: None

    def penalty(weights: tf.Variable) -> tf.Tensor:
        with tf.name_scope(scope or name):
            return tf.cast(scale, weights.dtype) * norm(weights)

    return penalty
