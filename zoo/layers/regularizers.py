"""Weight penalties with TF-Slim's scales: l2 is scale * sum(w^2) / 2, half of what Keras' `L2` gives."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import tensorflow as tf

Regularizer = Callable[[Any], tf.Tensor | None]


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

    def penalty(weights: Any) -> tf.Tensor | None:
        with tf.name_scope(scope or "l1_l2_regularizer"):
            terms = [term for term in (l1(weights), l2(weights)) if term is not None]
            return tf.add_n(terms) if terms else None

    return penalty


def _penalty(scale: Any, scope: str | None, name: str, norm: Callable[[Any], tf.Tensor]) -> Regularizer:
    if isinstance(scale, numbers.Integral):
        raise ValueError(f"{name} takes a float scale, got the integer {scale!r}: write {scale}.0")
    if isinstance(scale, numbers.Real):
        if not float(scale) >= 0:
            raise ValueError(f"{name} takes a scale of 0 or more, got {scale!r}")
        if float(scale) == 0:
            return lambda weights: None

    def penalty(weights: Any) -> tf.Tensor:
        with tf.name_scope(scope or name):
            return tf.cast(scale, weights.dtype) * norm(weights)

    return penalty
