"""Normalizations that need no moving statistics: of a layer, of groups of channels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from zoo import scoping
from zoo.layers import context
from zoo.layers.initializers import ones_initializer, zeros_initializer
from zoo.layers.moments import mean_and_variance


@scoping.add_arg_scope
def layer_norm(
    inputs: tf.Tensor,
    center: bool = True,
    scale: bool = True,
    activation_fn: context.Activation = None,
    reuse: context.Reuse = None,
    variables_collections: context.VariablesCollections = None,
    outputs_collections: context.Collections = None,
    trainable: bool = True,
    begin_norm_axis: int = 1,
    begin_params_axis: int = -1,
    scope: context.Scope = None,
) -> tf.Tensor:
    """Normalizes each example over its axes begin_norm_axis to the last.

    epsilon is 1e-12 (1e-3 for float16). Variables `beta` and `gamma` of shape inputs.shape[begin_params_axis:], float32
    (float64 for float64 inputs); half-precision inputs are normalized in float32.

    Args:
      inputs: [N, ...].
      center: add `beta`, default True.
      scale: multiply by `gamma`, default True.
      activation_fn: function of the result, or Keras' name of one; default None.
      reuse: True, False, None or AUTO_REUSE, as in `variable_scope`.
      variables_collections: collections for the variables, or a dictionary of them by variable name.
      outputs_collections: collections for the output.
      trainable: whether the variables are.
      begin_norm_axis: first axis of the statistics, default 1.
      begin_params_axis: first axis of the variables, default the last one.
      scope: name or scope; default "LayerNorm", made unique.

    Returns:
      Tensor of the shape and type of the inputs.

    Raises:
      ValueError: unknown rank, an axis out of range, or an unknown size that the variables need.

    Source: Ba, Kiros and Hinton 2016, equations 3 and 4; TF-Slim's `layer_norm`.
    """
    inputs = context.float_tensor(inputs, "layer_norm")
    activate = context.functions(activation_fn, None, "layer_norm")
    rank = inputs.shape.rank
    if rank is None:
        raise ValueError("layer_norm needs inputs of known rank, got an unknown shape: use tf.ensure_shape")
    first, params = (a + rank if a < 0 else a for a in (begin_norm_axis, begin_params_axis))
    if not (0 <= first < rank and 0 <= params < rank):
        raise ValueError(
            f"layer_norm: axes lie within the inputs' rank {rank}, got begin_norm_axis={begin_norm_axis} and "
            f"begin_params_axis={begin_params_axis}"
        )
    params_shape = inputs.shape[params:]
    if not params_shape.is_fully_defined():
        raise ValueError(f"layer_norm needs known sizes from axis {params} on, got shape {inputs.shape}")
    with scoping.variable_scope(scope, "LayerNorm", [inputs], reuse=reuse) as opened:
        sizes, how = params_shape.as_list(), (variables_collections, trainable)
        beta = _parameter(inputs, "beta", sizes, zeros_initializer(), *how) if center else None
        gamma = _parameter(inputs, "gamma", sizes, ones_initializer(), *how) if scale else None
        x = inputs if inputs.dtype == tf.float64 else tf.cast(inputs, tf.float32)
        mean, variance = mean_and_variance(x, list(range(first, rank)))
        epsilon = 1e-3 if inputs.dtype == tf.float16 else 1e-12
        outputs = tf.cast(tf.nn.batch_normalization(x, mean, variance, beta, gamma, epsilon), inputs.dtype)
        outputs.set_shape(inputs.shape)
        if activate is not None:
            outputs = activate(outputs)
        return context.collect(outputs_collections, opened.name, outputs)


@scoping.add_arg_scope
def group_norm(
    inputs: tf.Tensor,
    groups: int = 32,
    channels_axis: int = -1,
    reduction_axes: Sequence[int] = (-3, -2),
    center: bool = True,
    scale: bool = True,
    epsilon: float = 1e-6,
    activation_fn: context.Activation = None,
    param_initializers: Mapping[str, Any] | None = None,
    reuse: context.Reuse = None,
    variables_collections: context.VariablesCollections = None,
    outputs_collections: context.Collections = None,
    trainable: bool = True,
    scope: context.Scope = None,
    mean_close_to_zero: bool = False,
) -> tf.Tensor:
    """Normalizes each example over groups of channels and the reduction axes.

    Variables `beta` and `gamma`, [C], float32 (float64 for float64 inputs); half-precision inputs are normalized in
    float32.

    Args:
      inputs: [N, H, W, C] for the default axes; for [N, C, H, W] channels_axis=-3 and reduction_axes=(-2, -1).
      groups: number of groups, a divisor of C, default 32.
      channels_axis: axis of the channels, default the last.
      reduction_axes: axes of the statistics besides the group's channels, default height and width.
      center: add `beta`, default True.
      scale: multiply by `gamma`, default True.
      epsilon: added to the variance, default 1e-6.
      activation_fn: function of the result, or Keras' name of one; default None.
      param_initializers: dictionary for "beta" and "gamma".
      reuse: True, False, None or AUTO_REUSE, as in `variable_scope`.
      variables_collections: collections for the variables, or a dictionary of them by variable name.
      outputs_collections: collections for the output.
      trainable: whether the variables are.
      scope: name or scope; default "GroupNorm", made unique.
      mean_close_to_zero: take the variance as E[x^2] - E[x]^2 in one pass, default False.

    Returns:
      Tensor of the shape and type of the inputs.

    Raises:
      ValueError: unknown rank or channels, an axis out of range or given twice, groups that do not divide the channels.

    Source: Wu and He 2018, equations 1 to 3; TF-Slim's `group_norm`.
    """
    inputs = context.float_tensor(inputs, "group_norm")
    activate = context.functions(activation_fn, None, "group_norm")
    rank = inputs.shape.rank
    if rank is None:
        raise ValueError("group_norm needs inputs of known rank, got an unknown shape: use tf.ensure_shape")
    axis, *reduced = (a + rank if a < 0 else a for a in (channels_axis, *reduction_axes))
    if not all(0 <= a < rank for a in (axis, *reduced)):
        raise ValueError(
            f"group_norm: axes lie within the inputs' rank {rank}, got channels_axis={channels_axis} and "
            f"reduction_axes={tuple(reduction_axes)}"
        )
    if axis in reduced:
        raise ValueError(f"group_norm: the channels' axis {channels_axis} is not a reduction axis: leave it out")
    channels = context.channels_of(inputs.shape, axis, "group_norm")
    if groups < 1 or channels % groups:
        raise ValueError(f"group_norm: groups divides the channels, got groups={groups} for {channels} channels")
    known, dynamic = inputs.shape.as_list(), tf.shape(inputs)
    sizes = [dynamic[i] if n is None else n for i, n in enumerate(known)]
    with scoping.variable_scope(scope, "GroupNorm", [inputs], reuse=reuse) as opened:
        initial = {"beta": zeros_initializer(), "gamma": ones_initializer(), **(param_initializers or {})}

        def parameter(name: str) -> tf.Tensor:
            made = _parameter(inputs, name, [channels], initial[name], variables_collections, trainable)
            return tf.reshape(made, spread)

        spread = [1] * (rank + 1)
        spread[axis : axis + 2] = [groups, channels // groups]
        beta = parameter("beta") if center else None
        gamma = parameter("gamma") if scale else None
        x = inputs if inputs.dtype == tf.float64 else tf.cast(inputs, tf.float32)
        x = tf.reshape(x, [*sizes[:axis], groups, channels // groups, *sizes[axis + 1 :]])
        axes = [axis + 1, *(a + 1 if a > axis else a for a in reduced)]
        if mean_close_to_zero:
            mean = tf.reduce_mean(x, axes, keepdims=True)
            variance = tf.reduce_mean(tf.square(x), axes, keepdims=True) - tf.square(mean)
        else:
            mean, variance = mean_and_variance(x, axes)
        outputs = tf.nn.batch_normalization(x, mean, variance, beta, gamma, epsilon)
        outputs = tf.cast(tf.reshape(outputs, sizes), inputs.dtype)
        outputs.set_shape(inputs.shape)
        if activate is not None:
            outputs = activate(outputs)
        return context.collect(outputs_collections, opened.name, outputs)


def _parameter(
    inputs: tf.Tensor,
    name: str,
    shape: list[int],
    initializer: context.Initializer,
    collections: context.VariablesCollections,
    trainable: bool,
) -> tf.Variable:
    dtype = tf.float64 if inputs.dtype == tf.float64 else tf.float32
    return context.variable(name, shape, inputs, initializer, None, collections, trainable, dtype)
