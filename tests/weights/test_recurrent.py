"""Conversion of weights both ways, judged by the other library's own outputs; TF1's names of every age."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo import rnn, scoping
from zoo.rnn import convert, cudnn, tf1_names

INPUTS = np.random.default_rng(0).normal(size=[3, 5, 4]).astype("float32")


def layer(width, units, seed=1):
    generator = np.random.default_rng(seed)
    kernel = generator.normal(size=[width + units, 4 * units]).astype("float32") * 0.5
    return convert.LSTMWeights(kernel, generator.normal(size=[4 * units]).astype("float32"))


def run(cell, values, inputs=INPUTS, loop=rnn.dynamic_rnn, more=()):
    """Outputs and state of zoo's cell (and `more` cells) with given variables, in creation order."""
    with scoping.variable_store() as store:
        loop(cell, *more, inputs, scope="made")
        for variable, value in zip(store.variables.values(), values, strict=True):
            variable.assign(value)
        return loop(cell, *more, inputs, scope="run")


@pytest.mark.parametrize("forget_bias", [0.0, 1.0])
def test_keras_lstm(forget_bias):
    weights = layer(4, 6)
    theirs = keras.layers.LSTM(6, return_sequences=True, return_state=True)
    theirs.build(INPUTS.shape)
    theirs.set_weights(convert.lstm_to_keras(weights, forget_bias))
    expected, h, c = theirs(INPUTS)
    outputs, state = run(rnn.BasicLSTMCell(6, forget_bias), [weights.kernel, weights.bias])
    for ours, other in ((outputs, expected), (state.c, c), (state.h, h)):
        np.testing.assert_allclose(ours, other, atol=1e-5)
    back = convert.lstm_from_keras(theirs.get_weights(), forget_bias)
    np.testing.assert_array_equal(back.kernel, weights.kernel)
    np.testing.assert_allclose(back.bias, weights.bias, atol=1e-6)


def test_keras_bidirectional():
    forward, backward = layer(4, 6, 1), layer(4, 6, 2)
    theirs = keras.layers.Bidirectional(keras.layers.LSTM(6, return_sequences=True))
    theirs.build(INPUTS.shape)
    theirs.set_weights(convert.bidirectional_to_keras(forward, backward))
    values = [forward.kernel, forward.bias, backward.kernel, backward.bias]
    outputs, _ = run(rnn.BasicLSTMCell(6), values, loop=rnn.bidirectional_dynamic_rnn, more=(rnn.BasicLSTMCell(6),))
    np.testing.assert_allclose(tf.concat(outputs, 2), theirs(INPUTS), atol=1e-5)
    for a, b in zip(convert.bidirectional_from_keras(theirs.get_weights()), (forward, backward), strict=True):
        np.testing.assert_array_equal(a.kernel, b.kernel)


