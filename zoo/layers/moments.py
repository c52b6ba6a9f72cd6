"""The statistics of batch normalization: of one batch, over replicas, renormalized, and moving."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import tensorflow as tf

from zoo import scoping
from zoo.layers import context
from zoo.layers.gradients import with_gradient
from zoo.layers.initializers import ones_initializer, zeros_initializer

_UPDATE = "AssignMovingAvg"
_DECAY = "_zoo_decay"


class Step(NamedTuple):
    """How moving statistics move: the share kept, whether the start at zero is corrected, renorm's epsilon or None."""

    decay: float | tf.Tensor
    zero_debias: bool
    renorm_epsilon: float | None


def of_batch(
    x: tf.Tensor, axis: int, weights: tf.Tensor | None, synchronized: bool
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns mean and (biased) variance over all axes but one, which stay as 1, and the number of values of each.

    ``weights`` [N] count the examples; ``synchronized`` takes all replicas of tf.distribute, or towers, together.
    """
    rank = x.shape.rank
    axes = [i for i in range(rank) if i != axis]
    count = tf.cast(tf.size(x) // x.shape[axis], x.dtype)
    group = scoping.replicas() if synchronized else None
    if group is not None:
        return _of_replicas(x, axes, weights, count, group)
    if weights is None:
        return *mean_and_variance(x, axes), count
    return *tf.nn.weighted_moments(x, axes, _spread(weights, x), keepdims=True), count


def mean_and_variance(x: tf.Tensor, axes: Sequence[int]) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the two over these axes, which stay as 1; right to any derivative, as ``tf.nn.moments`` is not."""

    def plain(x: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        mean = tf.reduce_mean(x, axes, keepdims=True)
        return mean, tf.reduce_mean(tf.math.squared_difference(x, mean), axes, keepdims=True)

    def forward(x: tf.Tensor) -> tuple[tuple[tf.Tensor, tf.Tensor], tf.Tensor]:
        found = plain(x)
        return found, found[0]

    def backward(inputs: Sequence[tf.Tensor], mean: tf.Tensor, upstream: Sequence[tf.Tensor]) -> list[tf.Tensor]:
        (x,), (dmean, dvariance) = inputs, upstream
        count = tf.cast(tf.size(x) / tf.size(mean), x.dtype)
        return [dmean / count + (2.0 * dvariance / count) * (x - mean)]

    return with_gradient(forward, backward, plain, x)


def _spread(weights: tf.Tensor, x: tf.Tensor) -> tf.Tensor:
    weights = tf.cast(weights, x.dtype)
    if weights.shape.rank != 1 or not weights.shape.is_compatible_with(x.shape[:1]):
        raise ValueError(
            f"batch_norm: batch_weights has one weight an example, got shape {tuple(weights.shape)} for inputs of "
            f"shape {tuple(x.shape)}"
        )
    return tf.reshape(weights, [-1] + [1] * (x.shape.rank - 1))


def _of_replicas(
    x: tf.Tensor, axes: list[int], weights: tf.Tensor | None, count: tf.Tensor, group: scoping.Replicas
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Two passes, the mean first: the squares of values far from zero would cancel in one."""
    here = present(group, x.dtype)

    def total(values: tf.Tensor) -> tf.Tensor:
        spread = values if weights is None else values * _spread(weights, x)
        return scoping.sum_over_replicas(tf.reduce_sum(spread, axes, keepdims=True) * here, group)

    values = scoping.sum_over_replicas(count * here, group)
    mass = values if weights is None else total(tf.ones_like(x))
    mean = total(x) / mass
    return mean, total(tf.math.squared_difference(x, mean)) / mass, values


def present(group: scoping.Replicas, dtype: tf.DType) -> tf.Tensor:
    """Returns 1, or 0 in a replica that stands in for an empty share of the batch."""
    return tf.ones([], dtype) if group.present is None else tf.cast(group.present, dtype)


def renormalize(
    mean: tf.Tensor, variance: tf.Tensor, axis: int, epsilon: float, clipping: Mapping[str, Any], decay: float
) -> tuple[tuple[tf.Tensor, tf.Tensor], tf.Tensor, tf.Tensor]:
    """Returns the corrections r and d of batch renormalization, and the mean and variance for the moving statistics.

    r = clip(stddev / average stddev, rmin, rmax), d = clip((mean - average mean) / average stddev, -dmax, dmax), of
    the shape of the mean and without gradient. The averages `renorm_mean` and `renorm_stddev`, [C], are updated.

    Source: Ioffe 2017, algorithm 1.
    """
    shape, dtype = mean.shape, mean.dtype
    channels = [shape[axis]]
    average_mean = scoping.get_variable("renorm_mean", channels, dtype, zeros_initializer(), None, False)
    average_stddev = scoping.get_variable("renorm_stddev", channels, dtype, ones_initializer(), None, False)
    stddev = tf.sqrt(variance + epsilon)
    old_mean = tf.reshape(average_mean, shape)
    old_stddev = tf.maximum(tf.reshape(average_stddev, shape), epsilon**0.5)
    r, d = stddev / old_stddev, (mean - old_mean) / old_stddev
    if "rmin" in clipping:
        r = tf.maximum(r, tf.cast(clipping["rmin"], dtype))
    if "rmax" in clipping:
        r = tf.minimum(r, tf.cast(clipping["rmax"], dtype))
    if "dmax" in clipping:
        d = tf.clip_by_value(d, -tf.cast(clipping["dmax"], dtype), tf.cast(clipping["dmax"], dtype))
    new_mean = decay * old_mean + (1 - decay) * mean
    new_stddev = decay * tf.reshape(average_stddev, shape) + (1 - decay) * stddev
    group, done = scoping.replicas(), []
    with tf.control_dependencies([r, d, new_mean, new_stddev]):
        if group is None or group.leads:
            done = [
                average_mean.assign(tf.reshape(new_mean, [-1]), read_value=False),
                average_stddev.assign(tf.reshape(new_stddev, [-1]), read_value=False),
            ]
    with tf.control_dependencies([op for op in done if op is not None]):
        new_mean, new_stddev = tf.identity(new_mean), tf.identity(new_stddev)
    return (tf.stop_gradient(r), tf.stop_gradient(d)), new_mean, tf.square(new_stddev) - epsilon


def remember_decay(moving_mean: tf.Variable, decay: float | tf.Tensor) -> None:
    """Notes on the variable how slowly it moves; a tensor is not noted."""
    if not tf.is_tensor(decay):
        setattr(moving_mean, _DECAY, float(decay))


def decay_of(variable: tf.Variable) -> float | None:
    """Returns the share that a moving mean keeps in a step; None for any other variable."""
    return getattr(variable, _DECAY, None)


def update(
    moving_mean: tf.Variable,
    moving_variance: tf.Variable,
    mean: tf.Tensor,
    variance: tf.Tensor,
    step: Step,
    training: bool | tf.Tensor,
) -> list[Any]:
    """Moves the moving statistics [C] towards a batch's; ``training`` is the layer's flag, for counting the steps.

    Returns the updates in a TF1 graph, each with the new value; elsewhere they have run and it is empty.
    """
    group = scoping.replicas()
    if group is not None:
        agreed = group.statistics([mean, variance])
        if agreed is None:
            return []
        mean, variance = agreed
    deferred = scoping.in_graph()
    rate = 1 - tf.cast(step.decay, mean.dtype) if tf.is_tensor(step.decay) else 1 - step.decay
    if step.zero_debias:
        updates = [_debiased(moving_mean, mean, rate, training, deferred)]
    else:
        updates = [moving_mean.assign_sub((moving_mean - mean) * rate, name=_UPDATE, read_value=deferred)]
    if step.renorm_epsilon is None:
        change = (moving_variance - variance) * rate
        updates.append(moving_variance.assign_sub(change, name=_UPDATE, read_value=deferred))
    else:  # renorm averages the standard deviation
        old, new = (tf.sqrt(tf.maximum(v + step.renorm_epsilon, 0)) for v in (moving_variance, variance))
        moved = tf.square(old - (old - new) * rate) - step.renorm_epsilon
        updates.append(moving_variance.assign(tf.maximum(moved, 0), name=_UPDATE, read_value=deferred))
    return updates if deferred else []


def _debiased(
    moving_mean: tf.Variable, mean: tf.Tensor, rate: float | tf.Tensor, training: bool | tf.Tensor, deferred: bool
) -> tf.Tensor | None:
    """Adam's correction (Kingma and Ba 2015, section 3) of an average that starts at zero."""
    dtype, shape = mean.dtype, moving_mean.shape
    prefix = f"{scoping.get_variable_scope().name}/moving_mean"  # TF1 put the full name below the scope once more
    biased = context.variable(f"{prefix}/biased", shape, mean, zeros_initializer(), trainable=False, dtype=dtype)
    steps = context.variable(f"{prefix}/local_step", [], mean, zeros_initializer(), trainable=False, dtype=dtype)
    one = tf.cast(training, dtype)
    new_steps = steps + one
    new_biased = biased - (biased - mean) * rate * one
    weight = 1 - tf.pow(tf.cast(1 - rate, dtype), tf.maximum(new_steps, 1))
    new_mean = tf.where(tf.cast(training, tf.bool), new_biased / weight, moving_mean)
    with tf.control_dependencies([new_mean]):
        done = [steps.assign(new_steps, read_value=False), biased.assign(new_biased, read_value=False)]
    with tf.control_dependencies([op for op in done if op is not None]):
        return moving_mean.assign(new_mean, name=_UPDATE, read_value=deferred)
