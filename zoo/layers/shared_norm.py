"""Batch norm with statistics given from outside, so that several layers can share the statistics of one map.

Ordinary batch norm measures its input, normalises it, and in the backward pass sends a gradient through both. Here the
three steps are apart: ``moments`` measures a map once; ``normalise`` is the affine map that a layer makes of it; and
``add_statistics_grad`` sends the gradient of the statistics, summed over all the layers that used them, through the
map once. With x^ = (x - mean) / s, s = sqrt(variance + epsilon), y_l = gamma_l x^ + beta_l and M values a channel:

    dx = sum_l gamma_l dy_l / s  +  dmean / M  +  2 dvariance (x - mean) / M
    dmean = -sum_l gamma_l dbeta_l / s           dvariance = -sum_l gamma_l dgamma_l / (2 s^2)

S. Ioffe and C. Szegedy, arXiv:1502.03167, section 3, with the sums of its chain rule taken over the layers.
float32, bfloat16 and float16 maps go through TensorFlow's fused kernels; float64 ones through plain operations.
"""

from collections.abc import Sequence

import tensorflow as tf

from zoo import scoping
from zoo._compat import is_op_determinism_enabled
from zoo.layers import context
from zoo.layers.gradients import with_gradient
from zoo.layers.moments import of_batch, present

Moments = tuple[tf.Tensor, tf.Tensor]
_AXES = [0, 1, 2]


def _fused(x: tf.Tensor) -> bool:
    # Op determinism has no GPU kernel for the gradient of the fused operation with given statistics.
    return x.dtype != tf.float64 and not is_op_determinism_enabled()


def statistics_dtype(x: tf.Tensor) -> tf.DType:
    """Returns the type in which a map's statistics are kept: float32, or float64 for a float64 map."""
    return tf.float64 if x.dtype == tf.float64 else tf.float32


def values_a_channel(x: tf.Tensor) -> tf.Tensor:
    """Returns N * H * W of a map [N, H, W, C] as a float scalar."""
    return tf.cast(tf.reduce_prod(tf.shape(x)[:3]), statistics_dtype(x))


def _together() -> scoping.Replicas | None:
    """The replicas or towers over which statistics are taken; None where each takes its own."""
    group = scoping.replicas()
    return group if group is not None and group.synchronized else None


def values_measured(x: tf.Tensor) -> tf.Tensor:
    """Returns how many values of a channel the statistics of a map are taken over: those of all replicas if they are
    synchronized.
    """
    group, count = _together(), values_a_channel(x)
    return count if group is None else group.sum([count * present(group, count.dtype)])[0]


def moments(x: tf.Tensor) -> Moments:
    """Measures a map [N, H, W, C] in two passes: its mean, then the mean square of what is left (biased); [C] each."""
    if _together() is not None or not _fused(x):
        return composed_moments(x)
    width = x.shape.as_list()[-1:]
    ones, zeros = tf.ones(width), tf.zeros(width)
    measured = tf.raw_ops.FusedBatchNormV3(x=x, scale=ones, offset=zeros, mean=[], variance=[], is_training=True)
    count = values_a_channel(x)  # the operation's variance is the unbiased one
    return measured.batch_mean, measured.batch_variance * (tf.maximum(count - 1.0, 1.0) / count)


def moments_grad(x: tf.Tensor, mean: tf.Tensor, dmean: tf.Tensor, dvariance: tf.Tensor) -> tf.Tensor:
    """Returns the gradient [N, H, W, C] that a map gets through its statistics, from theirs."""
    group, count = _together(), values_measured(x)
    if group is not None:
        dmean, dvariance = (v * present(group, v.dtype) for v in group.sum([dmean, dvariance]))
    # (x - mean) * scale + offset is a batch norm by a variance of 1
    return normalise(x, 2.0 * dvariance / count, dmean / count, mean, tf.ones_like(mean) - 1e-3, 1e-3)


def add_statistics_grad(
    dx: tf.Tensor, x: tf.Tensor, mean: tf.Tensor, dmean: tf.Tensor, dvariance: tf.Tensor
) -> tf.Tensor:
    """Returns dx plus the gradient that the map x gets through its statistics, [N, H, W, C]."""
    return dx + moments_grad(x, mean, dmean, dvariance)


def normalise(
    x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor, epsilon: float
) -> tf.Tensor:
    """Returns gamma (x - mean) / sqrt(variance + epsilon) + beta of a map [N, H, W, C], all else [C]."""
    if not _fused(x):
        return composed_normalise(x, gamma, beta, mean, variance, epsilon)
    return tf.raw_ops.FusedBatchNormV3(
        x=x, scale=gamma, offset=beta, mean=mean, variance=variance, epsilon=epsilon, is_training=False
    ).y


