"""What the layers share: checked inputs, and the context that makes a layer's variables and ends it."""

from __future__ import annotations

import contextlib
import enum
import numbers
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

import tensorflow as tf

from zoo import scoping
from zoo.inputs import PREPARE
from zoo.layers import recompute
from zoo.scoping import keras_names

Activation = keras_names.Activation
Initializer = keras_names.Initializer
Regularizer = keras_names.Regularizer
Normalizer = Callable[..., tf.Tensor] | None
Collections = str | Iterable[str] | None
Reuse: TypeAlias = bool | enum.Enum | None  # AUTO_REUSE is an enumeration's member
Scope: TypeAlias = str | tf.compat.v1.VariableScope | None
VariablesCollections = Iterable[str] | Mapping[str, Any] | None

_KEYS = tf.compat.v1.GraphKeys
_TRAINABLE = [_KEYS.GLOBAL_VARIABLES, _KEYS.MODEL_VARIABLES, _KEYS.TRAINABLE_VARIABLES]
_NOT_TRAINABLE = [_KEYS.GLOBAL_VARIABLES, _KEYS.MODEL_VARIABLES]
_NO_SCOPE: contextlib.nullcontext[str] = contextlib.nullcontext("")


class Images(NamedTuple):
    """A checked batch of images: the tensor, its static shape, the axis of the channels, and the order of the axes."""

    tensor: tf.Tensor
    shape: tf.TensorShape
    axis: int
    layout: str

    @classmethod
    def of(cls, inputs: Any, data_format: str | None, layer: str) -> Images:
        """Checks a layer's input; refuses another type, rank or data format."""
        tensor, axis = float_tensor(inputs, layer), channel_axis(data_format, layer)
        return cls(tensor, image_shape(tensor, layer), axis, "NHWC" if axis == 3 else "NCHW")

    @property
    def first(self) -> int:
        """The axis of the height."""
        return 1 if self.axis == 3 else 2


class Context(NamedTuple):
    """What the arguments of a layer with weights say about its variables, its end and its output.

    ``activation_fn`` is a function already (see ``functions``); all else is as in the layers.
    """

    inputs: tf.Tensor
    activation_fn: Callable[[Any], Any] | None
    normalizer_fn: Normalizer
    normalizer_params: Mapping[str, Any] | None
    weights_initializer: Initializer
    weights_regularizer: Regularizer
    biases_initializer: Initializer
    biases_regularizer: Regularizer
    variables_collections: VariablesCollections
    outputs_collections: Collections
    trainable: bool

    def kernel(self, shape: Iterable[int], name: str = "weights") -> tf.Tensor | tf.Variable:
        """Gets or makes weights, in the type of the inputs."""
        further = self.variables_collections
        further = further.get("weights") if isinstance(further, Mapping) else further
        how = self.weights_initializer, self.weights_regularizer, further, self.trainable
        weights = variable(name, shape, self.inputs, *how)
        return weights if weights.dtype == self.inputs.dtype else tf.cast(weights, self.inputs.dtype)

    def finish(self, outputs: tf.Tensor, channels: int, layout: str, alias: str) -> tf.Tensor:
        """Ends the layer: normalizer or else biases, then activation; ``alias`` is its full name."""
        if self.normalizer_fn is not None:
            outputs = self.normalizer_fn(outputs, **(self.normalizer_params or {}))
        elif self.biases_initializer is not None:
            how = self.biases_initializer, self.biases_regularizer, self.variables_collections, self.trainable
            biases = variable("biases", [channels], outputs, *how)
            if biases.dtype != outputs.dtype:
                biases = tf.cast(biases, outputs.dtype)
            outputs = tf.raw_ops.BiasAdd(value=outputs, bias=biases, data_format=layout)
        if self.activation_fn is not None:
            recomputed = self.activation_fn is tf.nn.relu and recompute.how(outputs) is not None
            outputs = recompute.relu(outputs) if recomputed else self.activation_fn(outputs)
        return collect(self.outputs_collections, alias, outputs) if self.outputs_collections else outputs


