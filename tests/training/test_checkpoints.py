"""Checkpoint files: whole or absent, checked, kept and pruned by rule, and never somebody else's."""

import json
import os
import time

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from zoo.training import Checkpoints, CheckpointWriteError, DamagedCheckpointError, read_checkpoint, write_checkpoint
from zoo.training.checkpoints import NonFiniteCheckpointError, read_header

ARRAYS = {
    "model/w": np.arange(6, dtype="float32").reshape(2, 3),
    "step": np.int64(7),
    "flag": np.array([True, False]),
    "half": np.arange(3).astype(ml_dtypes.bfloat16),
    "nothing": np.zeros((0, 4), "float32"),
}


def names(folder):
    return sorted((path.name for path in folder.iterdir()), key=lambda name: (len(name), name))


def test_round_trip(tmp_path):
    path = write_checkpoint(tmp_path / "model.ckpt-7", ARRAYS, {"step": 7, "text": "é"})
    found = read_checkpoint(path)
    assert found.state == {"step": 7, "text": "é"}
    assert found.arrays.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        assert found.arrays[name].dtype == np.asarray(array).dtype
        np.testing.assert_array_equal(found.arrays[name], array)
    assert names(tmp_path) == ["model.ckpt-7"]
    assert path.stat().st_mode & 0o777 == 0o644


def test_every_kind_of_damage_is_noticed(tmp_path):
    path = write_checkpoint(tmp_path / "model.ckpt-7", {"w": np.zeros(500, "float32")}, {"step": 7})
    data = path.read_bytes()
    head = int.from_bytes(data[:8], "little")
    places = [3, 20, data.index(b"step"), data.index(b"crc") + 20, 8 + head + 5, len(data) - 1]
    for place in places:
        path.write_bytes(data[:place] + bytes([data[place] ^ 4]) + data[place + 1 :])
        with pytest.raises(DamagedCheckpointError, match=r"model\.ckpt-7"):
            read_checkpoint(path)
    for length in (0, 5, 100, 8 + head, len(data) - 1):
        path.write_bytes(data[:length])
        with pytest.raises(DamagedCheckpointError, match=r"model\.ckpt-7"):
            read_checkpoint(path)
    path.write_bytes(data)
    assert read_header(path)["zoo"] == "training-checkpoint/1"


def test_a_newer_format_is_said(tmp_path):
    path = write_checkpoint(tmp_path / "a", {"w": np.zeros(1, "float32")}, {})
    path.write_bytes(path.read_bytes().replace(b"training-checkpoint/1", b"training-checkpoint/2"))
    with pytest.raises(DamagedCheckpointError, match="has format training-checkpoint/2; this version"):
        read_checkpoint(path)


def test_a_full_disk_leaves_the_old_file(tmp_path):
    """RLIMIT_FSIZE makes writes fail after 64 kB as a full disk does; in a child: limits stay."""
    path = write_checkpoint(tmp_path / "model.ckpt-1", {"w": np.ones(4, "float32")}, {"step": 1})
    pid = os.fork()
    if pid == 0:
        import resource
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
        status = 9
        try:
            write_checkpoint(path, {"w": np.zeros(100_000, "float32")}, {"step": 1})
        except CheckpointWriteError as error:
            status = 0 if "earlier checkpoints are untouched" in str(error) else 8
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    np.testing.assert_array_equal(read_checkpoint(path).arrays["w"], np.ones(4))
    assert names(tmp_path) == ["model.ckpt-1"]


