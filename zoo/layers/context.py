"""What the layers share: checked inputs, their variables, bias or normalizer, activation, collected outputs."""

from __future__ import annotations

import contextlib
import numbers
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import tensorflow as tf

from zoo import scoping
from zoo.layers import recompute
from zoo.scoping import keras_names
from zoo.scoping.features import PREPARE

Activation = keras_names.Activation
Initializer = keras_names.Initializer
Regularizer = keras_names.Regularizer
Collections = str | Iterable[str] | None
VariablesCollections = Iterable[str] | Mapping[str, Any] | None

_KEYS = tf.compat.v1.GraphKeys
_TRAINABLE = [_KEYS.GLOBAL_VARIABLES, _KEYS.MODEL_VARIABLES, _KEYS.TRAINABLE_VARIABLES]
_NOT_TRAINABLE = [_KEYS.GLOBAL_VARIABLES, _KEYS.MODEL_VARIABLES]
_NO_SCOPE: contextlib.nullcontext[str] = contextlib.nullcontext("")


def float_tensor(inputs: Any, layer: str) -> tf.Tensor:
    """Converts a layer's input to a floating-point tensor.

    Args:
      inputs: tensor or array.
      layer: the layer's name, for the message.

    Returns:
      The tensor, the same object if it is one.

    Raises:
      TypeError: no dense tensor, such as a RaggedTensor.
      ValueError: its type is not floating.
    """
    inputs = scoping.dense_tensor(inputs, layer)
    if not inputs.dtype.is_floating:
        if not inputs.dtype.is_integer:
            kinds = {tf.string: "decode the files or encode the words first", tf.bool: "tf.cast them to float32"}
            how = kinds.get(inputs.dtype, "take tf.math.real, tf.math.imag or tf.abs of them")
            raise ValueError(f"{layer} takes floating-point inputs, got {inputs.dtype.name}: {how}")
        frame = scoping.current_frame()
        by_card = frame is not None and "preprocessing" in getattr(frame.store, "card", {})
        how = f"{PREPARE}(images)" if by_card else "tf.image.convert_image_dtype(images, tf.float32)"
        raise ValueError(
            f"{layer} takes floating-point inputs, got {inputs.dtype.name}: convert them first, for images with {how}"
        )
    return inputs


def channel_axis(data_format: str | None, layer: str) -> int:
    """Returns the axis of the channels of an image batch: 3 for "NHWC" and None, 1 for "NCHW".

    Raises:
      ValueError: another data format.
    """
    if data_format is None or data_format == "NHWC":
        return 3
    if data_format == "NCHW":
        return 1
    keras = {"channels_last": ": write NHWC", "channels_first": ": write NCHW"}.get(data_format, "")
    raise ValueError(f"{layer}: data_format has to be either NCHW or NHWC, got {data_format!r}{keras}")


def image_shape(inputs: tf.Tensor, layer: str) -> tf.TensorShape:
    """Returns the static shape of an image batch.

    Raises:
      ValueError: the rank is not 4.
    """
    shape = inputs.shape
    if shape.rank != 4:
        raise ValueError(f"{layer} expects input with rank 4, got {shape.rank} (shape {shape})")
    return shape


def channels_of(shape: tf.TensorShape, axis: int, layer: str) -> int:
    """Returns the size of the channel axis.

    Raises:
      ValueError: it is unknown.
    """
    channels = shape[axis]
    if channels is None:
        raise ValueError(
            f"{layer} needs a known number of channels, it is undefined in shape {shape}: give it with tf.ensure_shape"
        )
    return channels


def integer(value: Any, what: str, layer: str) -> int:
    """Returns a positive integer argument.

    Raises:
      ValueError: it is not one.
    """
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise ValueError(f"{layer}: {what} is a positive integer, got {value!r}")
    return int(value)


def functions(activation_fn: Any, normalizer_fn: Any, layer: str) -> Callable[[Any], Any] | None:
    """Returns a layer's activation, by Keras' name too; refuses a normalizer that is no function."""
    if normalizer_fn is not None and (not callable(normalizer_fn) or type(normalizer_fn) is type):
        raise TypeError(
            f"{layer}: normalizer_fn is a function such as zoo.layers.batch_norm, or None, got {normalizer_fn!r}"
        )
    return keras_names.activation(activation_fn, layer)


def without_gpu() -> bool:
    """Says whether only CPU kernels are there; they know NHWC alone."""
    return not tf.config.get_visible_devices("GPU")


