"""Words as vectors."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

from zoo import scoping


def embedding(ids: Any, num_words: int, width: int, name: str = "embedding") -> tf.Tensor:
    """Looks words up in a trained table.

    Args:
      ids: word numbers, integers [...].
      num_words: rows of the table.
      width: columns of the table.
      name: of the variable [num_words, width].

    Returns:
      [..., width] in the model's compute dtype (float32 outside a model).

    Raises:
      ValueError: `ids` are no integers.
    """
    ids = tf.convert_to_tensor(ids)
    if not ids.dtype.is_integer:
        raise ValueError(f"word numbers are integers; got {ids.dtype.name}: pass the numbers, not one-hot rows")
    table = scoping.get_variable(name, [num_words, width])
    frame = scoping.current_frame()
    return tf.cast(tf.nn.embedding_lookup(table, ids), "float32" if frame is None else frame.store.compute_dtype)
