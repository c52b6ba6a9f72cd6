"""A trained network under a new head: what ``zoo retrain`` makes, as one scoped function."""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from zoo.layers import dropout, variance_scaling_initializer
from zoo.registry import get_net
from zoo.scoping import get_variable, register_function, variable_scope

ROOT_SHIFT = 1e-3  # keeps the slope of the square root finite, so that fine-tuning can pass through it


def pooled(end_point: tf.Tensor) -> tf.Tensor:
    """Averages a map [N, H, W, C] over its places; [N, C] passes unchanged. Returns float32 [N, C]."""
    if end_point.shape.rank == 4:
        end_point = tf.reduce_mean(tf.cast(end_point, tf.float32), [1, 2])
    return tf.cast(end_point, tf.float32)


def signed_root(x: tf.Tensor) -> tf.Tensor:
    """Returns ``sign(x) (sqrt(|x| + e) - sqrt(e))`` with e = ROOT_SHIFT."""
    return tf.sign(x) * (tf.sqrt(tf.abs(x) + ROOT_SHIFT) - ROOT_SHIFT**0.5)


@register_function("retrained")
def retrained(
    images: tf.Tensor,
    num_classes: int = 2,
    *,
    trunk: str = "inception_v3",
    trunk_options: Mapping[str, Any] | None = None,
    head_end_points: Sequence[str] = ("Mixed_7c",),
    classes: Sequence[str] = (),
    hidden: int = 0,
    dropout_keep_prob: float = 1.0,
    train_batch_norm: bool = False,
    is_training: bool = False,
) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
    """Softmax regression on pooled end points of a registered network.

    logits = (root(features) - shift) * scale @ weights + biases, divided by the temperature when not training; with a
    hidden layer, ReLU of such a product goes through a second one.

    Args:
        images: [N, H, W, C], prepared for the trunk.
        num_classes: K, the number of classes.
        trunk: Name of a registered network.
        trunk_options: Its options.
        head_end_points: End points whose pooled features the head reads, side by side.
        classes: Names of the classes; carried along for whoever loads the model.
        hidden: Width of a hidden layer; 0 has none.
        dropout_keep_prob: Share of the features that dropout keeps in training.
        train_batch_norm: Lets the trunk's batch norm use the batch's statistics in training; they stay as trained
            otherwise.
        is_training: Training; the temperature is left out.

    Returns:
        Logits [N, K], and the trunk's end points with ``Features``, ``Logits`` and ``Predictions``.

    Raises:
        ValueError: The trunk has no such end point.
    """
    net = get_net(trunk)
    _, end_points = net.network(images, is_training=is_training and train_batch_norm, **(trunk_options or {}))
    absent = [name for name in head_end_points if name not in end_points]
    if absent:
        raise ValueError(f"{trunk} has no end point {', '.join(absent)}; it has {', '.join(end_points)}.")
    features = tf.concat([pooled(end_points[name]) for name in head_end_points], 1)
    logits = head(features, num_classes, hidden, dropout_keep_prob, is_training)
    end_points = {**end_points, "Features": features, "Logits": logits, "Predictions": tf.nn.softmax(logits)}
    return logits, end_points


def head(
    features: tf.Tensor, num_classes: int, hidden: int = 0, dropout_keep_prob: float = 1.0, is_training: bool = False
) -> tf.Tensor:
    """The head alone, in the scope ``Head``.

    Args:
        features: [N, D], pooled.
        num_classes: K.
        hidden: Width of a hidden layer; 0 has none.
        dropout_keep_prob: Share of the inputs of each product that dropout keeps in training.
        is_training: Training; the temperature is left out.

    Returns:
        Logits [N, K].
    """
    width = features.shape[1]
    with variable_scope("Head"):
        shift = get_variable("shift", [width], initializer=tf.zeros_initializer(), trainable=False)
        scale = get_variable("scale", [width], initializer=tf.ones_initializer(), trainable=False)
        temperature = get_variable("temperature", [], initializer=tf.ones_initializer(), trainable=False)
        net = (signed_root(features) - shift) * scale  # [N, D]
        if hidden:
            net = _drop(net, dropout_keep_prob, is_training)
            net = tf.nn.relu(_product(net, hidden, "hidden_", variance_scaling_initializer()))  # [N, hidden]
        net = _drop(net, dropout_keep_prob, is_training)
        logits = _product(net, num_classes, "", tf.zeros_initializer())
        return logits if is_training else logits / temperature


def _product(net: tf.Tensor, width: int, prefix: str, initializer: Any) -> tf.Tensor:
    weights = get_variable(f"{prefix}weights", [net.shape[1], width], initializer=initializer)
    return tf.matmul(net, weights) + get_variable(f"{prefix}biases", [width], initializer=tf.zeros_initializer())


def _drop(net: tf.Tensor, keep_prob: float, is_training: bool) -> tf.Tensor:
    return dropout(net, keep_prob, is_training=is_training) if keep_prob < 1 else net
