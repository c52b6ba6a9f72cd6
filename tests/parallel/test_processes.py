"""Clusters of processes on the loopback: several workers, parameter servers, deaths; each bounded in time."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from parallel.nets import CASES, IDS
from parallel.nets import train as alone

from zoo.parallel.launch import free_ports
from zoo.training import read_checkpoint

LIMIT = 150  # seconds, for whatever hangs
ZOO = [sys.executable, "-c", "from zoo.cli import main; main()"]
TRAIN = [
    "train",
    "lenet5",
    "--batch",
    "64",
    "--epochs",
    "2",
    "--no-augment",
    "--schedule",
    "constant",
    "--progress",
    "lines",
    "--validation",
    "0",
]


def environment(**more):
    return {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", "CUDA_VISIBLE_DEVICES": "", **more}


def train(strategy, out, *more, timeout="60"):
    cluster = ["--peer-timeout", timeout] if strategy in ("multiworker", "ps") else []
    return ["zoo", *TRAIN, *cluster, "--strategy", strategy, "--out", str(out), "--summaries", "none", *more]


def launch(folder, words, *counts):
    command = [*ZOO, "launch", *counts, "--logs", str(folder / "logs"), "--", *words]
    return subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def said(process):
    try:
        output, _ = process.communicate(timeout=LIMIT)
    except subprocess.TimeoutExpired:
        process.terminate()
        output, _ = process.communicate(timeout=90)
        pytest.fail(f"not at its end after {LIMIT} s: {output[-2000:]}")
    return output


def arrays(run):
    newest = max(run.glob("model.ckpt-*"), key=lambda path: int(path.name.rpartition("-")[2]))
    return newest.name, read_checkpoint(newest).arrays


def lines(run):
    kept = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{k: v for k, v in line.items() if k != "examples_per_second"} for line in kept]


def wait_for(path, process):
    end = time.monotonic() + LIMIT
    while not path.exists():
        assert process.poll() is None, process.communicate()[0]
        assert time.monotonic() < end
        time.sleep(0.05)


def test_two_workers_are_one_and_go_on_after_a_kill(tmp_path, zoo_command):
    """The numbers of one device; killed in the middle and started again, the same bits as undisturbed."""
    whole = launch(tmp_path, train("multiworker", tmp_path / "whole", "--checkpoint-steps", "10"), "--workers", "2")
    output = said(whole)
    assert whole.returncode == 0, output
    killed = launch(tmp_path, train("multiworker", tmp_path / "killed", "--checkpoint-steps", "10"), "--workers", "2")
    wait_for(tmp_path / "killed" / "model.ckpt-20", killed)
    victims = subprocess.run(["pgrep", "-P", str(killed.pid)], capture_output=True, text=True, check=True).stdout
    os.kill(int(victims.split()[1]), signal.SIGKILL)
    started = time.monotonic()
    output = said(killed)
    assert time.monotonic() - started < 10
    assert killed.returncode not in (0, None), output
    assert "the other tasks are stopped" in output
    assert not (tmp_path / "killed" / "model.keras").exists()
    again = launch(tmp_path, train("multiworker", tmp_path / "killed", "--checkpoint-steps", "10"), "--workers", "2")
    output = said(again)
    assert again.returncode == 0, output
    assert "going on at step" in output
    (name, one), (other, two) = arrays(tmp_path / "whole"), arrays(tmp_path / "killed")
    assert name == other
    for key, value in one.items():
        np.testing.assert_array_equal(two[key], value, err_msg=key)
    assert lines(tmp_path / "whole") == lines(tmp_path / "killed")
    assert zoo_command(*train("single", tmp_path / "single")[1:]).code == 0
    found = arrays(tmp_path / "single")[1]
    assert found.keys() == one.keys()
    for key in one:
        if key.startswith("model/"):
            np.testing.assert_allclose(one[key], found[key], rtol=0.02, atol=2e-3, err_msg=key)
    # what was saved by two workers goes on with one process, and on towers
    more = zoo_command(*train("towers", tmp_path / "whole", "--epochs", "3")[1:])
    assert "after 69 steps" in more.out, more.err


two_cores = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="TensorFlow's servers hang on one core")


@two_cores
def test_parameter_servers_outlive_a_worker(tmp_path):
    run = tmp_path / "run"
    words = train("ps", run, "--epochs", "20", "--checkpoint-steps", "20", "--validation", "0.1")
    job = launch(tmp_path, words, "--workers", "2", "--ps", "1")
    wait_for(run / "model.ckpt-40", job)
    victims = subprocess.run(["pgrep", "-f", str(run)], capture_output=True, text=True, check=True).stdout.split()
    for pid in victims:
        config = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
        if '"type": "worker", "index": 0' in config:
            os.kill(int(pid), signal.SIGKILL)
            break
    output = said(job)
    assert job.returncode == 0, output
    assert "worker-0 ended with status 137 and is started again" in output
    accuracy = [line["val_accuracy"] for line in lines(run) if line["kind"] == "validation"]
    assert len(accuracy) == 20
    assert max(accuracy) > 0.9


def test_a_worker_alone_ends_with_a_message(tmp_path, zoo_command, monkeypatch):
    ports = free_ports(2)
    config = {"cluster": {"worker": [f"127.0.0.1:{port}" for port in ports]}, "task": {"type": "worker", "index": 0}}

    def run():
        monkeypatch.setenv("TF_CONFIG", json.dumps(config))
        return zoo_command(*train("multiworker", tmp_path / "run", timeout="1")[1:])

    alone = run()
    assert alone.code == 1
    assert f"did not come within 1 s: worker 1 at 127.0.0.1:{ports[1]}" in alone.err
    config["task"]["index"] = 2
    broken = run()
    assert broken.code == 2
    assert "task.index is a number from 0 to 1; got 2" in broken.err
    assert not (tmp_path / "run").exists()


# A cluster has nothing of its own to add to what mirrored replicas show of the others.
QUICK = ("lenet5", "densenet-recompute", "row_classifier")


@pytest.mark.parametrize("long", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["quick", "long"])
@pytest.mark.parametrize(("kind", "counts"), [("multiworker", (2, 0)), pytest.param("ps", (1, 1), marks=two_cores)])
def test_every_network_trains_in_a_cluster(tmp_path, kind, counts, long):
    names = [name for name in IDS if (name not in QUICK) == long]
    assert names
    script = Path(__file__).with_name("launched_nets.py")
    words = [sys.executable, str(script), kind, str(tmp_path / "found.npz"), ",".join(names)]
    job = launch(tmp_path, words, "--workers", str(counts[0]), "--ps", str(counts[1]))
    output = said(job)
    assert job.returncode == 0, output[-3000:]
    found = dict(np.load(tmp_path / "found.npz"))
    assert {key.partition(":")[0] for key in found} == set(names)
    assert all(np.isfinite(value).all() for value in found.values())
    if kind == "ps":  # the asynchronous updates of one worker are late
        outside = {f"{name}:{key}" for name in names for key in CASES[IDS.index(name)].build().variable_names}
        assert found.keys() == outside
        return
    for name in names:
        case = CASES[IDS.index(name)]
        for key, value in alone(case, None, case.data(), steps=3)[0].items():
            np.testing.assert_allclose(found[f"{name}:{key}"], value, rtol=1e-8, atol=1e-8, err_msg=f"{name} {key}")


@two_cores
def test_a_carried_state_is_local_to_a_worker(tmp_path):
    script = Path(__file__).with_name("launched_words.py")
    words = [sys.executable, str(script), str(tmp_path / "found.npz")]
    job = launch(tmp_path, words, "--workers", "2", "--ps", "1")
    output = said(job)
    assert job.returncode == 0, output[-3000:]
    found = np.load(tmp_path / "found.npz")
    apart = np.abs(found["found"][:, None] - found["carried"].ravel())
    assert (apart.min(1) < 1e-4).all()  # each worker carries its own state through its own rows
    assert set(apart.argmin(1) // 3) == {0, 1}
    assert (np.abs(found["carried"] - found["fresh"])[:, 1:] > 1e-3).all()
    assert not found["kept"].any()
    assert "laid out for 3 workers and the cluster has 2: make it with workers=2" in str(found["wrong"])
    assert "give data in which each worker has batches of its own" in str(found["wrong"])


@pytest.mark.slow
@two_cores
def test_the_word_model_trains_in_clusters(tmp_path):
    (tmp_path / "text").mkdir()
    for part, count in (("train", 40), ("valid", 10), ("test", 6)):
        (tmp_path / "text" / f"ptb.{part}.txt").write_text(
            " the cat sat on the mat and the dog sat on the rug \n" * count
        )
    words = ["zoo", "train", "word_lm", "--data", str(tmp_path / "text"), "--batch", "4", "--epochs", "2"]
    words += ["--learning-rate", "0.3", "--option", "hidden=6", "--option", "init_scale=0.3"]
    found = {}
    for strategy, counts in (("single", None), ("multiworker", (2, 0)), ("ps", (2, 1))):
        out = tmp_path / strategy
        command = [*words, "--strategy", strategy, "--out", str(out)]
        if counts is None:
            subprocess.run([*ZOO, *command[1:]], env=environment(), timeout=LIMIT, check=True)
        else:
            job = launch(tmp_path, command, "--workers", str(counts[0]), "--ps", str(counts[1]))
            output = said(job)
            assert job.returncode == 0, output[-3000:]
        assert json.loads((out / "perplexity.json").read_text())["test"] < 9  # words there are
        found[strategy] = arrays(out)[1]
    for key, value in found["single"].items():
        np.testing.assert_allclose(found["multiworker"][key], value, rtol=1e-4, atol=1e-6, err_msg=key)
        assert found["ps"][key].shape == value.shape


def test_a_signal_to_the_launcher_saves_and_ends_all(tmp_path):
    run = tmp_path / "run"
    job = launch(tmp_path, train("multiworker", run, "--epochs", "50", "--checkpoint-steps", "10"), "--workers", "2")
    wait_for(run / "model.ckpt-20", job)
    job.terminate()
    output = said(job)
    assert job.returncode == 143, output
    step = max(int(path.name.rpartition("-")[2]) for path in run.glob("model.ckpt-*"))
    assert step % 8 == 0  # where the workers agreed
    assert f"stopped after step {step}" in (tmp_path / "logs" / "worker-0.log").read_text()
