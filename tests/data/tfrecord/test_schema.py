import re
import struct
import warnings

import numpy as np
import pytest
import tensorflow as tf

from zoo.data import tfrecord
from zoo.data.tfrecord import array, byte_strings, floats, integers
from zoo.data.tfrecord.framing import masked_crc

SCHEMA = {
    "label": integers(),
    "box": floats(2, 2),
    "name": byte_strings(),
    "image": array("uint8", 3, 4),
    "half": array(tf.bfloat16, 2),
    "tags": byte_strings(None),
    "word ids": integers(None),
    "steps": floats(None, 2),
    "sound": array(np.float64, None),
    "map": array("int16", None, None, 3),
}


def examples(count):
    rng = np.random.default_rng(0)
    for n in range(count):
        yield {
            "label": n,
            "box": rng.normal(size=(2, 2)).astype(np.float32),
            "name": f"näme {n}",
            "image": rng.integers(0, 256, (3, 4), np.uint8),
            "half": np.array([n, -0.5], tf.bfloat16.as_numpy_dtype),
            "tags": [b"\xff\0"] * (n % 3),
            "word ids": list(range(n % 4)),
            "steps": rng.normal(size=(n % 3, 2)).astype(np.float32),
            "sound": rng.normal(size=n),
            "map": rng.integers(-9, 9, (n % 2 + 1, n + 1, 3)).astype(">i2"),
        }


def same(value, wanted):
    value, wanted = np.array(value), np.array(wanted.encode() if isinstance(wanted, str) else wanted)
    return value.shape == wanted.shape and np.array_equal(value, wanted)


def test_everything_comes_back_one_by_one(tmp_path):
    tfrecord.write(examples(7), tmp_path / "x.tfrecord", SCHEMA)
    read = list(tfrecord.read(tmp_path / "x.tfrecord", SCHEMA).as_numpy_iterator())
    assert len(read) == 7
    for got, wanted in zip(read, examples(7), strict=True):
        for key in SCHEMA:
            assert same(got[key], wanted[key]) or (key == "tags" and got[key].tolist() == wanted[key]), key
    assert read[0]["sound"].dtype == np.float64 and read[3]["map"].shape == (2, 4, 3)


def test_batches_are_dense_where_shapes_are_fixed_and_ragged_where_not(tmp_path):
    files = tfrecord.write(examples(7), tmp_path / "x.tfrecord", SCHEMA, shards=2)
    assert [file.name for file in files] == ["x-00000-of-00002.tfrecord", "x-00001-of-00002.tfrecord"]
    batch = next(iter(tfrecord.read(files, SCHEMA, batch_size=4)))
    assert batch["image"].shape == (4, 3, 4) and batch["label"].numpy().tolist() == [0, 2, 4, 6]
    assert isinstance(batch["word ids"], tf.RaggedTensor)
    assert batch["word ids"].to_list() == [list(range(n % 4)) for n in (0, 2, 4, 6)]
    assert batch["map"][3].to_tensor().shape == (1, 7, 3)


def test_exactly_n_epochs_each_in_its_own_order_and_the_same_again(tmp_path):
    tfrecord.write(({"n": n} for n in range(40)), tmp_path / "x.tfrecord", {"n": integers()}, shards=4)

    def run(**options):
        data = tfrecord.read(tmp_path / "x-*.tfrecord", {"n": integers()}, shuffle=True, **options)
        return [int(example["n"]) for example in data]

    order = run(epochs=3, seed=5)
    assert all(sorted(order[start : start + 40]) == list(range(40)) for start in (0, 40, 80)) and len(order) == 120
    assert order[:40] != order[40:80] != order[80:]
    tf.random.set_seed(77)
    assert run(epochs=3, seed=5) == order and run(seed=6) != order[:40]


def test_a_stream_goes_on_at_any_batch(tmp_path):
    tfrecord.write(({"n": n} for n in range(41)), tmp_path / "x.tfrecord", {"n": integers()}, shards=3)
    stream = tfrecord.stream(tmp_path, {"n": integers()}, batch_size=5, seed=1)
    assert stream.batches == 9 and stream.examples == 41
    whole = [batch["n"].tolist() for batch in stream(2).as_numpy_iterator()]
    assert [batch["n"].tolist() for batch in stream(2, skip=6).as_numpy_iterator()] == whole[6:]
    assert list(stream(2, skip=9)) == []


