"""Pooling of images; no variables."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from zoo import scoping
from zoo.layers import context
from zoo.layers.geometry import Pair, check_window, paddings, pair


@scoping.add_arg_scope
def max_pool2d(
    inputs: tf.Tensor,
    kernel_size: Pair,
    stride: Pair = 2,
    padding: str = "VALID",
    data_format: str = "NHWC",
    outputs_collections: context.Collections = None,
    scope: str | None = None,
) -> tf.Tensor:
    """Largest value of each window, channel by channel.

    Args:
      inputs: images [N, H, W, C], or [N, C, H, W] with data_format="NCHW".
      kernel_size: height and width of the window, one number for both, or TensorFlow's four ([1, 3, 3, 1]).
      stride: steps down and right, one number for both, or TensorFlow's four, default 2.
      padding: "VALID" (default) or "SAME".
      data_format: "NHWC" (default) or "NCHW".
      outputs_collections: collections for the output.
      scope: name scope, default "MaxPool2D".

    Returns:
      [N, H', W', C] (or NCHW), of the type of the inputs.

    Raises:
      ValueError: wrong rank or type, unknown padding or data format, a window larger than the input.

    Source: TF-Slim's `max_pool2d`.
    """
    name = "max_pool2d", "MaxPool2D"
    return _pool(_max_pool, name, inputs, kernel_size, stride, padding, data_format, outputs_collections, scope)


@scoping.add_arg_scope
def avg_pool2d(
    inputs: tf.Tensor,
    kernel_size: Pair,
    stride: Pair = 2,
    padding: str = "VALID",
    data_format: str = "NHWC",
    outputs_collections: context.Collections = None,
    scope: str | None = None,
) -> tf.Tensor:
    """Mean of each window, channel by channel; padding does not count.

    Args:
      inputs: images [N, H, W, C], or [N, C, H, W] with data_format="NCHW".
      kernel_size: height and width of the window, one number for both, or TensorFlow's four ([1, 3, 3, 1]).
      stride: steps down and right, one number for both, or TensorFlow's four, default 2.
      padding: "VALID" (default) or "SAME".
      data_format: "NHWC" (default) or "NCHW".
      outputs_collections: collections for the output.
      scope: name scope, default "AvgPool2D".

    Returns:
      [N, H', W', C] (or NCHW), of the type of the inputs.

    Raises:
      ValueError: wrong rank or type, unknown padding or data format, a window larger than the input.

    Source: TF-Slim's `avg_pool2d`.
    """
    name = "avg_pool2d", "AvgPool2D"
    return _pool(_avg_pool, name, inputs, kernel_size, stride, padding, data_format, outputs_collections, scope)


@scoping.add_arg_scope
def global_avg_pool(
    inputs: tf.Tensor,
    keep_dims: bool = False,
    data_format: str = "NHWC",
    outputs_collections: context.Collections = None,
    scope: str | None = None,
) -> tf.Tensor:
    """Mean over height and width, accumulated in float32 for half-precision inputs.

    Args:
      inputs: images [N, H, W, C], or [N, C, H, W] with data_format="NCHW".
      keep_dims: keep height and width as 1, default False.
      data_format: "NHWC" (default) or "NCHW".
      outputs_collections: collections for the output.
      scope: name scope, default "GlobalAvgPool".

    Returns:
      [N, C], or [N, 1, 1, C] (NCHW: [N, C, 1, 1]) with keep_dims.

    Raises:
      ValueError: wrong rank or type, or an unknown data format.
    """
    inputs = context.float_tensor(inputs, "global_avg_pool")
    axis = context.channel_axis(data_format, "global_avg_pool")
    context.image_shape(inputs, "global_avg_pool")
    with context.op_scope(scope, "GlobalAvgPool", outputs_collections) as name:
        exact = tf.cast(inputs, tf.float32) if inputs.dtype in (tf.float16, tf.bfloat16) else inputs
        mean = tf.reduce_mean(exact, [1, 2] if axis == 3 else [2, 3], keepdims=keep_dims)
        return context.collect(outputs_collections, name, mean if exact is inputs else tf.cast(mean, inputs.dtype))


def _max_pool(x: tf.Tensor, window: list[int], strides: list[int], padding: str, layout: str) -> tf.Tensor:
    return tf.raw_ops.MaxPool(input=x, ksize=window, strides=strides, padding=padding, data_format=layout)


def _avg_pool(x: tf.Tensor, window: list[int], strides: list[int], padding: str, layout: str) -> tf.Tensor:
    return tf.raw_ops.AvgPool(value=x, ksize=window, strides=strides, padding=padding, data_format=layout)


def _pool(
    op: Callable[..., tf.Tensor],
    names: tuple[str, str],
    inputs: tf.Tensor,
    kernel_size: Pair,
    stride: Pair,
    padding: str,
    data_format: str,
    outputs_collections: context.Collections,
    scope: str | None,
) -> tf.Tensor:
    layer, default_scope = names
    inputs = context.float_tensor(inputs, layer)
    axis = context.channel_axis(data_format, layer)
    shape = context.image_shape(inputs, layer)
    layout = "NHWC" if axis == 3 else "NCHW"
    window, strides = pair(kernel_size, "kernel_size", layer, layout), pair(stride, "stride", layer, layout)
    if not isinstance(padding, str):
        raise ValueError(f'{layer}: padding is "SAME" or "VALID", got {padding!r}: pad with tf.pad first')
    padding, _ = paddings(padding, layer, data_format)
    check_window(shape, 1 if axis == 3 else 2, window, padding, [], layer)
    with context.op_scope(scope, default_scope, outputs_collections) as name:
        if axis == 3:
            outputs = op(inputs, [1, *window, 1], [1, *strides, 1], padding, "NHWC")
        elif context.without_gpu():  # no NCHW gradient of max pooling there
            outputs = op(tf.transpose(inputs, [0, 2, 3, 1]), [1, *window, 1], [1, *strides, 1], padding, "NHWC")
            outputs = tf.transpose(outputs, [0, 3, 1, 2])
        else:
            outputs = op(inputs, [1, 1, *window], [1, 1, *strides], padding, "NCHW")
        return context.collect(outputs_collections, name, outputs)
