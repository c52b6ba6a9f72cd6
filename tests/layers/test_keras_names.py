"""Keras' names of activations, initializers and regularizers, wherever a layer, a cell or a network takes one."""

import inspect

import keras
import numpy as np
import pytest
import tensorflow as tf
from layers.cases import CASES

import zoo
from zoo import layers, rnn, scoping
from zoo.layers.dense_block import dense_block, norm_pool
from zoo.registry import get_net

LOSSES = tf.compat.v1.GraphKeys.REGULARIZATION_LOSSES


def names_of(module):
    """The names that Keras takes in that module, one for each thing."""
    found = {}
    for name in dir(module):
        if name.islower() and name not in ("get", "serialize", "deserialize") and callable(getattr(module, name)):
            found.setdefault(getattr(module, name), name)
    return sorted(found.values())


ACTIVATIONS = [
    name for name in names_of(keras.activations) if name not in ("glu", "threshold")
]  # halves channels; needs numbers
INITIALIZERS = [
    name for name in names_of(keras.initializers) if name not in ("stft", "constant")
]  # of no kernel; needs a value
REGULARIZERS = ["l1", "l2", "l1_l2", "L2"]
MATRICES = ("identity", "identity_initializer", "orthogonal", "orthogonal_initializer")


def kinds_of(parameters):
    """Argument -> what it is, for those that take an activation, an initializer or a regularizer."""
    ends = {"activation_fn": "activation", "activation": "activation"}
    found = {name: ends.get(name, name.removesuffix("s").rpartition("_")[2]) for name in parameters}
    return {name: kind for name, kind in found.items() if kind in ("activation", "initializer", "regularizer")}


def run_cell(make):
    return lambda x, **options: rnn.dynamic_rnn(make(3, **options), x)[0]


BY_LAYER = {case.layer: case for case in reversed(CASES)}
CALLS = {
    case.layer.__name__: (kinds_of(inspect.signature(case.layer).parameters), case.shape, case)
    for case in BY_LAYER.values()
} | {
    "dense_block": (
        kinds_of(inspect.signature(dense_block).parameters),
        (4, 4, 2),
        lambda x, **options: dense_block(x, 1, 2, is_training=False, **options).pieces[-1],
    ),
    "norm_pool": (
        kinds_of(inspect.signature(norm_pool).parameters),
        (4, 4, 2),
        lambda x, **options: norm_pool(tf.constant(x), 2, is_training=False, **options),
    ),
    **{
        cell.__name__: (kinds_of(inspect.signature(cell).parameters), (2, 4), run_cell(cell))
        for cell in (rnn.BasicRNNCell, rnn.GRUCell, rnn.LSTMCell, rnn.BasicLSTMCell)
    },
}
ARGUMENTS = [(name, argument) for name, (kinds, _, _) in CALLS.items() for argument in kinds]


def of_kind(kind):
    chosen = [(name, argument) for name, argument in ARGUMENTS if CALLS[name][0][argument] == kind]
    return pytest.mark.parametrize(("name", "argument"), chosen, ids=["-".join(pair) for pair in chosen])


def call(name, argument, value, seed=3):
    """Runs a layer, in a store, with that value; dictionaries of `param_...s` take it for their first key."""
    _, shape, layer = CALLS[name]
    x = np.random.default_rng(1).normal(size=(2, *shape)).astype("float32")
    if argument.startswith("param_"):
        value = {"beta": value}
    more = {"biases_initializer": "ones"} if argument == "biases_regularizer" else {}
    with scoping.variable_store(seed=seed) as store:
        outputs = layer(x, **more, **{argument: value})
        losses = list(scoping.get_collection(LOSSES))
    return outputs, store.variables, losses


def test_every_layer_and_cell_is_in_the_table():
    exported = {name for name in layers.__all__ if inspect.isfunction(getattr(layers, name))}
    takes = {name for name in exported if kinds_of(inspect.signature(getattr(layers, name)).parameters)}
    cells = {
        name
        for name, cell in vars(rnn).items()
        if isinstance(cell, type) and issubclass(cell, rnn.RNNCell) and kinds_of(inspect.signature(cell).parameters)
    }
    assert takes | cells <= CALLS.keys()
    assert {"activation", "initializer", "regularizer"} <= {CALLS[n][0][a] for n, a in ARGUMENTS}
    assert len(ARGUMENTS) > 25


@of_kind("activation")
def test_activations(name, argument):
    linear, _, _ = call(name, argument, keras.activations.linear)
    for activation in ACTIVATIONS:
        found, _, _ = call(name, argument, activation)
        function, _, _ = call(name, argument, keras.activations.get(activation))
        np.testing.assert_allclose(found, function, rtol=1e-6, atol=1e-6, err_msg=activation)
        if name not in ("BasicRNNCell", "GRUCell", "LSTMCell", "BasicLSTMCell"):
            np.testing.assert_allclose(found, keras.activations.get(activation)(linear), rtol=1e-5, atol=1e-5)


