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
      ValueError: `ids` are no integers, or outside the table where that is known before the model runs (eagerly, or
        constants). In a compiled function a CPU stops with TensorFlow's own error, and a GPU gives zeros.
    """
    ids = scoping.dense_tensor(ids, "embedding")
    if not ids.dtype.is_integer:
        raise ValueError(f"word numbers are integers; got {ids.dtype.name}: pass the numbers, not one-hot rows")
    values = tf.get_static_value(ids)
    if values is not None and values.size and not 0 <= values.min() <= values.max() < num_words:
        wrong = values[(values < 0) | (values >= num_words)]
        raise ValueError(
            f"word numbers lie in 0..{num_words - 1}, the rows of the table; got {', '.join(map(str, wrong[:5]))}: use "
            "the vocabulary that the model was made for"
        )
    table = scoping.get_variable(name, [num_words, width])
    frame = scoping.current_frame()
    return tf.cast(tf.nn.embedding_lookup(table, ids), "float32" if frame is None else frame.store.compute_dtype)
