"""The list of suspicious labels: what is on it, what a person may write, and what the next run does with it."""

import csv
import dataclasses

import numpy as np
import pytest

from zoo.data.images import encode_png
from zoo.data.scan import scan_images
from zoo.data.split import split_scan
from zoo.transfer.review import Review, find_suspicious, review_of
from zoo.transfer.suspicious import (
    CONFLICTS,
    Decision,
    apply_decisions,
    read_decisions,
    settle_conflicts,
    write_suspicious,
)


@pytest.fixture
def scan(tmp_path):
    generator = np.random.default_rng(0)
    for label in ("cat", "dog"):
        (tmp_path / label).mkdir()
        for i in range(4):
            picture = encode_png(generator.integers(0, 256, (6, 6, 3)).astype(np.uint8))
            (tmp_path / label / f"{i}.png").write_bytes(picture)
    (tmp_path / "dog" / "same.png").write_bytes((tmp_path / "cat" / "0.png").read_bytes())
    return scan_images(tmp_path)


def reviewed(scan, table):
    return review_of(table, {p.sha256: ["cat", "dog"].index(p.label) for p in scan.pictures})


@pytest.fixture
def suspects(scan):
    table = {p.sha256: np.array([0.95, 0.05]) if p.label == "cat" else np.array([0.3, 0.7]) for p in scan.pictures}
    wrong = next(p for p in scan.pictures if p.name == "dog/2.png")
    table[wrong.sha256] = np.array([0.9, 0.1])
    return find_suspicious(scan, split_scan(scan), reviewed(scan, table), ["cat", "dog"])


def test_conflicts_come_first_then_confident_disagreements(suspects):
    assert [(s.path, s.suggestion) for s in suspects] == [
        ("cat/0.png", "dog"),
        ("dog/same.png", "cat"),
        ("dog/2.png", "cat"),
    ]
    assert "also in dog" in suspects[0].reason and "disagrees" in suspects[2].reason


@pytest.mark.parametrize(("sure", "listed"), [(0.49, False), (0.51, True), (0.95, True)])
def test_a_disagreement_is_listed_where_another_class_is_more_probable(scan, sure, listed):
    table = {p.sha256: np.array([0.7, 0.3]) if p.label == "cat" else np.array([0.4, 0.6]) for p in scan.pictures}
    wrong = next(p for p in scan.pictures if p.name == "dog/2.png")
    table[wrong.sha256] = np.array([sure, 1 - sure])
    every = find_suspicious(scan, split_scan(scan), reviewed(scan, table), ["cat", "dog"])
    found = [s for s in every if "disagrees" in s.reason]
    assert [(s.path, s.confidence) for s in found] == ([("dog/2.png", sure)] if listed else [])


def test_near_duplicates_with_different_labels_are_listed_once_each(scan):
    table = {p.sha256: np.array([0.6, 0.4]) if p.label == "cat" else np.array([0.4, 0.6]) for p in scan.pictures}
    names = {p.name: p.sha256 for p in scan.pictures}
    pairs = [(names["cat/1.png"], names["dog/3.png"], 0.97), (names["cat/0.png"], names["dog/3.png"], 0.96)]
    found = find_suspicious(scan, split_scan(scan), reviewed(scan, table), ["cat", "dog"], pairs)
    near = [(s.path, s.suggestion, s.confidence, s.cosine, s.reason) for s in found if "looks like" in s.reason]
    assert near == [
        ("cat/1.png", "dog", None, 0.97, "looks like dog/3.png in dog"),
        ("dog/3.png", "cat", None, 0.97, "looks like cat/1.png in cat"),
    ]
    assert [s.path for s in found[:2]] == ["cat/0.png", "dog/same.png"]  # the conflict itself is named as such


def test_a_cosine_is_no_confidence(suspects, tmp_path):
    near = dataclasses.replace(suspects[2], confidence=None, cosine=0.97)
    write_suspicious(tmp_path / "s.csv", [suspects[2], near], [])
    rows = list(csv.DictReader((tmp_path / "s.csv").open(encoding="utf-8")))
    assert [(row["confidence"], row["cosine"]) for row in rows] == [("0.9", ""), ("", "0.97")]


def decide(path, words):
    rows = list(csv.DictReader(path.open(encoding="utf-8")))
    for row in rows:
        row["decision"] = words.get(row["path"], "")
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, rows[0])
        writer.writeheader()
        writer.writerows(rows)


def test_decisions_are_read_applied_and_kept(scan, suspects, tmp_path):
    path = tmp_path / "suspicious.csv"
    write_suspicious(path, suspects, [])
    assert read_decisions(path, ["cat", "dog"]) == []
    decide(path, {"dog/same.png": "Drop", "dog/2.png": "cat", "cat/0.png": "keep"})
    decisions = read_decisions(path, ["cat", "dog"])
    changed = apply_decisions(scan, decisions)
    labels = {p.name: p.label for p in changed.pictures}
    assert "dog/same.png" not in labels and labels["dog/2.png"] == "cat" and labels["cat/0.png"] == "cat"
    assert len(scan.pictures) == 9  # the scan itself is as it was
    write_suspicious(path, suspects[:1], decisions)
    assert {d.path for d in read_decisions(path, ["cat", "dog"])} == {"dog/same.png", "dog/2.png", "cat/0.png"}


