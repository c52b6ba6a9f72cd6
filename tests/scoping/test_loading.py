"""Model files that others wrote: what they may name, and how much they may ask for."""

import json
import marshal
import zipfile

import h5py
import keras
import numpy as np
import pytest

import zoo
from zoo.files import limits
from zoo.scoping.loading import check_config

TINY = {"module": "keras.layers", "class_name": "Dense", "config": {"units": 2}, "registered_name": None}


def canary(path):
    """Python code, marshalled as Keras does, that leaves a file."""
    import base64

    code = compile(f"lambda x: open({str(path)!r}, 'w') and x", "f", "eval").co_consts[0]
    return base64.b64encode(marshal.dumps(code)).decode()


def layer(name, config, module="keras.layers", **more):
    return {"module": module, "class_name": name, "config": config, "registered_name": None, **more}


def function(name, module="builtins"):
    return {"module": module, "class_name": "function", "config": name, "registered_name": name}


def attacks(ran):
    """Name of each published kind of attack to the layer, or other part, that carries it."""
    code = {"class_name": "__lambda__", "config": {"code": canary(ran), "defaults": None, "closure": None}}
    get_file = {"fname": "x", "origin": "http://127.0.0.1:9/x", "cache_dir": str(ran)}
    return {
        "lambda with code": layer("Lambda", {"name": "l", "function": code}),
        "lambda with a named function": layer("Lambda", {"function": function("system", "os"), "arguments": {}}),
        "lambda calls get_file": layer(
            "Lambda", {"function": function("get_file", "keras.utils"), "arguments": get_file}
        ),
        "class of another module": layer("Popen", {"args": ["touch", str(ran)]}, "subprocess"),
        "function of another module": layer("Dense", {"units": 1, "activation": function("system", "os")}),
        "function of keras.utils": layer("Dense", {"units": 1, "activation": function("get_file", "keras.utils")}),
        "switches safe mode off": layer(
            "Dense", {"units": 1, "activation": function("enable_unsafe_deserialization", "keras.config")}
        ),
        "class of keras.utils": layer("Dense", {"bias_initializer": layer("get_file", {}, "keras.utils")}),
        "loader as a function": layer("Dense", {"activation": function("deserialize", "keras.activations")}),
        "vocabulary of a file": layer("StringLookup", {"vocabulary": "/etc/passwd"}),
        "vocabulary of an address": layer("TextVectorization", {"vocabulary": "http://127.0.0.1/x"}),
        "integer vocabulary": layer("IntegerLookup", {"vocabulary": "/etc/passwd"}),
        "pickled module": layer("TorchModuleWrapper", {"module": {"class_name": "__bytes__", "config": {}}}),
        "foreign saved model": layer("TFSMLayer", {"filepath": "/tmp/x", "call_endpoint": "serve"}),
        "inside a wrapper": layer("TimeDistributed", {"layer": layer("Lambda", {"function": code})}),
        "inside a model inside": layer("Sequential", {"layers": [layer("Lambda", {"function": code})]}, "keras"),
        "inside a metric": layer("MeanMetricWrapper", {"fn": function("get_file", "keras.utils")}, "keras.metrics"),
        "type of another module": {
            "class_name": "__typespec__", "spec_name": "system", "module": "os", "config": [], "registered_name": None,
        },
        "registered name of another": {**TINY, "registered_name": "Evil>Dense"},
        "class by its private module": layer("Lambda", {"function": code}, "keras.src.layers.core.lambda_layer"),
        "operation of keras.src": layer("Get", {}, "keras.src.saving.saving_api"),
        "no module": {"class_name": "Lambda", "config": {"function": ["x", None, None], "function_type": "lambda"}},
        "address as an argument": layer("Dense", {"units": 1, "name": "https://example.org/x"}),
        "file as an argument": layer("Dense", {"units": 1, "data_path": "x.csv"}),
        "other folder as an argument": layer("Dense", {"units": 1, "bias_regularizer": "../x"}),
    }  # fmt: skip


KINDS = list(attacks("/tmp/x"))


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """A plain Keras model's file, its configuration and weights, to be changed."""
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(2, activation="relu", kernel_regularizer="l2")])
    model.compile("adam", loss=keras.losses.sparse_categorical_crossentropy, metrics=["accuracy"])
    path = tmp_path_factory.mktemp("plain") / "m.keras"
    model.save(path)
    return path


def rewrite(source, target, change=lambda config: config, weights=None, compression=zipfile.ZIP_STORED):
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", compression) as new:
        new.writestr("config.json", json.dumps(change(json.loads(old.read("config.json")))))
        new.writestr("metadata.json", old.read("metadata.json"))
        new.writestr("model.weights.h5", weights or old.read("model.weights.h5"))
    return target


