"""Models in files: what is written comes back, in a new process too, and nothing else is ever run."""

import json
import subprocess
import sys
import zipfile

import keras
import numpy as np
import pytest
import tensorflow as tf
from scoping.places import compiled, data, tiny

import zoo

X, Y = data()


def test_keras_file_in_a_new_process(tmp_path):
    model = compiled(zoo.lenet5(num_classes=3, input_shape=(32, 32, 1), seed=1))
    x = np.random.default_rng(0).random([4, 32, 32, 1], np.float32)
    model.fit(x, np.array([0, 1, 2, 0]), verbose=0)
    model.save(tmp_path / "lenet.keras")
    np.save(tmp_path / "x.npy", x)
    script = (
        "import sys, numpy, keras, zoo\n"
        "model = keras.models.load_model(sys.argv[1] + '/lenet.keras')\n"
        "x = numpy.load(sys.argv[1] + '/x.npy')\n"
        "numpy.save(sys.argv[1] + '/y.npy', model.predict(x, verbose=0))\n"
        "model.fit(x, numpy.array([0, 1, 2, 0]), verbose=0)\n"
        "assert int(model.optimizer.iterations) == 2, model.optimizer.iterations\n"
    )
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], check=True)
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), model.predict(x, verbose=0), rtol=1e-5, atol=1e-6)


def test_config_round_trip_keeps_options_policy_and_frozen_state(tmp_path):
    model = zoo.Model(tiny, units=7, dtype="mixed_bfloat16", input_shape=(3,), seed=5, name="mine")
    again = zoo.Model.from_config(json.loads(json.dumps(model.get_config())))
    assert (again.name, again.seed, again.options, again.dtype_policy.name) == (
        "mine",
        5,
        {"units": 7},
        "mixed_bfloat16",
    )
    model.freeze("fc1")
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    assert loaded.variable_names == model.variable_names
    assert not loaded.get_layer("fc1").trainable
    assert [v.path for v in loaded.trainable_weights] == [v.path for v in model.trainable_weights]


def test_a_function_as_option(tmp_path):
    @zoo.register_function("twice")
    def twice(x):
        return 2 * x

    @zoo.register_function("with_activation")
    def network(x, *, activation=tf.nn.relu, is_training=False):
        return activation(x * zoo.get_variable("w", [3]))

    model = zoo.Model(network, activation=twice, input_shape=(3,))
    model.save(tmp_path / "m.keras")
    np.testing.assert_array_equal(keras.models.load_model(tmp_path / "m.keras")(X), model(X))
    with pytest.raises(ValueError, match="Only registered functions"):
        zoo.Model(network, activation=lambda x: x, input_shape=(3,)).save(tmp_path / "bad.keras")


def test_only_registered_networks_load(tmp_path):
    def unknown(x, *, is_training=False):
        return x * zoo.get_variable("w", [3])

    with pytest.raises(ValueError, match=r"@zoo\.register_function"):
        zoo.Model(unknown, input_shape=(3,)).save(tmp_path / "u.keras")

    zoo.Model(tiny, input_shape=(3,)).save(tmp_path / "m.keras")
    with zipfile.ZipFile(tmp_path / "m.keras") as source, zipfile.ZipFile(tmp_path / "evil.keras", "w") as out:
        for name in source.namelist():
            content = source.read(name)
            if name == "config.json":
                content = content.replace(b'"tiny"', b'"system"').replace(b"scoping.places", b"os")
            out.writestr(name, content)
    with pytest.raises(Exception, match=r"registered functions only.*'system'"):
        keras.models.load_model(tmp_path / "evil.keras")


def test_a_registered_name_belongs_to_one_function():
    with pytest.raises(ValueError, match=r"'tiny' is .*places\.tiny"):

        @zoo.register_function("tiny")
        def other(x):
            return x


