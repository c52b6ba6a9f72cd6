"""Trunk and head as one model."""

from typing import TYPE_CHECKING

import numpy as np

from zoo.nets.retrained import retrained
from zoo.transfer.head import Head
from zoo.transfer.trunk import Trunk

if TYPE_CHECKING:
    from zoo.scoping import Model


def assemble(trunk: Trunk, head: Head, *, dropout_keep_prob: float = 1.0, train_batch_norm: bool = False) -> "Model":
    """Builds the model that a retrained network is: the trunk's weights under the fitted head.

    Args:
        trunk: The trained network.
        head: The fitted head.
        dropout_keep_prob: For fine-tuning.
        train_batch_norm: For fine-tuning.

    Returns:
        A built ``zoo.Model`` from prepared images to logits.
    """
    from zoo.scoping import Model

    model = Model(
        retrained,
        name="retrained",
        input_shape=trunk.size,
        seed=0,
        num_classes=len(head.classes),
        trunk=trunk.net,
        trunk_options=trunk.options,
        head_end_points=list(head.end_points),
        classes=list(head.classes),
        hidden=0 if head.hidden_bias is None else len(head.hidden_bias),
        dropout_keep_prob=dropout_keep_prob,
        train_batch_norm=train_batch_norm,
    )
    for name in trunk.model.variable_names:
        model.variable(name).assign(trunk.model.variable(name))
    write_head(model, head)
    return model


def write_head(model: "Model", head: Head) -> None:
    """Gives the variables in a model's scope ``Head`` the head's values."""
    values = {"shift": head.shift, "scale": head.scale, "weights": head.weights, "biases": head.bias}
    if head.hidden_weights is not None and head.hidden_bias is not None:
        values |= {"hidden_weights": head.hidden_weights, "hidden_biases": head.hidden_bias}
    for name, value in values.items():
        model.variable(f"Head/{name}").assign(value)
    model.variable("Head/temperature").assign(np.float32(head.temperature))