def test_gzip_files_are_read(tmp_path):
    schema = {"n": integers()}
    with tf.io.TFRecordWriter(str(tmp_path / "x.tfrecord.gz"), "GZIP") as writer:
        writer.write(tfrecord.schema.make_example({"n": 3}, schema))
    assert [e["n"] for e in tfrecord.read(tmp_path, schema).as_numpy_iterator()] == [3]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": 1.5}, "example 2, 'label'.*does not fit int64"),
        ({"label": "x"}, "expected int64"),
        ({"label": [1, 2]}, r"expected shape \(\), got \(2,\)"),
        ({"label": 2**70}, "'label'"),
        ({"image": np.full((3, 4), 256)}, "does not fit uint8"),
        ({"image": np.zeros((4, 3), np.uint8)}, r"expected shape \(3, 4\), got \(4, 3\)"),
        ({"box": [[1e300, 0], [0, 0]]}, "too large for float32"),
        ({"name": 5}, "expected bytes or text"),
        ({"steps": np.zeros((2, 3))}, r"expected shape \(None, 2\)"),
        ({"unknown": 1}, r"missing keys \[\], unknown keys \['unknown'\]"),
    ],
)
def test_examples_that_do_not_fit_are_named_and_leave_nothing_behind(tmp_path, change, message):
    rows = list(examples(3))
    rows[2] = {**rows[2], **change}
    with pytest.raises(ValueError, match=message):
        tfrecord.write(rows, tmp_path / "x.tfrecord", SCHEMA)
    assert not list(tmp_path.iterdir())


def test_other_mistakes(tmp_path):
    one = {"n": integers()}
    with pytest.raises(ValueError, match="0 examples for 1 files"):
        tfrecord.write([], tmp_path / "x.tfrecord", one)
    with pytest.raises(ValueError, match="1 examples for 2 files"):
        tfrecord.write([{"n": 1}], tmp_path / "x.tfrecord", one, shards=2)
    with pytest.raises(ValueError, match="non-empty dict"):
        tfrecord.write([{"n": 1}], tmp_path / "x.tfrecord", {})
    with pytest.raises(TypeError, match="hold numbers"):
        array(tf.string)
    with pytest.raises(ValueError, match="above 0"):
        integers(0)
    with pytest.raises(ValueError, match="has too"):
        tfrecord.write([], tmp_path / "x", {"a": array("uint8", None, None), "a/shape": integers(2)})
    tfrecord.write([{"n": 1}], tmp_path / "x.tfrecord", one)
    with pytest.raises(FileExistsError, match="overwrite"):
        tfrecord.write([{"n": 2}], tmp_path / "x.tfrecord", one)
    tfrecord.write([{"n": 2}], tmp_path / "x.tfrecord", one, overwrite=True)
    assert [int(e["n"]) for e in tfrecord.read(tmp_path, one)] == [2]
    (tmp_path / "empty.tfrecord").touch()
    with pytest.raises(tfrecord.DamagedRecordError, match="has no records"):
        tfrecord.read(tmp_path / "empty.tfrecord", one)


def test_numbers_that_are_not_finite_are_kept(tmp_path):
    tfrecord.write([{"x": [np.inf, np.nan]}], tmp_path / "x.tfrecord", {"x": floats(2)})
    value = next(iter(tfrecord.read(tmp_path, {"x": floats(2)})))["x"].numpy()
    assert np.isinf(value[0]) and np.isnan(value[1])


def test_what_was_written_is_listed_so_that_a_cut_between_records_is_noticed(tmp_path):
    schema = {"n": integers()}
    first = tfrecord.write(({"n": n} for n in range(7)), tmp_path / "a.tfrecord", schema, shards=2)
    (other,) = tfrecord.write([{"n": 1}, {"n": 2}], tmp_path / "b.tfrecord", schema)
    sets = tfrecord.Manifest.load(tmp_path).sets
    assert {name: [shard.count for shard in shards] for name, shards in sets.items()} == {"a": [4, 3], "b": [2]}
    assert all(tfrecord.verify_shard(tmp_path, shard).damage is None for shards in sets.values() for shard in shards)
    whole = other.read_bytes()
    other.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(tfrecord.DamagedRecordError, match=r"b\.tfrecord.* record 1; the manifest lists 2 records"):
        tfrecord.read(tmp_path, schema)
    with pytest.raises(tfrecord.DamagedRecordError, match="manifest lists 2 records"):
        tfrecord.read(other, schema)
    assert len(list(tfrecord.read(first, schema))) == 7
    tfrecord.write([{"n": 3}], other, schema, overwrite=True)
    assert [shard.count for shard in tfrecord.Manifest.load(tmp_path).sets["b"]] == [1]
    assert len(list(tfrecord.read(tmp_path, schema))) == 8


def test_a_manifest_of_somebody_else_is_left_alone(tmp_path):
    (tmp_path / "manifest.json").write_text('{"mine": 1}')
    tfrecord.write([{"n": 3}], tmp_path / "x.tfrecord", {"n": integers()})
    assert (tmp_path / "manifest.json").read_text() == '{"mine": 1}'
    assert len(list(tfrecord.read(tmp_path, {"n": integers()}))) == 1


