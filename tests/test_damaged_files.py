"""Every reader of data and of run files against damage: a ValueError or OSError that names the file, soon and small.

Each row of the table writes a good file and reads it. The file is then changed at random: bytes flipped, cut, put in
and repeated; lengths overwritten by large ones; in JSON, values replaced by others, dropped and nested. What may come
of it is a value or a named error, never another exception, and never much time or memory.
"""

import csv
import gzip
import io
import json
import struct
import tarfile
import time
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image

from zoo.cli.predict import _read_labels
from zoo.data import cifar, mnist, tfrecord
from zoo.data.folders import list_images
from zoo.data.images import ImageError, decode, orientation, same_in_graph
from zoo.data.preprocessing import Preprocessing
from zoo.data.scan import BadFile, Picture, Scan
from zoo.data.split import Split
from zoo.data.text import load_corpus
from zoo.parallel.cluster import read_task
from zoo.training import Checkpoints, read_checkpoint, write_checkpoint
from zoo.training.runfolder import MetricsLog
from zoo.transfer.bottlenecks import BottleneckCache
from zoo.transfer.evaluation import evaluate
from zoo.transfer.head import Head
from zoo.transfer.reader import Reader
from zoo.transfer.run import load_facts
from zoo.transfer.suspicious import read_decisions

RANDOM = np.random.default_rng(0)
SECONDS, MEGABYTES = 20, 600  # a read takes milliseconds and a few MB; the first is for busy machines
KEYS = [f"{number:064x}" for number in range(4)]


def idx(array):
    return bytes([0, 0, 8, array.ndim]) + struct.pack(f">{array.ndim}I", *array.shape) + array.tobytes()


def write_mnist(folder, end):
    for part, count in (("train", 4), ("t10k", 2)):
        images = RANDOM.integers(0, 256, (count, 28, 28), "uint8")
        for name, array in ((f"{part}-images-idx3-ubyte", images), (f"{part}-labels-idx1-ubyte", images[:, 0, 0] % 10)):
            (folder / (name + end)).write_bytes(gzip.compress(idx(array)) if end else idx(array))
    return folder / f"train-images-idx3-ubyte{end}"


def write_npz(folder):
    images, labels = RANDOM.integers(0, 256, (4, 28, 28), "uint8"), np.arange(4, dtype="uint8")
    np.savez_compressed(folder / "mnist.npz", x_train=images, y_train=labels, x_test=images, y_test=labels)
    return folder / "mnist.npz"


def write_cifar(folder, archive):
    content = bytes([3]) + RANDOM.bytes(3072)
    if not archive:
        (folder / "test_batch.bin").write_bytes(content)
        return folder / "test_batch.bin"
    with tarfile.open(folder / "cifar.tar.gz", "w:gz") as tar:
        info = tarfile.TarInfo("x/test_batch.bin")
        info.size = len(content)
        tar.addfile(info, io.BytesIO(content))
    return folder / "cifar.tar.gz"


def write_records(folder, packed):
    """Three records, in a file that its manifest lists."""
    (path,) = tfrecord.write(({"n": n} for n in range(3)), folder / "x.tfrecord", {"n": tfrecord.integers()})
    if packed:
        path.write_bytes(gzip.compress(path.read_bytes()))
        (folder / "manifest.json").unlink()
    return path


