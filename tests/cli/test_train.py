"""``zoo train``: what a run leaves behind, exact repetition and resumption, and what it refuses before it starts."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from zoo.cli import main
from zoo.data import digits

QUICK = ("--epochs", "2", "--batch", "256", "--option", "num_classes=10")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """One short run, and what it said."""
    folder = tmp_path_factory.mktemp("runs") / "first"
    with pytest.raises(SystemExit) as stop:
        main(["train", "lenet5", *QUICK, "--seed", "3", "--licence", "Apache-2.0", "--out", str(folder)])
    assert not stop.value.code
    return folder


def lines(folder, kind):
    """The lines of metrics.jsonl of one kind."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if row["kind"] == kind]


def sha256(folder):
    return json.loads((folder / "weights.json").read_text())["sha256"]


def test_the_run_folder_has_everything(run):
    rows = lines(run, "train")
    assert [row["epoch"] for row in rows] == [1, 2]
    assert [row["step"] for row in rows] == [6, 12]
    assert rows[1]["loss"] < rows[0]["loss"]
    assert [row["step"] for row in lines(run, "validation")] == [6, 12]
    assert json.loads((run / "config.json").read_text())["seed"] == 3
    assert (run / "curves.png").read_bytes().startswith(b"\x89PNG")
    events = tf.data.TFRecordDataset(sorted(map(str, (run / "summaries").glob("events.out.tfevents.*"))))
    tags = {value.tag for event in events for value in tf.compat.v1.Event.FromString(event.numpy()).summary.value}
    assert {"loss", "accuracy", "val_loss", "val_accuracy", "learning_rate"} <= tags


def test_the_model_is_the_one_that_was_measured(run):
    model = keras.models.load_model(run / "model.keras")
    test = digits.load().test
    accuracy = (np.argmax(model.predict(test.images, verbose=0), -1) == test.labels).mean()
    card = json.loads((run / "weights.json").read_text())
    facts = json.loads((run / "run.json").read_text())
    assert facts["evaluation"]["accuracy"] == pytest.approx(accuracy, abs=1e-6)
    assert (facts["judged"], facts["classes"]) == ("test", [str(digit) for digit in range(10)])
    assert card["accuracy"] == round(accuracy, 4)
    recipe = "zoo train lenet5 --data digits --split random --validation 0.1 --epochs 2 --batch 256"
    assert card["recipe"].startswith(recipe)
    assert card["segments"] == [{"from_step": 0, "changes": [], "recipe": card["recipe"]}]
    assert card["licence"].startswith("weights: Apache-2.0; data: UCI")


def test_the_same_seed_gives_the_same_weights_and_another_does_not(run, tmp_path, zoo_command):
    assert zoo_command("train", "lenet5", *QUICK, "--seed", 3, "--out", tmp_path / "again").code == 0
    assert sha256(tmp_path / "again") == sha256(run)
    assert zoo_command("train", "lenet5", *QUICK, "--seed", 4, "--out", tmp_path / "other").code == 0
    assert sha256(tmp_path / "other") != sha256(run)


def test_a_folder_of_other_files_is_refused_untouched(tmp_path, zoo_command):
    (tmp_path / "config.json").write_text('{"mine": 1}')
    (tmp_path / "model.keras").write_text("precious")
    for words in ((), ("--no-resume",), ("--find-lr",)):
        said = zoo_command("train", "lenet5", "--epochs", 1, "--out", tmp_path, *words)
        assert said.code == 2
        assert "holds no run but other files (config.json, model.keras)" in said.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["config.json", "model.keras"]
    assert (tmp_path / "model.keras").read_text() == "precious"


def test_lines_when_there_is_no_terminal(tmp_path, zoo_command):
    said = zoo_command("train", "lenet5", "--epochs", 1, "--batch", 512, "--no-augment", "--out", tmp_path / "run")
    out, err = said.out.splitlines(), said.err.splitlines()
    assert "61,706 parameters; digits: 1,295 images to train on, 143 to validate, 359 to test on" in out[0]
    assert out[-1].startswith("complete: the best of 3 steps is 3, test accuracy 0.")
    assert err[0] == f"new run in {tmp_path / 'run'}, 3 steps"
    assert err[1].startswith("step 3: val loss ")
    assert "\x1b" not in said.out + said.err


