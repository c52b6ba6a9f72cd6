"""``zoo bench densenet``: its table and its refusals."""

import csv
from pathlib import Path

import pytest
from matplotlib.axes import Axes

from zoo.bench.cells import Result, run_cell
from zoo.cli import main
from zoo.cli.bench import _device


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--device", "gpu"], "--device gpu: TensorFlow finds no GPU here"),
        (["--device", "tpu"], "--device takes auto, cpu, gpu, or a GPU's number such as gpu:1; got 'tpu'"),
        (["--device", "cpu:1"], "got 'cpu:1'"),
        (["--resume"], "none is there"),
        (["--timeout", "inf"], "--timeout must be a finite number"),
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


def test_a_gpu_that_is_not_there_is_named(monkeypatch):
    monkeypatch.setattr("zoo.cli.bench._gpus", lambda: 2)
    assert [_device(word) for word in ("auto", "gpu", "gpu:1", "cpu")] == ["gpu:0", "gpu:0", "gpu:1", "cpu"]
    with pytest.raises(ValueError, match="--device gpu:2: TensorFlow finds 2 GPUs, from gpu:0 on"):
        _device("gpu:2")


def test_a_file_is_no_folder_for_results(tmp_path, capsys):
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit) as stopped:
        main(["bench", "densenet", "--device", "cpu", "--out", str(tmp_path / "file")])
    assert stopped.value.code == 2
    assert "file is no folder" in capsys.readouterr().err


@pytest.mark.parametrize(("theirs", "measure"), [(None, "resident"), (400 << 20, "allocator")])
def test_cells_are_compared_by_one_measure(theirs, measure, tmp_path, monkeypatch, capsys):
    def run_cell(cell, rounds, timeout):
        return Result(cell, (1.0,), 900 << 20, 100 << 20 if cell.memory == "store" else theirs, {})

    labels = []
    monkeypatch.setattr("zoo.cli.bench.run_cell", run_cell)
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


def bench(words, folder, capsys):
    """Runs the benchmark of a small grid; returns exit code, rows and what was said."""
    with pytest.raises(SystemExit) as stopped:
        main(["bench", "densenet", "--device", "cpu", *words.split(), "--out", str(folder)])
    path = folder / "densenet.csv"
    rows = list(csv.DictReader(path.open())) if path.exists() else []
    said = capsys.readouterr()
    return stopped.value.code, rows, said.out + said.err


@pytest.fixture
def fake_device(monkeypatch, tmp_path):
    monkeypatch.setattr("zoo.bench.cells.SCRIPT", Path(__file__).parents[1] / "bench" / "fake_cell.py")
    monkeypatch.setattr("zoo.cli.bench._device", lambda wanted: "gpu:0")
    monkeypatch.setenv("FAKE_LOG", str(tmp_path / "log"))
    return monkeypatch


def test_a_cell_that_ends_badly_is_a_row_and_the_next_one_runs(fake_device, tmp_path, capsys):
    fake_device.setenv("FAKE_LIMIT_MIB", "400")
    fake_device.setenv("FAKE_DIE", "minimal:2")
    fake_device.setenv("FAKE_HANG", "recompute:4")
    code, rows, said = bench("--batches 2,4 --rounds 2 --timeout 2", tmp_path, capsys)
    assert not code, said
    ends = {(row["memory"], row["batch"]): (row["outcome"], row["said"]) for row in rows}
    request = "OOM when allocating tensor with shape[4,64,112,112] and type float"
    assert ends == {
        ("store", "2"): ("ok", ""),
        ("recompute", "2"): ("ok", ""),
        ("minimal", "2"): ("died", "killed by SIGKILL in its start: the system may have run out of memory"),
        ("store", "4"): ("out of memory", request),
        ("recompute", "4"): ("hung", "its start took more than 2 s"),
        ("minimal", "4"): ("ok", ""),
    }
    assert request in said
    assert "out of memory" in said
    first = rows[0]
    sizes = {name: float(first[f"{name}_mib"]) for name in ("start_peak", "allocator_peak", "in_use")}
    assert sizes == {"start_peak": 330, "allocator_peak": 300, "in_use": 50}  # the workspace lies between the peaks
    assert first["machine"] == "Fake GPU"
    assert rows[2]["ratio"] == "" != rows[1]["ratio"]
    log = (
        (tmp_path / "log").read_text().split("\n")
    )  # one process on the device at a time, but for those that are killed
    assert log[:4] == ["begin store 2", "end", "begin recompute 2", "end"]