def read_records(path):
    """Counts, then reads the file to its end, or leaves it out."""
    tfrecord.verify_file(path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        list(tfrecord.read(path, {"n": tfrecord.byte_strings()}, on_damage="skip").take(0))


def write_json(path, value):
    path.write_text(json.dumps(value))
    return path


def write_manifest(folder):
    shards = [tfrecord.Shard("train-0.tfrecord", 3, 90, "a" * 64)]
    tfrecord.Manifest({"train": shards}, class_names=["a", "b"], labels={"train": (0, 1)}).save(folder)
    return folder / "manifest.json"


def write_scan(folder):
    picture = Picture("a/1.png", "/p/a/1.png", "a", None, KEYS[0], KEYS[1], "PNG", 4, 5, 99, True)
    Scan("/p", [picture], [BadFile("a/2.png", "a", "cut", "ends")], {"hidden": 1}, ["a note"]).save(
        folder / "scan.json"
    )
    return folder / "scan.json"


def write_split(folder):
    Split({KEYS[0]: "train", KEYS[1]: "test"}, {"a": {"train": 1}}, ["b"], ["a note"]).save(folder / "split.json")
    return folder / "split.json"


def write_csv(folder):
    (folder / "list.csv").write_text('path,label,subset\n1.png,a,train\n"2,3.png",b,test\n4.png,b,train\n')
    return folder / "list.csv"


def write_corpus(folder):
    (folder / "text.txt").write_text("the cat sat\n" * 40, encoding="utf-8")
    return folder / "text.txt"


def write_picture(folder, kind):
    image = Image.fromarray(RANDOM.integers(0, 256, (9, 7, 3), "uint8"))
    image.save(folder / f"x.{kind}", kind, **({"exif": image.getexif()} if kind in ("JPEG", "WEBP") else {}))
    return folder / f"x.{kind}"


def read_picture(path):
    """Decodes bytes, which have no name: whoever read them names the file, as here."""
    data = path.read_bytes()
    try:
        decode(data)
    except ImageError as error:
        raise ImageError(error.reason, f"{error.detail} ({path})") from error
    orientation(data)
    same_in_graph(data)


def write_training(folder):
    arrays = {"model/w": np.arange(6, dtype="float32"), "step": np.int64(7)}
    return write_checkpoint(folder / "model.ckpt-7", arrays, {"step": 7, "time": 1.5, "metric": None})


def read_training(path):
    Checkpoints(path.parent, background=False).entries()
    read_checkpoint(path)


def write_journal(folder):
    journal = MetricsLog(folder / "metrics.jsonl")
    for step in range(3):
        journal.write({"step": step, "loss": 0.5})
    return journal.path


def write_run(folder):
    table = np.array([[0.9, 0.1], [0.2, 0.8]])
    value = {
        "format": 1,
        "settings": {"net": "lenet5"},
        "classes": ["a", "b"],
        "reader": Reader(Preprocessing(size=(8, 8))).to_dict(),
        "fingerprint": "f",
        "evaluation": evaluate(table, np.array([0, 1]), ("a", "b"), majority_class="a").to_dict(),
        "choices": [],
        "facts": {"judged": "test", "trunk": {"net": "lenet5", "source": "untrained"}, "changes": []},
    }
    return write_json(folder / "run.json", value)


def write_cache(folder):
    cache = BottleneckCache(folder, {"digest": "d"})
    cache.add(KEYS, {"pool": RANDOM.normal(size=(4, 5)), "mean": RANDOM.normal(size=(4, 2))})
    cache.flush()
    return next(folder.glob("*/*.zbn"))


def read_cache(path):
    cache = BottleneckCache(path.parents[1], {"digest": "d"})
    lost = set(cache.missing(KEYS, ["pool"]))
    cache.read([key for key in KEYS if key not in lost], "pool")


def write_head(folder):
    arrays = {"shift": np.zeros(3), "scale": np.ones(3), "weights": np.ones((3, 2)), "bias": np.zeros(2)}
    Head(("pool",), ("a", "b"), penalty=1.0, **arrays).save(folder / "head.safetensors")
    return folder / "head.safetensors"


def write_decisions(folder):
    with (folder / "suspicious.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        columns = ("decision", "path", "label", "predicted", "confidence", "similarity", "reason", "sha256")
        writer.writerows([columns, ("keep", "a/1.png", "a", "b", 0.9, "", "unsure", KEYS[0])])
    return folder / "suspicious.csv"


def write_config(folder):
    cluster = {"worker": ["host1:2222", "host2:2222"]}
    return write_json(folder / "TF_CONFIG", {"cluster": cluster, "task": {"type": "worker", "index": 0}})


READERS = {  # name -> (write, read); what is read is the file that was written, or the folder around it
    "mnist idx": (lambda folder: write_mnist(folder, ""), lambda path: mnist.load(path.parent)),
    "mnist idx.gz": (lambda folder: write_mnist(folder, ".gz"), lambda path: mnist.load(path.parent)),
    "mnist npz": (write_npz, lambda path: mnist.load(path.parent)),
    "cifar bin": (lambda folder: write_cifar(folder, False), lambda path: cifar.load_cifar10(path.parent, "test")),
    "cifar tar.gz": (lambda folder: write_cifar(folder, True), lambda path: cifar.load_cifar10(path, "test")),
    "tfrecord": (lambda folder: write_records(folder, False), read_records),
    "tfrecord gz": (lambda folder: write_records(folder, True), read_records),
    "manifest": (write_manifest, lambda path: tfrecord.Manifest.load(path.parent)),
    "scan": (write_scan, Scan.load),
    "split": (write_split, Split.load),
    "csv of pictures": (write_csv, list_images),
    "corpus": (write_corpus, lambda path: load_corpus(path.parent)),
    **{
        f"picture {k}": (lambda f, k=k: write_picture(f, k), read_picture)
        for k in ("PNG", "JPEG", "GIF", "BMP", "WEBP")
    },
    "training checkpoint": (write_training, read_training),
    "metrics.jsonl": (write_journal, lambda path: MetricsLog(path).cut(9)),
    "run.json": (write_run, lambda path: load_facts(path.parent)),
    "bottlenecks": (write_cache, read_cache),
    "head": (write_head, Head.load),
    "suspicious.csv": (write_decisions, lambda path: read_decisions(path, ("a", "b"))),
    "labels.txt": (lambda f: write_json(f / "labels.txt", ["a"]), _read_labels),
    "labels.json": (lambda f: write_json(f / "labels.json", {"0": ["n1", "a"], "1": ["n2", "b"]}), _read_labels),
    "TF_CONFIG": (write_config, lambda path: read_task("multiworker", {"TF_CONFIG": path.read_text("latin-1")})),
}
IN_JSON = ("manifest", "scan", "split", "run.json", "labels.json", "TF_CONFIG")
VALUES = [None, True, 0, -1, 10**30, 1e308, "", "x", [], {}, [[]], {"x": 1}, ["x", 1], "x" * 300]
DEEP = ["[" * 100_000, "[" * 400 + "1" + "]" * 400, '{"a":' * 400 + "1" + "}" * 400]


def change_bytes(draw, data):
    """Flips, cuts, puts in, repeats or overwrites."""
    data = bytearray(data)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(0, len(data) - 1)))
        kind = draw(st.sampled_from(["flip", "cut", "insert", "repeat", "large", "zeros"]))
        if kind == "flip":
            data[at : at + 1] = bytes(byte ^ draw(st.integers(1, 255)) for byte in data[at : at + 1])
        elif kind == "cut":
            del data[at:]
        elif kind == "insert":
            data[at:at] = draw(st.binary(min_size=1, max_size=20))
        elif kind == "repeat":
            data[at:at] = data[at : at + 40] * draw(st.integers(1, 50))
        else:  # what may be a length or a count
            data[at : at + 8] = {"large": b"\xff\xff\xff\xff\xff\xff\xff\x7f", "zeros": bytes(8)}[kind]
    return bytes(data)


