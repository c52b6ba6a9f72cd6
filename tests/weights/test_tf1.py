"""TF1 checkpoints: V1 and V2, both ways with TF1's own Saver, maps, patterns, one error for all names, damage."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saver_pb2

from zoo.weights import load
from zoo.weights.names import name_matches, named_variables, select_names
from zoo.weights.tf1 import CheckpointNamesError, read_tf1, restore_tf1, save_tf1, tf1_format

VALUES = {
    "Net/conv1/weights": np.arange(6, dtype=np.float32).reshape(2, 3),
    "Net/conv1/biases": np.float32([7, 8, 9]),
    "Net/logits/weights": np.float32([[1], [2], [3]]),
}


def tf1_saver(folder, version, extra=None, max_to_keep=5):
    """Writes VALUES with TF1's own Saver and returns its path."""
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name, value in (VALUES | (extra or {})).items():
            tf.compat.v1.get_variable(name, initializer=value)
        session.run(tf.compat.v1.global_variables_initializer())
        return tf.compat.v1.train.Saver(write_version=version).save(session, str(folder / "model.ckpt"))


@pytest.fixture
def variables():
    return {name: tf.Variable(np.zeros_like(value)) for name, value in VALUES.items()}


@pytest.mark.parametrize("version", ["v1", "v2"])
def test_reads_what_tf1_saver_wrote(tmp_path, version):
    path = tf1_saver(tmp_path, getattr(saver_pb2.SaverDef, version.upper()))
    checkpoint = read_tf1(path)
    assert checkpoint.format == version == tf1_format(path)
    assert sorted(checkpoint) == sorted(VALUES)
    assert checkpoint.shapes["Net/conv1/weights"] == (2, 3)
    for name, value in VALUES.items():
        np.testing.assert_array_equal(checkpoint[name], value)
    assert read_tf1(tmp_path).path == path  # a folder means its newest
    with pytest.raises(KeyError, match="did you mean Net/conv1/weights"):
        checkpoint["Net/conv1/weight"]


def test_v2_opens_by_any_of_its_files(tmp_path):
    path = save_tf1(VALUES, tmp_path / "model.ckpt", step=12)
    assert path.endswith("model.ckpt-12")
    assert read_tf1(path + ".index")["global_step"] == 12
    assert read_tf1(path + ".data-00000-of-00001")["global_step"].dtype == np.int64
    files = ["checkpoint", "model.ckpt-12.data-00000-of-00001", "model.ckpt-12.index"]
    assert sorted(p.name for p in tmp_path.iterdir()) == files


def test_a_folder_means_what_was_saved_last(tmp_path, variables):
    folder = tmp_path / "run"
    for step in (3, 12):
        save_tf1({name: value + step for name, value in VALUES.items()}, folder / "model.ckpt", step=step)
    moved = folder.rename(tmp_path / "moved")  # the names in it are relative
    assert tf.train.latest_checkpoint(moved) == str(moved / "model.ckpt-12")
    listed = tf.train.get_checkpoint_state(moved).all_model_checkpoint_paths
    assert list(listed) == [str(moved / "model.ckpt-3"), str(moved / "model.ckpt-12")]
    assert restore_tf1(variables, moved) == list(VALUES)
    np.testing.assert_array_equal(variables["Net/conv1/biases"], VALUES["Net/conv1/biases"] + 12)
    assert load(variables, moved).loaded == list(VALUES)
    (moved / "model.ckpt-12.index").unlink()
    save_tf1(VALUES, moved / "model.ckpt-3")
    assert list(tf.train.get_checkpoint_state(moved).all_model_checkpoint_paths) == [str(moved / "model.ckpt-3")]
    with pytest.raises(ValueError, match="the prefix of the files"):
        save_tf1(VALUES, moved / "checkpoint")


def test_tf1_saver_restores_what_zoo_wrote(tmp_path, variables):
    for variable, value in zip(variables.values(), VALUES.values(), strict=True):
        variable.assign(value)
    path = save_tf1(variables, tmp_path / "a")
    path = save_tf1(variables, path)  # replacing works too
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        wanted = {n: tf.compat.v1.get_variable(n, v.shape) for n, v in VALUES.items()}
        tf.compat.v1.train.Saver().restore(session, path)
        for name, variable in wanted.items():
            np.testing.assert_array_equal(session.run(variable), VALUES[name])


