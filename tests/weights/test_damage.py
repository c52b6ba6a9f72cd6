"""Every reader of weights and models, on damaged files: an error with the file's name, in bounded time and memory."""

import json
import os
import resource
import struct
import time
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import h5py
import keras
import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from tensorflow.core.protobuf import saver_pb2
from weights.fixtures import write_legacy_h5, write_tfjs

import zoo
from zoo.training import write_checkpoint
from zoo.weights import open_weights, save_tf1
from zoo.weights.cards import Card
from zoo.weights.published import FetchError, unpack
from zoo.weights.safetensors_files import write_safetensors
from zoo.weights.tf1_names import read_checkpoint as read_recurrent
from zoo.weights.torch_files import read_pth

MOST_MEMORY = 400 << 20  # bytes more than before, in this process or a child
MOST_SECONDS = 30.0
RNG = np.random.default_rng(0)
ARRAYS = {"net/conv/weights": RNG.normal(size=(3, 3, 2, 4)).astype("f"), "net/conv/biases": np.zeros(4, "f")}
LAYERS = {
    "conv2d_1": [("kernel", ARRAYS["net/conv/weights"])],
    "batch_normalization_1": [("beta", np.ones(4, "f")), ("moving_mean", np.zeros(4, "f"))],
}
HOSTILE = [
    None, True, -1, 0, 10**12, 2**63, 1e308, float("nan"), "", "x", "../x", "/etc/passwd", "\x00", [], {}, [[]], [-1],
    [10**6, 10**6], {"class_name": "Lambda", "config": {}}, {"a": {"b": 1}},
    json.loads("[" * 150 + "]" * 150),
]  # fmt: skip


class Reader(NamedTuple):
    """How a kind of file is made, which of its files are damaged, and what reads it."""

    make: Any
    read: Any
    parts: Any = lambda path: [path]
    slow_examples: int = 1000
    quick_examples: int = 25


def deep_read(path):
    file = open_weights(path)
    for name in file.names:
        np.asarray(file.names[name])
    file.card("inception_v3")
    return file.num_classes


def make_h5(folder):
    write_legacy_h5(LAYERS, folder / "old.h5", top=False)
    return folder / "old.h5"


def make_plain(folder, name):
    keras.utils.clear_session(free_memory=False)
    model = keras.Sequential([keras.Input((4, 4, 2)), keras.layers.Conv2D(2, 3), keras.layers.Flatten()])
    if name.endswith(".weights.h5"):
        model.save_weights(folder / name)
    else:
        model.save(folder / name)
    return folder / name


@zoo.register_function("damage_test_network")
def network(x, *, is_training=False, depth=2):
    for i in range(depth):
        x = tf.matmul(x, zoo.get_variable(f"w{i}", [3, 3]))
    return x


def make_zoo(folder):
    zoo.Model(network, input_shape=(3,), seed=1).save(folder / "net.keras")
    return folder / "net.keras"


def make_old_model(folder):
    model = keras.Sequential([keras.Input((4, 4, 2)), keras.layers.Conv2D(2, 3), keras.layers.Flatten()])
    model.save(folder / "old_model.h5")
    return folder / "old_model.h5"


def make_zoo_weights(folder):
    zoo.Model(network, input_shape=(3,), seed=1).save_weights(folder / "net.weights.h5")
    return folder / "net.weights.h5"


def make_checkpoint(folder):
    state = {"config": {"model": {"network": "nets.n", "options": {"num_classes": 4}}}, "step": 3, "card": {}}
    return write_checkpoint(folder / "model.ckpt-3", {f"model/{name}": array for name, array in ARRAYS.items()}, state)


def make_safetensors(folder):
    write_safetensors(ARRAYS, folder / "a.safetensors", {"net": "n", "preprocessing": {"size": [8, 8]}})
    return folder / "a.safetensors"


def make_card(folder):
    safetensors.numpy.save_file(ARRAYS, folder / "b.safetensors")
    card = Card(net="n", num_classes=4, batch_norm_epsilon=1e-3, accuracy={"top1": 7.0}, preprocessing=None)
    (folder / "b.json").write_text(json.dumps({**card.to_dict(), "preprocessing": "inception", "more": [1]}))
    return folder / "b.safetensors"


def make_tf1(folder):
    return Path(save_tf1(ARRAYS, folder / "model.ckpt", step=3))


def make_tf1_v1(folder):
    with tf.Graph().as_default(), tf.compat.v1.Session() as session:
        for name, array in ARRAYS.items():
            tf.compat.v1.get_variable(name, initializer=array)
        session.run(tf.compat.v1.global_variables_initializer())
        saver = tf.compat.v1.train.Saver(write_version=saver_pb2.SaverDef.V1)
        return Path(saver.save(session, str(folder / "old.ckpt"), write_meta_graph=False))


def make_tfjs(folder):
    write_tfjs(LAYERS, folder / "js", shards=2)
    return folder / "js"


def make_pth(folder, name, **how):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra: torch)")
    torch.save({"conv.weight": torch.ones(4, 2, 3, 3), "conv.bias": torch.zeros(4)}, folder / name, **how)
    return folder / name


