"""Fully connected layer, and the small ones around it: flatten, dropout, softmax, one-hot labels, a layer repeated."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

from zoo import scoping
from zoo.layers import context
from zoo.layers.initializers import xavier_initializer, zeros_initializer


@scoping.add_arg_scope
def fully_connected(
    inputs: tf.Tensor,
    num_outputs: int,
    activation_fn: context.Activation = tf.nn.relu,
    normalizer_fn: context.Normalizer = None,
    normalizer_params: Mapping[str, Any] | None = None,
    weights_initializer: context.Initializer = xavier_initializer(),
    weights_regularizer: context.Regularizer = None,
    biases_initializer: context.Initializer = zeros_initializer(),
    biases_regularizer: context.Regularizer = None,
    reuse: context.Reuse = None,
    variables_collections: context.VariablesCollections = None,
    outputs_collections: context.Collections = None,
    trainable: bool = True,
    scope: context.Scope = None,
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
    inputs = context.float_tensor(inputs, "fully_connected")
    layer = context.Context(
        inputs,
        context.functions(activation_fn, normalizer_fn, "fully_connected"),
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
    num_outputs = context.integer(num_outputs, "num_outputs", "fully_connected")
    shape = inputs.shape
    if shape.rank is None or shape.rank < 2:
        raise ValueError(f"fully_connected expects input of rank 2 or more, got shape {shape}: flatten it to [N, C]")
    channels = context.channels_of(shape, -1, "fully_connected")
    with scoping.variable_scope(scope, "fully_connected", [inputs], reuse=reuse) as opened:
        weights = layer.kernel([channels, num_outputs])
        if shape.rank == 2:
            outputs = tf.raw_ops.MatMul(a=inputs, b=weights)
        else:
            outputs = tf.tensordot(inputs, weights, 1)
            outputs.set_shape([*shape[:-1], num_outputs])
        return layer.finish(outputs, num_outputs, "NHWC", opened.name)


@scoping.add_arg_scope
def flatten(inputs: tf.Tensor, outputs_collections: context.Collections = None, scope: str | None = None) -> tf.Tensor:
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
    with context.op_scope(scope, "Flatten", outputs_collections) as name:
        if None not in others:
            size = math.prod(others)
            unknown = -1 if size else tf.shape(inputs)[0]
            outputs = tf.reshape(inputs, [unknown if batch is None else batch, size])
        else:
            outputs = tf.reshape(inputs, [tf.shape(inputs)[0] if batch is None else batch, -1])
        return context.collect(outputs_collections, name, outputs)


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
    logits = context.float_tensor(logits, "softmax")
    if logits.shape.rank is None or logits.shape.rank < 2:
        raise ValueError(f"softmax expects logits of rank 2 or more, got shape {logits.shape}")
    context.channels_of(logits.shape, -1, "softmax")
    with context.op_scope(scope, "softmax", None):
        return tf.nn.softmax(logits)


@scoping.add_arg_scope
def one_hot_encoding(
    labels: tf.Tensor,
    num_classes: int,
    on_value: float = 1.0,
    off_value: float = 0.0,
    outputs_collections: context.Collections = None,
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
    with context.op_scope(scope, "OneHotEncoding", outputs_collections) as name:
        outputs = tf.one_hot(labels, num_classes, on_value=on_value, off_value=off_value)
        return context.collect(outputs_collections, name, outputs)


@scoping.add_arg_scope
def dropout(
    inputs: tf.Tensor,
    keep_prob: float | tf.Tensor = 0.5,
    noise_shape: Sequence[int | None] | tf.Tensor | None = None,
    is_training: bool | tf.Tensor = True,
    outputs_collections: context.Collections = None,
    scope: str | None = None,
    seed: int | None = None,
) -> tf.Tensor:
    """Keeps each element with probability keep_prob, divided by it, and zeroes the others.

    Args:
      inputs: floating-point tensor of any shape.
      keep_prob: probability to keep an element, in (0, 1], default 0.5; a number or a scalar tensor.
      noise_shape: shape of the mask, broadcast to the inputs ([N, 1, 1, C] drops whole maps); default their shape.
      is_training: when False the inputs are returned as they are, bit for bit; default True.
      outputs_collections: collections for the output.
      scope: name scope, default "Dropout".
      seed: integer that fixes the masks' sequence, default None: follows the model's (or the graph's) seed.

    Returns:
      Tensor of the shape and type of the inputs.

    Raises:
      ValueError: wrong type, or keep_prob outside (0, 1].

    Source: Srivastava et al. 2014, section 10 (scaling at training time).
    """
    inputs = context.float_tensor(inputs, "dropout")
    if not tf.is_tensor(keep_prob) and not 0 < keep_prob <= 1:
        raise ValueError(f"dropout: keep_prob is in (0, 1], got {keep_prob!r}: it is the share that is kept")
    training = context.static_bool(is_training)
    if training is False or (not tf.is_tensor(keep_prob) and keep_prob == 1):
        return context.collect(outputs_collections, scope or "Dropout", inputs)
    with context.op_scope(scope, "Dropout", outputs_collections) as name:
        key = scoping.random_seed(seed)

        def drop() -> tf.Tensor:
            shape = tf.shape(inputs) if noise_shape is None else _filled(noise_shape, inputs)
            kept = tf.random.stateless_uniform(shape, key) < tf.cast(keep_prob, tf.float32)
            return tf.where(kept, inputs / tf.cast(keep_prob, inputs.dtype), tf.zeros([], inputs.dtype))

        outputs = drop() if training else tf.cond(tf.cast(is_training, tf.bool), drop, lambda: inputs)
        outputs.set_shape(inputs.shape)
        return context.collect(outputs_collections, name, outputs)


def _filled(noise_shape: Sequence[int | None] | tf.Tensor, inputs: tf.Tensor) -> list[int | tf.Tensor] | tf.Tensor:
    """Reads None in a noise shape as the size of the inputs there."""
    if tf.is_tensor(noise_shape):
        return noise_shape
    known, sizes = inputs.shape.as_list(), tf.shape(inputs)
    given = [known[i] if n is None else n for i, n in enumerate(noise_shape)]
    return [sizes[i] if n is None else n for i, n in enumerate(given)]


def stack(inputs: tf.Tensor, layer: Callable[..., tf.Tensor], stack_args: Sequence[Any], **kwargs: Any) -> tf.Tensor:
    """Applies a layer once for each entry of a list of arguments.

    `stack(x, fully_connected, [32, 64], scope="fc")` is the layers "fc/fc_1" of 32 units and "fc/fc_2" of 64.

    Args:
      inputs: the first layer's input.
      layer: function (inputs, *args, scope=..., **kwargs) -> outputs.
      stack_args: list or tuple with one entry a layer: an argument, or a list or tuple of arguments.
      **kwargs: passed to every layer; `scope` names the stack (default "Stack", its layers after the function).

    Returns:
      The last layer's output.

    Raises:
      ValueError: stack_args is neither list nor tuple.
    """
    if not isinstance(stack_args, list | tuple):
        raise ValueError(f"stack takes a list or tuple with one entry a layer, got {type(stack_args).__name__}")
    scope = kwargs.pop("scope", None)
    with scoping.variable_scope(scope, "Stack"):
        name = _name_of(scope, layer, "stack")
        for i, entry in enumerate(stack_args, 1):
            args = entry if isinstance(entry, list | tuple) else [entry]
            inputs = layer(inputs, *args, scope=f"{name}_{i}", **kwargs)
        return inputs


def repeat(
    inputs: tf.Tensor, repetitions: int, layer: Callable[..., tf.Tensor], *args: Any, **kwargs: Any
) -> tf.Tensor:
    """Applies a layer several times with the same arguments.

    `repeat(x, 2, conv2d, 64, [3, 3], scope="conv1")` is the layers "conv1/conv1_1" and "conv1/conv1_2".

    Args:
      inputs: the first layer's input.
      repetitions: number of layers, 0 or more.
      layer: function (inputs, *args, scope=..., **kwargs) -> outputs.
      *args: passed to every layer.
      **kwargs: passed to every layer; `scope` names the group (default "Repeat", its layers after the function).

    Returns:
      The last layer's output.

    Raises:
      ValueError: repetitions is not a number of 0 or more.
    """
    if type(repetitions) is not int or repetitions < 0:
        raise ValueError(f"repeat takes a number of repetitions of 0 or more, got {repetitions!r}")
    scope = kwargs.pop("scope", None)
    with scoping.variable_scope(scope, "Repeat"):
        name = _name_of(scope, layer, "repeat")
        for i in range(1, repetitions + 1):
            inputs = layer(inputs, *args, scope=f"{name}_{i}", **kwargs)
        return inputs


def _name_of(scope: context.Scope, layer: Callable[..., tf.Tensor], default: str) -> str:
    """What the layers are numbered after: the scope's own name, or the function's, also behind functools.partial."""
    if scope is not None:
        return str(getattr(scope, "name", scope)).rpartition("/")[2]
    return str(getattr(layer, "__name__", None) or getattr(getattr(layer, "func", None), "__name__", default))