def test_the_same_command_goes_on_and_a_changed_one_is_refused(run, tmp_path, zoo_command):
    """Killed after the first epoch and given again, a run ends in the same weights."""
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    accepted = ("--learning-rate", 0.5, "--accept-changes", "--licence", "other")
    for more in ((), accepted):
        again = zoo_command("train", "lenet5", *QUICK, "--seed", 3, "--out", run, *more)
        assert again.code == 0
        assert "nothing was trained" in again.out
        assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before
    assert f"{run} holds this run at step 12, saved" in again.err
    assert "it is complete" in again.err
    other = zoo_command("train", "lenet5", "--out", run, "--resume")
    assert other.code == 2
    assert "data.global_batch: 256 -> 32" in other.err
    assert "--accept-changes" in other.err
    refused = zoo_command("train", "lenet5", *QUICK, "--seed", 3, "--out", run, "--no-resume")
    assert refused.code == 2
    assert "holds a run at step 12" in refused.err
    half = tmp_path / "half"
    half.mkdir()
    words = ("train", "lenet5", *QUICK, "--seed", 3, "--checkpoint-steps", 4, "--out", half, "--resume")
    assert zoo_command(*words).code == 0
    for name in ("model.ckpt-12", "run.json"):  # killed while it was writing what it leaves
        (half / name).unlink()
    assert zoo_command(*words).err.splitlines()[0].endswith("going on at step 9 (epoch 2, batch 3 of 6)")
    assert sha256(half) == sha256(run)
    assert json.loads((half / "run.json").read_text()) == json.loads((run / "run.json").read_text())


def test_validation_chooses_the_best_model_and_options_reach_the_trainer(tmp_path, zoo_command):
    run = tmp_path / "run"
    words = ["--validation", 0.2, "--patience", 1, "--averages", 0.9, "--optimizer", "rmsprop", "--summaries", "all"]
    words += ["--label-smoothing", 0.1, "--clip-norm", 1.0, "--train-only", "fc4", "--train-only", "logits"]
    words += ["--schedule", "per_epoch", "--warmup-steps", 2, "--precision", "mixed_bfloat16", "--steps-per-call", 2]
    said = zoo_command("train", "lenet5", *QUICK, *words, "--out", run)
    assert said.code == 0, said.err
    assert "1,151 images to train on, 287 to validate, 359 to test on" in said.out
    config = json.loads((run / "config.json").read_text())
    assert config["optimizer"]["class"] == "RMSprop"
    assert config["averages"]["decay"] == 0.9
    assert config["train_only"] == ["fc4", "logits"]
    assert config["dtype"] == "mixed_bfloat16"
    assert (config["label_smoothing"], config["clip_norm"]) == (0.1, 1.0)
    assert config["learning_rate"]["class"] == "WarmUp"
    recipe = json.loads((run / "weights.json").read_text())["recipe"]
    assert "--train-only fc4 --train-only logits" in recipe
    assert "--validation 0.2" in recipe
    events = tf.data.TFRecordDataset(sorted(map(str, (run / "summaries").glob("events.out.tfevents.*"))))
    tags = {value.tag for event in events for value in tf.compat.v1.Event.FromString(event.numpy()).summary.value}
    assert {"gradients/LeNet5/logits/weights", "activations/conv1", "inputs/main", "configuration"} <= tags


def test_a_folder_of_pictures_and_its_records(tmp_path, zoo_command, caplog):
    chance = np.random.default_rng(0)
    for label, level in (("dark", 40), ("light", 200)):
        folder = tmp_path / "pictures" / label
        folder.mkdir(parents=True)
        for number in range(12):
            pixels = chance.integers(level - 40, level + 40, (36, 36, 3)).astype("uint8")
            (folder / f"{number}.png").write_bytes(tf.io.encode_png(pixels).numpy())
    words = ["--epochs", 3, "--batch", 8, "--learning-rate", 0.01, "--summaries", "none"]
    said = zoo_command("train", "lenet5", "--data", tmp_path / "pictures", *words, "--out", tmp_path / "a")
    assert said.code == 0, said.err
    assert "images to train on, " in said.out
    card = json.loads((tmp_path / "a" / "weights.json").read_text())
    assert (card["options"], card["pictures"]["what"]) == ({"num_classes": 2}, "the pictures of pictures")
    assert card["pictures"]["contrast"][1] < 0.5
    board = (np.indices((1, 32, 32, 1)).sum(0) % 2).astype("float32")
    keras.models.load_model(tmp_path / "a" / "model.keras").predict(board, verbose=0)
    assert "look unlike the pictures that these weights were trained on, the pictures of pictures" in caplog.text
    records = tmp_path / "records"
    assert zoo_command("tfrecord", "build", tmp_path / "pictures", records, "--shards", 2).code == 0
    said = zoo_command("train", "lenet5", "--data", records, *words, "--out", tmp_path / "b")
    assert said.code == 0, said.err
    model = keras.models.load_model(tmp_path / "b" / "model.keras")
    assert model.predict(np.zeros((1, 32, 32, 1), "float32"), verbose=0).shape == (1, 2)
    shard = min(records.glob("train-*.tfrecord"))
    whole = shard.read_bytes()
    shard.write_bytes(whole[:700] + bytes([whole[700] ^ 1]) + whole[701:])  # one bit of the first record
    for more in ([], ["--find-lr"]):
        said = zoo_command("train", "lenet5", "--data", records, *words, *more, "--out", tmp_path / f"c{len(more)}")
        assert said.code == 2, said.err
        assert f"zoo: {shard}: a record's contents are damaged (CRC) at byte 0, record 0." in said.err
        assert f"'zoo tfrecord verify {records}' looks for more" in said.err
    said = zoo_command("train", "lenet5", "--data", records, *words, "--on-damage", "skip", "--out", tmp_path / "d")
    assert said.code == 0, said.err
    assert (tmp_path / "d" / "run.json").is_file()


