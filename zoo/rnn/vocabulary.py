"""The two ends of a network that reads and writes words: their vectors, and the loss over the vocabulary."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from zoo import scoping


def embedding(ids: tf.Tensor, num_words: int, width: int, name: str = "embedding") -> tf.Tensor:
    """Looks words up in a trained table.

    Args:
      ids: word numbers, integers [...].
      num_words: rows of the table.
      width: columns of the table.
      name: of the variable [num_words, width].

    Returns:
      [..., width] in the model's compute dtype (the table's outside a model).

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
    found = tf.nn.embedding_lookup(table, ids)
    if frame is None or isinstance(frame.store, scoping.variable_store):
        return found
    return tf.cast(found, frame.store.compute_dtype)


def softmax_cross_entropy(labels: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
    """``log sum exp(logits) - logits[label]``, with the gradient ``softmax(logits) - onehot(label)``.

    The same numbers as ``tf.nn.sparse_softmax_cross_entropy_with_logits``, whose CPU kernel is several times slower
    than the softmax that this is made of.

    Args:
      labels: int [...].
      logits: [..., classes]; half precision is computed in float32.

    Returns:
      [...], float32 or wider.

    Raises:
      ValueError: the labels are no integers, have another shape than the logits without their last dimension, or are
        known to be outside the classes.
    """
    labels, logits = tf.convert_to_tensor(labels), tf.convert_to_tensor(logits)
    if not labels.dtype.is_integer:
        raise ValueError(f"labels must be integers, got {labels.dtype.name}")
    if not labels.shape.is_compatible_with(logits.shape[:-1]):
        raise ValueError(f"labels of shape {labels.shape} do not fit logits of shape {logits.shape}: one label a row")
    values = tf.get_static_value(labels)
    classes = logits.shape.as_list()[-1]
    if values is not None and values.size and classes and not 0 <= values.min() <= values.max() < classes:
        raise ValueError(f"labels lie in 0..{classes - 1}, got {values.min()} to {values.max()}")
    if logits.dtype.size < 4:
        logits = tf.cast(logits, tf.float32)
    flat_labels = tf.reshape(labels, [-1])

    @tf.custom_gradient
    def losses(flat: tf.Tensor) -> tuple[tf.Tensor, Callable[[tf.Tensor], tf.Tensor]]:
        chances = tf.nn.softmax(flat)
        chosen = tf.gather(chances, flat_labels, batch_dims=1)

        def by_maximum() -> tf.Tensor:  # the largest probability is 1 / sum exp(z - max z)
            log_sum = tf.reduce_max(flat, 1) - tf.math.log(tf.reduce_max(chances, 1))
            return log_sum - tf.gather(flat, flat_labels, batch_dims=1)

        # -log p loses precision only where p leaves the range of normal numbers, and is not finite where a logit is not
        value = tf.cond(tf.reduce_all(chosen > 1e-30), lambda: -tf.math.log(chosen), by_maximum)

        def gradient(upstream: tf.Tensor) -> tf.Tensor:
            scaled = chances * upstream[:, None]
            places = tf.stack([tf.range(tf.size(flat_labels)), tf.cast(flat_labels, tf.int32)], axis=1)
            return tf.tensor_scatter_nd_sub(scaled, places, upstream)

        return value, gradient

    return tf.reshape(losses(tf.reshape(logits, [-1, logits.shape[-1]])), tf.shape(labels))
