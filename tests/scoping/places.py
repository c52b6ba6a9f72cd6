"""Runs one scoped function in each of the places where scoped functions run."""

from collections.abc import Callable
from typing import Any

import numpy as np
import tensorflow as tf

import zoo

PLACES = ("model", "function", "store", "graph")


def run(place: str, network: Callable[..., Any], x: Any = None) -> Any:
    """Runs `network(x, is_training=True)` and returns its output as arrays (what has no `numpy` comes back as it is)."""
    x = np.ones([2, 3], np.float32) if x is None else x

    def scoped(inputs, *, is_training=False):
        return network(inputs)

    if place == "model":
        return to_numpy(zoo.Model(scoped, seed=1)(x))
    if place == "function":
        model = zoo.Model(scoped, seed=1)
        return to_numpy(tf.function(lambda v: model(v))(tf.constant(x)))
    if place == "store":
        with zoo.variable_store(seed=1):
            return to_numpy(network(tf.constant(x)))
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        outputs = network(tf.constant(x))
        session.run([tf.compat.v1.global_variables_initializer(), tf.compat.v1.local_variables_initializer()])
        return session.run(outputs)


def to_numpy(outputs: Any) -> Any:
    return tf.nest.map_structure(lambda t: t.numpy() if hasattr(t, "numpy") else t, outputs)
