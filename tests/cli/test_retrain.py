"""The commands of retraining, as a person types them: words, files, exit codes."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import typer
from transfer.retrain_support import write_folder
from typer.testing import CliRunner

from zoo.cli import app
from zoo.cli.predict import name_pictures
from zoo.data.images import encode_png

RUNNER = CliRunner()
SMALL = ["--net", "lenet5", "--weights", "none"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A finished run made by the command, its pictures, and what was printed."""
    root = tmp_path_factory.mktemp("cli")
    write_folder(root / "pictures")
    words = ["retrain", str(root / "pictures"), "--out", str(root / "run"), "--cache", str(root / "cache"), *SMALL]
    done = RUNNER.invoke(app, words)
    assert done.exit_code == 0, done.output
    return root, done.output


def test_retrain_says_what_it_did(place):
    root, said = place
    for words in ("trunk: lenet5, untrained", "bottlenecks: 36 pictures", "test accuracy", "report.html"):
        assert words in said.replace("\n", " ") or words in said
    assert (root / "run" / "report.html").is_file()
    assert json.loads((root / "run" / "run.json").read_text())["settings"]["net"] == "lenet5"


def test_predict_in_three_formats(place):
    root, _ = place
    pictures = sorted((root / "pictures" / "red").iterdir())[:2]
    table = RUNNER.invoke(app, ["predict", str(root / "run"), *map(str, pictures)])
    assert table.exit_code == 0 and "red" in table.output and "%" in table.output
    words = ["predict", str(root / "run"), *map(str, pictures), "--top", "2"]
    found = json.loads(RUNNER.invoke(app, [*words, "--json"]).output)
    assert [row["label"] for row in found] == ["red", "red"] and len(found[0]["predictions"]) == 2
    lines = RUNNER.invoke(app, [*words, "--csv"]).output.split()
    assert lines[0] == "file,label,class,probability" and len(lines) == 5


def test_predict_can_answer_none_of_these_and_lists_bad_files(place, tmp_path):
    root, _ = place
    picture = next((root / "pictures" / "red").iterdir())
    words = ["predict", str(root / "run"), str(picture), "--json"]
    assert json.loads(RUNNER.invoke(app, [*words, "--reject-below", "1"]).output)[0]["label"] is None
    (tmp_path / "cut.jpg").write_bytes(b"\xff\xd8\xff\xe0 cut")
    mixed = RUNNER.invoke(app, ["predict", str(root / "run"), str(picture), str(tmp_path / "cut.jpg")])
    assert mixed.exit_code == 1 and "cut.jpg" in mixed.output
    only_bad = RUNNER.invoke(app, ["predict", str(root / "run"), str(tmp_path / "cut.jpg"), "none.png"])
    assert only_bad.exit_code == 2


def test_evaluate_and_report(place, tmp_path):
    root, _ = place
    done = RUNNER.invoke(app, ["evaluate", str(root / "run"), str(write_folder(tmp_path / "new", per_class=2, seed=3))])
    assert done.exit_code == 0 and "accuracy 100.0%" in done.output
    done = RUNNER.invoke(app, ["report", str(root / "run")])
    assert done.exit_code == 0 and "report.html" in done.output and "test accuracy" in done.output


def test_evaluate_warns_of_pictures_that_the_run_knows(place, zoo_command):
    root, _ = place
    said = zoo_command("evaluate", root / "run", root / "pictures")
    counts = re.search(r"(\d+) in its training part, (\d+) in its validation part", said.err)
    assert said.code == 0 and int(counts[1]) > int(counts[2]) > 0
    found = json.loads(zoo_command("evaluate", root / "run", root / "pictures", "--json").out)
    assert [found["seen_in_training"], found["seen_in_validation"]] == [int(counts[1]), int(counts[2])]


