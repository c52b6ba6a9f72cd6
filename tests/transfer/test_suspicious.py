"""The list of suspicious labels: what is on it, what a person may write, and what the next run does with it."""

import csv
import dataclasses

import numpy as np
import pytest

from zoo.data.images import encode_png
from zoo.data.scan import scan_images
from zoo.data.split import split_scan
from zoo.transfer.suspicious import apply_decisions, find_suspicious, read_decisions, write_suspicious


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


@pytest.fixture
def suspects(scan):
    table = {p.sha256: np.array([0.95, 0.05]) if p.label == "cat" else np.array([0.3, 0.7]) for p in scan.pictures}
    wrong = next(p for p in scan.pictures if p.name == "dog/2.png")
    table[wrong.sha256] = np.array([0.9, 0.1])
    return find_suspicious(scan, split_scan(scan), table, ["cat", "dog"])


def test_conflicts_come_first_then_confident_disagreements(suspects):
    assert [(s.path, s.suggestion) for s in suspects] == [
        ("cat/0.png", "dog"),
        ("dog/same.png", "cat"),
        ("dog/2.png", "cat"),
    ]
    assert "also in dog" in suspects[0].reason and "disagrees" in suspects[2].reason


@pytest.mark.parametrize(("sure", "listed"), [(0.79, False), (0.8, True), (0.95, True)])
def test_a_disagreement_counts_from_a_probability_of_eighty_percent(scan, sure, listed):
    table = {p.sha256: np.array([1.0, 0.0]) if p.label == "cat" else np.array([0.0, 1.0]) for p in scan.pictures}
    wrong = next(p for p in scan.pictures if p.name == "dog/2.png")
    table[wrong.sha256] = np.array([sure, 1 - sure])
    found = [s for s in find_suspicious(scan, split_scan(scan), table, ["cat", "dog"]) if "disagrees" in s.reason]
    assert [(s.path, s.confidence) for s in found] == ([("dog/2.png", sure)] if listed else [])


def test_near_duplicates_with_different_labels_are_listed_once_each(scan):
    table = {p.sha256: np.array([0.6, 0.4]) if p.label == "cat" else np.array([0.4, 0.6]) for p in scan.pictures}
    names = {p.name: p.sha256 for p in scan.pictures}
    pairs = [(names["cat/1.png"], names["dog/3.png"], 0.97), (names["cat/0.png"], names["dog/3.png"], 0.96)]
    found = find_suspicious(scan, split_scan(scan), table, ["cat", "dog"], pairs)
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