def test_find_lr_draws_and_trains_nothing(tmp_path, zoo_command):
    said = zoo_command("train", "lenet5", "--batch", 64, "--find-lr", "--out", tmp_path)
    assert said.code == 0, said.err
    assert "the loss falls fastest at a learning rate of" in said.out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lr_finder.csv", "lr_finder.png"]
    before = (tmp_path / "lr_finder.csv").read_bytes()
    (tmp_path / "lr_finder.png").unlink()
    said = zoo_command("train", "lenet5", "--find-lr", "--out", tmp_path)
    assert said.code == 2
    assert f"zoo: --out {tmp_path} has lr_finder.csv already. Choose another folder" in said.err
    assert (tmp_path / "lr_finder.csv").read_bytes() == before


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["lenet"], "did you mean 'lenet5'"),
        (["lenet5", "-o", "num_clases=5"], "did you mean 'num_classes'"),
        (["lenet5", "-o", "num_classes=5"], "labels lie in 0..4 for 5 classes"),
        (["lenet5", "-o", "variant=sparse"], "variant is one of"),
        (
            ["lenet5", "--data", "cifar"],
            "--data is one of digits, mnist, mnist-sample, cifar10, cifar100, or a folder; got 'cifar'",
        ),
        (["lenet5", "--split", "half"], "'half' is none of random, writers"),
        (["lenet5", "--data", "mnist"], "give --data-dir DIR"),
        (["lenet5", "--data", "mnist", "--data-dir", "nowhere"], "--data-dir nowhere is not there"),
        (["lenet5", "--epochs", "0"], "epochs"),
        (["lenet5", "--batch", "-3"], "batch"),
        (["densenet_cifar", "--data", "cifar10"], "give --data-dir, its folder or .tar.gz"),
        (["densenet_cifar"], "digits are square images of one channel, but the network takes inputs of (32, 32, 3)"),
        (["lenet5", "--schedule", "linear"], "'linear' is none of cosine, constant"),
        (["lenet5", "--optimizer", "sdg"], "'sdg' is none of sgd, momentum"),
        (["lenet5", "--profile", "100"], "--profile takes FIRST:LAST"),
        (["lenet5", "--patience", "3", "--validation", "0"], "there is none; give --validation 0.1"),
        (["lenet5", "--validate-every", "3", "--validation", "0"], "validate_every needs validation data"),
        (["lenet5", "--batch", "1300"], "--batch 1300 is more than the 1,295 images to train on"),
        (["lenet5", "--warmup-steps", "1230"], "is no less than the run's 1,230 steps (30 epochs of 41)"),
        (["lenet5", "--no-resume", "--accept-changes"], "give one of them"),
        (["lenet5", "-o", "num_classes=5", "-o", "num_classes=6"], "--option num_classes is given twice"),
        (["lenet5", "--data-dir", "."], "has no use for --data-dir: --data-dir is for cifar10, cifar100, mnist"),
        (["lenet5", "--train-only", "fc5"], "pattern 'fc5' matches none"),
        (["lenet5", "--summaries", "some"], "'some' is none of none, scalars, all"),
        (["lenet5", "--progress", "dots"], "'dots' is none of auto, bar, lines, none"),
        (["lenet5", "--keep-every-hours", "-1"], "keep_every_hours must be positive"),
        (["lenet5", "--accumulate", "64"], "accumulate=64 splits a batch into more parts than it has examples"),
        (["lenet5", "--clip-norm", "nan"], "--clip-norm must be a finite number, received nan"),
        (["lenet5", "--learning-rate", "inf"], "--learning-rate must be a finite number, received inf"),
        (["lenet5", "--keep-every-hours", "nan"], "--keep-every-hours must be a finite number"),
        (["lenet5", "--precision", "float8"], "'float8' is none of float32, float64, mixed_bfloat16"),
        (["lenet5", "--data", "cifar10", "--data-dir", "nowhere"], "--data-dir nowhere is not there"),
    ],
    ids=range(32),
)
def test_refusals_before_training(words, message, tmp_path, zoo_command):
    said = zoo_command("train", *words, "--out", tmp_path / "run")
    assert said.code == 2
    assert message in " ".join(said.err.split())
    assert not (tmp_path / "run").exists()


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