def test_restores_a_keras_model_with_a_map(tmp_path):
    path = tf1_saver(
        tmp_path,
        saver_pb2.SaverDef.V1,
        {"global_step": np.int64(5), "Net/conv1/weights/Momentum": np.zeros((2, 3), "f4")},
    )
    model = keras.Sequential(
        [keras.Input((2,)), keras.layers.Dense(3, name="conv1"), keras.layers.Dense(1, use_bias=False, name="out")]
    )
    rules = [("^conv1/", "Net/conv1/"), ("^out/", "Net/logits/"), ("kernel$", "weights"), ("bias$", "biases")]
    named = {
        path.split("/", 1)[-1] if path.startswith("sequential") else path: v
        for path, v in named_variables(model).items()
    }
    assert len(restore_tf1(named, path, name_map=rules)) == 3
    np.testing.assert_array_equal(model.get_layer("conv1").kernel, VALUES["Net/conv1/weights"])
    as_dict = {
        "conv1/kernel": "Net/conv1/weights",
        "conv1/bias": "Net/conv1/biases",
        "out/kernel": "Net/logits/weights",
    }
    assert restore_tf1(named, path, name_map=as_dict) == list(as_dict)
    assert sorted(read_tf1(save_tf1(named, tmp_path / "b", name_map=rules))) == sorted(VALUES)
    with pytest.raises(ValueError, match="regex 'nothing' matches none"):
        restore_tf1(named, path, name_map=[("nothing", "x")])
    with pytest.raises(ValueError, match="no variable of the model"):
        restore_tf1(named, path, name_map={"conv1/kernels": "x"})


STORED = {"w": np.float32([1, 2]), "b": np.float32([3, 4]), "other": np.float32([5, 6])}


@pytest.mark.parametrize(
    ("name_map", "expected"),
    [
        ({"m/w": "w", "m/b": "b", "m/c": "other"}, "w b other"),  # model name to checkpoint name
        ({"w": "m/w", "b": "m/b", "other": "m/c"}, "w b other"),  # as init_from_checkpoint's assignment_map
        ({"other": lambda v: v["m/w"], "b": lambda v: v["m/b"], "w": lambda v: v["m/c"]}, "other b w"),  # a Saver's
        ([("^m/c$", "other"), ("^m/", "")], "w b other"),
    ],
)
def test_a_name_map_runs_either_way(name_map, expected, tmp_path):
    variables = {name: tf.Variable([0.0, 0.0]) for name in ("m/w", "m/b", "m/c")}
    if isinstance(name_map, dict):
        name_map = {key: value if isinstance(value, str) else value(variables) for key, value in name_map.items()}
    assert restore_tf1(variables, STORED, name_map=name_map) == list(variables)
    for variable, name in zip(variables.values(), expected.split(), strict=True):
        np.testing.assert_array_equal(variable, STORED[name])
    written = read_tf1(save_tf1(variables, tmp_path / "a", name_map=name_map))
    assert {name: written[name].tolist() for name in written} == {name: v.tolist() for name, v in STORED.items()}


def test_a_name_map_that_fits_both_ways_follows_the_checkpoint():
    variables = {name: tf.Variable([0.0, 0.0]) for name in ("w", "b", "new")}
    kept = {name: STORED[name] for name in ("w", "b")}
    restore_tf1(variables, kept, name_map={"w": "b", "b": "w"}, include=["w", "b"])
    np.testing.assert_array_equal(variables["w"], STORED["b"])
    restore_tf1(variables, kept, name_map={"w": "new"}, include=["new"])  # the file has w, and no new
    np.testing.assert_array_equal(variables["new"], STORED["w"])
    restore_tf1(variables, kept, name_map={"new": "b"}, include=["new"])
    np.testing.assert_array_equal(variables["new"], STORED["b"])


@pytest.mark.parametrize(
    ("name_map", "message"),
    [
        ({"x": "y"}, "name_map has 'x', which is no variable of the model; write model name to checkpoint name"),
        ({"w": "m", "b": "m"}, "gives one variable two names"),
        ({"w": tf.Variable(0.0)}, r"name_map\['w'\] is neither a name nor one of the variables of the model"),
    ],
)
def test_name_maps_that_fit_neither_way(name_map, message):
    variable = tf.Variable([0.0, 0.0])
    with pytest.raises(ValueError, match=message):
        restore_tf1({"m": variable}, STORED, name_map=name_map)
    assert not variable.numpy().any()


