"""Transposed convolution."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from zoo import scoping
from zoo.layers import parts
from zoo.layers.geometry import Pair, paddings, pair
from zoo.layers.initializers import xavier_initializer, zeros_initializer


@scoping.add_arg_scope
def conv2d_transpose(
    inputs: tf.Tensor,
    num_outputs: int,
    kernel_size: Pair,
    stride: Pair = 1,
    padding: str = "SAME",
    data_format: str = "NHWC",
    activation_fn: parts.Activation = tf.nn.relu,
    normalizer_fn: Callable[..., tf.Tensor] | None = None,
    normalizer_params: Mapping[str, Any] | None = None,
    weights_initializer: parts.Initializer = xavier_initializer(),
    weights_regularizer: parts.Regularizer = None,
    biases_initializer: parts.Initializer = zeros_initializer(),
    biases_regularizer: parts.Regularizer = None,
    reuse: Any = None,
    variables_collections: parts.VariablesCollections = None,
    outputs_collections: parts.Collections = None,
    trainable: bool = True,
    scope: Any = None,
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
    inputs = parts.float_tensor(inputs, layer)
    activate = parts.functions(activation_fn, normalizer_fn, layer)
    axis = parts.channel_axis(data_format, layer)
    channels = parts.channels_of(parts.image_shape(inputs, layer), axis, layer)
    num_outputs = parts.integer(num_outputs, "num_outputs", layer)
    layout = "NHWC" if axis == 3 else "NCHW"
    kernel_sides, strides = pair(kernel_size, "kernel_size", layer), pair(stride, "stride", layer, layout)
    if not isinstance(padding, str):
        raise ValueError(f'{layer}: padding is "SAME" or "VALID", got {padding!r}: crop the output of "VALID"')
    padding, _ = paddings(padding, layer, data_format)
    with scoping.variable_scope(scope, "Conv2d_transpose", [inputs], reuse=reuse) as opened:
        weights = parts.kernel(
            "weights",
            [*kernel_sides, num_outputs, channels],
            inputs,
            weights_initializer,
            weights_regularizer,
            variables_collections,
            trainable,
        )
        return parts.finish(
            _transposed(inputs, weights, num_outputs, kernel_sides, strides, padding, axis),
            num_outputs,
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


def _transposed(
    x: tf.Tensor,
    weights: tf.Tensor,
    num_outputs: int,
    kernel_sides: tuple[int, int],
    strides: tuple[int, int],
    padding: str,
    axis: int,
) -> tf.Tensor:
    if axis == 1 and parts.without_gpu():
        y = _transposed(tf.transpose(x, [0, 2, 3, 1]), weights, num_outputs, kernel_sides, strides, padding, 3)
        return tf.transpose(y, [0, 3, 1, 2])
    known = x.shape.as_list()
    dynamic: Any = tf.shape(x) if None in known else None
    first = 1 if axis == 3 else 2
    sizes: list[Any] = [dynamic[i] if known[i] is None else known[i] for i in range(4)]
    static: list[int | None] = list(known)
    sizes[axis] = static[axis] = num_outputs
    for i in range(2):
        extra = max(kernel_sides[i] - strides[i], 0) if padding == "VALID" else 0
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
