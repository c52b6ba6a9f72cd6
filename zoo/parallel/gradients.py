"""The sum of the towers' gradients, variable by variable: None, sparse and dense ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tensorflow as tf


def sum_gradients(by_tower: Sequence[Sequence[Any]]) -> list[Any]:
    """Adds up the towers' gradients.

    The gradient of a variable that some towers do not use is that of the others. Sparse gradients stay sparse: the rows
    of all towers one after the other, which an optimizer adds up as it does with rows that one batch names twice.

    Args:
        by_tower: For each tower its gradients, in one order of variables: tensors, `tf.IndexedSlices` or None, each
            already weighted by its tower's share of the batch.

    Returns:
        A gradient a variable; None where no tower has one.

    Raises:
        ValueError: The towers have different numbers of gradients.
    """
    counts = {len(gradients) for gradients in by_tower}
    if len(counts) > 1:
        raise ValueError(f"each tower must have one gradient a variable, got {sorted(counts)} of them")
    return [_sum([part for part in parts if part is not None]) for parts in zip(*by_tower, strict=True)]


def _sum(parts: list[Any]) -> Any:
    if len(parts) < 2:
        return parts[0] if parts else None
    if all(isinstance(part, tf.IndexedSlices) for part in parts):
        return tf.IndexedSlices(
            tf.concat([part.values for part in parts], 0),
            tf.concat([part.indices for part in parts], 0),
            parts[0].dense_shape,
        )
    return tf.add_n([tf.convert_to_tensor(part) for part in parts])


def merge_rows(gradient: Any) -> Any:
    """Adds up the rows that a sparse gradient names more than once; a dense one comes back as it is.

    Keras' optimizers need that: they square every named row by itself, but the square of a sum is another number.
    """
    if not isinstance(gradient, tf.IndexedSlices):
        return gradient
    rows, places = tf.unique(gradient.indices)
    values = tf.math.unsorted_segment_sum(gradient.values, places, tf.size(rows))
    return tf.IndexedSlices(values, rows, gradient.dense_shape)


def scale_gradient(gradient: Any, factor: Any) -> Any:
    """Multiplies a dense, sparse or absent gradient."""
    if gradient is None or (isinstance(factor, float) and factor == 1.0):
        return gradient
    if isinstance(gradient, tf.IndexedSlices):
        factor = tf.cast(factor, gradient.values.dtype)
        return tf.IndexedSlices(gradient.values * factor, gradient.indices, gradient.dense_shape)
    return gradient * tf.cast(factor, gradient.dtype)
