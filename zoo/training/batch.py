"""The parts of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import tensorflow as tf


def unpack(batch: Any) -> tuple[Any, Any, Any]:
    """Splits a batch into inputs, labels and sample weights; absent parts are None.

    Raises:
        ValueError: a tuple of more than three parts.
    """
    if not isinstance(batch, tuple | list):
        return batch, None, None
    if len(batch) > 3:
        raise ValueError(f"a batch is (inputs, labels[, sample weights]), received {len(batch)} parts")
    return (*batch, None, None)[:3]


def batch_size(batch: Any) -> tf.Tensor:
    """Returns the number of examples in a batch: int32 scalar."""
    return tf.shape(tf.nest.flatten(batch)[0])[0]


def named(structure: Any) -> dict[str, Any]:
    """Flattens inputs or outputs to name and tensor."""
    if isinstance(structure, Mapping):
        return {str(name): tensor for name, tensor in structure.items() if tf.is_tensor(tensor)}
    flat = tf.nest.flatten(structure)
    return {f"{number}" if len(flat) > 1 else "main": tensor for number, tensor in enumerate(flat)}
