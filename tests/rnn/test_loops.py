"""The loops and the fast path: exact against the plain loop; lengths, states, refusals."""

import numpy as np
import pytest
import tensorflow as tf

from zoo import rnn, scoping
from zoo.rnn import cudnn, fused

tf1 = tf.compat.v1


def stack(dropout=1.0, dtype=None):
    cells = [rnn.BasicLSTMCell(4), rnn.LSTMCell(3, forget_bias=0.2), rnn.ResidualWrapper(rnn.BasicLSTMCell(3))]
    cells = [rnn.DropoutWrapper(c, dropout, dropout, dtype=dtype) for c in cells]
    return rnn.MultiRNNCell([*cells, rnn.DeviceWrapper(rnn.BasicLSTMCell(2), "/cpu:0")])


def both_paths(steps, lengths, dropout=1.0, dtype=tf.float32, rows=3, compiled=False):
    """Outputs, states and gradients of the fast path and of the plain loop, on the same weights and masks."""
    inputs = tf.random.stateless_normal([rows, steps, 5], [1, steps], dtype=dtype)
    results = []
    with scoping.variable_store() as made:
        rnn.dynamic_rnn(stack(), tf.zeros([1, 1, 5]))
    for n, variable in enumerate(made.variables.values()):
        variable.assign(tf.random.stateless_uniform(variable.shape, [n, 1], -0.6, 0.6))
    for fast in (True, False):
        store = fresh(made)

        @tf.function(jit_compile=compiled, autograph=False)
        def run(inputs, lengths, fast=fast, store=store):
            with store, tf.GradientTape() as tape:
                tape.watch(inputs)
                cell = stack(dropout)
                state = tf.nest.map_structure(lambda s: s + 0.3, cell.zero_state(rows, dtype))
                with scoping.variable_scope(scoping.get_variable_scope(), reuse=scoping.AUTO_REUSE):
                    outputs, state = rnn.dynamic_rnn(cell, inputs, lengths, state, fast_path=fast)
                parts = tf.nest.flatten(state)
                loss = tf.reduce_sum(outputs**2) + sum(tf.reduce_sum(tf.sin(s)) for s in parts)
            variables = list(store.variables.values())
            return outputs, parts, tape.gradient(loss, [inputs, *variables])

        results.append(run(inputs, lengths))
    return results


def fresh(store):
    """The same variables in a store whose random seeds start again."""
    other = scoping.variable_store(seed=7)
    other.variables = store.variables
    return other


def assert_same(results, tolerance=1e-5):
    fast, plain = (tf.nest.flatten(r) for r in results)
    assert len(fast) == len(plain) > 10
    for a, b in zip(fast, plain, strict=True):
        a, b = np.asarray(tf.cast(a, tf.float64)), np.asarray(tf.cast(b, tf.float64))
        assert np.abs(a - b).max() <= tolerance * max(np.abs(b).max(), 1e-3)


@pytest.mark.parametrize("lengths", [None, [6, 1, 0]])
def test_fast_path_is_exact_unrolled(lengths):
    assert_same(both_paths(6, lengths))


@pytest.mark.parametrize("lengths", [pytest.param(None, marks=pytest.mark.slow), [70, 33, 0]])
def test_fast_path_is_exact_in_a_while_loop(lengths):
    assert fused.UNROLL_LIMIT < 70
    assert_same(both_paths(70, lengths), 2e-5)


def test_fast_path_draws_the_plain_loops_masks():
    results = both_paths(6, [6, 4, 2], dropout=0.6)
    assert_same(results)
    outputs = results[0][0].numpy()
    assert not np.array_equal(outputs[0, 0], outputs[0, 1])


