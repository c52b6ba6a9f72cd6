"""`zoo train word_lm` on many devices, and what it refuses before anything is written."""

import json
import zipfile

import numpy as np
import pytest

from zoo.training import read_checkpoint

OPTIONS = ["--epochs", "1", "--learning-rate", "0.3", "--option", "hidden=6", "--option", "init_scale=0.3"]


@pytest.fixture
def text(tmp_path):
    folder = tmp_path / "text"
    folder.mkdir()
    for part, lines in (("train", 40), ("valid", 10), ("test", 6)):
        (folder / f"ptb.{part}.txt").write_text(" the cat sat on the mat and the dog sat on the rug \n" * lines)
    return folder


def test_many_devices_give_the_numbers_of_one(zoo_command, text, tmp_path):
    found = {}
    for strategy in ("single", "towers", "mirrored"):
        run = tmp_path / strategy
        words = ["--out", run, "--strategy", strategy, *([] if strategy == "single" else ["--show-placement"])]
        said = zoo_command("train", "word_lm", "--data", text, "--batch", "4", *OPTIONS, *words)
        assert said.code == 0, said.err
        assert ("Model/softmax_w" in said.out) == (strategy != "single")
        newest = max(run.glob("model.ckpt-*"), key=lambda path: int(path.name.rpartition("-")[2]))
        found[strategy] = read_checkpoint(newest).arrays
    state = found["single"]["model/Model/carried_state/train/part_3"]
    assert state.shape == (4, 6)
    assert (np.abs(state).max(1) > 1e-3).all()
    for strategy in ("towers", "mirrored"):
        for name, value in found["single"].items():
            np.testing.assert_allclose(found[strategy][name], value, rtol=1e-4, atol=1e-6, err_msg=f"{strategy} {name}")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--batch", "6", "--strategy", "towers"], "6 rows does not divide by the 4 devices"),
        (["--batch", "6", "--strategy", "mirrored"], "give a --batch that is a multiple of 4"),
        (["--strategy", "multiworker"], "TF_CONFIG, which is not set"),
        (["--optimizer", "adam", "--patience", "3"], "takes no --optimizer, --patience: the recipe of its size"),
        (["--option", "hidden=0"], "--option hidden must be a positive integer, got 0"),
        (["--option", "num_layers=-1"], "--option num_layers must be a positive integer, got -1"),
        (["--option", "carry=3"], "leave --option carry out"),
        (["--option", "init_scale=-1"], "init_scale must be a positive number"),
        (["--option", "vocab_size=1"], "must be at least 2"),
        (["--option", "size=huge"], "size is one of small, medium, large; got 'huge'"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(zoo_command, text, tmp_path, monkeypatch, words, message):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    batch = [] if "--batch" in words else ["--batch", "4"]
    said = zoo_command("train", "word_lm", "--data", text, "--out", tmp_path / "run", *batch, *words)
    assert said.code == 2
    assert message in said.err
    assert not (tmp_path / "run").exists()


def test_a_missing_part_is_named(zoo_command, text, tmp_path):
    (text / "ptb.valid.txt").unlink()
    said = zoo_command("train", "word_lm", "--data", text, "--out", tmp_path / "run")
    assert said.code == 2
    assert "has ptb.train.txt, ptb.test.txt, but not ptb.valid.txt" in said.err
    assert not (tmp_path / "run").exists()


def test_a_folder_of_something_else_is_left_alone(zoo_command, text, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    said = zoo_command("train", "word_lm", "--data", text, "--batch", "4", "--out", tmp_path)
    assert said.code == 2
    assert "holds no run but other files" in said.err


def test_more_epochs_go_on_along_the_same_schedule_and_a_wild_rate_is_no_crash(zoo_command, text, tmp_path):
    words = ["--data", text, "--batch", "4", "--option", "hidden=6", "--out", tmp_path / "run"]
    said = zoo_command("train", "word_lm", *words, "--epochs", "1", "--learning-rate", "1e7")
    assert said.code == 0, said.err
    assert "perplexity train inf" in said.out
    said = zoo_command("train", "word_lm", *words, "--epochs", "2", "--learning-rate", "1e7")
    assert said.code == 0, said.err
    assert "epoch 2" in said.out
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    said = zoo_command("train", "word_lm", *words, "--epochs", "2", "--learning-rate", "1e6", "--accept-changes")
    assert said.code == 0, said.err
    assert "nothing was trained" in said.out
    assert {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()} == before
    assert "word_lm: valid perplexity inf" in zoo_command("report", tmp_path / "run").out


def test_a_run_with_another_vocabulary_does_not_generate(zoo_command, text, tmp_path):
    run = tmp_path / "run"
    said = zoo_command("train", "word_lm", "--data", text, "--batch", "4", *OPTIONS, "--out", run)
    assert said.code == 0, said.err
    (run / "vocabulary.json").write_text('["the", "cat"]')
    said = zoo_command("generate", run, "--prompt", "the cat")
    assert said.code == 2
    assert "vocabulary.json has 2 words and the model 9: they are not of one run" in said.err


def test_a_model_file_that_would_run_code_is_refused(zoo_command, tmp_path):
    lam = {"module": "keras.layers", "class_name": "Lambda", "config": {"function": "x"}, "registered_name": None}
    with zipfile.ZipFile(tmp_path / "model.keras", "w") as archive:
        archive.writestr("config.json", json.dumps({"class_name": "Sequential", "config": {"layers": [lam]}}))
        archive.writestr("model.weights.h5", b"")
    (tmp_path / "vocabulary.json").write_text('["<unk>", "<eos>", "a"]')
    said = zoo_command("generate", tmp_path)
    assert said.code == 2
    assert "model.keras is refused: it names keras.layers.Lambda" in said.err