def test_keras_gru():
    generator = np.random.default_rng(3)
    values = [generator.normal(size=s).astype("float32") for s in ([10, 12], [12], [10, 6], [6])]
    theirs = keras.layers.GRU(6, return_sequences=True, reset_after=False)
    theirs.build(INPUTS.shape)
    theirs.set_weights(convert.gru_to_keras(*values))
    outputs, _ = run(rnn.GRUCell(6), values)
    np.testing.assert_allclose(outputs, theirs(INPUTS), atol=1e-5)
    for a, b in zip(convert.gru_from_keras(theirs.get_weights()).values(), values, strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_torch_lstm(bidirectional):
    torch = pytest.importorskip("torch")
    theirs = torch.nn.LSTM(4, 6, num_layers=2, batch_first=True, bidirectional=bidirectional)
    widths = (4, 12 if bidirectional else 6)
    layers = [tuple(layer(w, 6, 10 * n + d) for d in range(1 + bidirectional)) for n, w in enumerate(widths)]
    state = convert.lstm_to_torch([one if bidirectional else one[0] for one in layers])
    theirs.load_state_dict({key: torch.from_numpy(value) for key, value in state.items()})
    values = [v for one in layers for w in one for v in (w.kernel, w.bias)]
    cells = [rnn.BasicLSTMCell(6) for _ in range(4)]
    with scoping.variable_store() as store:
        if bidirectional:
            arguments = (rnn.stack_bidirectional_dynamic_rnn, cells[:2], cells[2:])
        else:
            arguments = (rnn.dynamic_rnn, rnn.MultiRNNCell(cells[:2]))
        arguments[0](*arguments[1:], INPUTS, scope="made")
        for variable, value in zip(store.variables.values(), values, strict=True):
            variable.assign(value)
        outputs = arguments[0](*arguments[1:], INPUTS, scope="run")[0]
    with torch.no_grad():
        np.testing.assert_allclose(outputs, theirs(torch.from_numpy(INPUTS))[0].numpy(), atol=1e-5)
    back = convert.lstm_from_torch({key: value.numpy() for key, value in theirs.state_dict().items()})
    for ours, one in zip(back, layers, strict=True):
        for a, b in zip(ours if bidirectional else (ours,), one, strict=True):
            np.testing.assert_array_equal(a.kernel, b.kernel)
            np.testing.assert_allclose(a.bias, b.bias, atol=1e-6)


def test_torch_round_trip_without_torch():
    layers = [(layer(4, 6, 1), layer(4, 6, 2)), (layer(12, 6, 3), layer(12, 6, 4))]
    state = convert.lstm_to_torch(layers, 0.5)
    assert list(state)[:5] == ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0", "weight_ih_l0_reverse"]
    assert state["weight_ih_l1"].shape == (24, 12)
    state["bias_hh_l0"] = state["bias_hh_l0"] + 2
    state["bias_ih_l0"] = state["bias_ih_l0"] - 2  # both biases are summed
    for ours, pair in zip(convert.lstm_from_torch(state, 0.5), layers, strict=True):
        for a, b in zip(ours, pair, strict=True):
            np.testing.assert_array_equal(a.kernel, b.kernel)
            np.testing.assert_allclose(a.bias, b.bias, atol=1e-5)


@pytest.mark.parametrize("split", [True, False])
def test_cudnn_round_trip(split):
    weights = layer(4, 6)
    packed = convert.lstm_to_cudnn(weights, 1.0, split)
    back = convert.lstm_from_cudnn(packed, 4, 6, 1.0)
    np.testing.assert_array_equal(back.kernel, weights.kernel)
    np.testing.assert_allclose(back.bias, weights.bias, atol=1e-6)
    if not split:  # what the cuDNN layer itself packs
        np.testing.assert_allclose(
            cudnn.parameters(tf.constant(weights.kernel), tf.constant(weights.bias), 1.0), packed
        )


def test_what_has_no_image_is_refused():
    gru = keras.layers.GRU(6)
    gru.build(INPUTS.shape)
    with pytest.raises(ValueError, match="reset_after=True: it multiplies by the reset gate after"):
        convert.gru_from_keras(gru.get_weights())
    with pytest.raises(ValueError, match=r"torch.nn.GRU: it multiplies"):
        convert.lstm_from_torch({"weight_hh_l0": np.zeros([18, 6]), "weight_ih_l0": np.zeros([18, 4])})
    with pytest.raises(ValueError, match="another function than TF1's GRU"):
        convert.gru_to_torch()
    with pytest.raises(ValueError, match="a projection of PyTorch's kind"):
        convert.lstm_from_torch({"weight_hh_l0": np.zeros([24, 6]), "weight_hr_l0": np.zeros([3, 6])})
    with pytest.raises(ValueError, match="has a kernel"):
        convert.LSTMWeights(np.zeros([4, 10]), np.zeros([10]))
    with pytest.raises(ValueError, match="has 288 values, got 3"):
        convert.lstm_from_cudnn(np.zeros(3), 4, 6)


MODERN = "a/rnn/multi_rnn_cell/cell_1/basic_lstm_cell/kernel"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("a/rnn/MultiRNNCell/Cell1/BasicLSTMCell/Linear/Matrix", MODERN),
        ("a/rnn/multi_rnn_cell/cell_1/basic_lstm_cell/weights", MODERN),
        (MODERN, MODERN),
        ("RNN/BasicLSTMCell/Linear/Bias/Adam_1", "RNN/basic_lstm_cell/bias/Adam_1"),
        ("RNN/GRUCell/Gates/Linear/Matrix", "RNN/gru_cell/gates/kernel"),
        ("rnn/gru_cell/candidate/biases", "rnn/gru_cell/candidate/bias"),
        ("BiRNN/FW/LSTMCell/W_0", "bidirectional_rnn/fw/lstm_cell/kernel"),
        ("BiRNN_BW/LSTMCell/W_F_diag", "bidirectional_rnn/bw/lstm_cell/w_f_diag"),
        ("RNN/LSTMCell/W_P_0", "RNN/lstm_cell/projection/kernel"),
        ("rnn/lstm_cell/projection/weights", "rnn/lstm_cell/projection/kernel"),
        ("rnn/BasicRNNCell/Linear/Matrix", "rnn/basic_rnn_cell/kernel"),
        ("fully_connected/weights", "fully_connected/weights"),
        ("Model/softmax_w", "Model/softmax_w"),
    ],
)
def test_names_of_every_age(old, new):
    assert tf1_names.modern_name(old) == new


def test_old_checkpoint_into_a_model(tmp_path):
    def network(inputs, *, is_training=False):
        with scoping.variable_scope("lm"):
            return rnn.dynamic_rnn(rnn.MultiRNNCell([rnn.BasicLSTMCell(3), rnn.BasicLSTMCell(3)]), inputs)[0]

    generator = np.random.default_rng(0)
    shapes = {"Matrix": [7, 12], "Bias": [12]}
    values = {}
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        variables = []
        for cell in (0, 1):
            for leaf, shape in shapes.items():
                value = generator.normal(size=[6, 12] if cell and leaf == "Matrix" else shape).astype("float32")
                name = f"lm/RNN/MultiRNNCell/Cell{cell}/BasicLSTMCell/Linear/{leaf}"
                variables.append(tf.compat.v1.get_variable(name, initializer=value))
                values[name] = value
        variables.append(tf.compat.v1.get_variable("global_step", initializer=7))
        session.run(tf.compat.v1.global_variables_initializer())
        prefix = tf.compat.v1.train.Saver().save(session, str(tmp_path / "model.ckpt"))
    model = scoping.Model(network, input_shape=(5, 4))
    with pytest.raises(ValueError, match="lm/rnn/multi_rnn_cell/cell_0/basic_lstm_cell/kernel is not there"):
        tf1_names.assign_checkpoint(model, prefix)
    assert tf1_names.assign_checkpoint(model, prefix, {"lm/RNN/": "lm/rnn/"}) == ["global_step"]
    expected = values["lm/RNN/MultiRNNCell/Cell1/BasicLSTMCell/Linear/Matrix"]
    np.testing.assert_array_equal(model.variable(model.variable_names[2]), expected)
    with pytest.raises(FileNotFoundError, match="is no TF1 checkpoint"):
        tf1_names.read_checkpoint(tmp_path / "none")
