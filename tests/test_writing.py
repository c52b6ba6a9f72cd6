"""Writing files: every writer goes through zoo/files.py, flushes before and after its rename, and leaves nothing."""

import ast
import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import zoo
from zoo import files, weights
from zoo.data import tfrecord
from zoo.data.scan import Scan, scan_images
from zoo.data.split import Split
from zoo.training.checkpoints import write_checkpoint
from zoo.training.runfolder import MetricsLog
from zoo.transfer.bottlenecks import BottleneckCache

ROOM = Path(zoo.__file__).parent
ONLY_FILES_MAY = {"replace", "rename", "fsync", "mkstemp", "NamedTemporaryFile", "flock"}


@pytest.mark.parametrize("path", sorted(ROOM.rglob("*.py")), ids=lambda path: str(path.relative_to(ROOM)))
def test_nobody_else_renames_flushes_or_locks(path):
    if path == ROOM / "files.py":
        return
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ONLY_FILES_MAY:
            of_path = len(node.args) == 1 and not node.keywords  # str.replace has two arguments, dataclasses' names
            assert node.func.attr == "replace" and not of_path, f"{path}:{node.lineno}: use zoo.files"


def pictures(folder):
    for number, label in enumerate("aabb"):
        path = folder / label / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(tf.io.encode_png(np.full((8, 8, 3), 40 * number, np.uint8)).numpy())
    return scan_images(folder)


def model():
    return zoo.lenet5(num_classes=2)


SCHEMA = {"x": tfrecord.integers()}
WRITERS = {
    "bytes": lambda to: files.write_whole(to / "a", b"x"),
    "scan": lambda to: Scan("r", [], []).save(to / "scan.json"),
    "bad files": lambda to: Scan("r", [], []).write_bad(to / "bad.csv"),
    "split": lambda to: Split({}).save(to / "split.json"),
    "checkpoint": lambda to: write_checkpoint(to / "model.ckpt-1", {"w": np.zeros(3, np.float32)}, {"step": 1}),
    "records": lambda to: tfrecord.write([{"x": 1}, {"x": 2}], to / "x.tfrecord", SCHEMA, shards=2),
    "pictures": lambda to: tfrecord.build(pictures(to.parent / "pictures"), to, shards=2),
    "bottlenecks": lambda to: fill(BottleneckCache(to, {"a": 1})),
    "safetensors": lambda to: weights.save(model(), to / "m.safetensors"),
    "slim": lambda to: weights.save(model(), to / "m.ckpt"),
    "bundled": lambda to: weights.bundled.save(model(), to / "m.safetensors", {}),
}


def fill(cache):
    cache.add(["00" * 32], {"x": np.zeros((1, 2), np.float32)})
    cache.flush()


@pytest.fixture
def calls(monkeypatch):
    """What is flushed and renamed, in order: ("sync", path) and ("rename", from, to)."""
    seen = []
    fsync, replace = os.fsync, os.replace

    def noted_fsync(descriptor):
        seen.append(("sync", os.readlink(f"/proc/self/fd/{descriptor}")))
        fsync(descriptor)

    def noted_replace(source, target):
        seen.append(("rename", os.fspath(source), os.fspath(target)))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", noted_fsync)
    monkeypatch.setattr(os, "replace", noted_replace)
    return seen


@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)
def test_a_file_is_flushed_before_its_rename_and_the_folder_after(writer, tmp_path, calls):
    to = tmp_path / "out"
    to.mkdir()
    writer(to)
    renames = [call for call in calls if call[0] == "rename"]
    written = [path for path in to.rglob("*") if path.is_file()]
    assert {Path(call[2]) for call in renames} == set(written) != set()
    assert len(calls) == 3 * len(renames)  # nothing is flushed twice
    for number, call in enumerate(calls):
        if call[0] == "rename":
            assert calls[number - 1] == ("sync", call[1])
            assert calls[number + 1] == ("sync", os.path.dirname(call[2]))


@pytest.mark.parametrize("fails", ["fsync", "replace"])
@pytest.mark.parametrize("writer", WRITERS.values(), ids=WRITERS)
def test_a_full_disk_leaves_nothing(writer, fails, tmp_path, monkeypatch):
    to = tmp_path / "out"
    to.mkdir()

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, fails, full)
    with pytest.raises(OSError, match="No space left"):
        writer(to)
    assert not [path for path in to.rglob("*") if path.is_file()]


