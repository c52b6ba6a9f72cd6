"""A head that is trained by steps: SGD or Adam on the cached features, with dropout and a hidden layer if wanted."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.nets.retrained import head as head_network
from zoo.scoping import Model, register_function
from zoo.transfer.head import Head, Scaling, fit_head
from zoo.transfer.select import Choice

OPTIMIZERS = {"sgd": ("momentum", 0.3), "adam": ("adam", 3e-3)}
BATCH = 64


@register_function("head_alone")
def head_alone(features: Any, **options: Any) -> Any:
    """The head as a network of its own: pooled features [N, D] -> logits [N, K]; see ``zoo.nets.retrained.head``."""
    return head_network(features, **options)


def train_head(
    features: Mapping[str, np.ndarray],
    labels: np.ndarray,
    classes: Sequence[str],
    *,
    candidates: Sequence[tuple[str, ...]],
    validation: tuple[Mapping[str, np.ndarray], np.ndarray],
    optimizer: str = "adam",
    hidden: int = 0,
    dropout: float = 0.0,
    groups: np.ndarray | None = None,
    balance: bool = False,
    seed: int = 0,
    epochs: int = 60,
) -> tuple[Head, list[Choice]]:
    """Trains a head by steps; end points are chosen as ``fit_head`` does.

    Args:
        features: End point -> [N, C], or [N, V, C] with views, which count as further examples.
        labels: [N] class indices.
        classes: The labels' names.
        candidates: Combinations of end points to choose among.
        validation: Features and labels that stop the training early; training goes on to the end without any.
        optimizer: "sgd" (with momentum) or "adam".
        hidden: Width of a hidden layer; 0 has none.
        dropout: Share of the inputs that dropout takes away.
        groups: See ``fit_head``.
        balance: Weighs pictures so that every class counts alike.
        seed: Of the weights, the order and dropout.
        epochs: At most so many.

    Returns:
        The head, and the lines of the choice of end points.

    Raises:
        ValueError: The optimizer is another.
    """
    from zoo.training import Trainer

    if optimizer not in OPTIMIZERS:
        raise ValueError(f"head must be softmax, {' or '.join(OPTIMIZERS)}. Received: {optimizer!r}")
    started, choices = fit_head(
        features, labels, classes, candidates=candidates, penalties=(10.0,), groups=groups, balance=balance, seed=seed
    )
    names = started.end_points
    views = {name: rows[:, None] if rows.ndim == 2 else rows for name, rows in features.items() if name in names}
    x = np.concatenate([views[name] for name in names], 2)
    per_picture, width = x.shape[1:]
    x, y = x.reshape(-1, width), np.repeat(labels, per_picture).astype(np.int64)
    shift, scale = _scaling(views, names)
    options: dict[str, Any] = {"num_classes": len(classes), "hidden": hidden, "dropout_keep_prob": 1.0 - dropout}
    model = Model(head_alone, input_shape=(width,), seed=seed, **options)
    model.variable("Head/shift").assign(shift)
    model.variable("Head/scale").assign(scale)
    name, rate = OPTIMIZERS[optimizer]
    weights = None
    if balance:
        counts = np.bincount(y, minlength=len(classes))
        weights = {i: len(y) / (len(classes) * max(int(n), 1)) for i, n in enumerate(counts)}
    batch = min(BATCH, len(x))
    steps = epochs * -(-len(x) // batch)
    trainer = Trainer(
        model,
        optimizer=name,
        learning_rate=lambda step: rate * 0.5 * (1.0 + tf.cos(np.pi * tf.cast(step, tf.float32) / steps)),
        class_weights=weights,
        global_batch=batch,
        seed=seed,
    )
    held = np.concatenate([validation[0][name] for name in names], 1) if len(validation[1]) else None
    trainer.fit(
        (x, y),
        epochs=epochs,
        validation=None if held is None else (held, validation[1]),
        patience=None if held is None else 10,
        progress="none",
        summaries="none",
    )
    value = {short: np.asarray(model.variable(f"Head/{short}")) for short in ("weights", "biases")}
    trained = dataclasses.replace(
        started, shift=shift, scale=scale, weights=value["weights"], bias=value["biases"], penalty=0.0
    )
    if hidden:
        first = {short: np.asarray(model.variable(f"Head/hidden_{short}")) for short in ("weights", "biases")}
        trained = dataclasses.replace(trained, hidden_weights=first["weights"], hidden_bias=first["biases"])
    return trained, choices


def _scaling(views: Mapping[str, np.ndarray], names: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Shift and scale that give every feature about unit variance: what steps of one size need."""
    scalings = [Scaling.fit(views[name].reshape(-1, views[name].shape[2])) for name in names]
    shift, scale = (np.concatenate(list(parts)) for parts in zip(*((s.shift, s.scale) for s in scalings), strict=True))
    return shift, scale * np.float32(np.sqrt(len(shift) / len(names)))
