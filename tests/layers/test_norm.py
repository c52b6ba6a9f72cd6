"""Layer and group normalization against Keras and numpy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo import layers, scoping


def values(*shape):
    return np.random.default_rng(0).normal(2.0, 3.0, size=shape).astype(np.float32)


def run(layer, x, **options):
    with scoping.variable_store() as store:
        return layer(x, scope="norm", **options), store.variables


def test_layer_norm_takes_the_moments_of_all_axes_and_has_parameters_for_the_last():
    x = values(3, 4, 5, 6)
    y, v = run(layers.layer_norm, x)
    assert {n: v.shape for n, v in v.items()} == {"norm/beta": (6,), "norm/gamma": (6,)}
    mean, variance = x.mean((1, 2, 3), keepdims=True), x.var((1, 2, 3), keepdims=True)
    np.testing.assert_allclose(y, (x - mean) / np.sqrt(variance), rtol=1e-4, atol=1e-5)


def test_layer_norm_of_the_last_axis_is_keras():
    x = values(3, 4, 6)
    y, v = run(layers.layer_norm, x, begin_norm_axis=-1, begin_params_axis=1, activation_fn=tf.nn.relu)
    assert v["norm/gamma"].shape == (4, 6)
    np.testing.assert_allclose(y, tf.nn.relu(keras.layers.LayerNormalization(epsilon=1e-12)(x)), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("mean_close_to_zero", [False, True])
def test_group_norm_is_keras(mean_close_to_zero):
    x = values(3, 4, 5, 6)
    initializers = {"beta": layers.constant_initializer(np.arange(6)), "gamma": layers.constant_initializer(2.0)}
    options = {"groups": 3, "param_initializers": initializers, "mean_close_to_zero": mean_close_to_zero}
    y, _ = run(layers.group_norm, x, **options)
    oracle = keras.layers.GroupNormalization(3, epsilon=1e-6)
    oracle.build(x.shape)
    oracle.beta.assign(np.arange(6))
    oracle.gamma.assign(np.full(6, 2.0))
    np.testing.assert_allclose(y, oracle(x), rtol=1e-3, atol=1e-3)


def test_group_norm_over_some_axes_only():
    x = values(3, 4, 5, 6)
    y, v = run(layers.group_norm, x, groups=2, reduction_axes=[-2], center=False, scale=False)
    assert not v
    grouped = x.reshape(3, 4, 5, 2, 3)
    mean, variance = grouped.mean((2, 4), keepdims=True), grouped.var((2, 4), keepdims=True)
    np.testing.assert_allclose(y, ((grouped - mean) / np.sqrt(variance + 1e-6)).reshape(x.shape), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("layer", "options", "message"),
    [
        (layers.layer_norm, {"begin_norm_axis": 4}, "begin_norm_axis=4"),
        (layers.layer_norm, {"begin_params_axis": -5}, "begin_params_axis=-5"),
        (layers.group_norm, {"groups": 4}, "groups=4 for 6 channels"),
        (layers.group_norm, {"groups": 0}, "groups=0"),
        (layers.group_norm, {"groups": 2, "reduction_axes": (-1, -2)}, "not a reduction axis"),
        (layers.group_norm, {"groups": 2, "reduction_axes": (-6,)}, "within the inputs' rank 4"),
    ],
)
def test_bad_arguments(layer, options, message):
    with scoping.variable_store() as store, pytest.raises(ValueError, match=message):
        layer(tf.zeros([2, 3, 4, 6]), **options)
    assert not store.variables


def test_unknown_rank_and_sizes():
    v1 = tf.compat.v1
    with tf.Graph().as_default():
        for layer in (layers.layer_norm, layers.group_norm):
            with pytest.raises(ValueError, match="known rank"):
                layer(v1.placeholder(tf.float32))
            with pytest.raises(ValueError, match="known"):
                layer(v1.placeholder(tf.float32, [2, 3, 3, None]))
