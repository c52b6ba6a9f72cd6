"""The bottleneck cache: what is kept, what is recomputed, and what damage costs."""

import hashlib

import numpy as np
import pytest

from zoo.transfer.bottlenecks import BottleneckCache


def keys_of(count, salt=""):
    return [hashlib.sha256(f"{salt}{i}".encode()).hexdigest() for i in range(count)]


def features_of(count, seed=0):
    generator = np.random.default_rng(seed)
    return {"a": generator.random((count, 5), np.float32), "b": generator.random((count, 3), np.float32)}


@pytest.fixture
def filled(tmp_path):
    keys, features = keys_of(10), features_of(10)
    cache = BottleneckCache(tmp_path, {"weights": "w"}, shard_rows=4)
    for i in range(0, 10, 2):
        cache.add(keys[i : i + 2], {name: rows[i : i + 2] for name, rows in features.items()})
    cache.flush()
    return tmp_path, keys, features


def test_a_second_process_reads_the_same_rows_in_any_order(filled):
    root, keys, features = filled
    cache = BottleneckCache(root, {"weights": "w"})
    assert cache.missing(keys, ["a", "b"]) == []
    order = [7, 0, 0, 9, 3]
    np.testing.assert_array_equal(cache.read([keys[i] for i in order], "b"), features["b"][order])


def test_other_settings_share_nothing(filled):
    root, keys, _ = filled
    assert BottleneckCache(root, {"weights": "other"}).missing(keys, ["a"]) == keys
    assert BottleneckCache(root, {"weights": "w", "size": 128}).missing(keys, ["a"]) == keys


def test_only_what_is_new_is_missing(filled):
    root, keys, _ = filled
    cache = BottleneckCache(root, {"weights": "w"})
    new = keys_of(2, "new")
    assert cache.missing([keys[0], *new, *new, keys[5]], ["a"]) == new
    assert cache.missing(keys[:3], ["a", "c"]) == keys[:3]  # an end point that was never extracted


def test_rows_added_twice_return_the_last(filled):
    root, keys, features = filled
    cache = BottleneckCache(root, {"weights": "w"})
    cache.add(keys[:1], {"c": np.ones((1, 2))})
    np.testing.assert_array_equal(cache.read(keys[:1], "c"), np.ones((1, 2)))
    np.testing.assert_array_equal(cache.read(keys[:1], "a"), features["a"][:1])


@pytest.mark.parametrize("position", [0, 1, 2])
def test_row_42_a_flipped_byte_costs_one_row(filled, position):
    root, keys, features = filled
    [folder] = root.iterdir()
    shard = sorted(folder.glob("*.zbn"))[position]  # before or after the shard that replaces the row
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)
    cache = BottleneckCache(root, {"weights": "w"})
    [damaged] = cache.missing(keys, ["a"])
    row = keys.index(damaged)
    with pytest.raises(ValueError, match="extract them first"):
        cache.read(keys, "a")
    cache.add([damaged], {name: rows[row : row + 1] for name, rows in features.items()})
    np.testing.assert_array_equal(cache.read(keys, "a"), features["a"])
    np.testing.assert_array_equal(BottleneckCache(root, {"weights": "w"}).read(keys, "a"), features["a"])


@pytest.mark.parametrize(("kept", "lost"), [(-1, 1), (-33, 2), (20, 4), (4, 4), (0, 4)])
def test_row_42_a_shard_cut_short_costs_the_rows_that_are_cut(filled, kept, lost):
    root, keys, features = filled
    [folder] = root.iterdir()
    shard = max(folder.glob("*.zbn"), key=lambda path: path.stat().st_size)
    shard.write_bytes(shard.read_bytes()[:kept])
    cache = BottleneckCache(root, {"weights": "w"})
    missing = cache.missing(keys, ["a"])
    assert len(missing) == lost
    there = [i for i, key in enumerate(keys) if key not in missing]
    np.testing.assert_array_equal(cache.read([keys[i] for i in there], "a"), features["a"][there])


def test_a_foreign_file_is_named_and_not_read(filled):
    root, keys, _ = filled
    [folder] = root.iterdir()
    (folder / "notes.zbn").write_bytes(b"not a shard at all")
    cache = BottleneckCache(root, {"weights": "w"})
    assert [path.name for path in cache.unreadable] == ["notes.zbn"]
    assert cache.missing(keys, ["a"]) == []


def test_settings_must_be_plain():
    with pytest.raises(ValueError, match="plain JSON"):
        BottleneckCache("unused", {"weights": object()})


def test_rows_and_keys_must_agree(tmp_path):
    with pytest.raises(ValueError, match="a row for each of the 2 keys"):
        BottleneckCache(tmp_path, {}).add(keys_of(2), {"a": np.zeros((3, 2))})