def test_what_a_person_may_not_write(scan, suspects, tmp_path):
    path = tmp_path / "suspicious.csv"
    write_suspicious(path, suspects, [])
    decide(path, {"dog/2.png": "horse", "cat/0.png": "Cat"})
    with pytest.raises(ValueError, match="column decision") as caught:
        read_decisions(path, ["cat", "dog"])
    said = str(caught.value)
    assert str(path) in said and "row 2 (cat/0.png) has 'Cat'" in said and "row 4 (dog/2.png) has 'horse'" in said
    assert "Allowed: nothing, keep, drop, or a class: cat, dog" in said
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ValueError, match="must keep its columns"):
        read_decisions(path, ["cat", "dog"])
    path.write_bytes("decision,path,label,sha256\nkeep,Genève,x,y\n".encode("latin-1"))
    with pytest.raises(ValueError, match="UTF-8"):
        read_decisions(path, ["cat", "dog"])
    assert read_decisions(tmp_path / "none.csv", []) == []


def test_a_formula_in_a_label_is_only_text(scan, suspects, tmp_path):
    evil = [dataclasses.replace(suspects[0], label='=cmd|"/c calc"!A1, "quoted"\nline')]
    write_suspicious(tmp_path / "s.csv", evil, [])
    [row] = csv.DictReader((tmp_path / "s.csv").open(newline="", encoding="utf-8"))
    assert row["label"] == evil[0].label


def test_a_class_called_drop_is_written_with_an_equals_sign(scan, suspects, tmp_path):
    path, classes = tmp_path / "suspicious.csv", ["=dog", "Keep", "cat", "dog", "drop"]
    write_suspicious(path, [dataclasses.replace(suspects[2], suggestion=name) for name in classes], [])
    shown = [row["suggestion"] for row in csv.DictReader(path.open(encoding="utf-8"))]
    assert shown == ["==dog", "=Keep", "cat", "dog", "=drop"]
    for word, label in [*zip(shown, classes, strict=True), ("drop", None), ("DROP", None), ("=cat", "cat")]:
        decide(path, {"dog/2.png": word})
        decisions = read_decisions(path, classes)
        labels = {p.name: p.label for p in apply_decisions(scan, decisions).pictures}
        assert labels.get("dog/2.png") == label, word
        write_suspicious(tmp_path / "again.csv", [], decisions)
        assert read_decisions(tmp_path / "again.csv", classes) == decisions


def of(scan, name):
    return next(picture for picture in scan.pictures if picture.name == name)


@pytest.mark.parametrize(("how", "left_out"), [("drop", {"cat/0.png", "dog/same.png"}), ("first", {"dog/same.png"})])
def test_a_picture_in_two_classes_teaches_neither(scan, how, left_out):
    used = settle_conflicts(scan, [], how)
    assert {p.name for p in scan.pictures} - {p.name for p in used.pictures} == left_out
    assert not used.conflicts and len(scan.conflicts) == 1  # which suspicious.csv lists


def test_conflicts_may_be_refused(scan):
    with pytest.raises(ValueError, match=r"1 picture in two classes: cat/0.png \(cat\) = dog/same.png \(dog\)"):
        settle_conflicts(scan, [], "refuse")


@pytest.mark.parametrize("how", CONFLICTS)
@pytest.mark.parametrize(("word", "right"), [("keep", "dog"), ("cat", "cat"), ("drop", "cat")])
def test_a_decision_settles_a_conflict(scan, how, word, right):
    same = of(scan, "dog/same.png")
    decisions = [Decision(same.name, same.sha256, word, same.label)]
    used = settle_conflicts(apply_decisions(scan, decisions), decisions, how)
    assert {p.label for p in used.pictures if p.sha256 == same.sha256} == {right}


def test_a_class_of_nothing_but_conflicts_is_named(tmp_path):
    for label in ("a", "b", "c"):
        (tmp_path / label).mkdir()
        for i in range(2):
            level = 9 * i if label == "c" else 50 * i + (label == "b") * i
            (tmp_path / label / f"{i}.png").write_bytes(encode_png(np.full((6, 6, 3), level, np.uint8)))
    scan = scan_images(tmp_path)
    used = settle_conflicts(scan, [], "drop")
    assert {p.name for p in used.pictures} == {"a/1.png", "b/1.png", "c/1.png"}
    (tmp_path / "c" / "1.png").unlink()
    with pytest.raises(ValueError, match=r"every picture of c lies in another class too.*a/0.png \(a\) = b/0.png"):
        settle_conflicts(scan_images(tmp_path), [], "drop")


def test_a_csv_that_gives_one_file_two_labels(tmp_path):
    for i in range(4):
        (tmp_path / f"{i}.png").write_bytes(encode_png(np.full((6, 6, 3), 9 * i, np.uint8)))
    lines = ["path,label", "0.png,a", "1.png,b", "2.png,a", "2.png,b", "3.png,a"]
    (tmp_path / "labels.csv").write_text("\n".join(lines))
    scan = scan_images(tmp_path / "labels.csv")
    assert {p.name for p in settle_conflicts(scan, [], "drop").pictures} == {"0.png", "1.png", "3.png"}
    both = of(scan, "2.png")
    for word, label, right in (("drop", "b", "a"), ("keep", "b", "b"), ("b", "a", "b")):
        path, decisions = tmp_path / "suspicious.csv", [Decision(both.name, both.sha256, word, label)]
        changed = apply_decisions(scan, decisions)
        used = settle_conflicts(changed, decisions, "refuse")
        assert {p.label for p in used.pictures if p.name == "2.png"} == {right}
        write_suspicious(path, find_suspicious(changed, split_scan(used), Review({}, {}, 0), ["a", "b"]), decisions)
        assert read_decisions(path, ["a", "b"]) == decisions
