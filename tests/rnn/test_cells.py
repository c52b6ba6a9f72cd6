"""Cells against TF1's golden numbers and against the TF1 cells that still lie inside TensorFlow."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.keras.layers.legacy_rnn import rnn_cell_impl as legacy

from zoo import rnn, scoping

tf1 = tf.compat.v1
HALF = tf1.constant_initializer(0.5)


def evaluate(fetches, feed=None):
    with tf1.Session() as session:
        session.run(tf1.global_variables_initializer())
        return session.run(fetches, feed)


def graph_test(function):
    def inside():
        with tf.Graph().as_default():
            function()

    inside.__name__ = function.__name__
    return inside


@graph_test
def test_golden_two_layers():
    with tf1.variable_scope("root", initializer=HALF):
        cell = rnn.MultiRNNCell([rnn.BasicLSTMCell(2) for _ in range(2)])
        state = tf.nest.map_structure(lambda s: s + 0.1, cell.zero_state(1, tf.float32))
        output, new = cell(tf.ones([1, 2]), state)
    names = [v.op.name for v in tf1.global_variables()]
    (c0, h0), (c1, h1) = evaluate(new)
    np.testing.assert_allclose(c0[0], [0.68967271] * 2, atol=1e-6)
    np.testing.assert_allclose(h0[0], [0.44848421] * 2, atol=1e-6)
    np.testing.assert_allclose(c1[0], [0.39897051] * 2, atol=1e-6)
    np.testing.assert_allclose(h1[0], [0.24024698] * 2, atol=1e-6)
    assert names == [f"root/multi_rnn_cell/cell_{i}/basic_lstm_cell/{v}" for i in (0, 1) for v in ("kernel", "bias")]
    assert output.shape == [1, 2]


def golden_steps(keep):
    with tf1.variable_scope("root", initializer=HALF):
        cell = rnn.LSTMCell(3)
        if keep is not None:
            cell = rnn.DropoutWrapper(cell, state_keep_prob=keep)
        inputs = tf.constant([[[2.0, 2, 2], [1, 1, 1]]])
        state = rnn.LSTMStateTuple(tf.fill([1, 3], 0.1), tf.fill([1, 3], 0.1))
        return evaluate(rnn.dynamic_rnn(cell, inputs, initial_state=state))


@graph_test
def test_golden_lstm_two_steps():
    outputs, state = golden_steps(None)
    np.testing.assert_allclose(outputs[0, :, 0], [0.751109, 0.895509], atol=1e-6)
    np.testing.assert_allclose(state.c[0], [1.949385] * 3, atol=1e-6)


@graph_test
def test_golden_state_dropout_spares_c():
    outputs, state = golden_steps(1e-10)
    np.testing.assert_allclose(state.c[0], [1.713925] * 3, atol=1e-6)
    np.testing.assert_array_equal(state.h[0], [0] * 3)
    np.testing.assert_allclose(outputs[0, 0], [0.751109] * 3, atol=1e-6)


@graph_test
def test_golden_gru():
    with tf1.variable_scope("root", initializer=HALF):
        one = rnn.GRUCell(2)(tf.ones([1, 2]), tf.fill([1, 2], 0.1))[0]
        two = rnn.MultiRNNCell([rnn.GRUCell(2), rnn.GRUCell(2)])
        second = two(tf.ones([1, 2]), (tf.fill([1, 2], 0.1),) * 2)[1][1]
    one, second = evaluate([one, second])
    np.testing.assert_allclose(one, [[0.175991] * 2], atol=1e-6)
    np.testing.assert_allclose(second, [[0.13248] * 2], atol=1e-6)


CELLS = {
    "basic": lambda m: m.BasicLSTMCell(5),
    "basic_options": lambda m: m.BasicLSTMCell(5, forget_bias=0.3, state_is_tuple=False, activation=tf.nn.relu),
    "lstm": lambda m: m.LSTMCell(5, use_peepholes=True, cell_clip=0.2, num_proj=3, proj_clip=0.1),
    "lstm_peepholes": lambda m: m.LSTMCell(5, use_peepholes=True, forget_bias=2.0),
    "lstm_proj": lambda m: m.LSTMCell(5, num_proj=2, state_is_tuple=False),
    "gru": lambda m: m.GRUCell(5),
    "rnn": lambda m: m.BasicRNNCell(5),
    "stack": lambda m: m.MultiRNNCell([m.GRUCell(3), m.LSTMCell(4), m.ResidualWrapper(m.BasicLSTMCell(4))]),
    "stack_concat": lambda m: m.MultiRNNCell([m.LSTMCell(3, state_is_tuple=False), m.GRUCell(4)], state_is_tuple=False),
    "device": lambda m: m.DeviceWrapper(m.BasicLSTMCell(3), "/cpu:0"),
}


SLOW = {"basic_options", "lstm_peepholes", "lstm_proj", "stack"}  # what the others do not cover is small


@pytest.mark.parametrize("kind", [pytest.param(k, marks=[pytest.mark.slow] if k in SLOW else []) for k in CELLS])
def test_parity_with_legacy_cells(kind):
    """Same names, same outputs, same states, same gradients: zoo's loop against TF1's cell in TensorFlow's loop."""
    results = []
    runs = [(rnn, rnn.dynamic_rnn), (legacy, tf1.nn.dynamic_rnn)]
    if kind in ("basic", "stack_concat"):
        runs.append((rnn, tf1.nn.dynamic_rnn))
    for module, loop in runs:
        with tf.Graph().as_default():
            generator = np.random.default_rng(0)
            inputs = tf.constant(generator.normal(size=[4, 6, 3]), tf.float32)
            with tf1.variable_scope("net"):
                outputs, state = loop(CELLS[kind](module), inputs, [6, 3, 1, 0], dtype=tf.float32)
            variables = tf1.trainable_variables()
            values = [generator.normal(size=v.shape.as_list()) * 0.5 for v in variables]
            loss = tf.reduce_sum(outputs**2) + sum(tf.reduce_sum(tf.sin(s)) for s in tf.nest.flatten(state))
            gradients = tf.gradients(loss, [*variables, inputs])
            with tf1.Session() as session:
                for variable, value in zip(variables, values, strict=True):
                    variable.load(value.astype("float32"), session)
                fetched = session.run([outputs, tf.nest.flatten(state), gradients])
        results.append(([v.op.name for v in variables], tf.nest.flatten(fetched)))
    for names, values in results[1:]:
        assert names == results[0][0]
        for ours, theirs in zip(results[0][1], values, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=2e-6)


