"""``zoo weights inspect``: every kind of file it can read, for people and for programs."""

import json

import h5py
import keras
import numpy as np
import tensorflow as tf

from zoo.training import write_checkpoint
from zoo.weights import save_tf1

VALUES = {
    "net/weights": np.float32([[1, 2], [3, 6]]),
    "net/biases": np.float32([np.nan, 4]),
    "global_step": np.int64(5),
}


def tensors(zoo_command, *words):
    said = zoo_command("weights", "inspect", *words, "--json")
    assert said.code == 0, said.err
    found = json.loads(said.out)
    return found, {row["name"]: row for row in found["tensors"]}


def test_tf1_for_programs_and_people(zoo_command, tmp_path):
    path = save_tf1(VALUES, tmp_path / "model.ckpt")
    about, rows = tensors(zoo_command, path)
    assert about["format"] == "TF1 checkpoint V2"
    assert about["values"] == 7
    weights = rows["net/weights"]
    assert (weights["shape"], weights["dtype"], weights["mean"], weights["min"], weights["max"]) == (
        [2, 2],
        "float32",
        3,
        1,
        6,
    )
    assert weights["std"] == np.std([1, 2, 3, 6])
    assert (rows["net/biases"]["not_finite"], rows["net/biases"]["mean"]) == (1, 4)
    said = zoo_command("weights", "inspect", path, "--pattern", "net/*", "--no-statistics")
    lines = [" ".join(line.split()) for line in said.out.splitlines()]
    assert "net/weights 2 x 2 float32" in lines
    assert "global_step" not in said.out


def test_other_formats(zoo_command, tmp_path):
    checkpoint = write_checkpoint(
        tmp_path / "model.ckpt-3", {"model/w": np.ones(2, "float32")}, {"step": 3, "epoch": 1}
    )
    about, rows = tensors(zoo_command, checkpoint)
    assert (about["format"], about["step"], about["epoch"]) == ("zoo training checkpoint", 3, 1)
    assert list(rows) == ["model/w"]
    model = keras.Sequential([keras.Input((2,)), keras.layers.Dense(3, name="d")])
    for name in ("m.keras", "m.weights.h5"):
        (model.save if name == "m.keras" else model.save_weights)(tmp_path / name)
        about, rows = tensors(zoo_command, tmp_path / name)
        assert about["format"] == "Keras"
        assert [2, 3] in [row["shape"] for row in rows.values()]
    objects = tf.train.Checkpoint(v=tf.Variable([1.0, 2.0])).write(str(tmp_path / "objects"))
    _, rows = tensors(zoo_command, objects)
    assert rows["v/.ATTRIBUTES/VARIABLE_VALUE"]["mean"] == 1.5


def test_refuses(zoo_command, tmp_path):
    assert zoo_command("weights", "inspect", tmp_path / "no").code == 2
    (tmp_path / "text").write_text("hello")
    said = zoo_command("weights", "inspect", tmp_path / "text")
    assert said.code == 2
    assert "none of the weight formats zoo reads" in said.err
    path = save_tf1(VALUES, tmp_path / "model.ckpt")
    assert "matches 'x*'" in zoo_command("weights", "inspect", path, "--pattern", "x*").err


def test_hdf5_that_leads_to_other_files_is_not_followed(zoo_command, tmp_path):
    (tmp_path / "secret").write_bytes(b"secret words.......")
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("d", shape=(16,), dtype="u1", external=[(str(tmp_path / "secret"), 0, 16)])
    said = zoo_command("weights", "inspect", tmp_path / "a.h5", "--json")
    assert (said.code, said.out) == (2, "")
    assert "a.h5: d keeps its data in another file, which zoo does not open" in said.err
