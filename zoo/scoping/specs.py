"""The shapes and types of a model's inputs, in the forms in which people and files give them."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf


def spec_of(x: Any) -> tf.TensorSpec:
    """Returns the `TensorSpec` of a tensor, array, `KerasTensor` or spec; the batch size is left open."""
    if not hasattr(x, "shape") or not hasattr(x, "dtype"):
        x = tf.convert_to_tensor(x)
    shape = tf.TensorShape(x.shape)
    if isinstance(x, tf.TensorSpec):
        return x
    return tf.TensorSpec([None, *shape.as_list()[1:]] if shape.rank else shape, tf.as_dtype(x.dtype))


def as_specs(shapes: Any, dtype: str, *, batch: bool) -> Any:
    """Returns `TensorSpec`s for a shape or a structure of shapes, specs or `KerasTensor`s.

    Args:
      shapes: The shape, as a tuple of sizes and None, or a structure.
      dtype: Type of inputs of which only the shape is given.
      batch: Whether a plain shape lacks the batch, which is then put before it.

    Raises:
      ValueError: Something else.
    """
    if isinstance(shapes, tf.TensorShape):
        shapes = tuple(shapes.as_list())
    if isinstance(shapes, (tuple, list)) and all(n is None or isinstance(n, int) for n in shapes):
        return tf.TensorSpec([None, *shapes] if batch else list(shapes), tf.as_dtype(dtype))
    if isinstance(shapes, (tf.TensorSpec, keras.KerasTensor)):
        return spec_of(shapes)
    if isinstance(shapes, dict):
        return {k: as_specs(v, dtype, batch=batch) for k, v in shapes.items()}
    if isinstance(shapes, (tuple, list)):
        return type(shapes)(as_specs(v, dtype, batch=batch) for v in shapes)
    raise ValueError(
        f"input_shape is a tuple of sizes and None, a tf.TensorSpec, or a structure of those. Received: {shapes!r}."
    )


def specs_to_config(specs: Any) -> Any:
    """Returns the specs in JSON."""
    return tf.nest.map_structure(lambda s: {"shape": s.shape.as_list(), "dtype": s.dtype.name}, specs)


def specs_from_config(config: Any) -> Any:
    """Returns the specs that `specs_to_config` wrote."""
    if isinstance(config, dict) and set(config) == {"shape", "dtype"} and isinstance(config["dtype"], str):
        return tf.TensorSpec(config["shape"], tf.as_dtype(config["dtype"]))
    if isinstance(config, dict):
        return {k: specs_from_config(v) for k, v in config.items()}
    return [specs_from_config(v) for v in config]
