"""The shapes and types of a model's inputs, in the forms in which people and files give them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np
import tensorflow as tf


def dense_tensor(value: Any, where: str) -> Any:
    """Returns what a layer or network is given as one dense tensor.

    Args:
      value: A tensor or variable (returned as it is), an array, or numbers in lists.
      where: Who takes it, for the message.

    Raises:
      TypeError: Anything else; the message says what to write.
    """
    if isinstance(value, (tf.Tensor, tf.Variable)):
        return value
    how = _how_to_make_dense(value)
    if how:
        raise TypeError(f"{where} takes a dense tensor, got {how}")
    try:
        return tf.convert_to_tensor(value)
    except (TypeError, ValueError, tf.errors.InvalidArgumentError) as error:
        kind = type(value).__name__
        unlike = isinstance(value, (list, tuple, np.ndarray))
        how = "rows of different lengths or types: pad and stack them to one array" if unlike else f"a {kind}"
        raise TypeError(f"{where} takes a dense tensor, an array or lists of numbers, got {how}") from error


def check_dense(values: Any, where: str) -> None:
    """Refuses, in a structure of a model's inputs, whatever is no dense tensor or array (TypeError)."""
    for value in tf.nest.flatten(values):
        if isinstance(value, (tf.Tensor, tf.Variable, keras.KerasTensor, tf.TensorSpec)):
            continue
        if isinstance(value, np.ndarray) and value.dtype != object:
            continue
        if isinstance(value, (int, float, bool)):
            raise TypeError(
                f"{where} takes tensors or arrays, got the number {value!r} in a list: np.asarray makes one"
            )
        dense_tensor(value, where)


def _how_to_make_dense(value: Any) -> str:
    """What a value is, and how it becomes a tensor; "" where it may be one."""
    if value is None:
        return "None"
    if isinstance(value, (str, bytes)):
        return f"the text {value!r}: read the file or encode the words first"
    if isinstance(value, tf.RaggedTensor):
        return (
            f"a RaggedTensor of shape {value.shape}: pad it with value.to_tensor(), and give recurrent loops its "
            "lengths as sequence_length=value.row_lengths()"
        )
    if isinstance(value, tf.SparseTensor):
        return f"a SparseTensor of shape {value.shape}: tf.sparse.to_dense makes one"
    if isinstance(value, tf.IndexedSlices):
        return "IndexedSlices: tf.convert_to_tensor makes one"
    if isinstance(value, keras.KerasTensor):
        return "a symbolic Keras input: make a model of the network, zoo.Model(network)(inputs)"
    if isinstance(value, tf.data.Dataset):
        return "a dataset: take its batches one by one, or give it to fit, evaluate or predict"
    if isinstance(value, Mapping):
        return f"a dict of {', '.join(map(repr, value)) or 'nothing'}: give the one tensor"
    return ""


def spec_of(x: Any) -> tf.TensorSpec:
    """Returns the `TensorSpec` of a tensor, array, `KerasTensor` or spec; the batch size is left open."""
    if not hasattr(x, "shape") or not hasattr(x, "dtype"):
        x = tf.convert_to_tensor(x)
    shape = tf.TensorShape(x.shape)
    if isinstance(x, tf.TensorSpec):
        return x
    return tf.TensorSpec([None, *shape.as_list()[1:]] if shape.rank else shape, tf.as_dtype(x.dtype))


def as_specs(shapes: Any, dtype: str, *, batch: bool) -> Any:
    """Returns `TensorSpec`s for a shape (of sizes and None), or a structure of shapes, specs or `KerasTensor`s.

    `dtype` is for those of which only the shape is given, and `batch` says that those lack the batch, which is put
    before them. Raises ValueError for anything else.
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


def named_specs(specs: Any) -> Any:
    """Returns the specs with the keys of a dict as names: what a SavedModel's signature calls its arguments."""
    if not isinstance(specs, dict):
        return specs
    return {
        key: tf.TensorSpec(spec.shape, spec.dtype, key) if isinstance(spec, tf.TensorSpec) else spec
        for key, spec in specs.items()
    }


def cast_to_specs(inputs: Any, specs: Any) -> Any:
    """Casts inputs to the specs' types: place by place, or by rank where they have another structure than the specs (a
    sequence without its lengths).
    """
    try:
        return tf.nest.map_structure(lambda value, spec: tf.cast(value, spec.dtype), inputs, specs)
    except (TypeError, ValueError):
        of_rank = {spec.shape.rank: spec.dtype for spec in tf.nest.flatten(specs)}
        return tf.nest.map_structure(lambda value: tf.cast(value, of_rank.get(len(value.shape), value.dtype)), inputs)


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
