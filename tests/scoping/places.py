"""The places where scoped functions run, and one small network for them."""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

import zoo

PLACES = ("model", "function", "store", "graph")


def run(place: str, network: Callable[..., Any], x: Any = None) -> Any:
    """Runs `network(x, is_training=True)` and returns its output as arrays (what has no `numpy` comes back as it "
    "is)."""
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


def dense(x, units, name):
    with zoo.variable_scope(name):
        w = zoo.get_variable("weights", [x.shape[-1], units], regularizer=lambda v: 0.5 * tf.reduce_sum(v * v))
        b = zoo.get_variable("biases", [units], initializer=tf.compat.v1.zeros_initializer())
        return tf.matmul(x, tf.cast(w, x.dtype)) + tf.cast(b, x.dtype)


@zoo.register_function
def tiny(x, units=4, *, is_training=False, scope="Tiny"):
    end_points = {}
    with zoo.variable_scope(scope):
        x = end_points["fc1"] = tf.nn.relu(dense(x, 8, "fc1"))
        with zoo.variable_scope("norm"):
            mean = zoo.get_variable("mean", [8], trainable=False, initializer=tf.compat.v1.zeros_initializer())
            if is_training and not zoo.scoping.scope_is_frozen():
                mean.assign(0.5 * mean + 0.5 * tf.cast(tf.reduce_mean(x, 0), mean.dtype))
        x = dense(x, units, "fc2")
    return x, end_points


def data(n=16):
    rng = np.random.default_rng(0)
    return rng.normal(size=[n, 3]).astype(np.float32), rng.integers(0, 4, n)


def compiled(model, **kwargs):
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.SGD(0.1, momentum=0.9), loss, metrics=["accuracy"], **kwargs)
    return model
