"""Penalties with TF-Slim's scales, and counted once."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo import layers, scoping

W = tf.constant([1.0, -1.0, 4.0, 2.0])


def test_values():
    assert layers.l2_regularizer(0.42)(W).numpy() == pytest.approx(4.62)  # 0.42 * 22 / 2
    assert layers.l1_regularizer(0.5)(W).numpy() == pytest.approx(4.0)
    assert layers.l1_l2_regularizer(0.5, 0.42)(W).numpy() == pytest.approx(8.62)
    assert layers.l1_l2_regularizer(0.0, 0.42)(W).numpy() == pytest.approx(4.62)
    assert layers.l2_regularizer(tf.constant(0.42))(tf.cast(W, tf.float64)).numpy() == pytest.approx(4.62)
    assert 2 * layers.l2_regularizer(0.42)(W).numpy() == pytest.approx(keras.regularizers.L2(0.42)(W).numpy())


def test_zero_disables():
    for penalty in (layers.l1_regularizer(0.0), layers.l2_regularizer(0.0), layers.l1_l2_regularizer(0.0, 0.0)):
        assert penalty(W) is None
    with tf.Graph().as_default() as graph:
        layers.fully_connected(tf.zeros([2, 3]), 4, weights_regularizer=layers.l2_regularizer(0.0))
        assert not graph.get_collection("regularization_losses")


@pytest.mark.parametrize("make", [layers.l1_regularizer, layers.l2_regularizer, layers.l1_l2_regularizer])
@pytest.mark.parametrize(("scale", "message"), [(1, "write 1.0"), (-0.1, "0 or more"), (np.nan, "0 or more")])
def test_bad_scales(make, scale, message):
    with pytest.raises(ValueError, match=message):
        make(scale)


def test_a_model_counts_them_once_under_reuse():
    def network(x, is_training=False):
        for reuse in (None, True):
            y = layers.fully_connected(x, 4, scope="fc", reuse=reuse, weights_regularizer=layers.l2_regularizer(0.42))
        return y

    model = scoping.Model(network, input_shape=(3,))
    model(tf.ones([2, 3]))
    weights = model.variable("fc/weights").numpy()
    assert sum(model.losses).numpy() == pytest.approx(0.21 * np.sum(weights**2), rel=1e-5)
