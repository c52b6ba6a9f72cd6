"""Plain gradient descent that takes clipping into its rate, against Keras' optimizer behind TensorFlow's clipping."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo.training.optimizers import SGD, apply_clipped, gradient_sum, make_optimizer


def after_three_steps(optimizer, limit, gradients, scaled):
    start = np.random.default_rng(0).normal(size=(2, 4, 3)).astype(np.float32)
    variables = [keras.Variable(value) for value in start]
    optimizer.build(variables)

    @tf.function
    def step():
        if scaled:
            apply_clipped(optimizer, gradients, variables, tf.constant(limit))
        else:
            optimizer.apply(tf.clip_by_global_norm(gradients, limit)[0], variables)

    for _ in range(3):
        step()
    return [variable.numpy() for variable in variables]


def two_gradients(factor=1.0):
    rng = np.random.default_rng(1)
    rows = tf.IndexedSlices(tf.constant(rng.normal(size=(2, 3)) * factor, tf.float32), tf.constant([1, 3]), [4, 3])
    return [tf.constant(rng.normal(size=(4, 3)), tf.float32), rows]


@pytest.mark.parametrize("limit", [0.5, 100.0])
@pytest.mark.parametrize(
    "options", [{}, {"momentum": 0.9}, {"global_clipnorm": 0.1}, {"gradient_accumulation_steps": 2}]
)
def test_clipping_in_the_rate_is_clipping(limit, options):
    gradients = two_gradients() if "gradient_accumulation_steps" not in options else two_gradients()[:1] * 2
    ours = after_three_steps(SGD(0.3, **options), limit, gradients, scaled=True)
    theirs = after_three_steps(keras.optimizers.SGD(0.3, **options), limit, gradients, scaled=False)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


def test_gradients_that_are_not_finite_reach_every_weight():
    for values in after_three_steps(make_optimizer("sgd", 0.3), 0.5, two_gradients(np.inf), scaled=True):
        assert not np.isfinite(values[[1, 3]]).any()
    dense = after_three_steps(make_optimizer("sgd", 0.3), 0.5, two_gradients(np.inf), scaled=True)[0]
    assert np.isnan(dense).all()


def test_the_sum_of_gradients_is_finite_when_they_are():
    def rows(value):
        return tf.IndexedSlices(tf.constant([[value, 1.0]]), tf.constant([3]), tf.constant([9, 2]))

    assert float(gradient_sum([tf.constant([1.0, 2.0]), rows(3.0), tf.constant(1.0, tf.float64)])) == 8.0
    assert np.isfinite(float(gradient_sum([tf.fill([4], 1e30)])))
    for bad in (np.nan, np.inf, -np.inf):
        assert not np.isfinite(float(gradient_sum([tf.constant([1.0]), rows(bad)])))
