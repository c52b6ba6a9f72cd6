"""The tagger and the row classifier: trained on a task that needs what comes later, and on real digits."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo.data import digits
from zoo.nets.sequence_tagger import row_classifier, sequence_tagger
from zoo.weights import bundled


def right_context(count, steps=8, seed=0):
    """Label of step t: the symbol at t + 1 (of the last step: 0). Nobody who reads forward only can know it."""
    generator = np.random.default_rng(seed)
    symbols = generator.integers(0, 4, [count, steps])
    lengths = generator.integers(2, steps + 1, [count]).astype("int32")
    labels = np.concatenate([symbols[:, 1:], np.zeros([count, 1], int)], 1)
    labels[np.arange(count), lengths - 1] = 0
    inside = np.arange(steps) < lengths[:, None]
    inputs = {"sequence": np.eye(4, dtype="float32")[symbols], "length": lengths}
    return inputs, labels, inside.astype("float32")


def accuracy_on_right_context(**options):
    keras.utils.set_random_seed(1)
    model = sequence_tagger(4, width=4, hidden=16, seed=1, **options)
    inputs, labels, inside = right_context(600)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.02), loss, jit_compile=False)
    model.fit(inputs, labels, sample_weight=inside, batch_size=50, epochs=12, verbose=0)
    inputs, labels, inside = right_context(200, seed=1)
    right = model.predict(inputs, verbose=0).argmax(-1) == labels
    return (right * inside).sum() / inside.sum()


@pytest.mark.parametrize("merge", ["concat", pytest.param("sum", marks=pytest.mark.slow)])
def test_tagger_learns_the_right_context(merge):
    assert accuracy_on_right_context(merge=merge) > 0.97


def test_one_direction_cannot():
    assert accuracy_on_right_context(bidirectional=False) < 0.7


def test_names_shapes_and_lengths():
    model = sequence_tagger(5, width=3, hidden=4, num_layers=2, merge="sum")
    assert model.variable_names == [
        f"SequenceTagger/layer{n}/bidirectional_rnn/{d}/basic_lstm_cell/{v}"
        for n in (1, 2)
        for d in ("fw", "bw")
        for v in ("kernel", "bias")
    ] + ["SequenceTagger/logits/weights", "SequenceTagger/logits/biases"]
    inputs = np.random.default_rng(0).normal(size=[2, 4, 3]).astype("float32")
    ends = model.end_points({"sequence": inputs, "length": np.array([4, 2], "int32")})
    np.testing.assert_array_equal(ends["layer1"][1, 2:], np.zeros([2, 4]))
    changed = inputs.copy()
    changed[1, 2:] = 9.0
    np.testing.assert_array_equal(model({"sequence": changed, "length": np.array([4, 2], "int32")}), ends["logits"])
    words = sequence_tagger(5, width=3, hidden=4, vocab_size=7, cell="gru")
    assert words({"sequence": np.ones([2, 4], "int32"), "length": np.array([4, 2], "int32")}).shape == (2, 4, 5)


def test_refusals():
    with pytest.raises(ValueError, match="cell is one of lstm, gru, rnn; got 'transformer'"):
        sequence_tagger(cell="transformer")
    with pytest.raises(ValueError, match="merge is one of"):
        sequence_tagger(merge="mean")
    with pytest.raises(ValueError, match="width is 8, but the inputs have shape"), tf.Graph().as_default():
        sequence_tagger.network(tf.zeros([1, 2, 3]))
    with pytest.raises(ValueError, match=r"\[N, height, width, channels\]"), tf.Graph().as_default():
        row_classifier.network(tf.zeros([1, 28, 28]))


@pytest.mark.parametrize(
    ("name", "value"), [("width", 0), ("hidden", -1), ("num_layers", 0), ("vocab_size", 0), ("hidden", 2.5)]
)
def test_sizes_are_positive(name, value):
    message = f"sequence_tagger: {name} must be a positive integer, got {value}"
    if isinstance(value, float):  # the builder's check of types answers first
        message = f"sequence_tagger takes {name} as a whole number. Received: {value}"
    with pytest.raises(ValueError, match=message):
        sequence_tagger(**{name: value})


def test_batches_that_do_not_fit():
    model = sequence_tagger(width=4)
    with pytest.raises(ValueError, match="'length' is missing, got 'sequence', 'lengths'"):
        model({"sequence": np.ones([1, 2, 4], "float32"), "lengths": np.array([2], "int32")})
    with pytest.raises(ValueError, match="features are floating point; got int32"):
        model({"sequence": np.ones([1, 2, 4], "int32"), "length": np.array([2], "int32")})
    with pytest.raises(ValueError, match=r"\[rows, steps, width\]; got shape \(1, 4\)"):
        model({"sequence": np.ones([1, 4], "float32"), "length": np.array([2], "int32")})
    rows = row_classifier(hidden=3)
    for shape in ([2, 8, 8, 1], [2, 28, 20, 1], [2, 28, 28, 3]):
        with pytest.raises(ValueError, match=r"rows of one width.*model for them: row_classifier\(input_shape="):
            rows(np.ones(shape, "float32"))
    assert rows(np.ones([2, 20, 28, 1], "float32")).shape == (2, 10)
    with pytest.raises(ValueError, match=r"images are floating point.*got uint8"):
        rows(np.ones([2, 28, 28, 1], "uint8"))


def test_row_classifier_learns_real_digits():
    keras.utils.set_random_seed(0)
    data = digits.load("random", 8)
    model = row_classifier(hidden=48, input_shape=(8, 8, 1), seed=0)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"], jit_compile=False)
    model.fit(data.train.images, data.train.labels, batch_size=64, epochs=12, verbose=0)
    assert model.evaluate(data.test.images, data.test.labels, verbose=0)[1] > 0.93


def test_the_weights_that_come_with_zoo():
    data = digits.load("random", 28)
    model = row_classifier(weights="digits")
    accuracy = (model.predict(data.test.images, verbose=0).argmax(-1) == data.test.labels).mean()
    assert accuracy == pytest.approx(bundled.card("row_classifier", "digits")["accuracy"], abs=1e-3)
    assert accuracy > 0.98