def normalise_grad(
    dy: tf.Tensor, x: tf.Tensor, gamma: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor, epsilon: float
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns the gradients of ``normalise`` with the statistics held: dx [N, H, W, C], dgamma [C] and dbeta [C]."""
    if not _fused(x):
        dtype = statistics_dtype(x)
        scale, dy_wide = tf.math.rsqrt(variance + epsilon), tf.cast(dy, dtype)
        dgamma = tf.reduce_sum(dy_wide * (tf.cast(x, dtype) - mean), _AXES) * scale
        return dy * tf.cast(gamma * scale, x.dtype), dgamma, tf.reduce_sum(dy_wide, _AXES)
    return _fused_grad(dy, x, gamma, mean, variance, epsilon, is_training=False)


def statistics_grad(
    gamma: tf.Tensor, dgamma: tf.Tensor, dbeta: tf.Tensor, variance: tf.Tensor, epsilon: float
) -> Moments:
    """Returns dmean and dvariance [C] of one layer that normalised with shared statistics."""
    scale = tf.math.rsqrt(variance + epsilon)
    return -scale * gamma * dbeta, -0.5 * tf.square(scale) * gamma * dgamma


def batch_norm_grad(
    dy: tf.Tensor, x: tf.Tensor, gamma: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor, epsilon: float
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Returns dx, dgamma and dbeta of a batch norm that alone uses the map's own statistics."""
    # On a GPU the operation wants cuDNN's inverse deviation for the variance.
    if _fused(x) and _together() is None and context.without_gpu():
        return _fused_grad(dy, x, gamma, mean, variance, epsilon, is_training=True)
    dx, dgamma, dbeta = normalise_grad(dy, x, gamma, mean, variance, epsilon)
    dmean, dvariance = statistics_grad(gamma, dgamma, dbeta, variance, epsilon)
    return add_statistics_grad(dx, x, mean, dmean, dvariance), dgamma, dbeta


def _fused_grad(
    dy: tf.Tensor,
    x: tf.Tensor,
    gamma: tf.Tensor,
    mean: tf.Tensor,
    variance: tf.Tensor,
    epsilon: float,
    *,
    is_training: bool,
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    grads = tf.raw_ops.FusedBatchNormGradV3(
        y_backprop=dy,
        x=x,
        scale=gamma,
        reserve_space_1=mean,
        reserve_space_2=variance,
        reserve_space_3=variance,
        epsilon=epsilon,
        is_training=is_training,
    )
    return grads.x_backprop, grads.scale_backprop, grads.offset_backprop


def composed_moments(x: tf.Tensor) -> Moments:
    """``moments`` in operations that TensorFlow differentiates to any order."""
    mean, variance, _ = of_batch(tf.cast(x, statistics_dtype(x)), 3, None, synchronized=_together() is not None)
    return tf.reshape(mean, [-1]), tf.reshape(variance, [-1])


def composed_normalise(
    x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor, epsilon: float
) -> tf.Tensor:
    """``normalise`` in operations that TensorFlow differentiates to any order."""
    y = (tf.cast(x, statistics_dtype(x)) - mean) * (gamma * tf.math.rsqrt(variance + epsilon)) + beta
    return tf.cast(y, x.dtype)


def differentiable_moments(x: tf.Tensor) -> Moments:
    """``moments`` with a gradient."""

    def forward(x: tf.Tensor) -> tuple[Moments, tf.Tensor]:
        found = moments(x)
        return found, found[0]

    return with_gradient(forward, _moments_backward, composed_moments, x)


def known_moments(x: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor) -> Moments:
    """Returns what ``moments`` measured of x before, with x's gradient."""

    def forward(_: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor) -> tuple[Moments, tf.Tensor]:
        return (mean, variance), mean

    return with_gradient(forward, _moments_backward, lambda x, *_: composed_moments(x), x, mean, variance)


def _moments_backward(inputs: Sequence[tf.Tensor], mean: tf.Tensor, upstream: Sequence[tf.Tensor]) -> list[tf.Tensor]:
    x, *others = inputs
    return [moments_grad(x, mean, *upstream), *map(tf.zeros_like, others)]


def differentiable_normalise(
    x: tf.Tensor, gamma: tf.Tensor, beta: tf.Tensor, mean: tf.Tensor, variance: tf.Tensor, epsilon: float
) -> tf.Tensor:
    """``normalise`` with a gradient for all five tensors, the statistics' too."""

    def backward(inputs: Sequence[tf.Tensor], _: object, upstream: Sequence[tf.Tensor]) -> tuple[tf.Tensor, ...]:
        (x, gamma, _, mean, variance), (dy,) = inputs, upstream
        dx, dgamma, dbeta = normalise_grad(dy, x, gamma, mean, variance, epsilon)
        return dx, dgamma, dbeta, *statistics_grad(gamma, dgamma, dbeta, variance, epsilon)

    def forward(*tensors: tf.Tensor) -> tuple[tf.Tensor, tuple[()]]:
        x, gamma, beta, mean, variance = tensors
        return normalise(x, gamma, beta, mean, variance, epsilon), ()

    def plain(*tensors: tf.Tensor) -> tf.Tensor:
        x, gamma, beta, mean, variance = tensors
        return composed_normalise(x, gamma, beta, mean, variance, epsilon)

    return with_gradient(forward, backward, plain, x, gamma, beta, mean, variance)