def test_weights_h5_is_a_tree_of_scopes(tmp_path):
    import h5py

    model = zoo.Model(tiny, input_shape=(3,), seed=1)
    model.save_weights(tmp_path / "m.weights.h5")
    with h5py.File(tmp_path / "m.weights.h5") as file:
        np.testing.assert_array_equal(file["Tiny/fc1/vars/weights"], model.variable("fc1/weights"))
    other = zoo.Model(tiny, input_shape=(3,), seed=2)
    other.load_weights(tmp_path / "m.weights.h5")
    np.testing.assert_array_equal(other(X), model(X))
    smaller = zoo.Model(tiny, units=2, input_shape=(3,), seed=2)
    with pytest.raises(ValueError, match=r"fc2/weights is \(8, 2\) in the model and \(8, 4\) in the file; Tiny/fc2/b"):
        smaller.load_weights(tmp_path / "m.weights.h5")
    deeper = zoo.Model(lambda x, *, is_training=False: tiny(zoo.layers.fully_connected(x, 3)), input_shape=(3,))
    with pytest.raises(ValueError, match=r"Missing: \['biases', 'weights'\]"):
        deeper.load_weights(tmp_path / "m.weights.h5")
    smaller.load_weights(tmp_path / "m.weights.h5", skip_mismatch=True)
    np.testing.assert_array_equal(smaller.variable("fc1/weights"), model.variable("fc1/weights"))


def test_the_legacy_format_is_refused_before_anything_is_written(tmp_path):
    model = compiled(zoo.Model(tiny, input_shape=(3,)))
    for name in ("m.h5", "m.hdf5"):
        with pytest.raises(ValueError, match=r"nothing could read it .*m.h.* Write model.save\('NAME.keras'\)"):
            model.save(tmp_path / name)
    with pytest.raises(ValueError, match="nothing could read it"):
        model.fit(X, Y, verbose=0, callbacks=[keras.callbacks.ModelCheckpoint(tmp_path / "best.h5")])
    assert not list(tmp_path.iterdir())
    for saved in (model, keras.Sequential([model])):  # Keras' own function has opened the file by then
        with pytest.raises(ValueError, match="nothing could read it"):
            keras.saving.save_model(saved, tmp_path / "m.h5")


def test_weights_inside_a_functional_model(tmp_path):
    def build(seed):
        inputs = keras.Input([3])
        return keras.Model(inputs, zoo.Model(tiny, seed=seed)(inputs))

    first, second = build(1), build(2)
    first.save_weights(tmp_path / "m.weights.h5")
    second.load_weights(tmp_path / "m.weights.h5")
    np.testing.assert_array_equal(first(X), second(X))
    first.save(tmp_path / "m.keras")
    np.testing.assert_array_equal(keras.models.load_model(tmp_path / "m.keras")(X), first(X))


def test_feature_model_round_trip(tmp_path):
    features = zoo.Model(tiny, input_shape=(3,)).feature_model("fc1")
    features.save(tmp_path / "f.keras")
    np.testing.assert_array_equal(keras.models.load_model(tmp_path / "f.keras")(X), features(X))


def test_scopes_named_like_layer_attributes(tmp_path):
    @zoo.register_function
    def odd_names(x, *, is_training=False):
        for scope in ("weights", "name", "call", "output", "a.b-c"):
            with zoo.variable_scope(scope):
                x = x * zoo.get_variable("trainable", [3])
        return x

    model = zoo.Model(odd_names, input_shape=(3,), seed=1)
    model.save(tmp_path / "m.keras")
    np.testing.assert_array_equal(keras.models.load_model(tmp_path / "m.keras")(X), model(X))


def test_tf_checkpoint(tmp_path):
    model = compiled(zoo.Model(tiny, input_shape=(3,), seed=1))
    model.fit(X, Y, verbose=0)
    path = tf.train.Checkpoint(model=model).save(str(tmp_path / "ck"))
    other = compiled(zoo.Model(tiny, input_shape=(3,), seed=2))
    tf.train.Checkpoint(model=other).restore(path).expect_partial()
    np.testing.assert_array_equal(other(X), model(X))


def test_saved_model(tmp_path):
    model = zoo.Model(tiny, input_shape=(3,), seed=1)
    model.export(str(tmp_path / "sm"), verbose=False)
    exported = tf.saved_model.load(str(tmp_path / "sm"))
    np.testing.assert_allclose(exported.serve(X), model(X), rtol=1e-5, atol=1e-6)


def test_clone_model():
    model = zoo.Model(tiny, input_shape=(3,), seed=1)
    clone = keras.models.clone_model(model)
    clone(X)
    assert clone.variable_names == model.variable_names
    assert clone.variable("fc1/weights") is not model.variable("fc1/weights")