def with_length(data, length, at=0):
    """A file whose record at a byte declares another length, under a checksum that fits."""
    head = struct.pack("<Q", length)
    return data[:at] + head + struct.pack("<I", masked_crc(head)) + data[at + 12 :]


SIZE = 30  # of a record of one number: a header of 12 bytes, 14 bytes, a checksum of 4
DAMAGE = {  # kind -> (change, whether it shows before anything is read, what is known to be lost without a manifest)
    "cut in contents": (lambda data: data[: 2 * SIZE + 15], True, "at least 2 of 22"),
    "cut in a header": (lambda data: data[: 2 * SIZE + 5], True, "at least 2 of 22"),
    "cut between two records": (lambda data: data[: 2 * SIZE], True, ""),
    "flipped length": (lambda data: data[: 2 * SIZE] + b"\x7f" + data[2 * SIZE + 1 :], True, "at least 2 of 22"),
    "length of 64 GB": (lambda data: with_length(data, 1 << 36, 2 * SIZE), True, "at least 2 of 22"),
    "length of all bytes": (lambda data: with_length(data, (1 << 64) - 1, 2 * SIZE), True, "at least 2 of 22"),
    "flipped contents": (lambda d: d[: 2 * SIZE + 14] + b"\x7f" + d[2 * SIZE + 15 :], False, "10 of 30"),
    "empty": (lambda data: b"", True, "at least 0 of 20"),
    "another kind": (lambda data: b"<html>not found</html>", True, "at least 0 of 20"),
    "missing": (None, True, "at least 0 of 20"),
}


@pytest.mark.parametrize("listed", [True, False], ids=["manifest", "no manifest"])
@pytest.mark.parametrize("kind", DAMAGE)
def test_every_kind_of_damage_stops_the_reader_or_is_skipped_with_what_is_lost(tmp_path, kind, listed):
    schema, (change, before, lost) = {"n": integers()}, DAMAGE[kind]
    _, bad, _ = tfrecord.write(({"n": n} for n in range(30)), tmp_path / "x.tfrecord", schema, shards=3)
    assert bad.stat().st_size == 10 * SIZE
    if not listed:
        (tmp_path / "manifest.json").unlink()
    bad.write_bytes(change(bad.read_bytes())) if change else bad.unlink()
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        if kind == "cut between two records" and not listed:
            assert len(list(tfrecord.read(tmp_path, schema))) == 22
            [warning] = said  # it cannot be known, so it is said
            assert re.search(r"no manifest lists 3 record files with 22 records.*expected=N", str(warning.message))
            with pytest.raises(tfrecord.DamagedRecordError, match="have 22 records, and 30 were expected"):
                tfrecord.read(tmp_path, schema, expected=30)
            return
        known, error = (tfrecord.DamagedRecordError, f"{bad.name}") if before else (tf.errors.OpError, "record")
        with pytest.raises(known, match=error) as met:
            list(tfrecord.read(tmp_path, schema))
        assert not before or "on_damage='skip'" in str(met.value)
        said.clear()
        left = [int(e["n"]) for e in tfrecord.read(tmp_path, schema, on_damage="skip", expected=30)]
    assert sorted(left) == [n for n in range(30) if n % 3 != 1]
    [warning] = said
    said_lost = f"1 of 3 record files are damaged and skipped, {'10 of 30' if listed else lost} records are lost: {bad}"
    assert said_lost in str(warning.message)


def test_nothing_is_said_where_nothing_can_be_wrong(tmp_path):
    schema = {"n": integers()}
    tfrecord.write(({"n": n} for n in range(6)), tmp_path / "x.tfrecord", schema, shards=2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(list(tfrecord.read(tmp_path, schema, on_damage="skip"))) == 6
        (tmp_path / "manifest.json").unlink()
        assert len(list(tfrecord.read(tmp_path, schema, expected=6))) == 6
    (tmp_path / "manifest.json").write_text('{"format": 1, "sets"')  # of ours or not: it lists nothing
    with pytest.warns(UserWarning, match="no manifest lists 2 record files with 6 records"):
        tfrecord.read(tmp_path, schema)
    for path in tmp_path.glob("*.tfrecord"):
        path.write_bytes(b"no")
    with pytest.raises(tfrecord.DamagedRecordError, match="every file is damaged"):
        tfrecord.read(tmp_path, schema, on_damage="skip")


def test_a_plain_file_that_begins_as_gzip_does_is_read(tmp_path):
    """The length of its first record is 0x8b1f."""
    schema = {"s": byte_strings()}
    rest = len(tfrecord.schema.make_example({"s": b"x" * 30_000}, schema)) - 30_000
    (path,) = tfrecord.write([{"s": b"x" * (0x8B1F - rest)}], tmp_path / "x.tfrecord", schema)
    assert path.read_bytes()[:2] == b"\x1f\x8b"
    assert [len(e["s"].numpy()) for e in tfrecord.read(path, schema)] == [0x8B1F - rest]
