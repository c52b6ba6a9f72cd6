"""`--config` and `--print-config` of train and retrain: options as a file, and a run's own file given back."""

import json

import numpy as np
import pytest

from zoo.data.images import encode_png

QUICK = ("--epochs", "1", "--batch", "512", "--summaries", "none", "--progress", "none")


def printed(zoo_command, *words):
    said = zoo_command(*words, "--print-config")
    assert said.code == 0, said.err
    return json.loads(said.out)


def written(path, value):
    path.write_text(json.dumps(value))
    return path


def test_what_is_printed_is_read_back(zoo_command, tmp_path):
    words = ["lenet5", "--epochs", "3", "--no-augment", "--out", "runs/x"]
    words += ["--train-only", "fc4", "--train-only", "logits"]
    words += ["--option", "variant=original", "--option", "num_classes=10", "--devices", "cpu", "--strategy", "towers"]
    config = printed(zoo_command, "train", *words)
    found = config["zoo train"]
    assert (found["net"], found["option"]) == ("lenet5", {"variant": "original", "num_classes": 10})
    assert found["data"] == {
        "data": "digits", "split": "random", "validation": 0.1, "on_damage": "stop", "augment": False,
    }  # fmt: skip
    assert found["learning"]["train_only"] == ["fc4", "logits"]
    assert (found["run"]["out"], found["devices"]["devices"], found["sharing"]["strategy"]) == (
        "runs/x",
        "cpu",
        "towers",
    )
    file = written(tmp_path / "config.json", config)
    assert printed(zoo_command, "train", "--config", file) == config
    other = printed(zoo_command, "train", "--config", file, "--epochs", "4", "--augment")["zoo train"]
    assert (other["learning"]["epochs"], other["data"]["augment"]) == (4, True)


def test_a_run_s_config_makes_the_same_run(zoo_command, tmp_path):
    said = zoo_command("train", "lenet5", *QUICK, "--seed", "5", "--out", tmp_path / "first")
    assert said.code == 0, said.err
    config = tmp_path / "first" / "config.json"
    said = zoo_command("train", "--config", config, "--out", tmp_path / "second")
    assert said.code == 0, said.err
    first, second = (json.loads((tmp_path / run / "weights.json").read_text()) for run in ("first", "second"))
    assert first["sha256"] == second["sha256"]
    said = zoo_command("train", "--config", config)
    assert "nothing was trained" in said.out
    said = zoo_command("train", "--config", config, "--epochs", "2", "--schedule", "constant")
    assert said.code == 2
    assert "learning_rate" in said.err
    assert "zoo train." not in said.err  # the options themselves are not compared


def test_options_of_a_file_count_as_given_where_they_differ_from_the_defaults(zoo_command, tmp_path):
    config = printed(zoo_command, "train", "lenet5", "--on-damage", "skip", "--out", tmp_path / "run")
    said = zoo_command("train", "--config", written(tmp_path / "config.json", config))
    assert said.code == 2
    assert "--data digits (digits) has no use for --on-damage" in said.err


def test_a_word_model_keeps_its_recipe_and_takes_what_the_file_says(zoo_command, tmp_path):
    usual = printed(zoo_command, "train", "word_lm", "--data", "texts")["zoo train"]
    assert not {"epochs", "batch", "learning_rate"} & usual["learning"].keys()
    assert "progress" not in usual["watching"]
    config = printed(zoo_command, "train", "word_lm", "--data", tmp_path, "--epochs", "30", "--batch", "3")
    assert config["zoo train"]["learning"]["epochs"] == 30  # the default of other networks
    for part in ("train", "valid", "test"):
        (tmp_path / f"ptb.{part}.txt").write_text("the cat sat on the mat \n" * 2)
    said = zoo_command("train", "--config", written(tmp_path / "config.json", config), "--out", tmp_path / "run")
    assert "3 rows of 20 words" in said.err


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"model": {}}, "config.json holds no options under 'zoo train'; zoo train --print-config writes"),
        ([1], "holds no options under 'zoo train'"),
        ({"zoo train": {"nets": "lenet5"}}, "nets: Extra inputs are not permitted"),
        ({"zoo train": {"learning": {"epoch": 3}}}, "learning.epoch: Extra inputs are not permitted"),
        ({"zoo train": {"learning": {"epochs": "many"}}}, "learning.epochs: Input should be a valid integer"),
        (
            {"zoo train": {"learning": {"epochs": 0}}},
            ("config.json: epochs: Input should be greater than or equal to 1", "0 is not in the range x>=1"),
        ),
        ({"zoo train": {"learning": {"optimizer": "adm"}}}, "optimizer: 'adm' is none of sgd"),
        ({"zoo train": {"run": {"resume": True}}}, "run.resume: Extra inputs are not permitted"),
        ({"zoo train": {"learning": {"epochs": 1}}}, ("Missing argument 'net'", "Missing argument 'NET'")),
    ],
)
def test_a_wrong_file_is_named_with_the_place(value, message, zoo_command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = zoo_command("train", "--config", written(tmp_path / "config.json", value))
    assert said.code == 2
    wordings = (message,) if isinstance(message, str) else message  # each typer's
    assert any(wording in said.err for wording in wordings)
    assert said.err.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]


def test_a_file_that_is_not_there(zoo_command, tmp_path):
    said = zoo_command("train", "--config", tmp_path / "none.json")
    assert (said.code, said.err) == (2, f"zoo: {tmp_path / 'none.json'}: No such file or directory\n")


def test_retrain_takes_what_it_prints_and_the_settings_of_a_run(zoo_command, tmp_path):
    for label, level in (("dark", 40), ("light", 200)):
        (tmp_path / "pictures" / label).mkdir(parents=True)
        for number in range(8):
            data = encode_png(np.full((32, 32, 3), level + number, "uint8"))
            (tmp_path / "pictures" / label / f"{number}.png").write_bytes(data)
    words = (
        "--net",
        "lenet5",
        "--weights",
        "none",
        "--no-export",
        "--seed",
        "3",
        "--near",
        "2",
        "--background",
        "#102030",
    )
    words += ("--cache", tmp_path / "cache")
    config = printed(zoo_command, "retrain", tmp_path / "pictures", *words, "--out", tmp_path / "a")
    assert config["zoo retrain"]["pictures"]["background"] == "#102030"
    file = written(tmp_path / "config.json", config)
    assert printed(zoo_command, "retrain", "--config", file) == config
    said = zoo_command("retrain", "--config", file)
    assert said.code == 0, said.err
    more = ("--config", tmp_path / "a" / "settings.json", "--no-export", "--cache", tmp_path / "cache")
    found = printed(zoo_command, "retrain", tmp_path / "pictures", *more)["zoo retrain"]
    assert (found["trunk"]["net"], found["run"]["seed"], found["pictures"]["background"]) == ("lenet5", 3, "16,32,48")
    said = zoo_command("retrain", tmp_path / "pictures", *more, "--out", tmp_path / "b")
    assert said.code == 0, said.err
    first, second = (json.loads((tmp_path / run / "run.json").read_text()) for run in "ab")
    assert first["settings"] == second["settings"]
    assert first["evaluation"] == second["evaluation"]
