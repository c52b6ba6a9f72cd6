"""Every registered network, small, inside every way that Keras has of putting a model into a model."""

import copy

import keras
import numpy as np
import pytest
import tensorflow as tf
from test_contracts import DESCRIPTORS, PRESETS

import zoo

WORDS = np.random.default_rng(0).integers(0, 11, [2, 5]).astype(np.int32)
STEPS = np.random.default_rng(0).normal(size=[2, 5, 3]).astype(np.float32)
NETS = {
    **{f"{d.net}-{'-'.join(map(str, d.options.values()))}": (d.build, d.batch(2)) for d in DESCRIPTORS},
    "word_lm": (lambda: zoo.word_lm(vocab_size=11, hidden=4, num_layers=1, seed=1), WORDS),
    "sequence_tagger": (
        lambda: zoo.sequence_tagger(num_classes=4, hidden=4, width=3, input_shape=(5, 3), seed=1),
        STEPS,
    ),
}
DEEP = {name for name in NETS if name.startswith(("inception", "densenet", "lenet5-slim", "cifarnet"))}


def test_the_table_has_every_network():
    assert set(zoo.list_nets()) - PRESETS == {name.split("-")[0] for name in NETS}


def sequential(model, x):
    return keras.Sequential([keras.Input(x.shape[1:], dtype=x.dtype), model, keras.layers.Flatten()])


def bare_sequential(model, x):
    return keras.Sequential([model, keras.layers.Flatten()])


def functional(model, x):
    inputs = keras.Input(x.shape[1:], dtype=x.dtype)
    return keras.Model(inputs, keras.layers.Flatten()(model(inputs)))


def subclass(model, x):
    class Around(keras.Model):
        def __init__(self):
            super().__init__()
            self.inner, self.last = model, keras.layers.Flatten()

        def call(self, inputs, training=None):
            return self.last(self.inner(inputs, training=training))

    return Around()


def time_distributed(model, x):
    inputs = keras.Input((3, *x.shape[1:]), dtype=x.dtype)
    one = keras.layers.TimeDistributed(model)(inputs)
    assert tuple(one.shape) == (None, 3, *model(x).shape[1:])
    again = keras.layers.Lambda(lambda v: tf.repeat(v[:, None], 3, 1), output_shape=(3, *x.shape[1:]))
    outer = keras.Input(x.shape[1:], dtype=x.dtype)
    return keras.Model(outer, keras.layers.Flatten()(keras.Model(inputs, one)(again(outer))[:, 1]))


def cloned(model, x):
    other = keras.models.clone_model(model)
    other.build((None, *x.shape[1:]))
    other.set_weights(model.get_weights())
    return functional(other, x)


def copied(model, x):
    return functional(copy.deepcopy(model), x)


WRAPPERS = [sequential, bare_sequential, functional, subclass, time_distributed, cloned, copied]


@pytest.mark.parametrize("wrapper", WRAPPERS, ids=lambda w: w.__name__)
@pytest.mark.parametrize("net", [pytest.param(n, marks=pytest.mark.slow if n in DEEP else ()) for n in NETS])
def test_a_network_inside(net, wrapper):
    make, x = NETS[net]
    model = make()
    if wrapper is bare_sequential and x.dtype.kind == "i":  # Keras takes the input to be of the compute type
        with pytest.raises(ValueError, match="word numbers are integers"):
            wrapper(model, x)
        return
    expected = np.reshape(model(x), [len(x), -1])
    outer = wrapper(model, x)
    np.testing.assert_allclose(outer(x), expected, rtol=1e-4, atol=1e-5)
    assert len(outer.trainable_variables) == len(model.trainable_variables)
    if wrapper is not subclass:  # of which Keras does not know the shape
        assert tuple(outer.compute_output_shape((None, *x.shape[1:]))) == (None, expected.shape[1])


@pytest.mark.parametrize("net", [pytest.param(n, marks=pytest.mark.slow if n in DEEP else ()) for n in NETS])
def test_shapes_of_a_model(net):
    make, x = NETS[net]
    model = make()
    shape = (7, *x.shape[1:])
    assert model.compute_output_shape(shape) == (7, *model(x).shape[1:])
    assert model.compute_output_spec(keras.KerasTensor(shape, x.dtype)).dtype == "float32"


def test_a_model_that_is_not_built_inside():
    def network(x, *, is_training=False):
        return x @ zoo.get_variable("w", [3, 2])

    model = zoo.Model(network)
    assert model.compute_output_shape((None, 3)) == (None, 2) and not model.built
    outer = keras.Sequential([model, keras.layers.Dense(4)])
    assert outer(np.ones([5, 3], np.float32)).shape == (5, 4)
    assert len(outer.trainable_variables) == 3
    assert not hasattr(zoo.Model(network), "input_shape")
    with pytest.raises(ValueError, match="has no variables yet"):
        _ = zoo.Model(network).output_shape
    inputs = keras.Input((6, 3))
    frames = keras.Model(inputs, keras.layers.TimeDistributed(zoo.Model(network))(inputs))
    frames.compile("sgd", "mse")
    frames.fit(np.ones([4, 6, 3]), np.zeros([4, 6, 2]), verbose=0)
    assert frames.output_shape == (None, 6, 2)


def test_a_float_batch_for_mixed_precision_keeps_the_outputs_type():
    inputs = keras.Input((32, 32, 1))
    assert zoo.lenet5(dtype="mixed_bfloat16")(inputs).dtype == "float32"