def make_tar(folder):
    import tarfile

    (folder / "in.ckpt").write_bytes(RNG.bytes(3000))
    with tarfile.open(folder / "a.tar.gz", "w:gz") as tar:
        tar.add(folder / "in.ckpt", "in.ckpt")
    return folder / "a.tar.gz"


def checkpoint_files(prefix):
    return sorted(prefix.parent.glob(f"{prefix.name}.*"))


READERS = {
    "keras": Reader(lambda f: make_plain(f, "m.keras"), deep_read, slow_examples=150, quick_examples=2),
    "weights_h5": Reader(lambda f: make_plain(f, "m.weights.h5"), deep_read, slow_examples=150, quick_examples=2),
    "legacy_h5": Reader(make_h5, deep_read, slow_examples=150, quick_examples=2),
    "load_model": Reader(make_zoo, zoo.load_model, slow_examples=100, quick_examples=2),
    "load_old_model": Reader(make_old_model, zoo.load_model, slow_examples=100, quick_examples=1),
    "load_weights": Reader(
        make_zoo_weights,
        lambda path: zoo.Model(network, input_shape=(3,)).load_weights(path),
        slow_examples=100,
        quick_examples=1,
    ),
    "training_checkpoint": Reader(make_checkpoint, deep_read),
    "safetensors": Reader(make_safetensors, deep_read),
    "card": Reader(make_card, deep_read, lambda path: [path.with_suffix(".json")]),
    "tf1": Reader(make_tf1, deep_read, checkpoint_files),
    "tf1_v1": Reader(make_tf1_v1, deep_read),
    "tf1_recurrent": Reader(make_tf1, read_recurrent, checkpoint_files),
    "tfjs": Reader(make_tfjs, deep_read, lambda path: sorted(path.iterdir())),
    "pth": Reader(lambda f: make_pth(f, "m.pth"), read_pth),
    "pth_before_1_6": Reader(lambda f: make_pth(f, "o.pth", _use_new_zipfile_serialization=False), read_pth),
    "tar": Reader(make_tar, lambda path: unpack(path, path.parent / "out"), slow_examples=500),
}

place = st.one_of(st.floats(0, 0.999), st.integers(0, 400), st.integers(-400, -1))
damage = st.one_of(
    st.tuples(st.just("flip"), st.lists(st.tuples(place, st.integers(0, 255)), min_size=1, max_size=8)),
    st.tuples(st.just("write"), st.tuples(place, st.sampled_from([b"\0" * 8, b"\xff" * 8, b"\xff\xff\xff\x7f"]))),
    st.tuples(st.just("cut"), place),
    st.tuples(st.just("grow"), st.binary(min_size=1, max_size=64)),
    st.tuples(st.just("json"), st.tuples(st.integers(0, 10**6), st.integers(0, len(HOSTILE) - 1))),
    st.tuples(st.just("drop"), st.integers(0, 10**6)),
)


def at(where, size):
    return min(
        size - 1, max(0, int(where * size) if isinstance(where, float) else where % size if where < 0 else where)
    )


def damaged(content, kind, how):
    if kind == "cut":
        return content[: at(how, len(content))]
    if kind == "grow":
        return content + how
    if kind in ("json", "drop"):
        return changed_json(content, kind, how)
    new = bytearray(content)
    for where, what in how if kind == "flip" else [how]:
        start = at(where, len(new))
        if kind == "flip":
            new[start] ^= what
        else:
            new[start : start + len(what)] = what
    return bytes(new)


def changed_json(content, kind, how):
    """The content with one value of its JSON replaced or dropped; files without JSON stay as they are."""
    if content[:4] == b"PK\x03\x04":
        import io

        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
        if "config.json" not in members:
            return content
        members["config.json"] = changed_json(members["config.json"], kind, how)
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            for name, data in members.items():
                archive.writestr(name, data)
        return out.getvalue()
    if content[8:9] == b"{" and content[:1] != b"{":
        size = struct.unpack("<Q", content[:8])[0]
        text = changed_json(content[8 : 8 + size], kind, how)
        return struct.pack("<Q", len(text)) + text + content[8 + size :]
    if content[:1] != b"{":
        return content
    value = json.loads(content)
    places, waiting = [], [value]
    for item in waiting:
        keys = list(item) if isinstance(item, dict) else range(len(item))
        places += [(item, key) for key in keys]
        waiting += [item[key] for key in keys if isinstance(item[key], dict | list)]
    number = how if kind == "drop" else how[0]
    item, key = places[number % len(places)]
    if kind == "drop":
        del item[key]
    else:
        item[key] = HOSTILE[how[1]]
    return json.dumps(value).encode()


