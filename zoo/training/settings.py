"""Settings by pattern and by name: what is trained, factors of gradients, metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import keras
import tensorflow as tf

from zoo.weights.names import name_matches, named_variables, select_names


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
