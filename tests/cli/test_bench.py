"""``zoo bench densenet``: its table, its arithmetic, and its refusals."""

import csv

import pytest
from matplotlib.axes import Axes

from zoo.cli import main
from zoo.cli._bench_plot import fit_line, growth
from zoo.cli._bench_run import Cell, Result, largest_batch, ratio, slope
from zoo.cli.bench import _cells


def result(batch, allocator, resident=10**9, seconds=(1.0,)):
    return Result(Cell("zoo", "densenet121", batch=batch), seconds, resident, allocator, {})


def test_slope_and_largest_batch_cancel_what_is_constant():
    results = [result(24, 1_000 + 24 * 50), result(8, 1_000 + 8 * 50)]
    assert slope(results, "allocator_peak") == 50
    assert largest_batch(results, "allocator_peak", 1_000 + 100 * 50 + 49) == 100
    assert slope(results[:1], "allocator_peak") is None
    assert slope([result(8, None), result(24, None)], "allocator_peak") is None


def test_ratio_has_the_median_s_interval():
    assert ratio([2.0], [1.0]) == (2.0, 2.0, 2.0)
    ours = [float(i) for i in range(1, 11)]
    assert ratio(ours, [1.0] * 10) == (5.5, 2.0, 9.0)  # the second and the ninth of ten: 97.9 %


def test_fit_line_gives_the_residual():
    assert fit_line([1, 2, 3], [2, 4, 6])[2] < 1e-12
    assert fit_line([1, 2, 3], [1, 4, 9])[2] > 0.03
    assert growth([1, 2, 3], [5, 20, 45]) == pytest.approx(2.0)


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


def test_peers_get_the_networks_they_have(capsys):
    cells = _cells(
        ["densenet161", "40x12"], ["store"], ["float32"], [False], ["keras", "torchvision"], Cell("zoo", ""), ""
    )
    assert [(cell.peer, cell.net) for cell in cells] == [
        ("zoo", "densenet161"),
        ("torchvision", "densenet161"),
        ("zoo", "densenet_cifar"),
    ]
    assert "keras has no densenet161: left out" in capsys.readouterr().err


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