def memory():
    return 1024 * max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def run(reader, folder, examples):
    """Damages the reader's files in many ways; returns how many were read and how many refused."""
    path = reader.make(folder)
    parts = {part: part.read_bytes() for part in reader.parts(path)}
    reader.read(path)  # the whole file is read
    counts = {"read": 0, "refused": 0}

    @settings(
        max_examples=examples, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
    )
    @given(st.integers(0, len(parts) - 1), damage)
    @example(0, ("cut", 0.5))
    @example(0, ("flip", [(0.2, 255), (0.5, 255), (-30, 1)]))
    @example(0, ("json", (2, 9)))
    def one(index, how):
        part, content = list(parts.items())[index]
        before, started = memory(), time.monotonic()
        part.write_bytes(damaged(content, *how))
        try:
            reader.read(path)
            counts["read"] += 1
        except (ValueError, OSError) as error:
            said = str(error)
            counts["refused"] += 1
        else:
            said = path.stem
        finally:
            part.write_bytes(content)
        assert path.stem in said or part.stem in said, "the message does not name the file"
        assert memory() - before < MOST_MEMORY
        assert time.monotonic() - started < MOST_SECONDS

    one()
    return counts


@pytest.mark.parametrize("name", READERS)
def test_damaged_files_are_refused_by_name(name, tmp_path):
    counts = run(READERS[name], tmp_path, READERS[name].quick_examples)
    assert counts["refused"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_many_damaged_files_are_refused_by_name(name, tmp_path):
    counts = run(READERS[name], tmp_path, READERS[name].slow_examples)
    print(f"| {name} | {sum(counts.values()):,} | {counts['refused']:,} |")
    assert counts["refused"] > READERS[name].slow_examples / 10


def test_a_small_manifest_cannot_ask_for_much(tmp_path):
    write_tfjs(LAYERS, tmp_path / "js", shards=2)
    manifest = tmp_path / "js" / "model.json"
    model = json.loads(manifest.read_text())
    many = {**model, "weightsManifest": [{**model["weightsManifest"][0], "paths": ["group1-shard1of2"] * 5000}]}
    manifest.write_text(json.dumps(many))
    with pytest.raises(ValueError, match=r"model\.json names the shard 'group1-shard1of2' twice"):
        open_weights(tmp_path / "js")
    model["weightsManifest"][0]["weights"][0]["shape"] = [10**6, 10**6]
    manifest.write_text(json.dumps(model))
    with pytest.raises(ValueError, match=r"model\.json: its shards hold .* one is cut short"):
        open_weights(tmp_path / "js")


def test_weights_that_are_no_numbers_are_refused_whatever_the_format(tmp_path):
    model = zoo.Model(network, input_shape=(3,), seed=1)
    before = np.asarray(model.variable("w0"))
    bad = {"w0": np.full((3, 3), np.nan, "f"), "w1": np.ones((3, 3), "f")}
    with h5py.File(tmp_path / "a.h5", "w") as file:
        for name, array in bad.items():
            file[f"vars/{name}"] = array
    write_safetensors(bad, tmp_path / "a.safetensors")
    for path in (tmp_path / "a.h5", tmp_path / "a.safetensors", save_tf1(bad, tmp_path / "a.ckpt")):
        with pytest.raises(ValueError, match=r"a\..* has weights that are NaN or infinite: w0; nothing was loaded"):
            zoo.weights.load(model, path)
        np.testing.assert_array_equal(model.variable("w0"), before)
    report = zoo.weights.load(model, tmp_path / "a.safetensors", exclude="w0")
    assert report.loaded == ["w1"]
    write_tfjs({"dense": [("kernel", np.ones((2, 2), "f"))]}, tmp_path / "js")
    manifest = tmp_path / "js" / "model.json"
    manifest.write_text(manifest.read_text().replace('"scale": 1.0', '"scale": NaN'))
    assert not np.isfinite(open_weights(tmp_path / "js").units[0].arrays["kernel"]).any()


def test_a_tensor_larger_than_its_storage_is_refused(tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra: torch)")
    torch.save({"a.weight": torch.ones(1).expand(10**5, 10**5)}, tmp_path / "wide.pth")
    with pytest.raises(ValueError, match=r"wide\.pth is refused: its tensors together asks for 40,000,000,000 bytes"):
        open_weights(tmp_path / "wide.pth")


def test_pytorchs_advice_to_run_the_file_is_not_repeated(tmp_path):
    torch = pytest.importorskip("torch", reason="PyTorch is not installed (extra: torch)")
    torch.save({"a": os.getcwd}, tmp_path / "code.pth")
    with pytest.raises(ValueError, match=r"code\.pth is no plain PyTorch state") as caught:
        open_weights(tmp_path / "code.pth")
    assert "weights_only" not in str(caught.value)


def test_an_archive_of_zeros_is_refused(tmp_path):
    import tarfile

    with open(tmp_path / "zeros", "wb") as file:
        file.truncate(100 << 20)
    with tarfile.open(tmp_path / "z.tar.gz", "w:gz", compresslevel=1) as tar:
        tar.add(tmp_path / "zeros", "zeros")
    with pytest.raises(FetchError, match=r"z\.tar\.gz is refused: what it unpacks to asks for 104,857,600 bytes"):
        unpack(tmp_path / "z.tar.gz", tmp_path / "out")
    assert not (tmp_path / "out").exists()
