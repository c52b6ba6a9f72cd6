"""What cells, loops and conversions refuse: the rule, what they got, and what to do instead."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import zoo
from zoo import rnn
from zoo.rnn import convert

X = tf.ones([2, 3, 4])
LSTM_WEIGHTS = convert.LSTMWeights(np.ones([5, 8]), np.ones(8))


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (3, "got 3: it has no state_size; give an instance"),
        (None, "got None"),
        (rnn.BasicLSTMCell, r"got the class BasicLSTMCell: make one, as BasicLSTMCell\(128\)"),
        (keras.layers.LSTMCell(3), r"Keras' cells belong in keras\.layers\.RNN"),
        (keras.layers.LSTM(3), r"Keras' cells belong in keras\.layers\.RNN"),
    ],
)
def test_what_is_no_cell(cell, message):
    good = rnn.GRUCell(3)
    with zoo.variable_store():
        for take in (
            lambda: rnn.MultiRNNCell([good, cell]),
            lambda: rnn.DropoutWrapper(cell),
            lambda: rnn.ResidualWrapper(cell),
            lambda: rnn.DeviceWrapper(cell, "CPU:0"),
            lambda: rnn.dynamic_rnn(cell, X),
            lambda: rnn.static_rnn(cell, [X[0]]),
            lambda: rnn.bidirectional_dynamic_rnn(good, cell, X),
            lambda: rnn.stack_bidirectional_dynamic_rnn([good], [cell], X),
        ):
            with pytest.raises(TypeError, match=message):
                take()
    with pytest.raises(TypeError, match=r"cells\[1\] takes a cell"):
        rnn.MultiRNNCell([good, cell])
    with pytest.raises(TypeError, match="cells_fw must be a list of cells"):
        rnn.stack_bidirectional_dynamic_rnn(good, [good], X)


@pytest.mark.parametrize(
    ("steps", "message"),
    [
        ([tf.ones([2, 4]), tf.ones([2, 5])], r"inputs\[1\] is float32 \(2, 5\), inputs\[0\] is float32 \(2, 4\)"),
        ([tf.ones([2, 4]), tf.ones([3, 4])], r"all alike: inputs\[1\] is float32 \(3, 4\)"),
        ([tf.ones([2, 4]), tf.ones([2, 4], tf.float64)], r"inputs\[1\] is float64"),
        ([tf.ones([2, 4, 1])], r"must be \[batch, width\]"),
        ([tf.ones([2, 4]), None], r"inputs\[1\] is None"),
    ],
)
def test_steps_that_differ(steps, message):
    with zoo.variable_store(), pytest.raises(ValueError, match=message):
        rnn.static_rnn(rnn.GRUCell(3), steps)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rnn.LSTMCell(3, cell_clip=-1), "cell_clip must be a positive number or None, got -1"),
        (lambda: rnn.LSTMCell(3, cell_clip=float("nan")), "cell_clip must be a positive number"),
        (lambda: rnn.LSTMCell(3, num_proj=2, proj_clip=0), "proj_clip must be a positive number or None, got 0"),
        (lambda: rnn.BasicLSTMCell(3, forget_bias="1"), "forget_bias must be a finite number, got '1'"),
        (lambda: rnn.BasicLSTMCell(3, dtype=tf.int32), "a state is floating point, got dtype int32"),
        (lambda: rnn.BasicLSTMCell(3).zero_state(2, tf.int32), "a state is floating point, got dtype int32"),
        (lambda: rnn.MultiRNNCell([rnn.GRUCell(3)]).zero_state(2, "int64"), "got dtype int64: give float32"),
        (lambda: rnn.GRUCell(3).zero_state(-2), "batch_size must be an integer of at least 0 .* got -2"),
        (lambda: rnn.GRUCell(3).zero_state(None), "batch_size must be an integer of at least 0 .* got None"),
        (lambda: rnn.DropoutWrapper(rnn.GRUCell(3), output_keep_prob="half"), "must be a number between 0 and 1"),
    ],
)
def test_numbers_and_types(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_states_without_parts():
    broken = rnn.LSTMStateTuple(None, tf.zeros([2, 3]))
    with zoo.variable_store():
        with pytest.raises(ValueError, match=r"state\.c is None, and must be a tensor \[batch, 3\]: use zero_state"):
            rnn.dynamic_rnn(rnn.BasicLSTMCell(3), X, initial_state=broken)
        with pytest.raises(ValueError, match="state is None"):
            rnn.GRUCell(3)(X[0], None)
        with pytest.raises(ValueError, match=r"tuple of length 2, but received: a tensor of shape \(2, 6\)"):
            rnn.BasicLSTMCell(3)(X[0], tf.zeros([2, 6]))
    with pytest.raises(TypeError, match="c and h must be tensors, got None"):
        _ = broken.dtype


@pytest.mark.parametrize(
    ("turn", "error", "message"),
    [
        (lambda: convert.lstm_to_keras(np.ones([5, 8])), TypeError, r"LSTMWeights\(kernel, bias\), got ndarray"),
        (lambda: convert.lstm_to_cudnn((np.ones([5, 8]), np.ones(8))), TypeError, "got tuple: wrap the two arrays"),
        (lambda: convert.lstm_to_torch(LSTM_WEIGHTS), TypeError, "a list of layers, the lowest first"),
        (lambda: convert.lstm_to_torch([(np.ones([5, 8]), np.ones(8))]), TypeError, "got ndarray"),
        (lambda: convert.lstm_to_torch([(LSTM_WEIGHTS,) * 3]), TypeError, "one direction or two, got 3 parts"),
        (lambda: convert.bidirectional_to_keras(LSTM_WEIGHTS, None), TypeError, "got NoneType"),
        (lambda: convert.lstm_to_keras({"gates/kernel": np.ones([5, 4])}), ValueError, "weights of a GRU"),
        (lambda: convert.lstm_from_keras(np.ones([3, 4])), TypeError, "layer.get_weights"),
        (
            lambda: convert.lstm_from_keras([np.ones([4, 9]), np.ones([3, 9]), np.ones([2, 9])]),
            ValueError,
            r"\(4, 9\) and \(3, 9\); these are of a GRU",
        ),
        (lambda: convert.gru_from_keras([np.ones([4, 8]), np.ones([2, 8]), np.ones(8)]), ValueError, "of an LSTM"),
        (lambda: convert.gru_from_keras([np.ones([4, 6]), np.ones([2, 6])]), ValueError, "append zeros"),
        (
            lambda: convert.gru_to_keras(np.ones([4, 8]), np.ones(4), np.ones([4, 4]), np.ones(4)),
            ValueError,
            r"a TF1 GRU has gates \[width \+ units, 2 units\]",
        ),
        (lambda: convert.lstm_from_torch([np.ones([8, 2])]), TypeError, r"lstm\.state_dict\(\), got list"),
        (lambda: convert.lstm_from_torch({"weight_hh_l0": np.ones([8, 2])}), ValueError, "weight_ih_l0 is missing"),
    ],
)
def test_conversions(turn, error, message):
    with pytest.raises(error, match=message):
        turn()


def test_words_outside_the_table():
    with zoo.variable_store(), pytest.raises(ValueError, match=r"word numbers lie in 0\.\.4.* got -1, 5"):
        rnn.embedding([[0, -1], [4, 5]], 5, 2)


def test_a_cell_made_inside_a_traced_function_shares_its_weights_with_the_next_trace():
    with zoo.variable_store() as store:

        def network(inputs):
            return rnn.dynamic_rnn(rnn.BasicLSTMCell(3), inputs)[0]

        traced = tf.function(network, autograph=False)
        first, longer = traced(X), traced(tf.ones([2, 5, 4]))
        assert list(store.variables) == ["rnn/basic_lstm_cell/kernel", "rnn/basic_lstm_cell/bias"]
        np.testing.assert_allclose(longer[:, :3], first, atol=1e-6)
        with pytest.raises(zoo.ScopeError, match=r"test_refusals\.py:\d+ and is asked.*reuse=zoo\.AUTO_REUSE"):
            tf.function(lambda inputs: network(inputs), autograph=False)(X)
        with pytest.raises(zoo.ScopeError, match=r"asked for again at .*test_refusals\.py"):
            network(X)


def test_sizes_as_old_programs_have_them():
    """Under `disable_v2_behavior` a shape holds `Dimension`s and not numbers."""
    tf.compat.v1.disable_v2_tensorshape()
    try:
        with tf.Graph().as_default(), tf.compat.v1.Session() as session:
            inputs = tf.compat.v1.placeholder(tf.float32, [None, 5, 3])
            lengths = tf.compat.v1.placeholder(tf.int32, [None])
            cell = rnn.MultiRNNCell([rnn.BasicLSTMCell(4), rnn.LSTMCell(4, num_proj=2)])
            start = cell.zero_state(tf.shape(inputs)[0])
            outputs, _ = rnn.dynamic_rnn(cell, inputs, sequence_length=lengths, initial_state=start)
            listed, _ = rnn.static_rnn(rnn.GRUCell(4), tf.unstack(inputs, axis=1), scope="static")
            (_, backward), _ = rnn.bidirectional_dynamic_rnn(rnn.GRUCell(4), rnn.BasicRNNCell(2), inputs, lengths)
            session.run(tf.compat.v1.global_variables_initializer())
            feed = {inputs: np.ones([2, 5, 3]), lengths: [5, 2]}
            found = session.run([outputs, listed[-1], backward], feed)
    finally:
        tf.compat.v1.enable_v2_tensorshape()
    assert [value.shape for value in found] == [(2, 5, 2), (2, 4), (2, 5, 2)]
    assert not found[0][1, 2:].any()


def test_cells_of_ones_own_that_return_something_else():
    class Mine(rnn.RNNCell):
        state_size = output_size = 4

        def __init__(self, made):
            super().__init__()
            self.made = made

        def call(self, inputs, state):
            return self.made(inputs, state)

    with zoo.variable_store():
        assert rnn.dynamic_rnn(Mine(lambda x, s: (x, s)), X)[0].shape == (2, 3, 4)
        with pytest.raises(TypeError, match=r"Mine must return \(output, new state\), got .*Tensor"):
            rnn.dynamic_rnn(Mine(lambda x, s: x), X)
        with pytest.raises(ValueError, match=r"structure it was given, \(2, 4\); got \('\(2, 4\)', '\(2, 4\)'\)"):
            rnn.dynamic_rnn(Mine(lambda x, s: (x, (s, s))), X)


def test_labels_outside_the_classes():
    for wrong in (3, -1):
        with pytest.raises(ValueError, match=rf"labels lie in 0\.\.2, got {wrong} to {wrong}"):
            rnn.softmax_cross_entropy([wrong], tf.zeros([1, 3]))