def test_a_folder_that_cannot_be_written(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(CheckpointWriteError, match="could not be written"):
        write_checkpoint(tmp_path / "file" / "model.ckpt-1", ARRAYS, {})


def fill(keeper, *steps, metric=None):
    for step in steps:
        value = None if metric is None else metric.get(step)
        keeper.save({"w": tf.Variable([float(step)])}, {"step": step, "metric": value})
    keeper.wait()


@pytest.mark.parametrize("background", [False, True])
def test_keeps_the_newest_and_the_best(tmp_path, background):
    keeper = Checkpoints(tmp_path, keep=2, background=background)
    fill(keeper, 1, 2, 3, 4, 5, metric={1: 0.5, 2: 0.1, 3: 0.1, 4: 0.7})
    assert names(tmp_path) == ["model.ckpt-2", "model.ckpt-4", "model.ckpt-5"]
    assert keeper.best().step == 2  # the earliest of equals
    keeper.close()
    # A new process knows the same from the files alone.
    again = Checkpoints(tmp_path, keep=2, background=background)
    fill(again, 6, metric={6: 0.05})
    assert names(tmp_path) == ["model.ckpt-5", "model.ckpt-6"]
    assert again.newest().arrays["w"] == [6.0]
    again.close()
    larger = Checkpoints(tmp_path, smaller_is_better=False, background=background)
    fill(larger, 7, metric={7: 0.01})
    assert larger.best().step == 6


def test_keeps_one_every_n_hours_across_restarts(tmp_path, monkeypatch):
    clock = [1_000_000.0]
    monkeypatch.setattr(time, "time", lambda: clock[0])
    for step in range(1, 13):  # one every 30 minutes, each time by a new process
        keeper = Checkpoints(tmp_path, keep=1, keep_every_hours=2, background=False)
        fill(keeper, step)
        clock[0] += 1800
    assert names(tmp_path) == ["model.ckpt-1", "model.ckpt-5", "model.ckpt-9", "model.ckpt-12"]


def test_never_touches_what_zoo_did_not_write(tmp_path):
    foreign = ["model.ckpt-1", "model.ckpt-2.index", "model.ckpt-3", "notes.txt", ".model.ckpt-old.unfinished"]
    for name in foreign:
        (tmp_path / name).write_bytes(b"mine")
    (tmp_path / "model.ckpt-9").mkdir()
    (tmp_path / ".model.ckpt-4.unfinished").write_bytes(b"left by a killed process")
    keeper = Checkpoints(tmp_path, keep=1, background=False)
    keeper.remove_unfinished()
    fill(keeper, 10, 11, 12)
    assert set(names(tmp_path)) == {*foreign, "model.ckpt-9", "model.ckpt-12"}


def test_damaged_newest_falls_back_and_names_the_file(tmp_path, caplog):
    keeper = Checkpoints(tmp_path, background=False)
    fill(keeper, 1, 2, 3)
    for step, length in ((3, 40), (2, 10**6)):
        path = tmp_path / f"model.ckpt-{step}"
        data = path.read_bytes()
        path.write_bytes(data[:length] if length < len(data) else data[:-1] + b"\xff")
    found = keeper.newest()
    assert found.state["step"] == 1
    text = caplog.text
    assert "model.ckpt-3" in text
    assert "model.ckpt-2" in text
    assert "Falling back to model.ckpt-1" in text
    (tmp_path / "model.ckpt-1").write_bytes(b"")
    with pytest.raises(DamagedCheckpointError, match="no checkpoint can be read"):
        keeper.newest()
    assert Checkpoints(tmp_path / "empty").newest() is None


def test_background_errors_come_back(tmp_path):
    keeper = Checkpoints(tmp_path)
    fill(keeper, 1)
    with pytest.raises(NonFiniteCheckpointError, match="step 2: NaN or Inf in 1 variables"):
        _save_nan(keeper)
    assert names(tmp_path) == ["model.ckpt-1"]
    keeper.close()


def _save_nan(keeper):
    keeper.save({"w": tf.Variable([float("nan")])}, {"step": 2})
    keeper.wait()


def test_a_saved_value_is_that_of_its_moment(tmp_path):
    """Variable and state change while the thread writes; the file has the old values."""
    state = {"step": 1, "sums": {"steps": 3}}
    variable = tf.Variable(np.zeros(2_000_000, "float32"))
    keeper = Checkpoints(tmp_path)
    keeper.prepare({"w": variable})
    keeper.save({"w": variable}, state)
    variable.assign_add(tf.ones_like(variable))
    state["sums"]["steps"] = 4
    keeper.wait()
    found = read_checkpoint(tmp_path / "model.ckpt-1")
    assert not found.arrays["w"].any()
    assert found.state["sums"] == {"steps": 3}
    keeper.close()


def test_mistakes(tmp_path):
    with pytest.raises(ValueError, match="keep must be at least 1"):
        Checkpoints(tmp_path, keep=0)
    with pytest.raises(ValueError, match="keep_every_hours must be positive"):
        Checkpoints(tmp_path, keep_every_hours=0)
    assert json.loads(read_header(write_checkpoint(tmp_path / "a", {"w": np.zeros(1)}, {"b": 1}))["state"]) == {"b": 1}
