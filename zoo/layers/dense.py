"""Fully connected layer, and what stands around it: flatten, softmax, one-hot labels."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import tensorflow as tf

from zoo import scoping
from zoo.layers import parts
from zoo.layers.initializers import xavier_initializer, zeros_initializer


@scoping.add_arg_scope
def fully_connected(
    inputs: tf.Tensor,
    num_outputs: int,
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
    """Matrix product over the last dimension, then biases or a normalizer, then an activation.

    Variables: `weights` [C, num_outputs] and, without normalizer, `biases`.

    Args:
      inputs: [N, ..., C], rank 2 or more.
      num_outputs: number of units.
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
      scope: name or scope; default "fully_connected", made unique.

    Returns:
      [N, ..., num_outputs], of the type of the inputs.

    Raises:
      ValueError: rank below 2, wrong type, unknown last dimension.

    Source: TF-Slim's `fully_connected`.
    """
    inputs = parts.float_tensor(inputs, "fully_connected")
    activate = parts.functions(activation_fn, normalizer_fn, "fully_connected")
    num_outputs = parts.integer(num_outputs, "num_outputs", "fully_connected")
    shape = inputs.shape
    if shape.rank is None or shape.rank < 2:
        raise ValueError(f"fully_connected expects input of rank 2 or more, got shape {shape}: flatten it to [N, C]")
    channels = parts.channels_of(shape, -1, "fully_connected")
    with scoping.variable_scope(scope, "fully_connected", [inputs], reuse=reuse) as opened:
        weights = parts.kernel(
            "weights",
            [channels, num_outputs],
            inputs,
            weights_initializer,
            weights_regularizer,
            variables_collections,
            trainable,
        )
        if shape.rank == 2:
            outputs = tf.raw_ops.MatMul(a=inputs, b=weights)
        else:
            outputs = tf.tensordot(inputs, weights, 1)
            outputs.set_shape([*shape[:-1], num_outputs])
        return parts.finish(
            outputs,
            num_outputs,
            "NHWC",
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


@scoping.add_arg_scope
def flatten(inputs: tf.Tensor, outputs_collections: parts.Collections = None, scope: str | None = None) -> tf.Tensor:
    """Puts all dimensions but the first into one.

    Args:
      inputs: [N, ...], rank 1 or more; any type.
      outputs_collections: collections for the output.
      scope: name scope, default "Flatten".

    Returns:
      [N, k] with k the product of the other dimensions (1 for rank 1).

    Raises:
      ValueError: the rank is unknown or 0.
    """
    inputs = scoping.dense_tensor(inputs, "flatten")
    shape = inputs.shape
    if not shape.rank:
        raise ValueError(f"flatten expects input of rank 1 or more, got shape {shape}")
    batch, *others = shape.as_list()
    with parts.op_scope(scope, "Flatten", outputs_collections) as name:
        if None not in others:
            size = math.prod(others)
            unknown = -1 if size else tf.shape(inputs)[0]
            outputs = tf.reshape(inputs, [unknown if batch is None else batch, size])
        else:
            outputs = tf.reshape(inputs, [tf.shape(inputs)[0] if batch is None else batch, -1])
        return parts.collect(outputs_collections, name, outputs)


@scoping.add_arg_scope
def softmax(logits: tf.Tensor, scope: str | None = None) -> tf.Tensor:
    """exp(logits) / sum(exp(logits)) over the last dimension.

    Args:
      logits: [N, ..., K], rank 2 or more.
      scope: name scope, default "softmax".

    Returns:
      Probabilities of the same shape and type.

    Raises:
      ValueError: rank below 2, wrong type, unknown last dimension.
    """
    logits = parts.float_tensor(logits, "softmax")
    if logits.shape.rank is None or logits.shape.rank < 2:
        raise ValueError(f"softmax expects logits of rank 2 or more, got shape {logits.shape}")
    parts.channels_of(logits.shape, -1, "softmax")
    with parts.op_scope(scope, "softmax", None):
        return tf.nn.softmax(logits)


@scoping.add_arg_scope
def one_hot_encoding(
    labels: tf.Tensor,
    num_classes: int,
    on_value: float = 1.0,
    off_value: float = 0.0,
    outputs_collections: parts.Collections = None,
    scope: str | None = None,
) -> tf.Tensor:
    """Class numbers as indicator vectors; a number outside 0 .. num_classes - 1 gives `off_value` everywhere.

    Args:
      labels: integers of any shape [...].
      num_classes: length of the vectors.
      on_value: value at the class, default 1.
      off_value: value elsewhere, default 0.
      outputs_collections: collections for the output.
      scope: name scope, default "OneHotEncoding".

    Returns:
      [..., num_classes], float32 for the default values.

    Raises:
      ValueError: the labels are not integers.
    """
    labels = scoping.dense_tensor(labels, "one_hot_encoding")
    if not labels.dtype.is_integer:
        raise ValueError(f"one_hot_encoding takes integer labels, got {labels.dtype.name}: tf.cast them to int64")
    with parts.op_scope(scope, "OneHotEncoding", outputs_collections) as name:
        outputs = tf.one_hot(labels, num_classes, on_value=on_value, off_value=off_value)
        return parts.collect(outputs_collections, name, outputs)
