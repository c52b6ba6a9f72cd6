"""Batch normalization, fused where a fused kernel exists and composed of plain ops elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import tensorflow as tf

from zoo import scoping
from zoo._compat import is_op_determinism_enabled
from zoo.layers import context, moments, shared_norm
from zoo.layers.initializers import ones_initializer, zeros_initializer
from zoo.layers.recompute import Compute, after, mark

Normalized = tuple[tf.Tensor, tf.Tensor, tf.Tensor]  # outputs; mean and variance [C] for the moving ones
_FUSED_TYPES = (tf.float32, tf.float16, tf.bfloat16)
_FUSED_EPSILON = 1e-5  # cuDNN takes no smaller one
_PARAMETERS = ("beta", "gamma")
_STATISTICS = ("moving_mean", "moving_variance")


class Variables(NamedTuple):
    """The variables of one normalization, [C] each; None where there is none."""

    gamma: tf.Variable | None
    beta: tf.Variable | None
    moving_mean: tf.Variable
    moving_variance: tf.Variable


@scoping.add_arg_scope
def batch_norm(
    inputs: tf.Tensor,
    decay: float | tf.Tensor = 0.999,
    center: bool = True,
    scale: bool = False,
    epsilon: float = 0.001,
    activation_fn: context.Activation = None,
    param_initializers: Mapping[str, Any] | None = None,
    param_regularizers: Mapping[str, Any] | None = None,
    updates_collections: context.Collections = tf.compat.v1.GraphKeys.UPDATE_OPS,
    is_training: bool | tf.Tensor = True,
    reuse: context.Reuse = None,
    variables_collections: context.VariablesCollections = None,
    outputs_collections: context.Collections = None,
    trainable: bool = True,
    batch_weights: tf.Tensor | None = None,
    fused: bool | None = None,
    data_format: str | None = "NHWC",
    zero_debias_moving_mean: bool = False,
    scope: context.Scope = None,
    renorm: bool = False,
    renorm_clipping: Mapping[str, Any] | None = None,
    renorm_decay: float = 0.99,
    adjustment: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]] | None = None,
    synchronized: bool = False,
    recompute: bool = False,
) -> tf.Tensor:
    """Y = gamma (x - mean) / sqrt(variance + epsilon) + beta, with the batch's statistics or the moving ones.

    Variables, [C], float32 (float64 for float64 inputs): `gamma` if scaled, `beta` if centered, `moving_mean`,
    `moving_variance`; with renorm `renorm_mean` and `renorm_stddev`. In training, moving = decay * moving +
    (1 - decay) * batch: at once in a model, in eager mode and in `tf.function`, through `updates_collections` in a
    TF1 graph. In a frozen scope the layer uses the moving statistics and leaves them as they are. What goes into
    `moving_variance` is the unbiased variance, n / (n - 1) of the batch's, where TF-Slim's kernel gives that (rank 2
    and 4, `fused` not False, no weights, renorm or adjustment); elsewhere the biased one.

    Args:
      inputs: [N, ..., C], rank 2 or more, or [N, C, ...] with data_format="NCHW".
      decay: share of the old moving statistics that is kept, default 0.999.
      center: add `beta`, default True.
      scale: multiply by `gamma`, default False.
      epsilon: added to the variance, default 0.001.
      activation_fn: function of the result, or Keras' name of one; default None.
      param_initializers: dictionary for "beta", "gamma", "moving_mean" and "moving_variance".
      param_regularizers: dictionary for "beta" and "gamma".
      updates_collections: where the updates go in a TF1 graph, default UPDATE_OPS; None runs them with the layer.
      is_training: use the batch's statistics, default True; bool or boolean tensor.
      reuse: True, False, None or AUTO_REUSE, as in `variable_scope`.
      variables_collections: collections for the variables, or a dictionary of them by variable name.
      outputs_collections: collections for the output.
      trainable: whether beta and gamma are.
      batch_weights: [N], weight of each example in the statistics, default equal.
      fused: False never uses the fused kernel, None (default) and True do where there is one.
      data_format: "NHWC" (default) or "NCHW".
      zero_debias_moving_mean: correct the moving mean for its start at zero; adds `moving_mean/biased` and
        `moving_mean/local_step`.
      scope: name or scope; default "BatchNorm", made unique.
      renorm: batch renormalization.
      renorm_clipping: dictionary with any of "rmin", "rmax" and "dmax", default no clipping.
      renorm_decay: decay of renorm's own averages, default 0.99.
      adjustment: function of the inputs' shape to (scale, bias), applied to the normalized values in training.
      synchronized: in a replica of tf.distribute or a tower, take the statistics over all of them, default as these
        are set.
      recompute: in training with the fused kernel, a ReLU and a convolution that follow compute the normalized values
        again for their gradients and do not keep them: less memory for some time; default False.

    Returns:
      Tensor of the shape and type of the inputs.

    Raises:
      ValueError: wrong rank or type, unknown channels, unknown dictionary keys, or renorm with batch_weights.

    Source: Ioffe and Szegedy 2015, algorithm 1; Ioffe 2017, algorithm 1 (renorm); TF-Slim's `batch_norm`.
    """
    inputs = context.float_tensor(inputs, "batch_norm")
    activate = context.functions(activation_fn, None, "batch_norm")
    axis, channels = _channels(inputs, data_format)
    _check_keys("param_initializers", param_initializers, _PARAMETERS + _STATISTICS)
    _check_keys("param_regularizers", param_regularizers, _PARAMETERS)
    _check_keys("renorm_clipping", renorm_clipping, ("rmin", "rmax", "dmax"))
    if renorm and batch_weights is not None:
        raise ValueError("batch_norm: renorm does not take batch_weights: drop one of them")
    with scoping.variable_scope(scope, "BatchNorm", [inputs], reuse=reuse) as opened:
        variables = _variables(
            inputs, channels, center, scale, param_initializers, param_regularizers, variables_collections, trainable
        )
        if not zero_debias_moving_mean:  # which is right from the first step on
            moments.remember_decay(variables.moving_mean, decay)
        training = False if scoping.scope_is_frozen() else context.static_bool(is_training)
        group = scoping.replicas()
        synchronized = group is not None and (synchronized or group.synchronized)
        plain = batch_weights is None and not renorm and adjustment is None
        unbiased = plain and fused is not False and inputs.shape.rank in (2, 4)
        kernel = unbiased and not synchronized and inputs.dtype in _FUSED_TYPES and epsilon >= _FUSED_EPSILON
        renormalize = (renorm_clipping or {}, renorm_decay) if renorm else None
        how = _Statistics(kernel, unbiased, synchronized, batch_weights, renormalize, adjustment)

        def by_batch() -> Normalized:
            return _by_batch(inputs, variables, epsilon, axis, how)

        def by_moving() -> Normalized:
            return _by_moving(inputs, variables, epsilon, axis, kernel)

        if plain and not zero_debias_moving_mean and scoping.is_building():
            outputs, training = tf.identity(inputs), False  # the variables are there; no need to trace the rest
        elif training is None:
            outputs, mean, variance = tf.cond(tf.cast(is_training, tf.bool), by_batch, by_moving)
        else:
            outputs, mean, variance = by_batch() if training else by_moving()
        outputs.set_shape(inputs.shape)
        normalized = outputs
        if training is not False:
            step = moments.Step(decay, zero_debias_moving_mean, epsilon if renorm else None)
            updates = moments.update(
                variables.moving_mean, variables.moving_variance, mean, variance, step, is_training
            )
            outputs = _deliver(outputs, updates, updates_collections)
        if recompute and training and kernel and axis == 3 and outputs is normalized:
            mark(outputs, _normalize_again(inputs, variables, mean, variance, epsilon))
        if activate is not None:
            outputs = activate(outputs)
        return context.collect(outputs_collections, opened.name, outputs)


class _Statistics(NamedTuple):
    """How a batch's statistics are taken: by the fused kernel or not, biased or not, over all replicas or not, with
    weights, renormalized by (clipping, decay), and adjusted.
    """

    fused: bool
    unbiased: bool
    synchronized: bool
    weights: tf.Tensor | None
    renormalize: tuple[Mapping[str, Any], float] | None
    adjustment: Callable[[tf.Tensor], tuple[tf.Tensor, tf.Tensor]] | None


def _channels(inputs: tf.Tensor, data_format: str | None) -> tuple[int, int]:
    """The axis of the channels, and their number."""
    axis, rank = context.channel_axis(data_format, "batch_norm"), inputs.shape.rank
    if rank is None or rank < 2:
        rule = "undefined rank" if rank is None else f"shape {inputs.shape}"
        raise ValueError(f"batch_norm expects input of rank 2 or more, got {rule}")
    axis = rank - 1 if axis == 3 else 1
    return axis, context.channels_of(inputs.shape, axis, "batch_norm")


def _by_batch(inputs: tf.Tensor, variables: Variables, epsilon: float, axis: int, how: _Statistics) -> Normalized:
    if how.fused:
        return _fused(inputs, variables, epsilon, axis, True)
    x, corrections = _exact(inputs), None
    mean, variance, count = moments.of_batch(x, axis, how.weights, how.synchronized)
    if how.renormalize is not None:
        corrections, mean_in, variance_in = moments.renormalize(mean, variance, axis, epsilon, *how.renormalize)
    else:
        mean_in, variance_in = mean, variance * (count / tf.maximum(count - 1, 1)) if how.unbiased else variance
    adjust = None if how.adjustment is None else how.adjustment(tf.shape(inputs))
    y = _compose(x, mean, variance, variables, epsilon, axis, corrections, adjust)
    return tf.cast(y, inputs.dtype), tf.reshape(mean_in, [-1]), tf.reshape(variance_in, [-1])


def _by_moving(inputs: tf.Tensor, variables: Variables, epsilon: float, axis: int, fused: bool) -> Normalized:
    if fused and not is_op_determinism_enabled():  # no deterministic GPU kernel has this case's gradient
        return _fused(inputs, variables, epsilon, axis, False)
    mean, variance = tf.convert_to_tensor(variables.moving_mean), tf.convert_to_tensor(variables.moving_variance)
    y = _compose(_exact(inputs), mean, variance, variables, epsilon, axis)
    return tf.cast(y, inputs.dtype), mean, variance


def _check_keys(what: str, given: Mapping[str, Any] | None, known: tuple[str, ...]) -> None:
    unknown = sorted(set(given or ()) - set(known))
    if unknown:
        raise ValueError(f"batch_norm: {what} has the keys {', '.join(known)}, got {', '.join(map(repr, unknown))}")


def _variables(
    inputs: tf.Tensor,
    channels: int,
    center: bool,
    scale: bool,
    initializers: Mapping[str, Any] | None,
    regularizers: Mapping[str, Any] | None,
    collections: context.VariablesCollections,
    trainable: bool,
) -> Variables:
    initializers, regularizers = initializers or {}, regularizers or {}
    dtype, opened = tf.float64 if inputs.dtype == tf.float64 else tf.float32, scoping.get_variable_scope()
    no_penalty = scoping.no_regularizer if opened.regularizer is not None else None

    def make(name: str, default: context.Initializer, is_trainable: bool) -> tf.Variable:
        initializer = initializers.get(name, default)
        regularizer = regularizers.get(name) if name in _PARAMETERS else no_penalty
        return context.variable(
            name, [channels], inputs, initializer, regularizer, collections, is_trainable, dtype=dtype
        )

    gamma = make("gamma", ones_initializer(), trainable) if scale else None
    beta = make("beta", zeros_initializer(), trainable) if center else None
    partitioner = opened.partitioner
    if partitioner is not None:
        opened.set_partitioner(None)  # statistics are small and assigned as a whole
    mean, variance = make("moving_mean", zeros_initializer(), False), make("moving_variance", ones_initializer(), False)
    if partitioner is not None:
        opened.set_partitioner(partitioner)
    return Variables(gamma, beta, mean, variance)


def _exact(inputs: tf.Tensor) -> tf.Tensor:
    """The inputs in float32 if they are of half precision."""
    return inputs if inputs.dtype == tf.float64 else tf.cast(inputs, tf.float32)


def _fused(inputs: tf.Tensor, variables: Variables, epsilon: float, axis: int, training: bool) -> Normalized:
    """The fused kernel: outputs, mean, and variance (unbiased in training)."""
    channels = inputs.shape[axis]
    x = inputs if inputs.shape.rank == 4 else tf.reshape(inputs, [-1, 1, 1, channels])
    nothing = tf.constant([], tf.float32)
    y, mean, variance, *_ = tf.raw_ops.FusedBatchNormV3(
        x=x,
        scale=tf.ones([channels]) if variables.gamma is None else variables.gamma,
        offset=tf.zeros([channels]) if variables.beta is None else variables.beta,
        mean=nothing if training else variables.moving_mean,
        variance=nothing if training else variables.moving_variance,
        epsilon=epsilon,
        data_format="NCHW" if inputs.shape.rank == 4 and axis == 1 else "NHWC",
        is_training=training,
    )
    if x is not inputs:
        rows = inputs.shape[0]
        y = tf.reshape(y, [-1 if rows is None else rows, channels])
    return y, mean, variance


def _normalize_again(
    x: tf.Tensor, variables: Variables, mean: tf.Tensor, variance: tf.Tensor, epsilon: float
) -> Compute:
    """How the outputs follow from the inputs [N, H, W, C] and their statistics; variance is the unbiased one."""
    channels = x.shape[-1]
    scale = tf.ones([channels]) if variables.gamma is None else tf.convert_to_tensor(variables.gamma)
    offset = tf.zeros([channels]) if variables.beta is None else tf.convert_to_tensor(variables.beta)

    def compute(gradient: tf.Tensor) -> tf.Tensor:
        # identities are of the graph in which this runs, in which a further derivative looks for them
        again, average, unbiased, shift = map(tf.identity, (x, mean, variance, offset))
        (held,) = after([gradient], scale)
        count = shared_norm.values_a_channel(again)
        biased = unbiased * (tf.maximum(count - 1.0, 1.0) / count)
        statistics = shared_norm.known_moments(again, average, biased)
        return shared_norm.differentiable_normalise(again, held, shift, *statistics, epsilon)

    return compute


def _compose(
    x: tf.Tensor,
    mean: tf.Tensor,
    variance: tf.Tensor,
    variables: Variables,
    epsilon: float,
    axis: int,
    corrections: tuple[tf.Tensor, tf.Tensor] | None = None,
    adjust: tuple[tf.Tensor, tf.Tensor] | None = None,
) -> tf.Tensor:
    """The normalization in plain ops, in the type of x."""
    shape = [1] * x.shape.rank
    shape[axis] = x.shape[axis]
    gamma, beta, mean, variance = (
        None if v is None else tf.reshape(v, shape) for v in (variables.gamma, variables.beta, mean, variance)
    )
    gain = tf.math.rsqrt(variance + epsilon)
    if corrections is None and adjust is None:
        gain = gain if gamma is None else gain * gamma
        y = (x - mean) * gain
    else:
        y = (x - mean) * gain
        for factor, offset in filter(None, (corrections, adjust)):
            y = y * tf.cast(factor, x.dtype) + tf.cast(offset, x.dtype)
        y = y if gamma is None else y * gamma
    return y if beta is None else y + beta


def _deliver(
    outputs: tf.Tensor, updates: list[tf.Operation | tf.Tensor], updates_collections: context.Collections
) -> tf.Tensor:
    """In a TF1 graph, hangs the updates where they will be run; elsewhere they have run."""
    if not scoping.in_graph():
        return outputs
    if updates_collections is None:
        with tf.control_dependencies(updates):
            return tf.identity(outputs)
    for name in [updates_collections] if isinstance(updates_collections, str) else updates_collections:
        for update in updates:
            scoping.add_to_collection(name, update)
    return outputs