@pytest.mark.parametrize("moment", ["fsync", "replace"])
def test_a_killed_writer_leaves_the_old_file_and_the_next_one_tidies_up(moment, tmp_path):
    path = tmp_path / "settings.json"
    path.write_text("old")
    script = (
        "import os, sys, signal\nfrom zoo import files\n"
        f"os.{moment} = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "files.write_whole(sys.argv[1], 'new')"
    )
    done = subprocess.run([sys.executable, "-c", script, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL
    assert path.read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 2
    mine, foreign = files.temporary_name(path), tmp_path / ".notes.unfinished"
    mine.write_text("being written by this process")
    foreign.write_text("somebody else's")
    files.remove_unfinished(tmp_path)
    assert set(tmp_path.iterdir()) == {path, mine, foreign}


def test_a_folder_is_replaced_whole(tmp_path, monkeypatch):
    target = tmp_path / "model"
    target.mkdir()
    (target / "old").write_text("1")
    with pytest.raises(KeyError), files.replacing_folder(target) as place:
        (place / "new").write_text({}["missing"])
    assert [path.name for path in target.iterdir()] == ["old"]
    with files.replacing_folder(target) as place:
        (place / "new").write_text("2")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert [path.name for path in target.iterdir()] == ["new"]
    replace = os.replace

    def second_fails(source, to, seen=[]):  # noqa: B006
        seen.append(to)
        if len(seen) == 2:
            raise OSError(errno.ENOSPC, "No space left on device")
        replace(source, to)

    monkeypatch.setattr(os, "replace", second_fails)
    with pytest.raises(OSError, match="No space"), files.replacing_folder(target) as place:
        (place / "newer").write_text("3")
    assert [path.name for path in tmp_path.iterdir()] == ["model"]
    assert [path.name for path in target.iterdir()] == ["new"]


def test_a_lock_is_for_one(tmp_path):
    with files.lock(tmp_path / ".lock"), pytest.raises(BlockingIOError, match="somebody trains here"):
        files.lock(tmp_path / ".lock", "somebody trains here")
    files.lock(tmp_path / ".lock", "busy").close()


def test_journal_is_cut_whole(tmp_path, calls):
    journal = MetricsLog(tmp_path / "metrics.jsonl")
    for step in (1, 2):
        journal.write({"step": step})
    journal.cut(1)
    assert json.loads((tmp_path / "metrics.jsonl").read_text()) == {"step": 1}
    assert [call[0] for call in calls] == ["sync", "rename", "sync"]


# Every command that writes to files it is told, with the words before the file's name.
OUTPUTS = {
    "scan --out": lambda pics, out: ["scan", pics, "--out", out / "scan.json"],
    "scan --bad": lambda pics, out: ["scan", pics, "--bad", out / "bad.csv"],
    "weights convert": lambda pics, out: ["weights", "convert", out.parent / "m.safetensors", out / "n.safetensors"],
}


@pytest.mark.parametrize("words", OUTPUTS.values(), ids=OUTPUTS)
def test_an_output_is_never_written_over_something(words, tmp_path, zoo_command):
    pics, out = tmp_path / "pictures", tmp_path / "out"
    pictures(pics)
    weights.save(model(), tmp_path / "m.safetensors")
    command = words(pics, out)
    assert zoo_command(*command).code == 0
    (made,) = out.iterdir()
    made.write_text("mine")
    said = zoo_command(*command)
    assert said.code == 2
    assert "is there already; give another name, or --overwrite to replace it" in said.err
    assert made.read_text() == "mine"
    assert zoo_command(*command, "--overwrite").code == 0
    assert made.read_bytes() != b"mine"
    assert list(out.iterdir()) == [made]
    made.unlink()
    made.mkdir()
    assert zoo_command(*command, "--overwrite").code == 2


def test_records_are_not_written_among_pictures(tmp_path, zoo_command):
    pics = tmp_path / "pictures"
    pictures(pics)
    before = sorted(pics.rglob("*"))
    for out in (pics, pics / "records", pics / "a"):
        said = zoo_command("tfrecord", "build", pics, out, "--overwrite")
        assert (said.code, said.err.count("\n")) == (2, 1)
        assert "records there would be read in their place" in said.err
    pictures(tmp_path / "others")
    assert "holds pictures" in zoo_command("tfrecord", "build", pics, tmp_path / "others").err
    assert sorted(pics.rglob("*")) == before


def test_an_interrupted_build_keeps_the_earlier_one(tmp_path, monkeypatch):
    scan = pictures(tmp_path / "pictures")
    tfrecord.build(scan, tmp_path / "out", shards=2)
    before = {path: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    (tmp_path / "pictures" / "b" / "3.png").write_bytes(b"changed since")
    with pytest.raises(ValueError, match="changed since the scan"):
        tfrecord.build(scan, tmp_path / "out", shards=1, overwrite=True)
    assert {path: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
