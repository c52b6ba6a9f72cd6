"""Models on two logical devices and in several threads."""

import threading

import keras
import numpy as np
import pytest
import tensorflow as tf
from scoping.places import compiled, data, tiny

import zoo

X, Y = data(32)


def mirrored():
    devices = [f"CPU:{i}" for i in range(2)]
    # two strategies in one process hang on CPU devices with the default reduction
    return tf.distribute.MirroredStrategy(devices, cross_device_ops=tf.distribute.ReductionToOneDevice())


def with_dropout(x, *, is_training=False):
    with zoo.variable_scope("net"):
        x = zoo.layers.batch_norm(x, is_training=is_training, decay=0.5, scope="bn")
        x = zoo.layers.dropout(x, 0.5, is_training=is_training)
        return zoo.layers.fully_connected(x, 4, activation_fn=None, scope="fc"), {"dropped": x}


@pytest.mark.parametrize("built", ["at once", "by fit"])
def test_mirrored_fit_equals_one_device(built):
    one = compiled(zoo.Model(tiny, input_shape=(3,), seed=1))
    one.fit(X, Y, batch_size=16, epochs=2, shuffle=False, verbose=0)
    with mirrored().scope():
        two = compiled(zoo.Model(tiny, seed=1, input_shape=(3,) if built == "at once" else None))
    two.fit(X, Y, batch_size=16, epochs=2, shuffle=False, verbose=0)
    assert len(two.variable("fc1/weights").value.values) == 2
    for name in one.variable_names:
        np.testing.assert_allclose(two.variable(name).numpy(), one.variable(name).numpy(), rtol=1e-4, atol=1e-5)


def test_replicas_agree_on_statistics_and_differ_in_dropout():
    strategy = mirrored()
    with strategy.scope():
        model = compiled(zoo.Model(with_dropout, input_shape=(3,), seed=1))
    model.fit(X, Y, batch_size=16, verbose=0)
    first, second = (v.numpy() for v in model.variable("bn/moving_mean").value.values)
    assert first.any()
    np.testing.assert_array_equal(first, second)

    @tf.function
    def masks(x):
        return strategy.run(lambda v: model.end_points(v, training=True)["dropped"] == 0, args=(x,))

    a, b = strategy.experimental_local_results(masks(tf.constant(X)))
    assert not np.array_equal(a, b)


def test_a_model_made_outside_is_used_inside_for_inference():
    model = zoo.Model(tiny, input_shape=(3,), seed=1)
    strategy = mirrored()
    outputs = strategy.run(tf.function(lambda x: model(x)), args=(tf.constant(X),))
    np.testing.assert_allclose(strategy.experimental_local_results(outputs)[1], model(X), rtol=1e-5, atol=1e-6)


def test_threads_do_not_meet():
    models = [zoo.Model(tiny, input_shape=(3,), seed=i) for i in range(4)]
    expected = [m(X).numpy() for m in models]
    wrong = []

    def work(i):
        for _ in range(20):
            if not np.array_equal(models[i](X), expected[i]):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


def test_a_model_inside_another_models_network():
    inner = zoo.Model(tiny, input_shape=(3,), seed=1)

    def outer(x, *, is_training=False):
        with zoo.variable_scope("outer"):
            y = inner(x)
            return y * zoo.get_variable("w", [4])

    model = zoo.Model(outer, input_shape=(3,))
    assert model.variable_names == ["outer/w", *(f"outer/tiny/{name}" for name in inner.variable_names)]
    assert model(X).shape == (32, 4)


def test_in_a_loop_in_a_graph():
    def network(x, *, is_training=False):
        w = zoo.get_variable("w", [3], initializer=tf.compat.v1.constant_initializer(2.0))
        return tf.while_loop(lambda i, v: i < 3, lambda i, v: (i + 1, v * w), [0, x])[1]

    model = zoo.Model(network, input_shape=(3,))
    np.testing.assert_allclose(model(X), X * 8, rtol=1e-6)
    np.testing.assert_allclose(tf.function(model)(X), X * 8, rtol=1e-6)


def test_gradients_reach_every_trainable_variable():
    model = zoo.Model(tiny, input_shape=(3,), seed=1)
    with tf.GradientTape() as tape:
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)(Y, model(X, training=True))
    assert all(g is not None for g in tape.gradient(loss, model.trainable_variables))