@pytest.mark.parametrize("kind", KINDS)
def test_every_published_kind_of_attack_is_refused_before_keras_sees_it(kind, plain, tmp_path, monkeypatch):
    monkeypatch.setattr(keras.saving, "load_model", lambda *_, **__: pytest.fail("Keras saw the file"))
    part = attacks(tmp_path / "ran")[kind]
    places = {
        "layer": lambda c: {**c, "config": {**c["config"], "layers": [*c["config"]["layers"], part]}},
        "compile": lambda c: {**c, "compile_config": {**c["compile_config"], "metrics": [part]}},
        "build": lambda c: {**c, "build_config": {"input_shape": [part]}},
        "option": lambda c: {
            **layer("Model", {"network": "n", "options": {"a": [part]}}, "zoo.scoping.model"),
            "registered_name": "zoo>Model",
        },
    }
    for place, change in places.items():
        path = rewrite(plain, tmp_path / f"{place}.keras", change)
        with pytest.raises(ValueError, match=rf"{place}\.keras is refused: "):
            zoo.load_model(path)
    with h5py.File(tmp_path / "old.h5", "w") as file:
        file.attrs["model_config"] = json.dumps({"class_name": "Sequential", "config": {"layers": [part]}})
    with pytest.raises(ValueError, match=r"old\.h5 is refused: "):
        zoo.load_model(tmp_path / "old.h5")
    assert not (tmp_path / "ran").exists()


