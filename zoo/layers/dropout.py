"""Dropout with stateless random numbers."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from zoo import scoping
from zoo.layers import parts


@scoping.add_arg_scope
def dropout(
    inputs: tf.Tensor,
    keep_prob: float | tf.Tensor = 0.5,
    noise_shape: Any = None,
    is_training: bool | tf.Tensor = True,
    outputs_collections: parts.Collections = None,
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
    inputs = parts.float_tensor(inputs, "dropout")
    if not tf.is_tensor(keep_prob) and not 0 < keep_prob <= 1:
        raise ValueError(f"dropout: keep_prob is in (0, 1], got {keep_prob!r}: it is the share that is kept")
    training = parts.static_bool(is_training)
    if training is False or (not tf.is_tensor(keep_prob) and keep_prob == 1):
        return parts.collect(outputs_collections, scope or "Dropout", inputs)
    with parts.op_scope(scope, "Dropout", outputs_collections) as name:
        key = scoping.random_seed(seed)

        def drop() -> tf.Tensor:
            shape = tf.shape(inputs) if noise_shape is None else _filled(noise_shape, inputs)
            kept = tf.random.stateless_uniform(shape, key) < tf.cast(keep_prob, tf.float32)
            return tf.where(kept, inputs / tf.cast(keep_prob, inputs.dtype), tf.zeros([], inputs.dtype))

        outputs = drop() if training else tf.cond(tf.cast(is_training, tf.bool), drop, lambda: inputs)
        outputs.set_shape(inputs.shape)
        return parts.collect(outputs_collections, name, outputs)


def _filled(noise_shape: Any, inputs: tf.Tensor) -> Any:
    """Reads None in a noise shape as the size of the inputs there."""
    if tf.is_tensor(noise_shape):
        return noise_shape
    known, sizes = inputs.shape.as_list(), tf.shape(inputs)
    given = [known[i] if n is None else n for i, n in enumerate(noise_shape)]
    return [sizes[i] if n is None else n for i, n in enumerate(given)]
