"""The parts of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.parallel.strategies import replica_count, worker_count


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


def first_examples(size: Any, parts: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns the first `size` examples of each part; None for all."""
    return parts if size is None else tf.nest.map_structure(lambda t: None if t is None else t[:size], parts)


def named(structure: Any) -> dict[str, Any]:
    """Flattens inputs or outputs to name and tensor."""
    if isinstance(structure, Mapping):
        return {str(name): tensor for name, tensor in structure.items() if tf.is_tensor(tensor)}
    flat = tf.nest.flatten(structure)
    return {f"{number}" if len(flat) > 1 else "main": tensor for number, tensor in enumerate(flat)}


def check_arrays(data: Any, what: str, logits: tf.TensorShape | None = None) -> None:
    """Looks for NaN, Inf and wrong labels in arrays before the first step; other data may take hours to read.

    `what` is what to call it; `logits` the shape of the outputs where the loss takes class numbers, else None.
    """
    if not isinstance(data, tuple | list | np.ndarray | tf.Tensor):
        return
    inputs, labels, weights = unpack(data)
    for name, part in (("inputs", inputs), ("labels", labels), ("weights", weights)):
        array = np.asarray([] if part is None else part)
        bad = _not_finite(array)
        if len(bad):
            raise ValueError(
                f"{what}: {len(bad)} of {len(array)} {name} hold NaN or Inf, the first is number {bad[0]}; repair them "
                "or leave them out"
            )
    if labels is not None and logits is not None and logits.rank is not None:
        _check_class_numbers(np.asarray(labels), what, logits)


def check_carried_state(model: Any, place: Any, batch: int | None, workers: int, accumulate: int = 1) -> None:
    """Raises ValueError for global batches that do not fit the state that a model carries from one to the next.

    A model that carries none takes any. `workers` is that of the data's `zoo.data.stream.Stream`.
    """
    names = getattr(model, "variable_names", ())
    rows = {int(model.variable(name).shape[0]) for name in names if "carried_state/train/" in name}
    for count in rows:
        if batch is not None and batch != count:
            raise ValueError(f"the model carries a state of {count} rows, so a batch has as many; the data has {batch}")
        replicas = replica_count(place)
        if count % replicas:
            raise ValueError(
                f"a carried state of {count} rows does not divide by {replicas} replicas, of which each owns fixed "
                f"rows: take a batch that is a multiple of {replicas}"
            )
    if rows and accumulate > 1:
        raise ValueError(f"every row of a carried state takes part in each pass: take accumulate=1, not {accumulate}")
    found = worker_count(place)
    if rows and found > 1 and workers == 1:
        raise ValueError(
            f"a carried state is local to a worker, and these batches go to any of the {found}: give data in which "
            f"each worker has batches of its own, as text_stream(..., workers={found}) does"
        )


def output_shape(model: Any) -> tf.TensorShape | None:
    """Returns the shape of a built model's only output; None when there are several or it does not say."""
    outputs: Any = getattr(model, "output_specs", None)
    if outputs is None:
        outputs = getattr(model, "outputs", None)
    if isinstance(outputs, list | tuple) and len(outputs) == 1:
        outputs = outputs[0]
    return tf.TensorShape(outputs.shape) if hasattr(outputs, "shape") else None


def _not_finite(array: np.ndarray, rows: int = 4096) -> np.ndarray:
    """Numbers of the examples with NaN or Inf; a few thousand at a time, so that no second copy is made."""
    if array.dtype.kind != "f" or not array.ndim or not array.size:
        return np.array([], int)
    parts = (array[start : start + rows] for start in range(0, len(array), rows))
    return np.flatnonzero(~np.concatenate([np.isfinite(part).reshape(len(part), -1).all(1) for part in parts]))


def _check_class_numbers(labels: np.ndarray, what: str, logits: tf.TensorShape) -> None:
    classes, one_more = logits[-1], labels.ndim == logits.rank and labels.shape[-1] == 1 != logits[-1]
    if classes is None or not (labels.ndim == logits.rank - 1 or one_more):
        return  # probabilities
    if labels.dtype.kind not in "iub":
        raise ValueError(
            f"{what}: labels are class numbers, whole numbers from 0; received {labels.dtype}. Convert them with "
            "labels.astype('int64')"
        )
    wrong = np.flatnonzero((labels < 0) | (labels >= classes))
    if len(wrong):
        raise ValueError(
            f"{what}: labels lie in 0..{classes - 1} for {classes} classes; {len(wrong)} of {labels.size} do not, the "
            f"first is number {wrong[0]} with {labels.reshape(-1)[wrong[0]]}"
        )