def test_patterns_must_match_and_leave_the_rest_alone(tmp_path, variables):
    path = save_tf1(VALUES, tmp_path / "a")
    assert restore_tf1(variables, path, include="conv1") == ["Net/conv1/weights", "Net/conv1/biases"]
    assert not variables["Net/logits/weights"].numpy().any()
    assert restore_tf1(variables, path, exclude=["Net/logits"]) == ["Net/conv1/weights", "Net/conv1/biases"]
    # An exclude pattern that matches nothing is the classical silent mistake.
    with pytest.raises(ValueError, match="pattern 'AuxLogits/Logits' matches none of the 3 names"):
        restore_tf1(variables, path, exclude=["AuxLogits/Logits"])


def test_one_error_lists_everything_and_changes_nothing(tmp_path, variables):
    stored = {**VALUES, "Net/other": np.float32([1])}
    del stored["Net/conv1/biases"]
    stored["Net/logits/weights"] = np.zeros((3, 1001), np.float32)
    with pytest.raises(CheckpointNamesError) as caught:
        restore_tf1(variables, save_tf1(stored, tmp_path / "a"))
    error = caught.value
    assert error.missing == ["Net/conv1/biases"]
    assert error.unexpected == ["Net/other"]
    assert error.mismatched == ["Net/logits/weights: the model has [3, 1], the checkpoint [3, 1001]"]
    for text in ("Net/conv1/biases", "Net/other", "[3, 1001]"):
        assert text in str(error)
    assert not any(v.numpy().any() for v in variables.values())


def test_gaps_are_allowed_when_told(tmp_path, variables):
    stored = {"Net/conv1/weights": VALUES["Net/conv1/weights"], "Net/other": np.float32([1])}
    path = save_tf1(stored, tmp_path / "a")
    assert restore_tf1(variables, path, ignore_missing=True, ignore_unexpected=True) == ["Net/conv1/weights"]
    with pytest.raises(CheckpointNamesError):
        restore_tf1({"q": tf.Variable(1.0)}, path, ignore_missing=True, ignore_unexpected=True)  # nothing at all


def test_averages_go_into_the_weights(tmp_path, variables):
    averages = {f"{name}/ExponentialMovingAverage": value + 1 for name, value in list(VALUES.items())[:2]}
    path = save_tf1({**VALUES, **averages}, tmp_path / "a")
    restore_tf1(variables, path, averages=True)
    np.testing.assert_array_equal(variables["Net/conv1/biases"], VALUES["Net/conv1/biases"] + 1)
    np.testing.assert_array_equal(variables["Net/logits/weights"], VALUES["Net/logits/weights"])  # never averaged
    restore_tf1(variables, path)  # plainly: averages are not "unexpected"
    np.testing.assert_array_equal(variables["Net/conv1/biases"], VALUES["Net/conv1/biases"])
    with pytest.raises(ValueError, match="holds no averages"):
        restore_tf1(variables, save_tf1(VALUES, tmp_path / "b"), averages=True)


def test_damage_is_named(tmp_path):
    path = tf1_saver(tmp_path, saver_pb2.SaverDef.V1)
    data = (tmp_path / "model.ckpt").read_bytes()
    (tmp_path / "cut").write_bytes(data[:-20])
    with pytest.raises(ValueError, match=r"cut is not a TF1 checkpoint, or its end is cut off"):
        read_tf1(tmp_path / "cut")
    flipped = bytearray(data)
    flipped[10] ^= 255
    (tmp_path / "flipped").write_bytes(flipped)
    with pytest.raises(ValueError, match="flipped"):
        read_tf1(tmp_path / "flipped")["Net/conv1/weights"]
    with pytest.raises(FileNotFoundError, match="no checkpoint at"):
        read_tf1(path + "x")
    two = save_tf1(VALUES, tmp_path / "two")
    (tmp_path / "two.data-00000-of-00001").unlink()
    with pytest.raises(FileNotFoundError, match="data-00000-of-00001"):
        read_tf1(two)
    assert tf1_format(two) is None


def test_names():
    assert name_matches("conv1", "Net/conv1/weights")
    assert name_matches("Net", "Net/conv1/weights")
    assert not name_matches("conv1", "Net/conv10/weights")
    assert select_names(["a/x", "a/y"], "*y") == ["a/y"]
    with pytest.raises(ValueError, match="has no variables"):
        named_variables(keras.Sequential([keras.layers.Dense(1)]))
