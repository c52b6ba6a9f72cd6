"""Depthwise separable convolution."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from zoo import scoping
from zoo.layers import parts
from zoo.layers.geometry import Padding, Pair, check_window, paddings, pair
from zoo.layers.initializers import xavier_initializer, zeros_initializer


@scoping.add_arg_scope
def separable_conv2d(
    inputs: tf.Tensor,
    num_outputs: int | None,
    kernel_size: Pair,
    depth_multiplier: int = 1,
    stride: Pair = 1,
    padding: Padding = "SAME",
    data_format: str = "NHWC",
    rate: Pair = 1,
    activation_fn: parts.Activation = tf.nn.relu,
    normalizer_fn: Callable[..., tf.Tensor] | None = None,
    normalizer_params: Mapping[str, Any] | None = None,
    weights_initializer: parts.Initializer = xavier_initializer(),
    pointwise_initializer: parts.Initializer = None,
    weights_regularizer: parts.Regularizer = None,
    biases_initializer: parts.Initializer = zeros_initializer(),
    biases_regularizer: parts.Regularizer = None,
    reuse: Any = None,
    variables_collections: parts.VariablesCollections = None,
    outputs_collections: parts.Collections = None,
    trainable: bool = True,
    scope: Any = None,
) -> tf.Tensor:
    """A convolution of each channel by itself, then a 1x1 convolution across channels.

    Variables: `depthwise_weights` [kernel height, kernel width, C, depth_multiplier], `pointwise_weights`
    [1, 1, C * depth_multiplier, num_outputs] and, without normalizer, `biases`.

    Args:
      inputs: images [N, H, W, C], or [N, C, H, W] with data_format="NCHW".
      num_outputs: number of filters across channels; None leaves the 1x1 convolution out.
      kernel_size: height and width of the kernel, or one number for both.
      depth_multiplier: number of filters a channel, default 1.
      stride: step, default 1; down and right must be equal.
      padding: "SAME" (default), "VALID" or explicit, as in `conv2d`.
      data_format: "NHWC" (default) or "NCHW".
      rate: distance between the kernel's taps, default 1; other rates need stride 1.
      activation_fn: function, or Keras' name of one; default ReLU; None for a linear layer.
      normalizer_fn: applied instead of biases, for example `batch_norm`.
      normalizer_params: keyword arguments of the normalizer.
      weights_initializer: of the depthwise weights, or Keras' name of one; default Glorot's uniform.
      pointwise_initializer: of the pointwise weights, default the same.
      weights_regularizer: penalty of both, or Keras' name of one ("l2").
      biases_initializer: default zeros; None for no biases.
      biases_regularizer: penalty of the biases.
      reuse: True, False, None or AUTO_REUSE, as in `variable_scope`.
      variables_collections: collections for the variables, or a dictionary of them for "weights" and "biases".
      outputs_collections: collections for the output.
      trainable: whether the variables are.
      scope: name or scope; default "SeparableConv2d", made unique.

    Returns:
      [N, H', W', num_outputs or C * depth_multiplier] (or NCHW), of the type of the inputs.

    Raises:
      ValueError: wrong rank or type, unknown channels, unequal strides, a rate with a stride, a window larger than the
        input.

    Source: TF-Slim's `separable_conv2d`; Chollet 2017, figure 4.
    """
    layer = "separable_conv2d"
    inputs = parts.float_tensor(inputs, layer)
    activate = parts.functions(activation_fn, normalizer_fn, layer)
    axis = parts.channel_axis(data_format, layer)
    shape = parts.image_shape(inputs, layer)
    channels = parts.channels_of(shape, axis, layer)
    depth = channels * parts.integer(depth_multiplier, "depth_multiplier", layer)
    filters = depth if num_outputs is None else parts.integer(num_outputs, "num_outputs", layer)
    layout = "NHWC" if axis == 3 else "NCHW"
    (height, width), strides = pair(kernel_size, "kernel_size", layer), pair(stride, "stride", layer, layout)
    rates = pair(rate, "rate", layer, layout)
    if strides[0] != strides[1]:
        raise ValueError(f"{layer}: the step down equals the step to the right, got stride={strides}: use one number")
    if rates != (1, 1) and strides != (1, 1):
        raise ValueError(
            f"{layer}: a rate other than 1 needs stride 1, got rate={rates} and stride={strides}: drop one"
        )
    padding, explicit = paddings(padding, layer, layout)
    window = (rates[0] * (height - 1) + 1, rates[1] * (width - 1) + 1)
    check_window(shape, 1 if axis == 3 else 2, window, padding, explicit, layer)
    with scoping.variable_scope(scope, "SeparableConv2d", [inputs], reuse=reuse) as opened:
        weights = (inputs, weights_initializer, weights_regularizer, variables_collections, trainable)
        depthwise = parts.kernel("depthwise_weights", [height, width, channels, depth_multiplier], *weights)
        pointwise = None
        if num_outputs is not None:
            initializer = pointwise_initializer or weights_initializer
            pointwise = parts.kernel("pointwise_weights", [1, 1, depth, filters], inputs, initializer, *weights[2:])
        if explicit:
            inputs = tf.pad(inputs, [explicit[i : i + 2] for i in range(0, 8, 2)])
            padding = "VALID"
        return parts.finish(
            _separable(inputs, depthwise, pointwise, strides, rates, padding, axis),
            filters,
            data_format,
            activate,
            normalizer_fn,
            normalizer_params,
            biases_initializer,
            biases_regularizer,
            variables_collections,
            trainable,
            outputs_collections,
            opened.name,
        )


def _separable(
    x: tf.Tensor,
    depthwise: tf.Tensor,
    pointwise: tf.Tensor | None,
    strides: tuple[int, int],
    rates: tuple[int, int],
    padding: str,
    axis: int,
) -> tf.Tensor:
    if axis == 1 and parts.without_gpu():
        y = _separable(tf.transpose(x, [0, 2, 3, 1]), depthwise, pointwise, strides, rates, padding, 3)
        return tf.transpose(y, [0, 3, 1, 2])
    steps, layout = ([1, *strides, 1], "NHWC") if axis == 3 else ([1, 1, *strides], "NCHW")
    if rates != (1, 1):
        y = tf.nn.depthwise_conv2d(x, depthwise, steps, padding, data_format=layout, dilations=rates)
    else:
        y = tf.raw_ops.DepthwiseConv2dNative(
            input=x, filter=depthwise, strides=steps, padding=padding, data_format=layout
        )
    if pointwise is None:
        return y
    return tf.raw_ops.Conv2D(input=y, filter=pointwise, strides=[1, 1, 1, 1], padding="VALID", data_format=layout)
