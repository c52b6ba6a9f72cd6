"""What is no dense floating-point tensor is refused in plain words by every layer, loop, cell and network."""

import functools
import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf
from layers.cases import CASES
from test_contracts import DESCRIPTORS

import zoo
from zoo import layers, rnn, scoping
from zoo.layers.dense_block import dense_block

RAGGED = tf.ragged.constant([[[1.0], [2.0]], [[3.0]]])
ODD = {
    "ragged": (RAGGED, r"got a RaggedTensor of shape .*: pad it with value\.to_tensor\(\)"),
    "sparse": (tf.sparse.from_dense([[1.0, 0.0]]), r"got a SparseTensor of shape \(1, 2\): tf\.sparse\.to_dense"),
    "slices": (tf.IndexedSlices(tf.ones([1, 2]), [0]), r"got IndexedSlices: tf\.convert_to_tensor makes one"),
    "text": ("cat.png", r"got the text 'cat\.png': read the file"),
    "bytes": (b"\x89PNG", "got the text b.*: read the file"),
    "none": (None, "got None"),
    "dataset": (tf.data.Dataset.from_tensors(1.0), "got a dataset: take its batches one by one"),
    "uneven": ([[1.0, 2.0], [3.0]], "got rows of different lengths or types: pad and stack them"),
    "objects": (np.array([{}, 1], object), "got rows of different lengths or types"),
    "other": (object(), "got a object"),
}
ODD_LAYER = {
    "dict": ({"image": 1.0}, "got a dict of 'image': give the one tensor"),
    "symbolic": (keras.KerasTensor([None, 8]), r"got a symbolic Keras input: .*zoo\.Model\(network\)\(inputs\)"),
}
ODD_TYPES = {
    "strings": (tf.constant(["a"]), "got string: decode the files or encode the words"),
    "complex": (tf.complex(tf.ones([2, 4]), 0.0), r"got complex64: take tf\.math\.real"),
    "bool": (np.array([[True]]), "got bool: tf.cast them to float32"),
    "integers": (np.ones([2, 4], int), "takes floating-point inputs, got int64: convert them first"),
}
ANY_TYPE = ("flatten", "one_hot_encoding")  # layers of any type, or of integers


def cell(make):
    def step(x, **_):
        made = make(4)
        return made(x, made.zero_state(2))

    return step


LAYERS = {case.layer.__name__: functools.partial(case.layer, **case.options) for case in CASES}
LAYERS |= {
    "dropout": layers.dropout,
    "conv_relu": lambda x: layers.conv_relu(x, [3, 3, 1, 2], [2]),
    "one_hot_encoding": lambda x: layers.one_hot_encoding(x, 3),
    "dense_block": lambda x: dense_block(x, 1, 2),
}
LOOPS = {
    "dynamic_rnn": lambda x: rnn.dynamic_rnn(rnn.GRUCell(3), x),
    "static_rnn": lambda x: rnn.static_rnn(rnn.GRUCell(3), [x]),
    "bidirectional_dynamic_rnn": lambda x: rnn.bidirectional_dynamic_rnn(rnn.GRUCell(3), rnn.GRUCell(3), x),
    "embedding": lambda x: rnn.embedding(x, 5, 2),
    **{made.__name__: cell(made) for made in (rnn.BasicRNNCell, rnn.GRUCell, rnn.LSTMCell, rnn.BasicLSTMCell)},
}


def test_every_layer_is_in_the_table():
    takes = {
        name
        for name in layers.__all__
        if inspect.isfunction(getattr(layers, name)) and hasattr(getattr(layers, name), "_arg_scope_names")
    }
    assert takes <= LAYERS.keys()


@pytest.mark.parametrize("odd", ODD | ODD_LAYER)
@pytest.mark.parametrize("name", LAYERS | LOOPS)
def test_layers_and_loops(name, odd):
    value, message = (ODD | ODD_LAYER)[odd]
    if (name, odd) == ("static_rnn", "none"):
        pytest.skip("a missing step has a message of its own")
    with scoping.variable_store() as store, pytest.raises(TypeError, match=message) as caught:
        (LAYERS | LOOPS)[name](value)
    assert name in str(caught.value)
    assert not store.variables


@pytest.mark.parametrize("odd", ODD_TYPES)
@pytest.mark.parametrize("name", [name for name in LAYERS if name not in ANY_TYPE])
def test_types(name, odd):
    value, message = ODD_TYPES[odd]
    with scoping.variable_store() as store, pytest.raises(ValueError, match=message):
        LAYERS[name](value)
    assert not store.variables


NETWORKS = {
    f"{d.net}{i}": (functools.partial(zoo.create, d.net, input_shape=d.shape, **d.options), d.net, d.options)
    for i, d in enumerate(DESCRIPTORS)
}
WORDS, TAGS = {"vocab_size": 6, "hidden": 4}, {"hidden": 4}
NETWORKS |= {
    "word_lm": (functools.partial(zoo.create, "word_lm", **WORDS), "word_lm", WORDS),
    "sequence_tagger": (functools.partial(zoo.create, "sequence_tagger", **TAGS), "sequence_tagger", TAGS),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name):
    """As functions and as models."""
    build, net, options = NETWORKS[name]
    model = build()
    before = [weight.numpy() for weight in model.weights]
    for value, message in ODD.values():
        structure = isinstance(value, list)  # which may be several inputs
        with scoping.variable_store() as store, pytest.raises((TypeError, ValueError)) as caught:
            getattr(zoo, net).network(value, **options)
        assert not store.variables
        if net != "word_lm" or not structure:
            caught.match(message)
        for call in (model, model.end_points):
            with pytest.raises(TypeError, match=r"got the number 1\.0 in a list" if structure else message):
                call(value)
    for weight, value in zip(model.weights, before, strict=True):
        np.testing.assert_array_equal(weight, value)