@of_kind("initializer")
def test_initializers(name, argument):
    _, before, _ = call(name, argument, "zeros")
    start = {variable: value.numpy() for variable, value in before.items()}
    meant = [v for v in start if not np.array_equal(start[v], call(name, argument, "ones")[1][v].numpy())]
    assert meant  # the argument reaches a variable, and `zeros` does
    assert all(not start[variable].any() for variable in meant)
    for initializer in INITIALIZERS:
        shapes = {len(start[variable].shape) for variable in meant}
        if initializer in MATRICES and shapes != {2}:
            continue
        found = call(name, argument, initializer)[1]
        with scoping.variable_store(seed=3):
            for variable in meant:
                alone = scoping.get_variable(variable, start[variable].shape, initializer=initializer)
                np.testing.assert_array_equal(found[variable], alone, err_msg=f"{initializer} {variable}")


@of_kind("regularizer")
def test_regularizers(name, argument):
    for regularizer in REGULARIZERS:
        _, variables, losses = call(name, argument, regularizer)
        function = getattr(keras.regularizers, regularizer)()
        each = {variable: float(function(value.value())) for variable, value in variables.items()}
        assert losses
        for loss in losses:
            assert min(abs(float(loss) - value) for value in each.values()) < 1e-6


@pytest.mark.parametrize(("name", "argument"), ARGUMENTS, ids=["-".join(pair) for pair in ARGUMENTS])
def test_what_is_no_name_is_refused_in_plain_words(name, argument):
    kind = CALLS[name][0][argument]
    wrong, near = {
        "activation": ("reluu", "did you mean 'relu"),
        "initializer": ("he_norml", "did you mean 'he_normal'"),
        "regularizer": ("l3", "did you mean 'l"),
    }[kind]
    with pytest.raises(ValueError, match=f"the {kind} '{wrong}' is no name that Keras knows; {near}"):
        call(name, argument, wrong)
    if kind != "initializer":  # where a number is a constant, and a class one that TF1 makes an instance of
        for odd, said in ((0.1, "got 0.1"), (keras.layers.ReLU, "got the class ReLU")):
            with pytest.raises(TypeError, match=f"the {kind} is a function such as .*, or Keras' name of one, {said}"):
                call(name, argument, odd)


def test_networks_with_such_an_option_take_the_names():
    taken = {n: kinds_of(get_net(n).options()) for n in zoo.list_nets()}
    assert {n: kinds for n, kinds in taken.items() if kinds} == {"lenet5": {"activation": "activation"}}
    x = np.random.default_rng(1).uniform(size=(2, 32, 32, 1)).astype("float32")
    for activation in ("gelu", "leaky_relu", "tanh", "scaled_tanh"):
        assert np.isfinite(zoo.lenet5(activation=activation, seed=1)(x)).all()
    with pytest.raises(
        ValueError, match="lenet5: the activation 'tahn' is no name that Keras knows; did you mean 'tanh'"
    ):
        zoo.lenet5(activation="tahn")


def test_a_name_follows_the_models_seed_and_each_variable_draws_its_own():
    def network(inputs, is_training=False):
        with scoping.variable_scope("net", initializer="he_normal", regularizer="l2"):
            first = scoping.get_variable("a", [64, 64])
            return inputs @ first @ scoping.get_variable("b", [64, 64], initializer=keras.initializers.HeNormal())

    def built(seed):
        model = zoo.Model(network, input_shape=(64,), seed=seed)
        return [model.variable(name).numpy() for name in ("net/a", "net/b")], model.losses

    (a, b), losses = built(1)
    np.testing.assert_array_equal([a, b], built(1)[0])
    assert not np.array_equal(a, b)
    assert not np.array_equal(a, built(2)[0][0])
    np.testing.assert_allclose([a.std(), b.std()], np.sqrt(2 / 64), rtol=0.05)
    np.testing.assert_allclose(sum(losses), 0.01 * (np.square(a).sum() + np.square(b).sum()), rtol=1e-5)
    explicit = keras.initializers.HeNormal(seed=5)
    with scoping.variable_store(seed=1):
        own = scoping.get_variable("own", [4, 4], initializer=explicit)
    np.testing.assert_array_equal(own, explicit([4, 4]))


def test_names_in_a_graph():
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        tf.compat.v1.set_random_seed(1)
        x = tf.ones([1, 8, 8, 32])
        y = layers.conv2d(x, 32, 3, activation_fn="gelu", weights_initializer="he_normal", weights_regularizer="l2")
        text = scoping.get_variable("text", initializer="he_normal")  # without a shape it is the value
        session.run(tf.compat.v1.global_variables_initializer())
        weights = session.run(tf.compat.v1.trainable_variables()[0])
        (loss,) = session.run(tf.compat.v1.get_collection(LOSSES))
        assert session.run(text) == b"he_normal"
        assert session.run(y).shape == (1, 8, 8, 32)
    np.testing.assert_allclose(weights.std(), np.sqrt(2 / (9 * 32)), rtol=0.05)
    np.testing.assert_allclose(loss, 0.01 * np.square(weights).sum(), rtol=1e-5)
