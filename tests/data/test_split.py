import json
import os
from collections import Counter

import numpy as np
import pytest
from data.pictures import png

from zoo.data.scan import scan_images
from zoo.data.split import SETS, Split, key_of, split_keys, split_scan


def keys_of(label, count, start=0):
    return [key_of(f"{label} {number}".encode()) for number in range(start, start + count)]


def deal(sizes, **options):
    keys, labels = [], []
    for label, size in sizes.items():
        keys += keys_of(label, size)
        labels += [label] * size
    return split_keys(keys, labels, **options)


def test_large_classes_get_about_the_shares_they_should():
    split = deal({"a": 2000, "b": 1000}, validation=0.1, test=0.2)
    for label, size in (("a", 2000), ("b", 1000)):
        assert abs(split.labels[label]["test"] / size - 0.2) < 0.04
        assert abs(split.labels[label]["validation"] / size - 0.1) < 0.03
    assert Counter(split.sets.values()).total() == 3000


@pytest.mark.parametrize("size", [3, 4, 5, 20])
def test_rows_34_35_38_every_class_of_three_or_more_is_in_all_sets(size):
    for seed in range(20):
        split = deal({f"class {n}": size for n in range(25)}, seed=seed)
        assert all(min(count.values()) >= 1 for count in split.labels.values()) and not split.train_only


@pytest.mark.parametrize("size", [1, 2])
def test_row_34_smaller_classes_are_for_training_only_and_it_is_said(size):
    split = deal({"tiny": size, "big": 50})
    assert split.labels["tiny"] == {"train": size, "validation": 0, "test": 0}
    assert split.train_only == ["tiny"] and "fewer than 3 different pictures" in split.notes[0]


def test_row_37_the_split_does_not_follow_the_names():
    split = deal({"cat": 400, "dog": 400})
    keys = keys_of("cat", 400)
    tail = [split.sets[key] for key in keys[-40:]]
    assert Counter(tail)["train"] > 20


def test_the_deal_depends_on_content_and_seed_only():
    keys, labels = keys_of("a", 50) + keys_of("b", 50), ["a"] * 50 + ["b"] * 50
    first = split_keys(keys, labels)
    assert split_keys(keys[::-1], labels[::-1]).sets == first.sets
    assert split_keys(keys, labels, seed=1).sets != first.sets


def test_adding_pictures_moves_none_in_classes_of_usual_size():
    small, large = deal({"a": 300, "b": 300}), deal({"a": 600, "b": 900, "c": 40})
    assert {key: large.sets[key] for key in small.sets} == small.sets


def test_adding_pictures_to_tiny_classes_moves_none_when_the_old_split_is_given():
    old = deal({"a": 3, "b": 4, "c": 2})
    for extra in range(1, 30):
        new = deal({"a": 3 + extra, "b": 4 + extra, "c": 2 + extra, "d": 5}, previous=old)
        assert {key: new.sets[key] for key in old.sets} == old.sets
        assert all(min(new.labels[label].values()) >= 1 for label in "abd")


def test_similar_pictures_stay_together():
    keys = keys_of("a", 200)
    pairs = [keys[n : n + 4] for n in range(0, 200, 4)]
    split = split_keys([*keys, *keys_of("b", 20)], ["a"] * 200 + ["b"] * 20, together=pairs)
    assert all(len({split.sets[key] for key in group}) == 1 for group in pairs)
    assert min(split.labels["a"].values()) > 0


def test_a_class_of_one_picture_many_times_is_for_training_only():
    split = split_keys(keys_of("a", 1) * 9 + keys_of("b", 30), ["a"] * 9 + ["b"] * 30)
    assert split.train_only == ["a"] and split.labels["a"] == {"train": 9, "validation": 0, "test": 0}


def test_one_picture_in_two_classes_is_in_one_set():
    shared = keys_of("shared", 40)
    split = split_keys(shared * 2 + keys_of("a", 3), ["a"] * 40 + ["b"] * 40 + ["a"] * 3)
    assert split.labels["b"] == {name: split.labels["b"][name] for name in SETS} and min(split.labels["b"].values()) > 0


def test_a_group_torn_by_an_older_split_stays_torn_and_it_is_said():
    old = deal({"a": 60, "b": 60})
    keys = keys_of("a", 60)
    train = next(key for key in keys if old.sets[key] == "train")
    test = next(key for key in keys if old.sets[key] == "test")
    new = deal({"a": 60, "b": 60}, previous=old, together=[[train, test]])
    assert new.sets == old.sets and "1 group of" in new.notes[0]