def variable(
    name: str,
    shape: Iterable[int],
    inputs: tf.Tensor,
    initializer: Initializer,
    regularizer: Regularizer = None,
    collections: VariablesCollections = None,
    trainable: bool = True,
    kind: str | None = None,
    dtype: tf.DType | None = None,
) -> Any:
    """Gets or makes a variable of the current layer.

    Args:
      name: name inside the layer's scope.
      shape: its shape.
      inputs: the layer's input; float64 inputs get float64 variables.
      initializer: default: the scope's.
      regularizer: default: the scope's.
      collections: further collections, or a dictionary of them by `kind`.
      trainable: whether it is.
      kind: key in that dictionary, default the name.
      dtype: type; default float64 for float64 inputs, else the scope's (float32 at the root).

    Returns:
      The variable.
    """
    names = _TRAINABLE if trainable else _NOT_TRAINABLE
    if collections:
        further = collections.get(kind or name) if isinstance(collections, Mapping) else collections
        names = list(dict.fromkeys([*names, *([further] if isinstance(further, str) else further or ())]))
    if dtype is None and inputs.dtype == tf.float64:
        dtype = tf.float64
    return scoping.get_variable(name, shape, dtype, initializer, regularizer, trainable, names)


def kernel(
    name: str,
    shape: Iterable[int],
    inputs: tf.Tensor,
    initializer: Initializer,
    regularizer: Regularizer,
    collections: VariablesCollections,
    trainable: bool,
) -> Any:
    """Gets or makes a layer's weights, in the type of its input (arguments as in `variable`)."""
    weights = variable(name, shape, inputs, initializer, regularizer, collections, trainable, "weights")
    return weights if weights.dtype == inputs.dtype else tf.cast(weights, inputs.dtype)


def finish(
    outputs: tf.Tensor,
    channels: int,
    data_format: str,
    activation_fn: Callable[[Any], Any] | None,
    normalizer_fn: Callable[..., tf.Tensor] | None,
    normalizer_params: Mapping[str, Any] | None,
    biases_initializer: Initializer,
    biases_regularizer: Regularizer,
    variables_collections: VariablesCollections,
    trainable: bool,
    outputs_collections: Collections,
    alias: str,
) -> tf.Tensor:
    """Ends a layer with weights: normalizer or else biases, then activation.

    Args:
      outputs: what the weights gave.
      channels: number of output channels, the size of the biases.
      data_format: "NHWC" or "NCHW".
      activation_fn: function of the result, or None.
      normalizer_fn: replaces the biases if given.
      normalizer_params: its keyword arguments.
      biases_initializer: None for no biases.
      biases_regularizer: penalty of the biases.
      variables_collections: as in the layer.
      trainable: as in the layer.
      outputs_collections: as in the layer.
      alias: the layer's full name.

    Returns:
      The layer's output.
    """
    if normalizer_fn is not None:
        outputs = normalizer_fn(outputs, **(normalizer_params or {}))
    elif biases_initializer is not None:
        biases = variable(
            "biases", [channels], outputs, biases_initializer, biases_regularizer, variables_collections, trainable
        )
        if biases.dtype != outputs.dtype:
            biases = tf.cast(biases, outputs.dtype)
        outputs = tf.raw_ops.BiasAdd(value=outputs, bias=biases, data_format=data_format)
    if activation_fn is not None:
        recomputed = activation_fn is tf.nn.relu and recompute.how(outputs) is not None
        outputs = recompute.relu(outputs) if recomputed else activation_fn(outputs)
    return collect(outputs_collections, alias, outputs) if outputs_collections else outputs


def op_scope(scope: str | None, default_name: str, outputs_collections: Collections) -> Any:
    """Opens the name scope of a layer without variables.

    Args:
      scope: its name, or None.
      default_name: used when there is none.
      outputs_collections: where its output will go, which needs the full name in eager mode too.

    Returns:
      A context manager that gives the full name.
    """
    if not tf.executing_eagerly():
        return tf.compat.v1.name_scope(scope, default_name)
    if not outputs_collections:
        return _NO_SCOPE
    outer = scoping.get_variable_scope().name
    return contextlib.nullcontext(f"{outer}/{scope or default_name}" if outer else scope or default_name)


def collect(outputs_collections: Collections, alias: str, outputs: tf.Tensor) -> tf.Tensor:
    """Adds a layer's output to collections, and its name to the tensor's `aliases`.

    Args:
      outputs_collections: a name, several, or None.
      alias: the layer's full name.
      outputs: its output.

    Returns:
      The output.
    """
    if outputs_collections:
        outputs.aliases = [*getattr(outputs, "aliases", ()), alias.rstrip("/")]
        names = [outputs_collections] if isinstance(outputs_collections, str) else outputs_collections
        for name in names:
            scoping.add_to_collection(name, outputs)
    return outputs


def static_bool(value: Any) -> bool | None:
    """Reads a flag.

    Args:
      value: bool, number, boolean tensor or variable; None counts as False.

    Returns:
      Its value, or None when only the running graph will know it.
    """
    if value is None or isinstance(value, bool):
        return bool(value)
    if isinstance(value, tf.Variable):
        return bool(value.numpy()) if tf.executing_eagerly() else None
    if tf.is_tensor(value):
        known = tf.get_static_value(value)
        return None if known is None else bool(known)
    return bool(value)