def test_fast_path_compiles_with_xla():
    inputs, kernel = tf.random.stateless_normal([5, 2, 3], [1, 2]), tf.random.stateless_normal([7, 16], [3, 4])
    bias, zeros = tf.ones([16]), tf.zeros([2, 4])
    mask = tf.range(5)[:, None, None] < tf.constant([5, 2])[None, :, None]

    def run():
        with tf.GradientTape() as tape:
            tape.watch([inputs, kernel])
            outputs, c, _ = fused.lstm(inputs, kernel, bias, zeros, zeros, 1.0, mask)
            loss = tf.reduce_sum(outputs**2) + tf.reduce_sum(c)
        return outputs, c, tape.gradient(loss, [inputs, kernel])

    compiled = tf.function(run, jit_compile=True, autograph=False)()
    for a, b in zip(tf.nest.flatten(compiled), tf.nest.flatten(run()), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


CELLS = {
    "basic": lambda: rnn.BasicRNNCell(3),
    "gru": lambda: rnn.GRUCell(3),
    "lstm": lambda: rnn.BasicLSTMCell(3),
    "lstm_whole": lambda: rnn.BasicLSTMCell(3, state_is_tuple=False),
    "projected": lambda: rnn.LSTMCell(4, num_proj=3, use_peepholes=True),
    "residual": lambda: rnn.ResidualWrapper(rnn.BasicLSTMCell(3)),
    "dropped": lambda: rnn.DropoutWrapper(rnn.GRUCell(3), state_keep_prob=0.9),
    "placed": lambda: rnn.DeviceWrapper(rnn.BasicLSTMCell(3), "/cpu:0"),
    "stack": lambda: rnn.MultiRNNCell([rnn.BasicLSTMCell(3), rnn.GRUCell(3)]),
}


def test_every_cell_that_this_package_has_is_in_the_table():
    made = {type(cell).__name__ for make in CELLS.values() for cell in [make()]}
    kinds = {name for name in rnn.__all__ if isinstance(getattr(rnn, name), type)}
    assert made == {name for name in kinds if issubclass(getattr(rnn, name), rnn.RNNCell)} - {"RNNCell"}


@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize(
    ("inputs", "state"),
    [(tf.float16, tf.float32), (tf.bfloat16, tf.float32), (tf.float32, tf.float16), (tf.float64, tf.float32)],
    ids=lambda dtype: dtype.name,
)
def test_the_last_state_keeps_the_first_ones_types_on_both_paths(name, inputs, state):
    x = tf.cast(tf.random.stateless_normal([2, 3, 3], [1, 2]), inputs)
    found = []
    for fast in (True, False):
        with scoping.variable_store(seed=1):
            cell = CELLS[name]()
            first = cell.zero_state(2, state)
            outputs, last = rnn.dynamic_rnn(cell, x, [3, 2], first, fast_path=fast)
        assert outputs.dtype == inputs
        assert {part.dtype for part in tf.nest.flatten(last)} == {state}
        tf.nest.assert_same_structure(first, last)
        found.append(tf.nest.flatten(last))
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(tf.cast(a, tf.float32), tf.cast(b, tf.float32), atol=0.03)


def test_bfloat16_stays_near_float32():
    inputs = tf.random.stateless_normal([3, 6, 5], [1, 6], dtype=tf.bfloat16)
    with scoping.variable_store():
        cell = rnn.BasicLSTMCell(4)
        half, state = rnn.dynamic_rnn(cell, inputs)
        full, _ = rnn.dynamic_rnn(cell, tf.cast(inputs, tf.float32), scope="full")
    assert half.dtype == state.c.dtype == tf.bfloat16
    np.testing.assert_allclose(tf.cast(half, tf.float32), full, atol=0.02)


def test_lengths_zero_and_copy_through():
    inputs = tf.random.stateless_normal([3, 4, 2], [1, 2])
    poisoned = tf.where(tf.range(4)[None, :, None] < tf.constant([4, 2, 0])[:, None, None], inputs, np.nan)
    for cell in (rnn.BasicLSTMCell(3), rnn.GRUCell(3)):
        with scoping.variable_store():
            start = tf.nest.map_structure(lambda s: s + 0.5, cell.zero_state(3, tf.float32))
            outputs, state = rnn.dynamic_rnn(cell, poisoned, [4, 2, 0], start)
            short, at_two = rnn.dynamic_rnn(
                cell, inputs[1:2, :2], initial_state=tf.nest.map_structure(lambda s: s[1:2], start)
            )
        np.testing.assert_array_equal(outputs[1, 2:], np.zeros([2, 3]))
        np.testing.assert_array_equal(outputs[2], np.zeros([4, 3]))
        np.testing.assert_allclose(outputs[1:2, :2], short, atol=1e-6)
        for whole, single, first in zip(*map(tf.nest.flatten, (state, at_two, start)), strict=True):
            np.testing.assert_allclose(whole[1:2], single, atol=1e-6)
            np.testing.assert_array_equal(whole[2], first[2])


def test_gradients_past_the_end_are_zero_and_finite():
    inputs = tf.Variable(tf.fill([2, 4, 2], 0.1))
    inputs[1, 2:].assign(tf.fill([2, 2], np.nan))
    with scoping.variable_store() as store, tf.GradientTape() as tape:
        outputs, state = rnn.dynamic_rnn(rnn.BasicLSTMCell(3), inputs, [4, 2])
        loss = tf.reduce_sum(outputs) + tf.reduce_sum(state.c)
    gradients = tape.gradient(loss, [inputs, *store.trainable_variables])
    assert all(np.isfinite(g).all() for g in gradients)
    np.testing.assert_array_equal(gradients[0][1, 2:], np.zeros([2, 2]))


def test_bidirectional_against_two_loops():
    inputs = tf.random.stateless_normal([2, 5, 3], [3, 4])
    lengths = tf.constant([5, 3])
    with scoping.variable_store() as store:
        forward, backward = rnn.BasicLSTMCell(4), rnn.GRUCell(2)
        (out_fw, out_bw), (_, state_bw) = rnn.bidirectional_dynamic_rnn(forward, backward, inputs, lengths)
        turned = tf.reverse_sequence(inputs, lengths, 1)
        by_hand, last = rnn.dynamic_rnn(backward, turned, lengths, scope="again")
    assert next(iter(store.variables)) == "bidirectional_rnn/fw/basic_lstm_cell/kernel"
    assert list(store.variables)[2] == "bidirectional_rnn/bw/gru_cell/gates/kernel"
    np.testing.assert_allclose(out_bw, tf.reverse_sequence(by_hand, lengths, 1), atol=1e-6)
    np.testing.assert_allclose(state_bw, last, atol=1e-6)
    assert out_fw.shape == [2, 5, 4]
    np.testing.assert_array_equal(out_fw[1, 3:], np.zeros([2, 4]))


def test_stack_bidirectional_names_and_shapes():
    with scoping.variable_store() as store:
        outputs, states_fw, states_bw = rnn.stack_bidirectional_dynamic_rnn(
            [rnn.LSTMCell(3), rnn.LSTMCell(3)], [rnn.LSTMCell(2), rnn.LSTMCell(2)], tf.ones([2, 4, 3])
        )
    assert outputs.shape == [2, 4, 5]
    assert len(states_fw) == len(states_bw) == 2
    kernels = {n: v.shape.as_list() for n, v in store.variables.items() if n.endswith("kernel")}
    root = "stack_bidirectional_rnn/cell_1/bidirectional_rnn"
    assert kernels[f"{root}/fw/lstm_cell/kernel"] == [8, 12]
    assert kernels[f"{root}/bw/lstm_cell/kernel"] == [7, 8]


def test_static_rnn_and_time_major_agree_with_dynamic():
    inputs = tf.random.stateless_normal([2, 4, 3], [5, 6])
    with scoping.variable_store():
        cell = rnn.LSTMCell(3)
        expected, state = rnn.dynamic_rnn(cell, inputs, [4, 1])
        listed, static_state = rnn.static_rnn(cell, tf.unstack(inputs, axis=1), sequence_length=[4, 1], scope="b")
        major, _ = rnn.dynamic_rnn(cell, tf.transpose(inputs, [1, 0, 2]), [4, 1], time_major=True, scope="c")
    np.testing.assert_allclose(tf.stack(listed, 1), expected, atol=1e-6)
    np.testing.assert_allclose(tf.transpose(major, [1, 0, 2]), expected, atol=1e-6)
    np.testing.assert_allclose(static_state.c, state.c, atol=1e-6)


def test_unknown_batch_and_time():
    with scoping.variable_store() as store:
        cell = rnn.MultiRNNCell([rnn.BasicLSTMCell(3), rnn.GRUCell(2)])
        short = rnn.dynamic_rnn(cell, tf.ones([2, 3, 4]))[0]
    store = fresh(store)

    @tf.function(input_signature=[tf.TensorSpec([None, None, 4]), tf.TensorSpec([None], tf.int32)], autograph=False)
    def run(inputs, lengths):
        with store:
            cell = rnn.MultiRNNCell([rnn.BasicLSTMCell(3), rnn.GRUCell(2)])
            with scoping.variable_scope(scoping.get_variable_scope(), reuse=scoping.AUTO_REUSE):
                return rnn.dynamic_rnn(cell, inputs, lengths)[0]

    np.testing.assert_allclose(run(tf.ones([2, 3, 4]), [3, 3]), short, atol=1e-6)
    assert run(tf.ones([5, 7, 4]), [7] * 5).shape == [5, 7, 2]
    for wrong in ([4, 1], [-1, 1]):
        with pytest.raises(tf.errors.InvalidArgumentError, match="sequence_length must not"):
            run(tf.ones([2, 3, 4]), wrong)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sequence_length": [4, 1]}, r"must lie in 0..3 .* got \[4\]"),
        ({"sequence_length": [-1, 1]}, r"got \[-1\]"),
        ({"sequence_length": [[1], [2]]}, "must be a vector"),
        ({"sequence_length": [1.0, 2.0]}, "must be integers, got float32"),
        ({"sequence_length": [1, 2, 3]}, "3 entries but the inputs have a batch of 2"),
        ({"inputs": tf.ones([2, 3, 4], tf.int32)}, "only supports floating point inputs, but saw dtype: int32"),
        ({"inputs": tf.ones([2, 3])}, r"\[batch, time, width\]"),
        ({"inputs": tf.ones([2, 0, 4])}, "no time steps"),
        ({"initial_state": tf.ones([2, 5])}, "Expected state to be a tuple of length 2"),
        ({"initial_state": (tf.ones([2, 5]), tf.ones([2, 3]))}, r"state\[0\] must be a tuple of length 2, got"),
        ({"initial_state": ((tf.ones([2, 5]), tf.ones([2, 4])), tf.ones([2, 3]))}, r"state\[0\]\.h must have shape"),
        ({"initial_state": ((tf.ones([3, 5]), tf.ones([3, 5])), tf.ones([3, 3]))}, r"state\[0\]\.c has 3 rows"),
    ],
)
def test_refusals(options, message):
    arguments = {"inputs": tf.ones([2, 3, 4]), **options}
    with scoping.variable_store(), pytest.raises(ValueError, match=message):
        rnn.dynamic_rnn(rnn.MultiRNNCell([rnn.BasicLSTMCell(5), rnn.GRUCell(3)]), **arguments)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: rnn.MultiRNNCell([]), ValueError, "Must specify at least one cell"),
        (lambda: rnn.MultiRNNCell(rnn.GRUCell(2)), TypeError, "must be a list or tuple"),
        (lambda: rnn.MultiRNNCell([rnn.LSTMCell(2)], state_is_tuple=False), ValueError, "state_is_tuple is not set"),
        (lambda: rnn.DropoutWrapper(rnn.GRUCell(2), 1.5), ValueError, "input_keep_prob must be between 0 and 1"),
        (lambda: rnn.DropoutWrapper(3), TypeError, "DropoutWrapper takes a cell"),
        (lambda: rnn.DropoutWrapper(rnn.GRUCell(2), variational_recurrent=True), ValueError, "dtype must be"),
        (lambda: rnn.GRUCell(0), ValueError, "positive integer"),
        (lambda: rnn.LSTMCell(2, activation="tanhh"), ValueError, "the activation 'tanhh' is no name that Keras knows"),
    ],
)
def test_cells_refuse(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_same_cell_in_both_directions_is_copied():
    cell = rnn.BasicLSTMCell(2)
    with scoping.variable_store() as store, pytest.warns(UserWarning, match="bidirectional_dynamic_rnn: positions"):
        rnn.bidirectional_dynamic_rnn(cell, cell, tf.ones([1, 2, 3]))
    assert len(store.variables) == 4


def test_variational_mask_is_the_same_for_rows_and_steps():
    def network(inputs, *, is_training=False):
        cell = rnn.DropoutWrapper(
            rnn.BasicRNNCell(50, activation="linear"), output_keep_prob=0.5, variational_recurrent=True,
            dtype=tf.float32, is_training=is_training,
        )  # fmt: skip
        return rnn.dynamic_rnn(cell, inputs)[0]

    model = scoping.Model(network, input_shape=(6, 4))
    outputs = model(np.ones([3, 6, 4], "float32"), training=True).numpy()
    kept = outputs != 0
    assert 5 < kept[0, 0].sum() < 45
    assert (kept == kept[0, 0]).all()
    again = model(np.ones([3, 6, 4], "float32"), training=True).numpy() != 0
    assert (again != kept).any()
    assert (model(np.ones([3, 6, 4], "float32")).numpy() != 0).all()


def test_training_switch_accepts_a_tensor():
    with scoping.variable_store():
        for training, dropped in ((True, True), (False, False)):
            cell = rnn.DropoutWrapper(rnn.BasicRNNCell(40), 0.5, 0.5, is_training=tf.constant(training))
            outputs, _ = rnn.dynamic_rnn(cell, tf.ones([2, 3, 4]), scope=f"t{training}")
            assert (outputs.numpy() == 0).any() == dropped


def test_cudnn_parameters_and_graph():
    """What can be checked without a GPU: the packing against the equations, the op's shapes and its gradient."""
    generator = np.random.default_rng(0)
    kernel, bias = generator.normal(size=[5, 8]).astype("float32"), generator.normal(size=[8]).astype("float32")
    packed = cudnn.parameters(tf.constant(kernel), tf.constant(bias), 1.0).numpy()
    assert packed.size == 8 * (3 + 2 + 2)
    matrices = np.split(packed[: 8 * 5], [8 * 3])
    w, r = matrices[0].reshape(4, 2, 3), matrices[1].reshape(4, 2, 2)
    b = packed[40:48].reshape(4, 2)
    x, h, c = (generator.normal(size=[1, n]).astype("float32") for n in (3, 2, 2))
    i, f, j, o = (x @ w[g].T + h @ r[g].T + b[g] for g in range(4))
    sigmoid = lambda v: 1 / (1 + np.exp(-v))  # noqa: E731
    new_c = sigmoid(f) * c + sigmoid(i) * np.tanh(j)
    outputs, last_c, _ = fused.lstm(*map(tf.constant, (x[None], kernel, bias, c, h)), 1.0)
    np.testing.assert_allclose(last_c, new_c, rtol=1e-5)
    np.testing.assert_allclose(outputs[0], sigmoid(o) * np.tanh(new_c), rtol=1e-5)
    with tf.Graph().as_default():
        arguments = [tf1.placeholder(tf.float32, s) for s in ([4, 2, 3], [5, 8], [8], [2, 2], [2, 2])]
        mask = tf1.placeholder(tf.bool, [4, 2, 1])
        out, c, h = cudnn.lstm(*arguments, 1.0, mask)
        assert (out.shape, c.shape, h.shape) == ([4, 2, 2], [2, 2], [2, 2])
        assert all(g is not None for g in tf.gradients(tf.reduce_sum(out), arguments))
