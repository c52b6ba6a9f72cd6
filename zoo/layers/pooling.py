"""Pooling of images; no variables."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from zoo import scoping
from zoo.layers import context
from zoo.layers.geometry import Pair, Window, check_window, paddings, pair


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
    images = context.Images.of(inputs, data_format, "max_pool2d")
    window = _window(images, kernel_size, stride, padding, "max_pool2d")
    with context.op_scope(scope, "MaxPool2D", outputs_collections) as name:
        return context.collect(outputs_collections, name, _pool(_max_pool, images, window))


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
    images = context.Images.of(inputs, data_format, "avg_pool2d")
    window = _window(images, kernel_size, stride, padding, "avg_pool2d")
    with context.op_scope(scope, "AvgPool2D", outputs_collections) as name:
        return context.collect(outputs_collections, name, _pool(_avg_pool, images, window))


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
    x, _, axis, _ = context.Images.of(inputs, data_format, "global_avg_pool")
    with context.op_scope(scope, "GlobalAvgPool", outputs_collections) as name:
        exact = tf.cast(x, tf.float32) if x.dtype in (tf.float16, tf.bfloat16) else x
        mean = tf.reduce_mean(exact, [1, 2] if axis == 3 else [2, 3], keepdims=keep_dims)
        return context.collect(outputs_collections, name, mean if exact is x else tf.cast(mean, x.dtype))


def _max_pool(x: tf.Tensor, window: list[int], strides: list[int], padding: str, layout: str) -> tf.Tensor:
    return tf.raw_ops.MaxPool(input=x, ksize=window, strides=strides, padding=padding, data_format=layout)


def _avg_pool(x: tf.Tensor, window: list[int], strides: list[int], padding: str, layout: str) -> tf.Tensor:
    return tf.raw_ops.AvgPool(value=x, ksize=window, strides=strides, padding=padding, data_format=layout)


def _window(images: context.Images, sides: Pair, stride: Pair, padding: str, layer: str) -> Window:
    size, strides = pair(sides, "kernel_size", layer, images.layout), pair(stride, "stride", layer, images.layout)
    if not isinstance(padding, str):
        raise ValueError(f'{layer}: padding is "SAME" or "VALID", got {padding!r}: pad with tf.pad first')
    window = Window(size, strides, (1, 1), *paddings(padding, layer, images.layout))
    check_window(images.shape, images.first, size, window.padding, [], layer)
    return window


def _pool(op: Callable[..., tf.Tensor], images: context.Images, window: Window) -> tf.Tensor:
    x, (sides, strides, _, padding, _) = images.tensor, window
    if images.axis == 3:
        return op(x, [1, *sides, 1], [1, *strides, 1], padding, "NHWC")
    if context.without_gpu():  # no NCHW gradient of max pooling there
        y = op(tf.transpose(x, [0, 2, 3, 1]), [1, *sides, 1], [1, *strides, 1], padding, "NHWC")
        return tf.transpose(y, [0, 3, 1, 2])
    return op(x, [1, 1, *sides], [1, 1, *strides], padding, "NCHW")
