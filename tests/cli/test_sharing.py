"""`zoo train` on many devices, `zoo bench scaling` and `zoo launch`, inside the test process (four logical CPUs)."""

import csv

import numpy as np
import pytest

from zoo.devices import logical_cpus, parse_devices
from zoo.training import read_checkpoint

SHORT = [
    "--epochs",
    "1",
    "--batch",
    "256",
    "--no-augment",
    "--validation",
    "0",
    "--summaries",
    "none",
    "--progress",
    "lines",
    "--optimizer",
    "sgd",
    "--schedule",
    "constant",
]


def weights(run):
    arrays = read_checkpoint(max(run.glob("model.ckpt-*"), key=lambda p: int(p.name.rpartition("-")[2]))).arrays
    return {name: array for name, array in arrays.items() if name.startswith("model/")}


def test_towers_mirrored_and_one_device_give_the_same_and_go_on_from_each_other(zoo_command, tmp_path):
    found = {}
    for name, options in {
        "single": [],
        "towers": ["--strategy", "towers", "--show-placement"],
        "mirrored": ["--strategy", "mirrored", "--reduction", "one_device"],
    }.items():
        said = zoo_command("train", "lenet5", *SHORT, "--out", tmp_path / name, *options)
        assert said.code == 0, said.err
        found[name] = weights(tmp_path / name)
        if name == "towers":
            assert "LeNet5/conv1/weights" in said.out
            assert "5 x 5 x 1 x 6" in said.out
    for name in ("towers", "mirrored"):
        for key, value in found["single"].items():
            np.testing.assert_allclose(found[name][key], value, rtol=1e-4, atol=1e-6, err_msg=key)
    said = zoo_command(
        "train", "lenet5", *SHORT, "--epochs", "2", "--out", tmp_path / "towers", "--strategy", "mirrored"
    )
    assert said.code == 0, said.err
    assert "going on at step 7" in said.err
    said = zoo_command("train", "lenet5", *SHORT, "--epochs", "3", "--out", tmp_path / "towers")
    assert said.code == 0, said.err
    assert "going on at step 13" in said.err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--strategy", "tower"],
            "'tower' is none of single, towers, mirrored, multiworker, ps; did you mean 'towers'",
        ),
        (["--strategy", "towers", "--num-gpus", "2", "--strict-gpus"], "2 GPUs were asked for and there are 0"),
        (["--strategy", "towers", "--batch", "2"], "global batch of 2 has fewer examples than the 4 devices"),
        (["--strategy", "mirrored", "--batch", "479"], "the last batch of an epoch has 1 of 1438 examples"),
        (["--strategy", "towers", "--batch-norm", "all"], "'--batch-norm': 'all' is none of mean, sync, first"),
        (["--batch-norm", "sync"], "needs devices that take a step together"),
        (["--strategy", "mirrored", "--asynchronous"], "synchronous=False is for towers"),
        (["--num-gpus", "2"], "takes no number of GPUs"),
        (["--strategy", "towers", "--jit-compile"], "jit_compile goes with mirrored"),
        (["--strategy", "mirrored", "--jit-compile"], "XLA knows one CPU only"),
        (["--strategy", "towers", "--reduction", "nccl"], "reduction is how mirrored replicas and workers meet"),
        (["--strategy", "mirrored", "--batch-norm", "first"], "batch_norm='first' is for towers"),
        (["--strategy", "multiworker"], "TF_CONFIG, which is not set"),
    ],
)
def test_bad_input_is_refused_before_anything_is_written(zoo_command, tmp_path, monkeypatch, options, message):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    words = [word for word in SHORT if word not in ("--batch", "256")] if "--batch" in options else SHORT
    said = zoo_command("train", "lenet5", *words, "--out", tmp_path / "run", *options)
    assert said.code == 2
    assert message in said.err
    assert not (tmp_path / "run").exists()


def test_fewer_gpus_than_asked_for_warns_with_both_numbers(zoo_command, tmp_path):
    with pytest.warns(UserWarning, match="2 GPUs were asked for and there are 0.*running on 2 device"):
        said = zoo_command("train", "lenet5", *SHORT, "--out", tmp_path, "--strategy", "towers", "--num-gpus", "2")
    assert said.code == 0, said.err


def test_bench_scaling_writes_its_table(zoo_command, tmp_path):
    said = zoo_command("bench", "scaling", "--batch", "16", "--rounds", "3", "--counts", "2", "--out", tmp_path)
    assert said.code == 0, said.err
    rows = list(csv.DictReader((tmp_path / "scaling.csv").open()))
    assert [(row["strategy"], row["devices"]) for row in rows] == [("single", "1"), ("towers", "2"), ("mirrored", "2")]
    assert all(float(row["median_s"]) > 0 for row in rows)
    assert float(rows[0]["ratio"]) == 1
    for options, message in (
        (["--counts", "9"], "there are 4 devices"),
        (["--counts", "two"], "--counts are numbers of devices, such as 2,4; got 'two'"),
        (["--nets", "lenet5,word_lm"], "networks for pictures; word_lm takes other inputs"),
        (["--batch-norm", "first"], "'--batch-norm': 'first' is none of mean, sync"),
    ):
        said = zoo_command("bench", "scaling", *options, "--out", tmp_path / "none")
        assert said.code == 2
        assert message in said.err
    assert not (tmp_path / "none").exists()


def test_launch_passes_the_status_on(zoo_command, tmp_path):
    words = ["launch", "--workers", "2", "--logs", tmp_path, "--", "sh", "-c", "echo here; exit 5"]
    said = zoo_command(*words)
    assert said.code == 5
    assert (tmp_path / "worker-1.log").read_text() in ("here\n", "")


def test_logical_cpus_by_name():
    assert logical_cpus("cpu:0,cpu:1") == 2
    assert logical_cpus("gpu:0,cpu:2, CPU:0,cpu:1") == 3
    assert logical_cpus("all") == logical_cpus("cpu") == 1
    assert parse_devices("cpu:0,cpu:1") == []
    for text in ("cpu:0,cpu:3", "cpu:0,cpu:0", "cpu:1"):
        with pytest.raises(ValueError, match="as many parts as are named, from cpu:0 on"):
            parse_devices(text)