def test_keras_reports_a_ragged_array_in_fit_and_predict_by_our_words():
    model = zoo.lenet5()
    pictures = tf.RaggedTensor.from_tensor(tf.ones([4, 32, 32, 1]))
    with pytest.raises(TypeError, match="RaggedTensor"):
        model.predict(pictures, verbose=0)


CONV = {"num_outputs": 2, "kernel_size": 3}
FORMS = [
    (layers.max_pool2d, {"kernel_size": [1, 3, 3, 1], "stride": [1, 2, 2, 1]}, {"kernel_size": 3, "stride": 2}),
    (
        layers.avg_pool2d,
        {"kernel_size": [1, 3, 2, 1], "stride": [1, 2, 1, 1]},
        {"kernel_size": (3, 2), "stride": [2, 1]},
    ),
    (layers.conv2d, {**CONV, "stride": [1, 2, 2, 1]}, {**CONV, "stride": 2}),
    (layers.conv2d, {**CONV, "rate": [1, 2, 2, 1]}, {**CONV, "rate": 2}),
    (layers.separable_conv2d, {**CONV, "stride": [1, 2, 2, 1]}, {**CONV, "stride": 2}),
    (layers.conv2d_transpose, {**CONV, "stride": [1, 2, 2, 1]}, {**CONV, "stride": 2}),
]


@pytest.mark.parametrize(("layer", "theirs", "ours"), FORMS)
@pytest.mark.parametrize("data_format", ["NHWC", "NCHW"])
def test_tensorflows_four_numbers(layer, theirs, ours, data_format):
    x = np.random.default_rng(0).normal(size=(2, 8, 8, 3)).astype("float32")
    x = x if data_format == "NHWC" else x.transpose(0, 3, 1, 2)

    def turned(four):
        return [four[0], four[3], four[1], four[2]] if data_format == "NCHW" and np.size(four) == 4 else four

    found = []
    for options in ({name: turned(value) for name, value in theirs.items()}, ours):
        with scoping.variable_store(seed=1):
            found.append(layer(x, data_format=data_format, **options))
    np.testing.assert_array_equal(*found)
    with (
        scoping.variable_store(),
        pytest.raises(ValueError, match=rf"or TensorFlow's \[1.*for {data_format}, got \[1, 2, 2, 2"),
    ):
        layer(x, data_format=data_format, **{**ours, "stride": [1, 2, 2, 2]})


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: layers.conv2d(x, 2, 3, use_cudnn_on_gpu=True), "'use_cudnn_on_gpu': leave it out"),
        (lambda x: layers.conv2d(x, 2, 3, strides=2), "conv2d has no argument 'strides': write stride"),
        (lambda x: layers.conv2d(x, filters=2, kernel_size=3), "has no argument 'filters': write num_outputs"),
        (lambda x: layers.conv2d(x, 2, 3, use_bias=False), "has no argument 'use_bias': write biases_initializer=None"),
        (lambda x: layers.conv2d(x, 2, 3, activation="relu"), "has no argument 'activation': write activation_fn"),
        (lambda x: layers.conv2d(x, 2, 3, weigths_initializer=None), "use one of weights_initializer"),
        (lambda x: layers.max_pool2d(x, ksize=[1, 2, 2, 1]), "max_pool2d has no argument 'ksize': write kernel_size"),
        (lambda x: layers.dropout(x, rate=0.5), "dropout has no argument 'rate': write keep_prob, which is 1 - rate"),
        (lambda x: layers.batch_norm(x, training=True), "batch_norm has no argument 'training': write is_training"),
        (lambda x: layers.conv_relu(input=x, kernel_shape=[3, 3, 3, 2], bias_shape=[2]), "'input': write x"),
        (lambda x: layers.max_pool2d(x, 2, data_format="channels_last"), "got 'channels_last': write NHWC"),
        (lambda x: layers.conv2d(x, 2, [3, 3, 3, 2]), r"=\[height, width\], and num_outputs its last"),
        (lambda x: scoping.arg_scope([layers.conv2d], strides=2), "conv2d has no argument 'strides': write stride"),
    ],
)
def test_tensorflows_and_keras_names_are_refused_with_what_to_write(call, message):
    with scoping.variable_store() as store, pytest.raises((TypeError, ValueError), match=message):
        call(tf.ones([2, 8, 8, 3]))
    assert not store.variables


def test_an_error_inside_a_layer_stays_what_it_is():
    def broken(x):
        raise TypeError("inside")

    with scoping.variable_store(), pytest.raises(TypeError, match=r"^inside$"):
        layers.conv2d(tf.ones([1, 4, 4, 1]), 2, 3, activation_fn=broken)
