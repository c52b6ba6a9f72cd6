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
        dropout_keep_prob=dropout_keep_prob,
        train_batch_norm=train_batch_norm,
    )
    for name in trunk.model.variable_names:
        model.variable(name).assign(trunk.model.variable(name))
    for name in ("shift", "scale", "weights"):
        model.variable(f"Head/{name}").assign(getattr(head, name))
    model.variable("Head/biases").assign(head.bias)
    model.variable("Head/temperature").assign(np.float32(head.temperature))
    return model