@graph_test
def test_tf_static_loop_accepts_zoo_cells_and_wrappers_accept_theirs():
    inputs = tf.constant(np.random.default_rng(0).normal(size=[2, 3, 4]), tf.float32)
    cell = rnn.GRUCell(3)
    listed, _ = tf1.nn.static_rnn(cell, tf.unstack(inputs, axis=1), dtype=tf.float32)
    ours, _ = rnn.dynamic_rnn(cell, inputs, scope="ours")
    theirs = rnn.ResidualWrapper(rnn.MultiRNNCell([legacy.GRUCell(3), legacy.BasicRNNCell(4)]))
    mixed, _ = rnn.dynamic_rnn(theirs, inputs, [3, 1], scope="mixed")
    listed, ours, mixed = evaluate([listed, ours, mixed])
    np.testing.assert_allclose(np.stack(listed, 1), ours, atol=1e-6)
    assert mixed.shape == (2, 3, 4)
    assert not mixed[1, 1:].any()


@graph_test
def test_dropout_masks_are_tf1s():
    outputs = []
    for module in (rnn, legacy):
        tf1.set_random_seed(3)
        cell = module.DropoutWrapper(module.BasicRNNCell(50), 0.6, 0.5, 0.7, seed=11)
        with tf1.variable_scope(module.__name__.replace(".", "_"), initializer=HALF):
            outputs.append(cell(tf.ones([8, 40]), tf.ones([8, 50])))
    ours, theirs = evaluate(outputs)
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)
        assert (a == 0).any()


@graph_test
def test_repeated_cell_gets_own_weights():
    inputs = tf.zeros([2, 3, 4])
    cell = rnn.BasicLSTMCell(5)
    with pytest.warns(UserWarning, match=r"positions \[1, 2\]"):
        stack = rnn.MultiRNNCell([rnn.DropoutWrapper(cell, output_keep_prob=0.5) for _ in range(3)])
    rnn.dynamic_rnn(stack, inputs, dtype=tf.float32)
    shapes = [(v.op.name, v.shape.as_list()) for v in tf1.global_variables() if v.op.name.endswith("kernel")]
    root = "rnn/multi_rnn_cell/cell_{}/basic_lstm_cell/kernel"
    assert shapes == [(root.format(0), [9, 20]), (root.format(1), [10, 20]), (root.format(2), [10, 20])]