def test_nothing_but_failures_is_a_failure(fake_device, tmp_path, capsys):
    fake_device.setenv("FAKE_LIMIT_MIB", "10")
    code, rows, _ = bench("--memory store --batches 2 --rounds 1", tmp_path, capsys)
    assert code == 1
    assert [row["outcome"] for row in rows] == ["out of memory"]


def test_an_interrupted_benchmark_goes_on(fake_device, tmp_path, capsys):
    words = "--memory store,minimal --batches 2,4 --rounds 2 --passes 2"

    def interrupted(cell, rounds, timeout):
        if (cell.memory, cell.batch) == ("minimal", 4):
            raise KeyboardInterrupt
        return run_cell(cell, rounds, timeout)

    fake_device.setattr("zoo.cli.bench.run_cell", interrupted)
    code, rows, said = bench(words, tmp_path, capsys)
    assert code == 130
    assert len(rows) == 3
    assert "3 of 4 cells are in" in said and "--resume goes on" in said
    fake_device.setattr("zoo.cli.bench.run_cell", run_cell)
    code, _, said = bench(f"{words} --resume --rounds 3", tmp_path, capsys)
    assert code == 2 and "was measured with rounds_each 2, and now it is 3" in said
    code, _, said = bench("--memory minimal --batches 2,4 --rounds 2 --resume", tmp_path, capsys)
    assert code == 2 and "has a cell of another benchmark (zoo densenet121 store" in said
    code, kept, said = bench(f"{words} --resume", tmp_path, capsys)
    assert not code and "3 of 4 cells are in" in said, said
    assert [len(row["steps_s"].split()) for row in kept] == [4] * 4
    assert [row["steps_s"].split()[:2] for row in kept[:3]] == [row["steps_s"].split() for row in rows]
    begun = [line for line in (tmp_path / "log").read_text().split("\n") if line.startswith("begin")]
    assert len(begun) == 8  # four cells, two processes each, and none of them twice
    assert begun[3:] == [f"begin {cell}" for cell in ("minimal 4", "minimal 4", "store 4", "minimal 2", "store 2")]
    (tmp_path / "densenet.csv").write_text("net,depth\n1,2\n")
    code, _, said = bench(f"{words} --resume", tmp_path, capsys)
    assert code == 2 and "another benchmark" in said


def test_find_batch_ends_where_memory_does(fake_device, tmp_path, capsys):
    fake_device.setenv("FAKE_LIMIT_MIB", "1000")
    fake_device.setenv("FAKE_DIE", "minimal:16")
    fake_device.setattr("zoo.bench.search.planned_batch", lambda cell, limit: 9)
    code, rows, said = bench("--memory store,minimal --find-batch --margin 0", tmp_path, capsys)
    assert not code, said
    first, second = rows
    assert (first["largest_batch"], first["smallest_failed"], first["planned_batch"]) == ("8", "9", "9")
    assert "OOM when allocating tensor with shape[9,64,112,112]" in first["said"]
    assert (second["largest_batch"], second["smallest_failed"]) == ("15", "16") and "SIGKILL" in second["said"]
    begun = [line for line in (tmp_path / "log").read_text().split("\n") if line.startswith("begin store")]
    assert begun == [f"begin store {batch}" for batch in (1, 2, 4, 8, 16, 12, 10, 9)]
    code, _, said = bench("--find-batch --resume", tmp_path, capsys)
    assert code == 2 and "--find-batch starts anew" in said


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
