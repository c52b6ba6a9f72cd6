"""``zoo bench densenet``: its table and its refusals."""

import csv

import pytest
from matplotlib.axes import Axes

from zoo.bench.cells import Result
from zoo.cli import main


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--device", "gpu"], "--device gpu: TensorFlow finds no GPU here"),
        (["--device", "cpu", "--nets", "resnet"], "--nets takes densenet121"),
        (["--device", "cpu", "--memory", "all"], "'--memory': 'all' is none of store, recompute, minimal"),
        (["--device", "cpu", "--xla", "maybe"], "'--xla': 'maybe' is none of off, on, both"),
        (["--batches", "8,0"], "--batches takes whole numbers from 1, separated by commas; got '8,0'"),
        (["--batches", "many"], "--batches takes whole numbers from 1"),
        (["--batches", ","], "--batches takes at least one value"),
        (["--device", "cpu", "--nets", "41x12"], "is 6n + 4 (10, 16, ... 40, ... 100), its growth from 1; got '41x12'"),
        (["--device", "cpu", "--nets", "40x0"], "got '40x0'"),
        (
            ["--device", "cpu", "--peers", "torchvision", "--peer-python", "/no/python"],
            "which /no/python cannot import",
        ),
        (["--device", "cpu", "--limit-gib", "0"], "--limit-gib"),
    ],
)
def test_refusals(words, message, capsys, tmp_path):
    with pytest.raises(SystemExit) as stopped:
        main(["bench", "densenet", *words, "--out", str(tmp_path)])
    assert stopped.value.code == 2
    assert message in capsys.readouterr().err.replace("\n", " ")
    assert not list(tmp_path.iterdir())


def test_a_file_is_no_folder_for_results(tmp_path, capsys):
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit) as stopped:
        main(["bench", "densenet", "--device", "cpu", "--out", str(tmp_path / "file")])
    assert stopped.value.code == 2
    assert "file is no folder" in capsys.readouterr().err


@pytest.mark.parametrize(("theirs", "measure"), [(None, "resident"), (400 << 20, "allocator")])
def test_cells_are_compared_by_one_measure(theirs, measure, tmp_path, monkeypatch, capsys):
    def run_cells(cells, rounds):
        counts = (100 << 20, theirs)
        return [Result(cell, (1.0,), 900 << 20, count, {}) for cell, count in zip(cells, counts, strict=True)]

    labels = []
    monkeypatch.setattr("zoo.cli.bench.run_cells", run_cells)
    monkeypatch.setattr(Axes, "set_ylabel", lambda self, text, **_: labels.append(text))
    words = ["bench", "densenet", "--memory", "store,recompute", "--batches", "2,4", "--device", "cpu", "--out"]
    with pytest.raises(SystemExit) as stopped:
        main([*words, str(tmp_path)])
    said = capsys.readouterr().out
    assert not stopped.value.code
    assert f"{measure} peak" in " ".join(said.split())
    assert ("900.0" in said, "100.0" in said) == (measure == "resident", measure == "allocator")
    assert [{"resident" in label: "resident", "allocator" in label: "allocator"}[True] for label in labels] == [measure]
    with (tmp_path / "densenet.csv").open() as file:
        assert {row["measure"] for row in csv.DictReader(file)} == {measure}
    with pytest.raises(SystemExit):
        main([*words, str(tmp_path)])
    assert "densenet.csv is there already" in capsys.readouterr().err


@pytest.mark.slow
def test_a_small_table(tmp_path, capsys):
    words = "--nets 10x4 --batches 2,4 --memory store,recompute --rounds 2 --device cpu --name small"
    try:
        code = main(["bench", "densenet", *words.split(), "--out", str(tmp_path)])
    except SystemExit as stopped:
        code = stopped.code
    assert not code, capsys.readouterr().err
    with (tmp_path / "small.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [(row["memory"], row["batch"]) for row in rows] == [(m, b) for b in "24" for m in ("store", "recompute")]
    assert all(float(row["median_s"]) > 0 and float(row["resident_peak_mib"]) > 100 for row in rows)
    assert rows[0]["allocator"]
    assert (tmp_path / "small_batch.png").stat().st_size > 1000
