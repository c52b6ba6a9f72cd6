"""`zoo predict`, `evaluate` and `report` on every kind of run, and `predict` with a network: one schema."""

import csv
import io
import json

import numpy as np
import pytest

from zoo import weights
from zoo.cli import main
from zoo.data import digits
from zoo.data.images import encode_png

CLASSES = ("dark", "light")


def write_pictures(root, per_class=12, seed=0):
    chance = np.random.default_rng(seed)
    for label, level in zip(CLASSES, (40, 200), strict=True):
        (root / label).mkdir(parents=True)
        for number in range(per_class):
            pixels = chance.integers(level - 40, level + 40, (36, 36, 3)).astype("uint8")
            (root / label / f"{number}.png").write_bytes(encode_png(pixels))
    return root


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """Pictures, records of them, and runs: trained on the pictures, on digits, and a retraining on the pictures."""
    root = tmp_path_factory.mktemp("runs")
    pictures = write_pictures(root / "pictures")
    trunk = ("--net", "lenet5", "--weights", "none", "--cache", root / "cache")
    how = ("--learning-rate", "0.01", "--summaries", "none", "--progress", "none")
    for words in (
        ("train", "lenet5", "--data", pictures, "--epochs", 4, "--batch", 6, *how, "--out", root / "train"),
        ("train", "lenet5", "--epochs", 1, "--batch", 256, *how, "--out", root / "digits"),
        ("retrain", pictures, *trunk, "--out", root / "retrain"),
        ("tfrecord", "build", pictures, root / "records", "--shards", 1),
    ):
        with pytest.raises(SystemExit) as stop:
            main([str(word) for word in words])
        assert not stop.value.code, words
    return root


def subjects(root):
    """What can be given to predict for the pictures: two runs, and the network with a run's checkpoint."""
    newest = max((root / "train").glob("model.ckpt-*"), key=lambda path: int(path.name.rpartition("-")[2]))
    return {
        "train": [root / "train"],
        "retrain": [root / "retrain"],
        "network": ["lenet5", "--weights", newest],
        "file": ["lenet5", "--weights", root / "train" / "weights.safetensors"],
    }


@pytest.mark.parametrize("subject", ["train", "retrain", "network", "file"])
def test_predict_has_one_schema_and_takes_every_form(place, zoo_command, tmp_path, subject):
    words = subjects(place)[subject]
    pictures = [place / "pictures" / label / "0.png" for label in CLASSES]
    (tmp_path / "cut.png").write_bytes(pictures[0].read_bytes()[:100])
    said = zoo_command("predict", *words, *pictures, tmp_path / "cut.png", "--json")
    assert said.code == 1, said.err
    *found, bad = json.loads(said.out)
    assert bad.keys() == {"file", "error"}
    for row, picture in zip(found, pictures, strict=True):
        assert row.keys() == {"file", "label", "predictions"}
        assert row["file"] == str(picture)
        assert row["label"] == row["predictions"][0]["class"]
        for one in row["predictions"]:
            assert one.keys() == {"class", "index", "probability"}
            assert one["class"] == CLASSES[one["index"]]
        assert sum(one["probability"] for one in row["predictions"]) == pytest.approx(1, abs=1e-5)
    said = zoo_command("predict", *words, *pictures, "--csv", "--reject-below", 1)
    rows = list(csv.DictReader(io.StringIO(said.out)))
    assert said.code == 0
    assert [row["class"] for row in rows] == [one["class"] for row in found for one in row["predictions"]]
    assert {row["label"] for row in rows} == {"none of these"}
    said = zoo_command("predict", *words, *pictures, "--reject-below", 1)
    assert said.out.count("(none of these)") == 2
    assert zoo_command("predict", *words, *pictures, "--csv", "--json").code == 2


def test_the_network_the_checkpoint_and_the_run_give_the_same(place, zoo_command):
    answers = [
        json.loads(zoo_command("predict", *words, place / "pictures", "--json").out)
        for name, words in subjects(place).items()
        if name in ("train", "file")
    ]
    assert answers[0] == answers[1]
    assert np.mean([row["label"] in row["file"] for row in answers[0]]) > 0.8