def change_json(draw, data):
    """Replaces, drops or nests a value somewhere."""
    value = json.loads(data)
    if draw(st.integers(0, 9)) == 0:
        return draw(st.sampled_from(DEEP)).encode()
    place, key, node = None, None, value
    while isinstance(node, dict | list) and node and (place is None or draw(st.booleans())):
        place, key = node, draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
        node = place[key]
    kind = draw(st.sampled_from(["replace", "drop", "nest"]))
    if kind == "drop":
        del place[key]
    else:
        place[key] = draw(st.sampled_from(VALUES)) if kind == "replace" else [node]
    return json.dumps(value).encode()


def try_reader(name, folder, examples):
    """Damages the reader's file so many times; returns how many reads ended in a value and how many in an error."""
    write, read = READERS[name]
    path = write(folder)
    good, outcomes = path.read_bytes(), {"value": 0, "error": 0}
    read(path)  # the good file is read, and what is loaded at the first use is not counted below

    @settings(
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def damaged(data):
        in_json = name in IN_JSON and data.draw(st.booleans())
        path.write_bytes((change_json if in_json else change_bytes)(data.draw, good))
        started, said = time.perf_counter(), None
        try:
            read(path)
        except (ValueError, OSError) as error:
            said = str(error)
        outcomes["value" if said is None else "error"] += 1
        assert said is None or path.name in said or path.parent.name in said, said
        assert said is None or not ("<_io" in said or " at 0x" in said), said
        assert time.perf_counter() - started < SECONDS

    peak = reset_peak()
    damaged()
    assert reset_peak() - peak < MEGABYTES
    return outcomes


def reset_peak():
    """Returns the peak of resident memory in MB since the last call, and lets it start anew."""
    with open("/proc/self/status") as status:
        peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM:")) // 1024
    with open("/proc/self/clear_refs", "w") as file:
        file.write("5")
    return peak


@pytest.fixture(autouse=True)
def can_measure():
    try:
        reset_peak()
    except OSError as error:
        pytest.skip(f"the peak of resident memory cannot be reset here: {error}")


@pytest.mark.parametrize("name", READERS)
def test_a_damaged_file_is_read_or_refused_by_name(name, tmp_path):
    outcomes = try_reader(name, tmp_path, 12)
    assert sum(outcomes.values()) >= 12


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_many_damaged_files_are_read_or_refused_by_name(name, tmp_path):
    outcomes = try_reader(name, tmp_path, 300)
    print(f"\n{name}: {outcomes['value']} read, {outcomes['error']} refused")
    assert sum(outcomes.values()) >= 300
