"""Fully connected, flatten, softmax, one-hot, stack and repeat; dropout."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo import layers, scoping

v1 = tf.compat.v1


def values(*shape):
    return np.random.default_rng(0).normal(size=shape).astype(np.float32)


@pytest.mark.parametrize("shape", [(3, 7), (3, 2, 7), (3, 2, 4, 7)])
def test_fully_connected_acts_on_the_last_dimension(shape):
    x = values(*shape)
    with scoping.variable_store() as store:
        y = layers.fully_connected(x, 5, biases_initializer=layers.constant_initializer(0.1))
    w = store.variables["fully_connected/weights"]
    np.testing.assert_allclose(y, np.maximum(x @ w.numpy() + 0.1, 0), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("shape", "units", "message"),
    [
        ((3,), 5, "rank 2 or more"),
        ((3, 7), 5.0, "num_outputs is a positive integer, got 5.0"),
        ((3, 7), True, "num_outputs is a positive integer, got True"),
        ((3, 7), np.int64(0), "num_outputs is a positive integer"),
    ],
)
def test_fully_connected_refuses(shape, units, message):
    with scoping.variable_store() as store, pytest.raises(ValueError, match=message):
        layers.fully_connected(tf.zeros(shape), units)
    assert not store.variables


@pytest.mark.parametrize(
    ("static", "shape", "expected"),
    [
        ([2, 3, 4], (2, 3, 4), [2, 12]),
        ([None, 3, 4], (2, 3, 4), [None, 12]),
        ([None, 0, 4], (2, 0, 4), [None, 0]),
        ([2, None, 4], (2, 3, 4), [2, None]),
        ([None, None], (5, 3), [None, None]),
        ([5], (5,), [5, 1]),
        ([None], (5,), [None, 1]),
    ],
)
def test_flatten_keeps_the_batch(static, shape, expected):
    with tf.Graph().as_default(), v1.Session() as session:
        x = v1.placeholder(tf.int32, static)
        y = layers.flatten(x)
        assert y.shape.as_list() == expected
        value = np.arange(np.prod(shape)).reshape(shape)
        np.testing.assert_array_equal(session.run(y, {x: value}), value.reshape(shape[0], int(np.prod(shape[1:]))))
    np.testing.assert_array_equal(layers.flatten(value), value.reshape(shape[0], int(np.prod(shape[1:]))))


def test_flatten_refuses_unknown_rank_and_scalars():
    with pytest.raises(ValueError, match="rank 1 or more"):
        layers.flatten(1.0)
    with tf.Graph().as_default(), pytest.raises(ValueError, match="rank 1 or more"):
        layers.flatten(v1.placeholder(tf.float32))


def test_softmax_is_over_the_last_dimension():
    x = values(2, 3, 4)
    np.testing.assert_allclose(layers.softmax(x), np.exp(x) / np.exp(x).sum(-1, keepdims=True), rtol=1e-5)
    with pytest.raises(ValueError, match="rank 2 or more"):
        layers.softmax(tf.zeros([3]))
    with pytest.raises(ValueError, match="floating"):
        layers.softmax(tf.zeros([3, 3], tf.int32))


def test_one_hot_encoding():
    y = layers.one_hot_encoding(np.array([[0, 2], [3, -1]], np.int32), 3, on_value=2.0, off_value=-1.0)
    assert y.dtype == tf.float32
    np.testing.assert_array_equal(y, [[[2, -1, -1], [-1, -1, 2]], [[-1, -1, -1], [-1, -1, -1]]])
    with pytest.raises(ValueError, match="integer labels, got float32"):
        layers.one_hot_encoding(tf.zeros([2]), 3)


def names_of(network):
    with scoping.variable_store() as store:
        network(values(2, 6, 6, 3))
    return sorted({n.rpartition("/")[0] for n in store.variables})


def test_stack_and_repeat_number_their_scopes():
    flat = layers.flatten
    relu = functools.partial(layers.fully_connected, activation_fn=tf.nn.relu)
    assert names_of(lambda x: layers.stack(flat(x), layers.fully_connected, [4, 5], scope="fc")) == [
        "fc/fc_1",
        "fc/fc_2",
    ]
    assert names_of(lambda x: layers.stack(x, layers.conv2d, [(4, 3), [5, [1, 1]]])) == [
        *("Stack/conv2d_1", "Stack/conv2d_2"),
    ]
    assert names_of(lambda x: layers.stack(flat(x), relu, [4])) == ["Stack/fully_connected_1"]
    assert names_of(lambda x: layers.repeat(x, 2, layers.conv2d, 4, 3, scope="c1")) == ["c1/c1_1", "c1/c1_2"]
    assert names_of(lambda x: layers.repeat(x, 1, layers.conv2d, 4, 3)) == ["Repeat/conv2d_1"]
    assert names_of(lambda x: layers.repeat(x, 0, layers.conv2d, 4, 3)) == []


def test_stack_and_repeat_take_a_scope_object():
    def network(x):
        with scoping.variable_scope("outer/inner") as opened:
            pass
        layers.repeat(x, 1, layers.conv2d, 4, 3, scope=opened)

    assert names_of(network) == ["outer/inner/inner_1"]


def test_stack_and_repeat_pass_the_results_on_and_refuse():
    def add(x, amount, scope, twice=False):
        return x + amount * (2 if twice else 1)

    with scoping.variable_store():
        assert layers.stack(1, add, [2, (3,)], twice=True) == 11
        assert layers.repeat(1, 3, add, 2) == 7
        with pytest.raises(ValueError, match="list or tuple with one entry a layer, got int"):
            layers.stack(1, add, 3)
        with pytest.raises(ValueError, match="0 or more, got -1"):
            layers.repeat(1, -1, add, 2)


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