def test_plain_keras_models_load_from_both_formats(plain, tmp_path):
    x = np.ones((1, 3), np.float32)
    loaded = zoo.load_model(plain)
    assert loaded.loss is not None
    again = keras.saving.load_model(plain)
    np.testing.assert_array_equal(loaded(x), again(x))
    again.save(tmp_path / "old.h5")
    np.testing.assert_array_equal(zoo.load_model(tmp_path / "old.h5")(x), again(x))
    images = keras.Input((8, 8, 3))
    y = keras.layers.Conv2D(2, 3, kernel_initializer=keras.initializers.HeNormal(seed=1), bias_constraint="non_neg")(
        images
    )
    y = keras.layers.Bidirectional(keras.layers.LSTM(2))(keras.layers.Reshape((6, 12))(keras.layers.ReLU()(y)))
    model = keras.Model(
        images, keras.layers.Concatenate()([y, keras.layers.Dense(1, activation=keras.activations.tanh)(y)])
    )
    rate = keras.optimizers.schedules.CosineDecay(0.1, 10)
    model.compile(
        keras.optimizers.SGD(rate, momentum=0.9),
        keras.losses.MeanSquaredError(),
        metrics=[keras.metrics.MeanAbsoluteError()],
    )
    x = np.ones((2, 8, 8, 3), np.float32)
    model.fit(x, np.zeros((2, 5)), verbose=0)
    model.save(tmp_path / "f.keras")
    loaded = zoo.load_model(tmp_path / "f.keras")
    np.testing.assert_array_equal(loaded(x), model(x))
    assert loaded.optimizer.iterations == 1
    for ours, theirs in zip(loaded.optimizer.variables, model.optimizer.variables, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_classes_of_ones_own_are_passed_by_name(tmp_path):
    class Mine(keras.layers.Layer):
        def call(self, x):
            return x + 1

    model = keras.Sequential([keras.Input((3,)), Mine()])
    model.save(tmp_path / "m.keras")
    with pytest.raises(ValueError, match=r"m\.keras is refused: it names .*Mine.* custom_objects=\{'Mine': \.\.\.\}"):
        zoo.load_model(tmp_path / "m.keras")
    loaded = zoo.load_model(tmp_path / "m.keras", custom_objects={"Mine": Mine})
    np.testing.assert_array_equal(loaded(np.ones((1, 3))), [[2, 2, 2]])
    with pytest.raises(ValueError, match="runs no code of a file"):
        zoo.load_model(tmp_path / "m.keras", safe_mode=False)


def test_zoo_models_with_everything_pass_the_list(tmp_path):
    model = zoo.lenet5(num_classes=3)
    model.card = {"source": "https://example.org/x", "classes": ["../a", "/m/01"]}
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    x = np.random.default_rng(0).normal(size=(2, 32, 32, 1)).astype(np.float32)
    model.fit(x, np.array([0, 1]), verbose=0)
    model.save(tmp_path / "m.keras")
    loaded = zoo.load_model(tmp_path / "m.keras")
    np.testing.assert_array_equal(loaded(x), model(x))
    assert loaded.card == model.card
    assert loaded.optimizer.iterations == 1
    other = zoo.lenet5(num_classes=3)
    for name in ("m.keras", "m.weights.h5"):
        model.save_weights(tmp_path / "m.weights.h5")
        other.load_weights(tmp_path / name)
        np.testing.assert_array_equal(other(x), model(x))


@pytest.mark.parametrize("name", ["num_classes", "trunk_depth"])
def test_a_configuration_that_asks_for_more_than_the_weights_is_refused(name, tmp_path):
    model = (
        zoo.lenet5(num_classes=3)
        if name == "num_classes"
        else keras.Sequential([keras.Input((3,)), keras.layers.Dense(2)])
    )
    model.save(tmp_path / "m.keras")

    def change(config):
        if name == "num_classes":
            config["config"]["options"]["num_classes"] = 10**12
        else:
            dense = config["config"]["layers"][1]
            del config["build_config"], dense["build_config"]
            dense["config"]["units"] = 10**5
            config["config"]["layers"] += [{**dense, "config": {**dense["config"], "name": f"d{i}"}} for i in range(9)]
        return config

    path = rewrite(tmp_path / "m.keras", tmp_path / "big.keras", change)
    with pytest.raises(ValueError, match=r"big\.keras is refused: its configuration asks for .* variables"):
        zoo.load_model(path)


def test_an_endless_network_is_refused(plain, tmp_path):
    def change(config):
        dense = config["config"]["layers"][1]
        config["config"]["layers"] = config["config"]["layers"][:1]
        dense["config"]["units"] = 3
        config["config"]["layers"] += [{**dense, "config": {**dense["config"], "name": f"d{i}"}} for i in range(200)]
        return config

    path = rewrite(plain, tmp_path / "long.keras", change)
    with pytest.raises(ValueError, match=r"long\.keras is refused: its configuration asks for 2\d\d variables"):
        zoo.load_model(path)


def test_archives_that_unpack_to_more_than_they_hold_are_refused(plain, tmp_path):
    with h5py.File(tmp_path / "w.h5", "w") as file:
        file["layers/dense/vars/0"] = np.zeros(20_000_000, np.float32)
    content = (tmp_path / "w.h5").read_bytes()
    path = rewrite(plain, tmp_path / "zeros.keras", weights=content, compression=zipfile.ZIP_DEFLATED)
    assert path.stat().st_size < 200_000
    with pytest.raises(ValueError, match=r"zeros\.keras is refused: all its members together asks for 80,"):
        zoo.load_model(path)
    with h5py.File(tmp_path / "w.h5", "w") as file:
        file.create_dataset("d", shape=(4,), dtype="f4", external=[("/etc/passwd", 0, 16)])
    path = rewrite(plain, tmp_path / "external.keras", weights=(tmp_path / "w.h5").read_bytes())
    with pytest.raises(ValueError, match=r"external\.keras: d keeps its data in another file"):
        zoo.load_model(path)
    with limits(max_bytes=1000), pytest.raises(ValueError, match=r"m\.keras is refused.*max_bytes=1,000"):
        zoo.load_model(plain)
    model = zoo.lenet5()
    with pytest.raises(ValueError, match=r"zeros\.keras"):
        model.load_weights(tmp_path / "zeros.keras")
    with zipfile.ZipFile(tmp_path / "zeros.keras", "a") as archive:
        archive.writestr("config.json", "{}")
    with pytest.raises(ValueError, match=r"zeros\.keras is refused: it has two members of one name"):
        zoo.load_model(tmp_path / "zeros.keras")


def test_missing_and_foreign_files_are_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"nothing\.keras"):
        zoo.load_model(tmp_path / "nothing.keras")
    (tmp_path / "text.keras").write_text("hello")
    with pytest.raises(ValueError, match=r"text\.keras is neither a \.keras archive nor an HDF5 file"):
        zoo.load_model(tmp_path / "text.keras")
    with pytest.raises(OSError, match=r"(?i)is a directory"):
        zoo.load_model(tmp_path)


@pytest.mark.parametrize("config", [[], {}, 3, {"class_name": []}, {"class_name": "Dense", "config": None}])
def test_a_configuration_of_another_form_is_no_traceback(config, plain, tmp_path):
    path = rewrite(plain, tmp_path / "odd.keras", lambda _: config)
    with pytest.raises(ValueError, match=r"odd\.keras"):
        zoo.load_model(path)


def test_all_of_keras_public_classes_are_sorted():
    """Every public layer may be made, or is on the list of those that may not."""
    for name, kind in vars(keras.layers).items():
        if isinstance(kind, type) and issubclass(kind, keras.layers.Layer):
            config = {"module": "keras.layers", "class_name": name, "config": {}, "registered_name": None}
            opens = {"Lambda", "TFSMLayer", "JaxLayer", "FlaxLayer", "TorchModuleWrapper"}
            if name in opens | {"StringLookup", "IntegerLookup", "TextVectorization"}:
                with pytest.raises(ValueError, match="is refused"):
                    check_config(config, "f", {})
            else:
                check_config(config, "f", {})