def test_a_set_can_be_left_out():
    split = deal({"a": 40, "b": 2}, test=0)
    assert split.labels["a"]["test"] == 0 and split.labels["b"] == {"train": 1, "validation": 1, "test": 0}


@pytest.mark.parametrize(
    ("sizes", "options", "message"),
    [
        ({"a": 9}, {}, r"two classes or more, got \['a'\]"),
        ({"a": 9, "b": 9}, {"test": 0.6, "validation": 0.4}, "leave something"),
        ({"a": 9, "b": 9}, {"test": -0.1}, "0 or more"),
    ],
)
def test_row_30_bad_input(sizes, options, message):
    with pytest.raises(ValueError, match=message):
        deal(sizes, **options)


def test_lengths_must_agree_and_sets_have_names():
    with pytest.raises(ValueError, match="one label a picture"):
        split_keys(["x"], [])
    split = deal({"a": 5, "b": 5})
    keys = keys_of("a", 5)
    assert sorted(index for name in SETS for index in split.indices(keys, name)) == list(range(5))
    with pytest.raises(ValueError, match="got 'val'"):
        split.indices(keys, "val")
    with pytest.raises(ValueError, match="not dealt"):
        split.indices(["unknown"], "train")


def test_a_saved_split_comes_back(tmp_path):
    split = deal({"a": 5, "b": 2})
    split.save(tmp_path / "split.json")
    assert Split.load(tmp_path / "split.json") == split
    data = json.loads((tmp_path / "split.json").read_text())
    for broken in ("{}", "[1]", json.dumps({**data, "format": 7}), json.dumps({**data, "sets": {"x": "holdout"}})):
        (tmp_path / "split.json").write_text(broken)
        with pytest.raises(ValueError, match="not a saved split"):
            Split.load(tmp_path / "split.json")


def test_a_split_that_cannot_be_saved_leaves_the_old_one(tmp_path, monkeypatch):
    """Every old picture's place is in that file: it is replaced whole or not at all."""
    old, new = deal({"a": 5, "b": 2}), deal({"a": 50, "b": 20})
    old.save(tmp_path / "split.json")

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", full)
        with pytest.raises(OSError, match="No space left"):
            new.save(tmp_path / "split.json")
    assert Split.load(tmp_path / "split.json") == old


@pytest.fixture
def folder(tmp_path):
    root = tmp_path / "set"
    for number in range(40):
        path = root / f"{'ab'[number % 2]}/{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(number))
    return root


def test_row_40_the_path_as_typed_does_not_matter_nor_do_names(folder, monkeypatch, tmp_path):
    first = split_scan(scan_images(folder))
    monkeypatch.chdir(tmp_path)
    assert split_scan(scan_images("./set/../set")).sets == first.sets
    (folder / "a/0.png").rename(folder / "a/renamed.png")
    assert split_scan(scan_images(folder)).sets == first.sets


def test_row_39_files_with_the_same_picture_go_together(folder):
    for number in range(0, 40, 2):
        (folder / f"a/copy {number}.png").write_bytes(png(number, compress_level=0))
        (folder / f"a/same {number}.png").write_bytes(png(number))
    scan = scan_images(folder)
    split = split_scan(scan)
    assert len(scan.duplicates) == 20
    assert all(len({split.sets[p.sha256] for p in group}) == 1 for group in scan.duplicates)


def test_pictures_in_train_and_test_folders_stay_there(tmp_path):
    for number in range(40):
        path = tmp_path / f"{'test' if number < 8 else 'train'}/{'ab'[number % 2]}/{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(png(number))
    scan = scan_images(tmp_path)
    split = split_scan(scan)
    assert all((split.sets[p.sha256] == "test") == (p.subset == "test") for p in scan.pictures)
    assert all(count["validation"] >= 1 and count["train"] >= 1 for count in split.labels.values())
    assert any("no folder for the validation set" in note for note in split.notes)


def test_keys_of_arrays_tell_shape_and_type_apart():
    a = np.zeros((2, 3), np.uint8)
    assert key_of(a) == key_of(a.copy()) != key_of(a.reshape(3, 2)) != key_of(a.astype(np.int8))


def test_two_thousand_classes_of_five():
    split = deal({f"class {number}": 5 for number in range(2000)})
    assert all(min(count.values()) >= 1 for count in split.labels.values())
