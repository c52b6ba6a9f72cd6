"""Every loader changes all of a model's variables or none, and only one place assigns by name."""

import json
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from zoo import layers, scoping
from zoo.files import hash_of
from zoo.training import state
from zoo.weights import bundled, load, names, restore_tf1, save_tf1
from zoo.weights.formats import WeightFile
from zoo.weights.tf1_names import assign_checkpoint


def network(inputs, *, is_training=False):
    return layers.fully_connected(layers.fully_connected(inputs, 3, scope="first"), 2, scope="second")


def load_bundled(model, values, folder):
    path = folder / "net-some.safetensors"
    safetensors.numpy.save_file(values, path)
    path.with_suffix(".json").write_text(json.dumps({"options": {}, "sha256": hash_of(path)}))
    bundled.load(model, "net", "some")


def load_training(model, values, folder):
    variables = {f"model/{name}": model.variable(name) for name in model.variable_names}
    state.assign(variables, {f"model/{name}": value for name, value in values.items()}, folder)


LOADERS = {
    "assign": lambda model, values, folder: names.assign(model, values, "some file", remedy="take another"),
    "tf1": lambda model, values, folder: restore_tf1(model, values),
    "recurrent": lambda model, values, folder: assign_checkpoint(model, save_tf1(values, folder / "model.ckpt")),
    "load": lambda model, values, folder: load(model, WeightFile("some file", "safetensors", "zoo", names=values)),
    "bundled": load_bundled,
    "training": load_training,
}


@pytest.fixture(scope="module")
def model():
    return scoping.Model(network, input_shape=(4,))


def values_of(model):
    return {name: np.array(model.variable(name)) for name in model.variable_names}


@pytest.mark.parametrize("damage", ["shape", "missing"])
@pytest.mark.parametrize("loader", LOADERS)
def test_all_or_nothing(model, loader, damage, tmp_path, monkeypatch):
    monkeypatch.setattr(bundled, "folder", lambda: tmp_path)
    before = values_of(model)
    values = {name: value + 1 for name, value in before.items()}
    if damage == "shape":
        values["second/weights"] = np.zeros((3, 5), "float32")
    else:
        del values["second/weights"]
    with pytest.raises(ValueError, match="second/weights"):
        LOADERS[loader](model, values, tmp_path)
    after = values_of(model)
    for name, value in before.items():
        np.testing.assert_array_equal(after[name], value)


@pytest.mark.parametrize("loader", LOADERS)
def test_values_take_the_variables_type(model, loader, tmp_path, monkeypatch):
    monkeypatch.setattr(bundled, "folder", lambda: tmp_path)
    values = {name: value.astype("float64") + 0.5 for name, value in values_of(model).items()}
    LOADERS[loader](model, values, tmp_path)
    for name, value in values_of(model).items():
        assert value.dtype == np.float32
        np.testing.assert_array_equal(value, values[name].astype("float32"))


def test_halves_and_bfloat16_are_numbers_and_texts_are_none():
    variables = {"a": tf.Variable([1.0, 2.0], dtype=tf.bfloat16), "b": tf.Variable([1.0], dtype=tf.float16)}
    names.assign(variables, {"a": np.float32([3, 4]), "b": np.float64([0.5])}, "some file", remedy="")
    assert [float(v) for v in variables["a"].numpy()] == [3, 4]
    assert variables["b"].numpy()[0] == 0.5
    with pytest.raises(names.CheckpointNamesError, match=r"a: the model has bfloat16, the checkpoint <U5"):
        names.assign(variables, {"a": np.array(["three", "four"]), "b": np.float16([1])}, "some file", remedy="")
    assert variables["b"].numpy()[0] == 0.5


def test_one_place_assigns():
    room = Path(names.__file__).parent
    assert {path.name for path in room.glob("*.py") if ".assign(" in path.read_text()} == {"names.py"}
