"""A trained network under a new head: what ``zoo retrain`` makes, as one scoped function."""

from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from zoo.layers import dropout
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
    dropout_keep_prob: float = 1.0,
    train_batch_norm: bool = False,
    is_training: bool = False,
) -> tuple[tf.Tensor, dict[str, tf.Tensor]]:
    """Softmax regression on pooled end points of a registered network.

    logits = (root(features) - shift) * scale @ weights + biases, divided by the temperature when not training.

    Args:
        images: [N, H, W, C], prepared for the trunk.
        num_classes: K, the number of classes.
        trunk: Name of a registered network.
        trunk_options: Its options.
        head_end_points: End points whose pooled features the head reads, side by side.
        classes: Names of the classes; carried along for whoever loads the model.
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
    width = features.shape[1]
    with variable_scope("Head"):
        shift = get_variable("shift", [width], initializer=tf.zeros_initializer(), trainable=False)
        scale = get_variable("scale", [width], initializer=tf.ones_initializer(), trainable=False)
        temperature = get_variable("temperature", [], initializer=tf.ones_initializer(), trainable=False)
        weights = get_variable("weights", [width, num_classes], initializer=tf.zeros_initializer())
        biases = get_variable("biases", [num_classes], initializer=tf.zeros_initializer())
        scaled = (signed_root(features) - shift) * scale
        if dropout_keep_prob < 1:
            scaled = dropout(scaled, dropout_keep_prob, is_training=is_training)
        logits = tf.matmul(scaled, weights) + biases
        if not is_training:
            logits = logits / temperature
    end_points = {**end_points, "Features": features, "Logits": logits, "Predictions": tf.nn.softmax(logits)}
    return logits, end_points