def test_a_run_refuses_options_of_networks(place, zoo_command):
    picture = place / "pictures" / "dark" / "0.png"
    for run in ("train", "retrain"):
        for option in (("--weights", "imagenet"), ("--labels", picture), ("-o", "num_classes=3")):
            said = zoo_command("predict", place / run, picture, *option)
            assert said.code == 2
            assert "is a finished run: it has its own weights, labels and options" in said.err


@pytest.mark.parametrize("run", ["train", "retrain"])
def test_evaluate_by_pictures_and_by_records(place, zoo_command, tmp_path, run):
    more = write_pictures(tmp_path / "more", 3, seed=5)
    found = json.loads(zoo_command("evaluate", place / run, more, "--json").out)
    assert (found["count"], found["seen_in_training"]) == (6, 0)
    assert [one["name"] for one in found["classes"]] == list(CLASSES)
    assert found["accuracy"] > 0.8
    known = json.loads(zoo_command("evaluate", place / run, place / "pictures", "--json").out)
    assert known["seen_in_training"] > known["seen_in_validation"] > 0
    said = zoo_command("evaluate", place / run, place / "records", "--json")
    assert said.code == 0, said.err
    assert "the set 'train' of" in said.err
    assert json.loads(said.out)["count"] == 24
    (more / "dark").rename(more / "grey")
    assert "does not know the class grey" in zoo_command("evaluate", place / run, more).err


def test_evaluate_by_the_set_it_was_trained_on(place, zoo_command):
    found = json.loads(zoo_command("evaluate", place / "digits", "digits", "--json").out)
    kept = json.loads((place / "digits" / "run.json").read_text())
    assert found["count"] == len(digits.load().test.labels)
    assert found["accuracy"] == kept["evaluation"]["accuracy"]
    for words, message in (
        ((place / "retrain", "digits"), "was retrained on picture files: give a folder or a CSV"),
        ((place / "train", "digits"), "does not know the class 0, 1, 2"),
        ((place / "digits", "digits", "--max-bad", "5"), "--max-bad is about picture files"),
        ((place / "digits", "digits", "--data-dir", "."), "has no use for --data-dir"),
        ((place / "digits", "mnist"), "give --data-dir DIR"),
    ):
        said = zoo_command("evaluate", *words)
        assert said.code == 2
        assert message in said.err


def test_report(place, zoo_command):
    said = zoo_command("report", place / "train")
    assert said.code == 0, said.err
    assert said.out.startswith("network: lenet5, ")
    assert f"--data {place / 'pictures'} --validation 0.1 --epochs 4 --batch 6" in said.out
    assert "test accuracy" in said.out
    assert said.out.splitlines()[-1] == str(place / "train" / "curves.png")
    assert "trunk: lenet5" in zoo_command("report", place / "retrain").out


def test_the_model_and_its_weights_know_the_classes(place):
    assert weights.open_weights(place / "train" / "weights.safetensors").own_card.more["class_names"] == list(CLASSES)
    facts = json.loads((place / "train" / "run.json").read_text())
    assert facts["reader"]["preprocessing"]["size"] == [32, 32]
    assert facts["classes"] == list(CLASSES)


@pytest.mark.parametrize("command", [("predict", "p.png"), ("evaluate", "digits"), ("report",)])
def test_runs_that_cannot_answer_say_what_to_do(command, place, zoo_command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "p.png").write_bytes((place / "pictures" / "dark" / "0.png").read_bytes())
    for name, files, message in (
        ("unfinished", ["model.ckpt-5", "model.ckpt-10"], "not finished: give its command again, or take a checkpoint"),
        ("before", ["weights.json", "model.keras"], "kept no class names: zoo predict NET PICTURE --weights"),
        ("words", ["vocabulary.json", "model.keras"], "writes text: zoo generate words"),
    ):
        (tmp_path / name).mkdir()
        for file in files:
            (tmp_path / name / file).write_text("{}")
        said = zoo_command(command[0], name, *command[1:])
        assert said.code == 2
        assert (message if command[0] != "report" or name != "words" else "perplexity.json is not there") in said.err
