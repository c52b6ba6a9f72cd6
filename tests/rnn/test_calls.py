"""What is drawn for a call ends with it: in a store, which lives on, in traces of functions, in loops and branches."""

import numpy as np
import pytest
import tensorflow as tf

import zoo
from zoo import rnn

WIDTH = 24


def wrapped(**kwargs):
    cell = rnn.BasicRNNCell(WIDTH, activation="linear")
    return rnn.DropoutWrapper(cell, output_keep_prob=0.5, dtype=tf.float32, **kwargs)


def looped(**kwargs):
    cell = wrapped(**kwargs)
    return lambda x: rnn.dynamic_rnn(cell, x)[0]


def by_hand(**kwargs):
    cell = wrapped(**kwargs)
    return lambda x: tf.stack([cell(x[:, t], cell.zero_state(2, tf.float32))[0] for t in range(3)], 1)


def made_inside(**kwargs):
    def network(x):
        with zoo.variable_scope("inside", reuse=zoo.AUTO_REUSE):
            return rnn.dynamic_rnn(wrapped(**kwargs), x)[0]

    return network


def plain(**kwargs):
    def network(x):
        with zoo.variable_scope("plain", reuse=zoo.AUTO_REUSE):
            w = zoo.get_variable("w", [4, WIDTH])
        return zoo.dropout(x @ w, 0.5, is_training=True, **kwargs)

    return network


# what draws -> (the network, whether all steps of a call share a mask)
DRAWING = {
    "variational, in a loop": (lambda: looped(variational_recurrent=True), True),
    "variational, with a seed": (lambda: looped(variational_recurrent=True, seed=3), True),
    "variational, by hand": (lambda: by_hand(variational_recurrent=True), True),
    "variational, made inside": (lambda: made_inside(variational_recurrent=True), True),
    "a mask a step": (looped, False),
    "a mask a step, with a seed": (lambda: looped(seed=3), False),
    "a layer": (plain, False),
    "a layer with a seed": (lambda: plain(seed=3), False),
}
X = tf.constant(np.random.default_rng(0).normal(size=[2, 3, 4]), tf.float32)


def masks(outputs):
    return np.asarray(outputs) == 0


def check(calls, shared):
    """Calls differ; where they share, all steps and rows of one call have its mask."""
    found = [masks(outputs) for outputs in calls]
    assert all(0.2 < m.mean() < 0.8 for m in found)
    assert not any(np.array_equal(a, b) for n, a in enumerate(found) for b in found[:n])
    if shared:
        assert all((m == m[:1, :1]).all() for m in found)


@pytest.mark.parametrize("drawing", DRAWING)
def test_calls_in_a_store_draw_anew(drawing):
    network, shared = DRAWING[drawing][0](), DRAWING[drawing][1]
    store = zoo.variable_store(seed=1)

    def step(x):
        with store:
            return network(x)

    eager = [step(X) for _ in range(2)]
    function = tf.function(step)
    traced = [function(X), function(X), function(tf.concat([X, X], 1)), tf.function(step)(X)]
    check([*eager, traced[0], traced[1], traced[3], step(X)], shared)
    check([traced[2]], shared)


@pytest.mark.parametrize("drawing", [d for d in DRAWING if "by hand" not in d])
def test_calls_in_one_entry_of_a_store_draw_anew(drawing):
    network, shared = DRAWING[drawing][0](), DRAWING[drawing][1]
    with zoo.variable_store(seed=1):
        network(X)
        with zoo.variable_scope("", reuse=zoo.AUTO_REUSE):
            function = tf.function(network)
            calls = [function(X), function(X)]
            if "seed" not in drawing:  # a seed fixes what is drawn in one run, and eager code of one entry is a run
                calls += [network(X), network(X)]
        check(calls, shared)


@pytest.mark.parametrize("drawing", DRAWING)
def test_calls_of_a_model_draw_anew(drawing):
    make, shared = DRAWING[drawing]
    network = make()
    model = zoo.Model(lambda x, *, is_training=False: network(x), input_shape=(3, 4), seed=1)
    function = tf.function(model)
    check([model(X), model(X), function(X), function(X)], shared)


@pytest.mark.parametrize("where", ["while", "cond"])
def test_a_mask_first_drawn_inside_a_loop_or_branch_is_there_after_it(where):
    cell = wrapped(variational_recurrent=True)
    store = zoo.variable_store(seed=1)

    @tf.function
    def step(x):
        def one():
            return cell(x, cell.zero_state(2, tf.float32))[0]

        with store:
            cell.prepare(4, tf.float32)
            if where == "while":
                first = tf.while_loop(lambda n, _: n < 2, lambda n, _: (n + 1, one()), (0, tf.zeros([2, WIDTH])))[1]
            else:
                first = tf.cond(tf.reduce_sum(x) < 1e9, one, lambda: tf.zeros([2, WIDTH]))
            return tf.stack([first, one(), tf.cast(zoo.dropout(tf.ones([2, WIDTH]), 0.5, is_training=True), x.dtype)])

    first, second, _ = masks(step(X[:, 0]))
    np.testing.assert_array_equal(first, second)
