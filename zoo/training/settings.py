"""Settings by pattern and by name: what is trained, factors of gradients, metrics."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from zoo.weights.names import name_matches, named_variables, select_names


def check_finite(settings: Mapping[str, Any]) -> None:
    """Refuses NaN and infinite settings.

    Args:
        settings: name to number, or to a mapping of numbers; anything else is left alone.

    Raises:
        ValueError: a number that is not finite.
    """
    for name, value in settings.items():
        if isinstance(value, Mapping):
            check_finite({f"{name}[{key!r}]": number for key, number in value.items()})
        elif isinstance(value, float | np.floating) and not math.isfinite(value):
            raise ValueError(f"{name} must be a finite number, received {value}")


def check_accumulate(accumulate: int, batch: int | None, replicas: int = 1) -> None:
    """Refuses more parts than a device's share of the batch has examples.

    Args:
        accumulate: parts of a batch.
        batch: examples in a batch over all replicas; None when not known.
        replicas: replicas that share a batch.

    Raises:
        ValueError: a part would be empty.
    """
    if batch is not None and accumulate > max(1, batch // replicas):
        shared = f" shared by {replicas} replicas" if replicas > 1 else ""
        raise ValueError(
            f"accumulate={accumulate} splits a batch into more parts than it has examples: the batch is {batch}"
            f"{shared}; lower accumulate to at most {max(1, batch // replicas)}, or raise the batch"
        )


def freeze_all_but(model: keras.Model, patterns: Sequence[str]) -> list[str]:
    """Freezes every layer or scope in which no variable matches; batch norm there uses its moving statistics.

    Args:
        model: a built model.
        patterns: variable or scope patterns of what stays trainable.

    Returns:
        The names of the variables that match.

    Raises:
        ValueError: a pattern matches nothing.
    """
    names = named_variables(model)
    chosen = select_names(names, patterns)
    kept = {id(names[name]) for name in chosen}
    layers = [layer for layer in model._flatten_layers(include_self=False) if layer.weights]
    for layer in layers:
        if not any(id(variable) in kept for variable in layer.weights):
            layer.trainable = False
    left = {id(variable) for variable in model.trainable_variables} - kept
    for variable in names.values():
        if id(variable) in left:
            variable.trainable = False
    if not any(id(variable) in kept for variable in model.trainable_variables):
        raise ValueError(
            f"train_only={list(patterns)} matches only variables that are not trainable or frozen: {chosen[:5]}"
        )
    return chosen


def by_name(multipliers: Mapping[str, float], names: Sequence[str]) -> dict[str, float]:
    """Gives each variable its factor; a pattern without a variable and a variable with two patterns are errors."""
    found: dict[str, float] = {}
    for pattern, factor in multipliers.items():
        for name in select_names(names, pattern):
            if name in found:
                both = [other for other in multipliers if name_matches(other, name)]
                raise ValueError(f"multipliers {both} both mean '{name}'; make the patterns exclude each other")
            found[name] = float(factor)
    return found


def make_metric(metric: str | keras.metrics.Metric, labels: Any) -> keras.metrics.Metric:
    """A fresh Keras metric for labels of that kind."""
    if isinstance(metric, keras.metrics.Metric):
        return type(metric).from_config(metric.get_config())
    if metric not in ("accuracy", "top5"):
        try:
            found = keras.metrics.get(metric)
        except ValueError as error:
            raise ValueError(
                f"unknown metric '{metric}'; known are accuracy, top5, and Keras' names and objects"
            ) from error
        return found if isinstance(found, keras.metrics.Metric) else keras.metrics.MeanMetricWrapper(found, name=metric)
    sparse = not tf.is_tensor(labels) and getattr(labels, "dtype", tf.int64).is_integer
    if metric == "top5":
        kind = keras.metrics.SparseTopKCategoricalAccuracy if sparse else keras.metrics.TopKCategoricalAccuracy
        return kind(5, name="top5")
    if sparse:
        return keras.metrics.SparseCategoricalAccuracy(name="accuracy")
    wide = labels.shape.rank and labels.shape.rank > 1 and labels.shape[-1] != 1
    return (keras.metrics.CategoricalAccuracy if wide else keras.metrics.BinaryAccuracy)(name="accuracy")
