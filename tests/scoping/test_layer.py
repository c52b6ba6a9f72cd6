"""What a network uses beside `get_variable`: every kind of thing that holds variables is the model's, or is refused."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import zoo
from zoo import layers

X = np.random.default_rng(0).normal(size=[8, 5]).astype(np.float32)
FC = ["head/fully_connected/weights", "head/fully_connected/biases"]


class Scaled(keras.layers.Layer):
    def build(self, shape):
        self.scale = self.add_weight(shape=(shape[-1],), initializer="ones", name="scale")

    def call(self, x):
        return x * self.scale


def functional():
    inputs = keras.Input((5,))
    net = keras.layers.BatchNormalization(name="norm")(keras.layers.Dense(5)(keras.layers.Dense(5)(inputs)))
    return keras.Model(inputs, keras.layers.Dropout(0.2, seed=1)(net), name="base")


def inner_model():
    def inner(x, *, is_training=False):
        with zoo.variable_scope("inner"):
            return x * zoo.get_variable("w", [5], initializer=tf.compat.v1.ones_initializer())

    return zoo.Model(inner)


def kept():
    made = []

    def use(x):
        made[:] = made or [keras.layers.Dense(5)]
        return made[0](x)

    return use


def module():
    holder = tf.Module()
    holder.scale = tf.Variable(tf.ones([5]), name="module/scale")
    return lambda x: x * holder.scale


def variable(**kwargs):
    def make():
        v = tf.Variable(tf.ones([5]), **kwargs)
        return lambda x: x * v

    return make


def keras_variable():
    v = keras.Variable(np.ones([5], np.float32), name="factor")
    return lambda x: x * v


def counter():
    count = tf.Variable(0, name="count", trainable=False)

    def use(x):
        count.assign_add(1)
        return x

    return use


def generator():
    drawn = tf.random.Generator.from_seed(1)
    return lambda x: x + drawn.uniform([5])


# source -> (what makes it, the names of its variables, how many are trained)
SOURCES = {
    "a built Keras model": (
        lambda: keras.Sequential([keras.Input((5,)), keras.layers.Dense(5), keras.layers.Dense(5, name="last")]),
        ["sequential/dense/kernel", "sequential/dense/bias", "sequential/last/kernel", "sequential/last/bias"],
        4,
    ),
    "a layer that is not built": (lambda: keras.layers.Dense(5), ["dense/kernel", "dense/bias"], 2),
    "a named layer": (lambda: keras.layers.Dense(5, name="mine_7"), ["mine_7/kernel", "mine_7/bias"], 2),
    "a functional model": (
        functional,
        [
            *("base/dense/kernel", "base/dense/bias", "base/dense_1/kernel", "base/dense_1/bias"),
            *(f"base/norm/{name}" for name in ("gamma", "beta", "moving_mean", "moving_variance")),
            "base/seed_generator/seed_generator_state",
        ],
        6,
    ),
    "a subclass": (Scaled, ["scaled/scale"], 1),
    "a model of zoo's": (inner_model, ["inner/inner/w"], 1),
    "a layer made at the first call and kept": (kept, ["dense/kernel", "dense/bias"], 2),
    "a variable": (variable(name="temperature"), ["temperature"], 1),
    "a variable in a scope's name": (variable(name="head/temperature"), ["head/temperature"], 1),
    "a variable that is not trained": (variable(name="mask", trainable=False), ["mask"], 0),
    "a variable of a module": (module, ["module/scale"], 1),
    "a variable of Keras": (keras_variable, ["factor"], 1),
    "a variable that counts": (counter, ["count"], 0),
    "a variable of a generator": (generator, ["StateVar"], 0),
}


def network_with(use, scope="head"):
    def network(x, *, is_training=False):
        with zoo.variable_scope(scope):
            return layers.fully_connected(use(x), 3, activation_fn=None)

    return network


@pytest.fixture
def built(request):
    make, names, trained = SOURCES[request.param]
    use = make()
    model = zoo.Model(network_with(use), input_shape=(5,), seed=1)
    is_variable = "variable" in request.param
    return use, model, names if is_variable else [f"head/{name}" for name in names], trained


every_source = pytest.mark.parametrize("built", SOURCES, indirect=True)


@every_source
def test_its_variables_are_listed_and_trained(built):
    _, model, names, trained = built
    found = [name for name in model.variable_names if name not in FC]
    assert sorted(found) == sorted(names)
    assert len(model.trainable_variables) == 2 + trained
    before = {name: model.variable(name).numpy() for name in names}
    model.compile("sgd", "mse")
    model.fit(X, np.ones([8, 3]), epochs=2, verbose=0)
    changed = [name for name in names if not np.array_equal(before[name], model.variable(name).numpy())]
    assert len(changed) >= trained
    if names != ["StateVar"]:  # which draws
        np.testing.assert_allclose(tf.function(model)(X), model(X), rtol=1e-5, atol=1e-6)


@every_source
def test_its_variables_are_saved_and_loaded(built, tmp_path):
    _, model, names, _ = built
    if names == ["StateVar"]:
        model.variable("StateVar").assign([1, 2, 3])
        expected = model(X).numpy()
        model.variable("StateVar").assign([1, 2, 3])
    else:
        expected = model(X).numpy()
    model.save_weights(tmp_path / "m.weights.h5")
    checkpoint = tf.train.Checkpoint(model).write(str(tmp_path / "ckpt"))
    readers = [
        lambda: model.load_weights(tmp_path / "m.weights.h5"),
        lambda: tf.train.Checkpoint(model).read(checkpoint),
    ]
    for read in readers:
        for name in [*names, *FC]:
            v = model.variable(name)
            v.assign(np.zeros(v.shape, v.dtype) if "seed" in name else np.full(v.shape, 7, v.dtype))
        assert np.abs(model(X).numpy() - expected).max() > 0.01
        read()
        np.testing.assert_allclose(model(X), expected, rtol=1e-6, atol=1e-6)


@every_source
def test_its_layers_freeze_by_name(built):
    use, model, names, _ = built
    model.freeze("*")
    assert all("/" not in name for name in names) or not model.trainable_variables  # one in no scope is in no glob
    model.unfreeze("*")
    assert len(model.trainable_variables) >= 2
    if isinstance(use, keras.layers.Layer):
        path = "/".join(names[0].split("/")[:2])
        assert model.get_layer(path) is use
        model.freeze(path)
        assert len(model.trainable_variables) == 2


def test_a_whole_file_brings_it_back(tmp_path):
    base = keras.Sequential([keras.layers.Dense(5)])
    model = zoo.Model(zoo.register_function("test_owned_network")(network_with(base)), input_shape=(5,), seed=1)
    expected = model(X).numpy()
    model.save(tmp_path / "m.keras")
    base.set_weights([np.zeros(w.shape) for w in base.get_weights()])
    np.testing.assert_allclose(zoo.load_model(tmp_path / "m.keras")(X), expected, rtol=1e-6)
    model.export(tmp_path / "saved", verbose=False)
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    np.testing.assert_allclose(loaded.serve(X), expected, rtol=1e-5, atol=1e-6)


def test_two_of_a_kind_and_a_shared_one():
    one, two = keras.layers.Dense(5), keras.layers.Dense(5)

    def network(x, *, is_training=False):
        return two(one(one(x)))

    model = zoo.Model(network, input_shape=(5,))
    assert model.variable_names == ["dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias"]
    assert len(model.trainable_variables) == 4


REFUSED = {
    "a layer made inside": (lambda: lambda x: keras.layers.Dense(5)(x), "dense.*/kernel"),
    "dropout made inside": (lambda: lambda x: keras.layers.Dropout(0.5)(x), "seed_generator_state"),
    "a variable made inside": (lambda: lambda x: x * tf.Variable(tf.ones([5]), name="fresh"), "fresh"),
    "a variable of Keras made inside": (lambda: lambda x: x * keras.Variable(np.ones(5, "float32"), name="own"), "own"),
    "a layer made inside a branch": (
        lambda: lambda x: tf.cond(tf.reduce_sum(x) > 0, lambda: keras.layers.Dense(5)(x), lambda: x),
        "dense.*/kernel",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_what_cannot_be_kept_is_refused_at_build(kind):
    make, named = REFUSED[kind]
    with pytest.raises(zoo.ScopeError, match=rf"(?s)network of 'network'.*({named}).*zoo\.get_variable"):
        zoo.Model(network_with(make()), input_shape=(5,))


def test_what_has_no_variables_is_nobodys():
    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer([1], [2]), 0)

    def network(x, *, is_training=False):
        x = keras.layers.Flatten()(keras.layers.Activation("relu")(x))
        return x * tf.cast(table.lookup(tf.constant([1])), x.dtype) * zoo.get_variable("w", [5])

    assert zoo.Model(network, input_shape=(5,)).variable_names == ["w"]


@pytest.mark.parametrize("name", ["a built Keras model", "a variable"])
def test_a_store_leaves_them_to_their_owner(name):
    use = SOURCES[name][0]()
    with zoo.variable_store() as store:
        network_with(use)(tf.constant(X))
    assert list(store.variables) == FC
