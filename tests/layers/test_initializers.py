"""Initializers: ranges and moments against the formulas, seeds, constants, errors; regularizers; sizes."""

import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo import layers, scoping

KERNEL = [5, 5, 40, 60]
FAN_IN, FAN_OUT = 25 * 40, 25 * 60


def draw(initializer, shape=KERNEL, dtype=tf.float32, name="w", seed=1):
    with scoping.variable_store(seed=seed):
        return scoping.get_variable(name, shape, dtype, initializer).numpy()


@pytest.mark.parametrize(
    ("initializer", "limit", "stddev"),
    [
        (layers.xavier_initializer(), math.sqrt(6 / (FAN_IN + FAN_OUT)), None),
        (layers.xavier_initializer(uniform=False), None, math.sqrt(2 / (FAN_IN + FAN_OUT))),
        (layers.variance_scaling_initializer(), None, math.sqrt(2 / FAN_IN)),
        (layers.variance_scaling_initializer(1.0, "FAN_OUT", uniform=True), math.sqrt(3 / FAN_OUT), None),
        (layers.truncated_normal_initializer(stddev=0.1), 0.2, 0.1 * 0.87963),
        (layers.random_normal_initializer(stddev=0.3), None, 0.3),
        (layers.random_uniform_initializer(-0.5, 0.5), 0.5, None),
    ],
)
def test_distributions(initializer, limit, stddev):
    values = draw(initializer)
    assert abs(values.mean()) < 0.005 * max(1, values.std() / 0.05)
    if limit is not None:
        assert 0.99 * limit < np.abs(values).max() <= limit
    if stddev is not None:
        assert values.std() == pytest.approx(stddev, rel=0.01)
    if limit is not None and stddev is None:
        assert values.std() == pytest.approx(limit / math.sqrt(3), rel=0.01)


def test_slims_truncation_constant():
    """1.3, where the exact correction, Keras' own, is 1 / 0.87963^2 = 1.2924."""
    ratio = draw(layers.variance_scaling_initializer()).std() / keras.initializers.HeNormal(1)(KERNEL).numpy().std()
    assert ratio == pytest.approx(math.sqrt(1.3 * 0.87963**2), rel=0.01)


def test_values_follow_the_model_seed_and_the_name():
    initializer = layers.random_normal_initializer()
    np.testing.assert_array_equal(draw(initializer), draw(initializer))
    assert np.any(draw(initializer) != draw(initializer, name="v"))
    assert np.any(draw(initializer) != draw(initializer, seed=2))
    fixed = layers.random_normal_initializer(seed=3)
    np.testing.assert_array_equal(draw(fixed), draw(fixed, seed=2, name="v"))


@pytest.mark.parametrize("dtype", [tf.float16, tf.float32, tf.float64])
def test_types(dtype):
    for initializer in (
        layers.xavier_initializer(),
        layers.xavier_initializer(uniform=False),
        layers.random_normal_initializer(),
        layers.random_uniform_initializer(),
        layers.truncated_normal_initializer(),
        layers.constant_initializer(2.0),
        layers.ones_initializer(),
    ):
        value = initializer([3, 3], dtype=dtype)
        assert value.dtype == dtype
        assert np.any(value != 0)


def test_constants():
    np.testing.assert_array_equal(layers.zeros_initializer()([2, 3]), np.zeros([2, 3]))
    np.testing.assert_array_equal(layers.ones_initializer(tf.int32)([2]), [1, 1])
    np.testing.assert_array_equal(layers.constant_initializer(3)([2, 1]), [[3], [3]])
    np.testing.assert_array_equal(layers.constant_initializer([1, 2, 3, 4])([2, 2]), [[1, 2], [3, 4]])
    with pytest.raises(ValueError, match=r"one number or 6 of them.*got 4"):
        layers.constant_initializer([1, 2, 3, 4])([2, 3])
    with pytest.raises(ValueError, match="verifies shapes"):
        layers.constant_initializer([1, 2, 3, 4], verify_shape=True)([2, 2])


def test_classes_work_uncalled_as_in_tf1():
    assert np.all(draw(layers.ones_initializer, [3]) == 1)
    with tf.Graph().as_default():
        assert tf.compat.v1.get_variable("w", [3], initializer=layers.zeros_initializer).shape == (3,)


def test_integers():
    values = layers.random_uniform_initializer(2, 5, dtype=tf.int32)([100])
    assert set(values.numpy()) == {2, 3, 4}
    with pytest.raises(ValueError, match="needs maxval for int32"):
        layers.random_uniform_initializer(dtype=tf.int32)([3])


@pytest.mark.parametrize(
    ("options", "message"), [({"mode": "FAN"}, "FAN_IN, FAN_OUT, FAN_AVG, got 'FAN'"), ({"dtype": tf.int32}, "int32")]
)
def test_bad_arguments(options, message):
    with pytest.raises(ValueError, match=message):
        layers.variance_scaling_initializer(**options)


def test_small_shapes():
    for shape in ([], [3], [3, 4]):
        assert layers.xavier_initializer()(shape).shape == shape


def test_a_graph_draws_when_it_is_initialized():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variable = scoping.get_variable("w", [1000], initializer=layers.truncated_normal_initializer())
        session.run(variable.initializer)
        assert session.run(variable).std() == pytest.approx(0.88, rel=0.1)


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
