"""Convolutions of images: plain, depthwise separable, transposed, and the one of TF1's guide to shared variables."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping
from typing import Any

import tensorflow as tf

from zoo import scoping
from zoo.layers import recompute
from zoo.layers.context import (
    Activation,
    Collections,
    Context,
    Images,
    Initializer,
    Normalizer,
    Regularizer,
    Reuse,
    Scope,
    VariablesCollections,
    channels_of,
    float_tensor,
    functions,
    integer,
    without_gpu,
)
from zoo.layers.geometry import Padding, Pair, Window, paddings, pair
from zoo.layers.initializers import (
    constant_initializer,
    random_normal_initializer,
    xavier_initializer,
    zeros_initializer,
)


@scoping.add_arg_scope
def conv_relu(x: tf.Tensor, kernel_shape: Iterable[int], bias_shape: Iterable[int]) -> tf.Tensor:
    """relu(conv(x, weights) + biases), stride 1, "SAME", in the variable scope where it stands.

    Variables: `weights` (standard normal) and `biases` (zeros).

    Args:
      x: images [N, H, W, C].
      kernel_shape: [height, width, C, outputs].
      bias_shape: [outputs].

    Returns:
      [N, H, W, outputs].

    Raises:
      ValueError: `x` is not of floating-point type.

    Source: TensorFlow 1, guide "Sharing variables".
    """
    x = float_tensor(x, "conv_relu")
    weights = scoping.get_variable("weights", kernel_shape, initializer=random_normal_initializer())
    biases = scoping.get_variable("biases", bias_shape, initializer=constant_initializer(0.0))
    if weights.dtype != x.dtype:
        weights, biases = tf.cast(weights, x.dtype), tf.cast(biases, x.dtype)
    conv = tf.raw_ops.Conv2D(input=x, filter=weights, strides=[1, 1, 1, 1], padding="SAME")
    return tf.nn.relu(conv + biases)


@scoping.add_arg_scope
def conv2d(
    inputs: tf.Tensor,
    num_outputs: int,
    kernel_size: Pair,
    stride: Pair = 1,
    padding: Padding = "SAME",
    data_format: str | None = None,
    rate: Pair = 1,
    activation_fn: Activation = tf.nn.relu,
    normalizer_fn: Normalizer = None,
    normalizer_params: Mapping[str, Any] | None = None,
    weights_initializer: Initializer = xavier_initializer(),
    weights_regularizer: Regularizer = None,
    biases_initializer: Initializer = zeros_initializer(),
    biases_regularizer: Regularizer = None,
    reuse: Reuse = None,
    variables_collections: VariablesCollections = None,
    outputs_collections: Collections = None,
    trainable: bool = True,
    scope: Scope = None,
    groups: int = 1,
) -> tf.Tensor:
    """2-D convolution, then biases or a normalizer, then an activation.

    Variables: `weights` [kernel height, kernel width, C / groups, num_outputs] and, without normalizer, `biases`.

    Args:
      inputs: images [N, H, W, C], or [N, C, H, W] with data_format="NCHW".
      num_outputs: number of filters.
      kernel_size: height and width of the kernel, or one number for both.
      stride: steps down and right, one number for both, or TensorFlow's four, default 1.
      padding: "SAME" (default), "VALID", a number of zeros, (height, width), or ((top, bottom), (left, right)).
      data_format: "NHWC" (default) or "NCHW".
      rate: distance between the kernel's taps, default 1; other rates need stride 1.
      activation_fn: function, or Keras' name of one; default ReLU; None for a linear layer.
      normalizer_fn: applied instead of biases, for example `batch_norm`.
      normalizer_params: keyword arguments of the normalizer.
      weights_initializer: of the weights, or Keras' name of one ("he_normal"); default Glorot's uniform.
      weights_regularizer: penalty of the weights, or Keras' name of one ("l2").
      biases_initializer: default zeros; None for no biases.
      biases_regularizer: penalty of the biases.
      reuse: True, False, None or AUTO_REUSE, as in `variable_scope`.
      variables_collections: collections for the variables, or a dictionary of them for "weights" and "biases".
      outputs_collections: collections for the output.
      trainable: whether the variables are.
      scope: name or scope; default "Conv", made unique.
      groups: number of groups that the channels and filters are split into, default 1.

    Returns:
      [N, H', W', num_outputs] (or NCHW), of the type of the inputs.

    Raises:
      ValueError: wrong rank or type, unknown channels, a rate with a stride, a window larger than the input, or
        channels or filters that do not split into the groups.

    Source: TF-Slim's `conv2d`; groups and explicit padding are additions.
    """
    images = Images.of(inputs, data_format, "conv2d")
    context = Context(
        images.tensor,
        functions(activation_fn, normalizer_fn, "conv2d"),
        normalizer_fn,
        normalizer_params,
        weights_initializer,
        weights_regularizer,
        biases_initializer,
        biases_regularizer,
        variables_collections,
        outputs_collections,
        trainable,
    )
    channels = channels_of(images.shape, images.axis, "conv2d")
    num_outputs = integer(num_outputs, "num_outputs", "conv2d")
    window = Window.of(images, kernel_size, stride, rate, padding, "conv2d")
    if groups != 1 and (groups < 1 or channels % groups or num_outputs % groups):
        raise ValueError(
            f"conv2d: groups divides the channels and the filters, got groups={groups} for {channels} channels and "
            f"{num_outputs} filters"
        )
    with scoping.variable_scope(scope, "Conv", [images.tensor], reuse=reuse) as opened:
        weights = context.kernel([*window.sides, channels // groups, num_outputs])
        outputs = _convolve(images.tensor, weights, window, images.layout, groups)
        return context.finish(outputs, num_outputs, images.layout, opened.name)


def _convolve(x: tf.Tensor, weights: tf.Tensor, window: Window, layout: str, groups: int) -> tf.Tensor:
    _, strides, rates, padding, explicit = window
    if layout == "NCHW":
        if not without_gpu():
            return tf.raw_ops.Conv2D(
                input=x,
                filter=weights,
                strides=[1, 1, *strides],
                padding=padding,
                explicit_paddings=explicit,
                data_format="NCHW",
                dilations=[1, 1, *rates],
            )
        turned = window._replace(explicit=explicit and [*explicit[:2], *explicit[4:], *explicit[:2]])
        return tf.transpose(_convolve(tf.transpose(x, [0, 2, 3, 1]), weights, turned, "NHWC", groups), [0, 3, 1, 2])
    if explicit and without_gpu():  # oneDNN has no filter gradient with explicit padding, and Eigen's is slow
        x, padding, explicit = tf.pad(x, [explicit[i : i + 2] for i in range(0, 8, 2)]), "VALID", []
    if (groups > 1 or rates != (1, 1)) and without_gpu() and not _one_dnn(x.dtype):  # kernels with gaps
        if groups == 1:
            return tf.nn.convolution(x, weights, padding=padding, dilations=rates)
        split = zip(tf.split(x, groups, axis=3), tf.split(weights, groups, axis=3), strict=True)
        window = window._replace(padding=padding, explicit=explicit)
        return tf.concat([_convolve(a, b, window, layout, 1) for a, b in split], axis=3)
    how_to = {
        "strides": [1, *strides, 1],
        "padding": padding,
        "explicit_paddings": explicit,
        "dilations": [1, *rates, 1],
    }
    dtype = x.dtype
    if dtype == tf.float16 and without_gpu():  # oneDNN's kernels for AVX512-FP16 read beyond maps of one pixel
        x, weights = recompute.cast(x, tf.float32), tf.cast(weights, tf.float32)
    return tf.cast(recompute.conv2d(x, weights, **how_to), dtype)


def _one_dnn(dtype: tf.DType) -> bool:
    """Only oneDNN has the gradients of grouped and dilated convolutions on a CPU, and only in these types."""
    built_in = platform.machine().lower() in ("x86_64", "amd64") and os.environ.get("TF_ENABLE_ONEDNN_OPTS") != "0"
    return built_in and dtype in (tf.float32, tf.bfloat16)


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
    activation_fn: Activation = tf.nn.relu,
    normalizer_fn: Normalizer = None,
    normalizer_params: Mapping[str, Any] | None = None,
    weights_initializer: Initializer = xavier_initializer(),
    pointwise_initializer: Initializer = None,
    weights_regularizer: Regularizer = None,
    biases_initializer: Initializer = zeros_initializer(),
    biases_regularizer: Regularizer = None,
    reuse: Reuse = None,
    variables_collections: VariablesCollections = None,
    outputs_collections: Collections = None,
    trainable: bool = True,
    scope: Scope = None,
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
    images = Images.of(inputs, data_format, layer)
    context = Context(
        images.tensor,
        functions(activation_fn, normalizer_fn, layer),
        normalizer_fn,
        normalizer_params,
        weights_initializer,
        weights_regularizer,
        biases_initializer,
        biases_regularizer,
        variables_collections,
        outputs_collections,
        trainable,
    )
    channels = channels_of(images.shape, images.axis, layer)
    depth = channels * integer(depth_multiplier, "depth_multiplier", layer)
    filters = depth if num_outputs is None else integer(num_outputs, "num_outputs", layer)
    window = Window.of(images, kernel_size, stride, rate, padding, layer)
    if window.strides[0] != window.strides[1]:
        raise ValueError(
            f"{layer}: the step down equals the step to the right, got stride={window.strides}: use one number"
        )
    with scoping.variable_scope(scope, "SeparableConv2d", [images.tensor], reuse=reuse) as opened:
        depthwise = context.kernel([*window.sides, channels, depth_multiplier], "depthwise_weights")
        pointwise = None
        if num_outputs is not None:
            own = context._replace(weights_initializer=pointwise_initializer or weights_initializer)
            pointwise = own.kernel([1, 1, depth, filters], "pointwise_weights")
        outputs = _separable(images.tensor, depthwise, pointwise, window, images.axis)
        return context.finish(outputs, filters, images.layout, opened.name)


def _separable(x: tf.Tensor, depthwise: tf.Tensor, pointwise: tf.Tensor | None, window: Window, axis: int) -> tf.Tensor:
    _, strides, rates, padding, explicit = window
    if explicit:
        x, padding = tf.pad(x, [explicit[i : i + 2] for i in range(0, 8, 2)]), "VALID"
    if axis == 1 and without_gpu():
        window = window._replace(padding=padding, explicit=[])
        y = _separable(tf.transpose(x, [0, 2, 3, 1]), depthwise, pointwise, window, 3)
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


@scoping.add_arg_scope
def conv2d_transpose(
    inputs: tf.Tensor,
    num_outputs: int,
    kernel_size: Pair,
    stride: Pair = 1,
    padding: str = "SAME",
    data_format: str = "NHWC",
    activation_fn: Activation = tf.nn.relu,
    normalizer_fn: Normalizer = None,
    normalizer_params: Mapping[str, Any] | None = None,
    weights_initializer: Initializer = xavier_initializer(),
    weights_regularizer: Regularizer = None,
    biases_initializer: Initializer = zeros_initializer(),
    biases_regularizer: Regularizer = None,
    reuse: Reuse = None,
    variables_collections: VariablesCollections = None,
    outputs_collections: Collections = None,
    trainable: bool = True,
    scope: Scope = None,
) -> tf.Tensor:
    """The gradient of a convolution with respect to its input, used to enlarge images.

    A side of n becomes n * stride with "SAME", n * stride + max(kernel - stride, 0) with "VALID".
    Variables: `weights` [kernel height, kernel width, num_outputs, C] and, without normalizer, `biases`.

    Args:
      inputs: images [N, H, W, C], or [N, C, H, W] with data_format="NCHW".
      num_outputs: number of filters.
      kernel_size: height and width of the kernel, or one number for both.
      stride: enlargement down and right, or one number for both, default 1.
      padding: "SAME" (default) or "VALID".
      data_format: "NHWC" (default) or "NCHW".
      activation_fn: function, or Keras' name of one; default ReLU; None for a linear layer.
      normalizer_fn: applied instead of biases, for example `batch_norm`.
      normalizer_params: keyword arguments of the normalizer.
      weights_initializer: of the weights, or Keras' name of one ("he_normal"); default Glorot's uniform.
      weights_regularizer: penalty of the weights, or Keras' name of one ("l2").
      biases_initializer: default zeros; None for no biases.
      biases_regularizer: penalty of the biases.
      reuse: True, False, None or AUTO_REUSE, as in `variable_scope`.
      variables_collections: collections for the variables, or a dictionary of them for "weights" and "biases".
      outputs_collections: collections for the output.
      trainable: whether the variables are.
      scope: name or scope; default "Conv2d_transpose", made unique.

    Returns:
      [N, H', W', num_outputs] (or NCHW), of the type of the inputs.

    Raises:
      ValueError: wrong rank or type, unknown channels, padding or data format.

    Source: TF-Slim's `conv2d_transpose`.
    """
    layer = "conv2d_transpose"
    images = Images.of(inputs, data_format, layer)
    context = Context(
        images.tensor,
        functions(activation_fn, normalizer_fn, layer),
        normalizer_fn,
        normalizer_params,
        weights_initializer,
        weights_regularizer,
        biases_initializer,
        biases_regularizer,
        variables_collections,
        outputs_collections,
        trainable,
    )
    channels = channels_of(images.shape, images.axis, layer)
    num_outputs = integer(num_outputs, "num_outputs", layer)
    sides, strides = pair(kernel_size, "kernel_size", layer), pair(stride, "stride", layer, images.layout)
    if not isinstance(padding, str):
        raise ValueError(f'{layer}: padding is "SAME" or "VALID", got {padding!r}: crop the output of "VALID"')
    window = Window(sides, strides, (1, 1), *paddings(padding, layer, images.layout))
    with scoping.variable_scope(scope, "Conv2d_transpose", [images.tensor], reuse=reuse) as opened:
        weights = context.kernel([*sides, num_outputs, channels])
        outputs = _transposed(images.tensor, weights, num_outputs, window, images.axis)
        return context.finish(outputs, num_outputs, images.layout, opened.name)


def _transposed(x: tf.Tensor, weights: tf.Tensor, num_outputs: int, window: Window, axis: int) -> tf.Tensor:
    if axis == 1 and without_gpu():
        y = _transposed(tf.transpose(x, [0, 2, 3, 1]), weights, num_outputs, window, 3)
        return tf.transpose(y, [0, 3, 1, 2])
    sides, strides, _, padding, _ = window
    known = x.shape.as_list()
    dynamic: Any = tf.shape(x) if None in known else None
    first = 1 if axis == 3 else 2
    sizes: list[Any] = [dynamic[i] if known[i] is None else known[i] for i in range(4)]
    static: list[int | None] = list(known)
    sizes[axis] = static[axis] = num_outputs
    for i in range(2):
        extra = max(sides[i] - strides[i], 0) if padding == "VALID" else 0
        sizes[first + i] = sizes[first + i] * strides[i] + extra
        side = known[first + i]
        static[first + i] = None if side is None else side * strides[i] + extra
    outputs = tf.raw_ops.Conv2DBackpropInput(
        input_sizes=sizes if dynamic is None else tf.stack(sizes),
        filter=weights,
        out_backprop=x,
        strides=[1, *strides, 1] if axis == 3 else [1, 1, *strides],
        padding=padding,
        data_format="NHWC" if axis == 3 else "NCHW",
    )
    if dynamic is not None:
        outputs.set_shape(static)
    return outputs