@pytest.mark.parametrize("words", [["report"], ["evaluate", "pictures"], ["predict", "pictures/red"]])
def test_commands_keep_tensorflows_notes_to_themselves(place, words):
    root, _ = place
    command, *rest = words
    environment = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    done = subprocess.run(
        [sys.executable, "-c", "from zoo.cli import main; main()", command, str(root / "run"), *rest],
        cwd=root, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert all(line.startswith("zoo: ") for line in done.stderr.splitlines()), done.stderr


BAD = [
    ("--bottleneck", "Mixed_9z"), ("--finetune-from", "Mixed_9z"), ("--max-bad", "few"), ("--near", "nan"),
    ("--validation", "nan"), ("--test", "0.95"), ("--views", "-1"), ("--fit", "squeeze"), ("--background", "sky"),
    ("--layout", "flat"), ("--head", "forest"), ("--hidden", "5"), ("--dropout", "0.5"), ("--size", "8"),
    ("--epochs", "0"), ("--epochs", "3"), ("--finetune-rate", "0.1"),
    ("--finetune-from", "conv2", "--finetune-rate", "inf"), ("--train-batch-norm",), ("--seed", "-1"),
    ("--batch-size", "0"), ("--workers", "0"), ("--net", "lenet"), ("--weights", "no-such-file.h5"),
    ("--option", "colour"), ("--option", "colour=1"), ("--devices", "gpu:7"),
]  # fmt: skip


@pytest.mark.parametrize("option", BAD, ids=" ".join)
def test_a_bad_option_ends_with_2_before_anything_is_written(option, place, zoo_command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pictures").symlink_to(place[0] / "pictures")
    given = [] if option[0] in ("--net", "--weights") else ["--net", "lenet5"]
    given += [] if option[0] == "--weights" else ["--weights", "none"]
    said = zoo_command("retrain", "pictures", "--out", "run", "--cache", "cache", *given, *option)
    assert said.code == 2 and said.err.strip() and "Traceback" not in said.err, said.err
    assert "Fingerprint" not in said.out and [path.name for path in tmp_path.iterdir()] == ["pictures"]


def test_a_bad_option_of_the_demo_writes_no_digits(zoo_command, tmp_path):
    said = zoo_command("retrain", "--demo", "--out", tmp_path / "demo", "--bottleneck", "Mixed_9z")
    assert said.code == 2 and "--bottleneck is auto" in said.err and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["retrain"], "either IMAGES"),
        (["retrain", "no-such-folder", *SMALL], "no such folder"),
        (["evaluate", "no-run", "no-folder"], "no finished run"),
        (["report", "no-run"], "no finished run"),
        (["predict", "inception_v3", "x.png"], "needs --weights"),
    ],
)
def test_what_cannot_be_done(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = RUNNER.invoke(app, words)
    assert isinstance(done.exception, ValueError | FileNotFoundError) and message in str(done.exception)


def test_predict_names_every_file_of_a_folder(place, zoo_command, tmp_path):
    """With an answer or a reason, and waits for none."""
    root, _ = place
    picture = min((root / "pictures" / "red").iterdir())
    folder = tmp_path / "inbox"
    folder.mkdir()
    for name in ("a.png", "no_ending"):
        shutil.copy(picture, folder / name)
    (folder / "long.png").write_bytes(encode_png(np.zeros((1, 60_000, 3), np.uint8)))
    (folder / "scan.tif").write_bytes(b"II*\0 and more")
    (folder / "cut.png").write_bytes(picture.read_bytes()[:50])
    (folder / "notes.txt").write_text("no picture")
    os.mkfifo(folder / "pipe.png")
    (folder / "self.png").symlink_to("self.png")
    said = zoo_command("predict", root / "run", folder, folder / "pipe.png", "--json")
    assert said.code == 1
    found = {Path(row["file"]).name: row for row in json.loads(said.out)}
    assert {name for name, row in found.items() if row.get("label")} == {"a.png", "no_ending", "long.png"}
    assert found.keys() - {"a.png", "no_ending", "long.png"} == {"scan.tif", "cut.png", "self.png", "pipe.png"}
    for words in (
        "notes.txt alone: it is no picture",
        "pipe.png is a named pipe and is left alone",
        "self.png: broken",
    ):
        assert words in said.err
    table = zoo_command("predict", root / "run", folder, "--top", 1, "--batch-size", 1)
    assert table.out.count("probability") == 1 and table.out.count("%") == 3


@pytest.mark.parametrize("form", ["table", "json", "csv"])
def test_predict_prints_what_it_knows_before_it_reads_on(tmp_path, capsys, form):
    printed = []

    class Told:
        classes = ("a", "b")
        reader = property(lambda self: self)
        classify = staticmethod(lambda prepared: np.full((len(prepared), 2), 0.5))

        def read(self, data):
            printed.append(capsys.readouterr().out)
            if data == b"2":
                raise MemoryError
            return data

    files = [tmp_path / f"{number}.png" for number in range(4)]
    for number, file in enumerate(files):
        file.write_bytes(b"%d" % number)
    with pytest.raises(typer.Exit) as stop:
        name_pictures(Told(), files, {}, top=1, batch_size=1, form=form)
    assert stop.value.exit_code == 1
    whole = "".join([*printed, capsys.readouterr().out])
    for number, before in enumerate(printed[1:]):
        assert (f"{number}.png" in before) == (number != 2), before
    if form == "json":
        assert [row.get("error") for row in json.loads(whole)] == [None] * 3 + ["there is not enough memory for it"]
