"""The commands of retraining, as a person types them: words, files, exit codes."""

import json

import pytest
from transfer.retrain_support import write_folder
from typer.testing import CliRunner

from zoo.cli import app

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
