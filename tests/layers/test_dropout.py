"""Dropout: identity outside training, scale, seeds, masks, in the places where it runs."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo import layers, scoping

v1 = tf.compat.v1


def network(x, is_training=False, **options):
    return layers.dropout(x, is_training=is_training, **options)


@pytest.mark.parametrize("options", [{"is_training": False}, {"keep_prob": 1.0}, {"is_training": tf.constant(False)}])
def test_identity_bit_for_bit(options):
    x = tf.constant([0.1, np.nan, np.inf, -0.0, 1e-45])
    assert layers.dropout(x, **options) is x


def test_kept_values_are_scaled_and_their_share_is_keep_prob():
    with scoping.variable_store(seed=1):
        y = layers.dropout(tf.fill([100, 1000], 3.0), keep_prob=0.8).numpy()
    np.testing.assert_allclose(np.unique(y), [0, 3.75])
    assert abs(np.mean(y > 0) - 0.8) < 0.005


def test_dropped_values_are_zero_whatever_they_were():
    with scoping.variable_store(seed=1):
        y = layers.dropout(tf.fill([1000], np.inf)).numpy()
    assert set(np.unique(y)) == {0.0, np.inf}


@pytest.mark.parametrize("jit", [False, True])
def test_masks_are_new_at_each_call_and_the_same_for_the_same_seed(jit):
    def masks():
        keras.utils.set_random_seed(7)
        model = scoping.Model(lambda x, is_training: network(network(x, is_training), is_training), input_shape=(200,))
        call = tf.function(model, jit_compile=jit)
        return [call(tf.ones([4, 200]), training=True).numpy() for _ in range(3)]

    first, again = masks(), masks()
    np.testing.assert_array_equal(first, again)
    assert len({m.tobytes() for m in first}) == 3
    assert abs(np.mean(np.asarray(first) > 0) - 0.25) < 0.05  # two layers drop independently


def test_an_explicit_seed_is_the_layers_own():
    def run(model_seed, seed):
        with scoping.variable_store(seed=model_seed):
            return layers.dropout(tf.ones([1000]), seed=seed).numpy()

    assert np.any(run(1, 5) != run(1, 6))


def test_noise_shape_drops_whole_maps():
    x = tf.ones([20, 3, 3, 30])
    with scoping.variable_store(seed=1):
        y = layers.dropout(x, noise_shape=[None, 1, 1, 30]).numpy()
    np.testing.assert_array_equal(y, np.broadcast_to(y[:, :1, :1], y.shape))
    assert set(np.unique(y)) == {0.0, 2.0}


def test_graph_draws_anew_in_each_run_and_takes_a_flag():
    with tf.Graph().as_default(), v1.Session() as session:
        x, flag = v1.placeholder(tf.float32, [None, 100]), v1.placeholder(tf.bool, [])
        y = layers.dropout(x, is_training=flag)
        assert y.shape.as_list() == [None, 100]
        ones = np.ones([2, 100], np.float32)
        a, b = (session.run(y, {x: ones, flag: True}) for _ in range(2))
        assert np.any(a != b)
        np.testing.assert_array_equal(session.run(y, {x: ones, flag: False}), ones)


def test_gradient_is_the_mask():
    x = tf.ones([50])
    with scoping.variable_store(seed=1), tf.GradientTape() as tape:
        tape.watch(x)
        y = layers.dropout(x, keep_prob=tf.constant(0.5))
    np.testing.assert_array_equal(tape.gradient(y, x), y)


@pytest.mark.parametrize("keep_prob", [0, -0.1, 1.5])
def test_keep_prob_is_a_probability(keep_prob):
    with pytest.raises(ValueError, match="share that is kept"):
        layers.dropout(tf.ones([3]), keep_prob=keep_prob)
    with pytest.raises(ValueError, match="floating-point"):
        layers.dropout(tf.ones([3], tf.int32))