def float_tensor(inputs: Any, layer: str) -> tf.Tensor:
    """Converts a layer's input to a tensor (the same object if it is one); refuses one that is not floating."""
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
    """Returns the axis of the channels of an image batch: 3 for "NHWC" and None, 1 for "NCHW"; refuses others."""
    if data_format is None or data_format == "NHWC":
        return 3
    if data_format == "NCHW":
        return 1
    keras = {"channels_last": ": write NHWC", "channels_first": ": write NCHW"}.get(data_format, "")
    raise ValueError(f"{layer}: data_format has to be either NCHW or NHWC, got {data_format!r}{keras}")


def image_shape(inputs: tf.Tensor, layer: str) -> tf.TensorShape:
    """Returns the static shape of an image batch; refuses another rank than 4."""
    shape = inputs.shape
    if shape.rank != 4:
        raise ValueError(f"{layer} expects input with rank 4, got {shape.rank} (shape {shape})")
    return shape


def channels_of(shape: tf.TensorShape, axis: int, layer: str) -> int:
    """Returns the size of the channel axis; refuses an unknown one."""
    channels = shape[axis]
    if channels is None:
        raise ValueError(
            f"{layer} needs a known number of channels, it is undefined in shape {shape}: give it with tf.ensure_shape"
        )
    return channels


def integer(value: Any, what: str, layer: str) -> int:
    """Returns a positive integer argument; refuses anything else."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < 1:
        raise ValueError(f"{layer}: {what} is a positive integer, got {value!r}")
    return int(value)


def functions(activation_fn: Activation, normalizer_fn: Normalizer, layer: str) -> Callable[[Any], Any] | None:
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
    dtype: tf.DType | None = None,
) -> tf.Variable:
    """Gets or makes a variable of the current layer, by default float64 for float64 inputs, else the scope's type.

    ``collections`` are further ones, or a dictionary of them by name; an initializer or regularizer of None is the
    scope's.
    """
    names = _TRAINABLE if trainable else _NOT_TRAINABLE
    if collections:
        further = collections.get(name) if isinstance(collections, Mapping) else collections
        names = list(dict.fromkeys([*names, *([further] if isinstance(further, str) else further or ())]))
    if dtype is None and inputs.dtype == tf.float64:
        dtype = tf.float64
    return scoping.get_variable(name, shape, dtype, initializer, regularizer, trainable, names)


def op_scope(
    scope: str | None, default_name: str, outputs_collections: Collections
) -> contextlib.AbstractContextManager[str]:
    """Opens the name scope of a layer without variables; it gives the full name if collections will need it."""
    if not tf.executing_eagerly():
        return tf.compat.v1.name_scope(scope, default_name)
    if not outputs_collections:
        return _NO_SCOPE
    outer = scoping.get_variable_scope().name
    return contextlib.nullcontext(f"{outer}/{scope or default_name}" if outer else scope or default_name)


def collect(outputs_collections: Collections, alias: str, outputs: tf.Tensor) -> tf.Tensor:
    """Adds a layer's output to collections, and its full name to the tensor's `aliases` (TF-Slim's); returns it."""
    if outputs_collections:
        outputs.aliases = [*getattr(outputs, "aliases", ()), alias.rstrip("/")]
        names = [outputs_collections] if isinstance(outputs_collections, str) else outputs_collections
        for name in names:
            scoping.add_to_collection(name, outputs)
    return outputs


def static_bool(value: Any) -> bool | None:
    """Reads a flag (bool, number, boolean tensor or variable; None is False); None if only the graph will know it."""
    if value is None or isinstance(value, bool):
        return bool(value)
    if isinstance(value, tf.Variable):
        return bool(value.numpy()) if tf.executing_eagerly() else None
    if tf.is_tensor(value):
        known = tf.get_static_value(value)
        return None if known is None else bool(known)
    return bool(value)
