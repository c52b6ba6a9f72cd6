"""``zoo train``: what a run leaves behind, exact repetition and resumption, and what it refuses before it starts."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import zoo
from zoo.data import digits

QUICK = ("--epochs", "2", "--batch", "256", "--option", "num_classes=10")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """One short run, and what it said."""
    folder = tmp_path_factory.mktemp("runs") / "first"
    with pytest.raises(SystemExit) as stop:
        zoo.cli.main(["train", "lenet5", *QUICK, "--seed", "3", "--licence", "Apache-2.0", "--out", str(folder)])
    assert not stop.value.code
    return folder


def sha256(folder):
    return json.loads((folder / "weights.json").read_text())["sha256"]


def test_the_run_folder_has_everything(run):
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    assert [row["epoch"] for row in rows] == [1, 2]
    assert [row["step"] for row in rows] == [6, 12]
    assert rows[1]["loss"] < rows[0]["loss"]
    assert json.loads((run / "config.json").read_text())["seed"] == 3
    assert (run / "curves.png").read_bytes().startswith(b"\x89PNG")
    events = tf.data.TFRecordDataset(sorted(map(str, (run / "events").glob("events.out.tfevents.*"))))
    tags = {value.tag for event in events for value in tf.compat.v1.Event.FromString(event.numpy()).summary.value}
    assert {"loss", "accuracy", "test_loss", "test_accuracy", "learning_rate"} <= tags


def test_the_model_is_the_one_that_was_measured(run):
    model = keras.models.load_model(run / "model.keras")
    test = digits.load().test
    accuracy = (np.argmax(model.predict(test.images, verbose=0), -1) == test.labels).mean()
    rows = (run / "metrics.jsonl").read_text().splitlines()
    card = json.loads((run / "weights.json").read_text())
    assert accuracy == pytest.approx(json.loads(rows[-1])["test_accuracy"], abs=1e-6)
    assert card["accuracy"] == round(accuracy, 4)
    assert card["recipe"].startswith("zoo train lenet5 --data digits --split random --epochs 2 --batch 256")
    assert card["licence"].startswith("weights: Apache-2.0; data: UCI")


def test_the_same_seed_gives_the_same_weights_and_another_does_not(run, tmp_path, zoo_command):
    assert zoo_command("train", "lenet5", *QUICK, "--seed", 3, "--out", tmp_path / "again").code == 0
    assert sha256(tmp_path / "again") == sha256(run)
    assert zoo_command("train", "lenet5", *QUICK, "--seed", 4, "--out", tmp_path / "other").code == 0
    assert sha256(tmp_path / "other") != sha256(run)


def test_lines_when_there_is_no_terminal(tmp_path, zoo_command):
    said = zoo_command("train", "lenet5", "--epochs", 1, "--batch", 512, "--no-augment", "--out", tmp_path / "run")
    lines = said.out.splitlines()
    assert "61,706 parameters; digits: 1,438 images to train on, 359 to test on" in lines[0]
    assert lines[1].startswith("epoch 1/1  loss ")
    assert lines[-1].startswith("test accuracy 0.")
    assert "\x1b" not in said.out


def test_a_full_folder_is_refused_and_an_empty_one_taken(run, tmp_path, zoo_command):
    said = zoo_command("train", "lenet5", "--out", run)
    assert said.code == 2
    assert "is not empty; give another --out, or go on with the run that is there by --resume" in said.err
    assert zoo_command("train", "lenet5", "--out", tmp_path, "--resume").code == 2
    other = zoo_command("train", "lenet5", "--out", run, "--resume")
    assert other.code == 2
    assert "batch was 256 and is now 32" in other.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["lenet"], "did you mean 'lenet5'"),
        (["lenet5", "-o", "num_clases=5"], "did you mean 'num_classes'"),
        (["lenet5", "-o", "num_classes=5"], "labels lie in 0..4 for 5 classes"),
        (["lenet5", "-o", "variant=sparse"], "variant is one of"),
        (["lenet5", "--data", "cifar"], "--data is one of digits, mnist, mnist-sample; got 'cifar'"),
        (["lenet5", "--split", "half"], "split is one of random, writers"),
        (["lenet5", "--data", "mnist"], "give --data-dir DIR"),
        (["lenet5", "--data", "mnist", "--data-dir", "nowhere"], "nowhere is not a folder"),
        (["lenet5", "--epochs", "0"], "epochs"),
        (["lenet5", "--batch", "-3"], "batch"),
    ],
    ids=range(10),
)
def test_refusals_before_training(words, message, tmp_path, zoo_command):
    said = zoo_command("train", *words, "--out", tmp_path / "run")
    assert said.code == 2
    assert message in " ".join(said.err.split())
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_an_unwritable_folder_is_refused(tmp_path, zoo_command):
    (tmp_path / "file").write_text("")
    said = zoo_command("train", "lenet5", "--out", tmp_path / "file" / "run")
    assert said.code == 2
    assert "cannot be written" in said.err


def test_nan_in_the_data_is_refused(tmp_path, zoo_command, monkeypatch):
    good = digits.load()
    bad = good.train.images.copy()
    bad[5, 0, 0, 0] = np.nan
    monkeypatch.setattr(digits, "load", lambda *_: good._replace(train=good.train._replace(images=bad)))
    said = zoo_command("train", "lenet5", "--out", tmp_path / "run")
    assert said.code == 2
    assert "1 of 1438 have NaN or infinite pixels, the first is number 5" in said.err
    assert not (tmp_path / "run").exists()