@graph_test
def test_share_weights_is_explicit():
    inputs = tf.zeros([2, 3, 5])
    shared = rnn.MultiRNNCell([rnn.BasicLSTMCell(5)] * 2, share_weights=True)
    rnn.dynamic_rnn(shared, inputs, dtype=tf.float32)
    assert [v.op.name for v in tf1.global_variables()] == [
        "rnn/multi_rnn_cell/cell_0/basic_lstm_cell/kernel",
        "rnn/multi_rnn_cell/cell_0/basic_lstm_cell/bias",
    ]
    uneven = rnn.MultiRNNCell([rnn.BasicLSTMCell(5)] * 2, share_weights=True)
    with pytest.raises(ValueError, match="of width 3, but got inputs of width 5"):
        rnn.dynamic_rnn(uneven, tf.zeros([2, 3, 3]), dtype=tf.float32, scope="uneven")


@graph_test
def test_step_by_step_with_reuse_variables():
    cell = rnn.MultiRNNCell([rnn.BasicLSTMCell(3), rnn.BasicLSTMCell(3)])
    state = cell.zero_state(2, tf.float32)
    with tf1.variable_scope("RNN"):
        for step in range(4):
            if step > 0:
                tf1.get_variable_scope().reuse_variables()
            _, state = cell(tf.ones([2, 3]), state)
    assert [v.op.name for v in tf1.global_variables()] == [
        f"RNN/multi_rnn_cell/cell_{i}/basic_lstm_cell/{v}" for i in (0, 1) for v in ("kernel", "bias")
    ]


@graph_test
def test_train_and_valid_models_share():
    for name, reuse in (("Train", None), ("Valid", True)):
        with tf1.name_scope(name), tf1.variable_scope("Model", reuse=reuse):
            rnn.dynamic_rnn(rnn.LSTMCell(3), tf.zeros([1, 2, 3]), dtype=tf.float32)
    assert len(tf1.global_variables()) == 2


def run_lstm(inputs, *, is_training=False):
    with scoping.variable_scope("net"):
        cell = rnn.MultiRNNCell([rnn.BasicLSTMCell(4), rnn.LSTMCell(3, use_peepholes=True)])
        outputs, _ = rnn.dynamic_rnn(cell, inputs, [3, 2], dtype=inputs.dtype)
    return outputs


def test_four_places_agree():
    inputs = np.random.default_rng(1).normal(size=[2, 3, 5]).astype("float32")
    model = scoping.Model(run_lstm, input_shape=(3, 5))
    weights = {name: model.variable(name).numpy() for name in model.variable_names}
    expected = model(inputs).numpy()
    traced = tf.function(lambda x: model(x), autograph=False)(inputs)
    with scoping.variable_store() as store:
        run_lstm(tf.constant(inputs))
        assert list(store.variables) == list(weights)
        for name, value in weights.items():
            store.variables[name].assign(value)
    with store, scoping.variable_scope(scoping.get_variable_scope(), reuse=True):
        eager = run_lstm(tf.constant(inputs))
    with tf.Graph().as_default():
        output = run_lstm(tf.constant(inputs))
        with tf1.Session() as session:
            for variable in tf1.global_variables():
                variable.load(weights[variable.op.name], session)
            graph = session.run(output)
    for other in (traced, eager, graph):
        np.testing.assert_allclose(other, expected, atol=1e-6)
    model.compile("sgd", "mse", jit_compile=False)
    before = model.evaluate(inputs, np.ones([2, 3, 3]), verbose=0)
    assert model.fit(inputs, np.ones([2, 3, 3]), epochs=20, verbose=0).history["loss"][-1] < before


def test_tf_loops_accept_zoo_cells_in_a_model():
    def network(inputs, *, is_training=False):
        cells = [rnn.DropoutWrapper(rnn.BasicLSTMCell(4), 0.5, is_training=is_training) for _ in range(2)]
        (forward, backward), _ = tf1.nn.bidirectional_dynamic_rnn(*cells, inputs, dtype=tf.float32)
        return forward + backward

    def ours(inputs, *, is_training=False):
        cells = [rnn.DropoutWrapper(rnn.BasicLSTMCell(4), 0.5, is_training=is_training) for _ in range(2)]
        (forward, backward), _ = rnn.bidirectional_dynamic_rnn(*cells, inputs)
        return forward + backward

    inputs = tf.random.stateless_normal([2, 5, 3], [1, 2])
    theirs, mine = scoping.Model(network, input_shape=(5, 3)), scoping.Model(ours, input_shape=(5, 3))
    assert theirs.variable_names == mine.variable_names
    mine.set_weights(theirs.get_weights())
    call = tf.function(lambda m, t: m(inputs, training=t), autograph=False)
    np.testing.assert_allclose(call(theirs, False), call(mine, False), atol=1e-6)
    first, second = call(theirs, True), call(theirs, True)
    assert np.abs(first - second).max() > 0
