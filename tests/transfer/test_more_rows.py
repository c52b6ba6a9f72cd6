"""More sets and moments that break other tools: numbered rows of the list of bug reports, and kinds of our own."""

import errno
import hashlib
import os
import shutil

import numpy as np
import pytest
from PIL import Image
from transfer.retrain_support import TINY, colour_pictures, write_folder

from zoo.data.images import encode_png
from zoo.data.preprocessing import Preprocessing
from zoo.transfer import Extractor, Reader, load_predictor, retrain, write_report

SMALL = Reader(Preprocessing(size=(8, 8), method="bilinear_antialias"))


@pytest.fixture
def go(finished, tmp_path):
    """Retrains without export, with the cache of all tests."""

    def run(images, out=tmp_path / "run", **settings):
        return retrain(images, out, **{"cache": finished[1], "export": False, **TINY, **settings})

    return run


def means(images):
    return {"mean": images.mean((1, 2))}


def test_row_17_a_picture_that_cannot_be_read_never_thins_out_a_batch(tmp_path):
    files = {}
    for i in range(6):
        data = b"no picture" if i == 4 else encode_png(np.full((5, 5, 3), i, np.uint8))
        (tmp_path / f"{i}.png").write_bytes(data)
        files[hashlib.sha256(data).hexdigest()] = tmp_path / f"{i}.png"
    extractor = Extractor(means, SMALL, tmp_path / "cache", digest="d", batch_size=4)
    with pytest.raises(ValueError, match=r"4\.png: not an image"):
        extractor.features(files, ["mean"])
    good = {key: path for key, path in files.items() if path.name != "4.png"}
    table = extractor.features(good, ["mean"]).read(list(good), ["mean"])["mean"]
    assert len(table) == 5 and (np.diff(table[:, 0]) > 0).all()  # every picture at its place


def test_row_26_nothing_in_run_and_cache_is_named_after_a_picture(go, tmp_path):
    root = write_folder(tmp_path / "p")
    long = root / "red" / ("x" * 150 + ".png")
    long.write_bytes(encode_png(colour_pictures(seed=21)[0][0]))
    run = go(root, cache=tmp_path / "cache")
    assert f"red/{long.name}" in run.split.sets or long.name in (run.folder / "predictions.csv").read_text()
    for folder in (run.folder, tmp_path / "cache"):
        assert max(len(path.name) for path in folder.rglob("*")) < 70


def test_row_32_a_known_picture_gets_its_name(finished):
    predictor = load_predictor(finished[0].folder)
    for name, colour in (("red", (200, 40, 40)), ("green", (40, 200, 40))):
        [row] = predictor([encode_png(np.full((40, 30, 3), colour, np.uint8))])
        assert predictor.classes[int(row.argmax())] == name


def test_labels_that_look_like_numbers_stay_text(go, tmp_path):
    root = write_folder(tmp_path / "p", names=("a", "b", "c"))
    names = {"a": "007", "b": "1e3", "c": "NaN"}
    lines = ["path,label"] + [f"{p.relative_to(tmp_path)},{names[p.parent.name]}" for p in sorted(root.rglob("*.png"))]
    (tmp_path / "list.csv").write_bytes("\r\n".join(lines).encode())  # as a spreadsheet saves it
    assert go(tmp_path / "list.csv").classes == ("007", "1e3", "NaN")


def test_a_run_folder_inside_the_pictures_is_no_class(go, tmp_path):
    root = write_folder(tmp_path / "p")
    first = go(root, root / "run")
    again = go(root, root / "run")
    assert again.classes == first.classes and again.split.sets == first.split.sets


def test_a_full_disk_leaves_a_cache_that_the_next_run_goes_on_with(go, pictures, tmp_path, monkeypatch):
    def full(_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            go(pictures, cache=tmp_path / "cache")
    assert not list(tmp_path.rglob("*.tmp"))
    assert go(pictures, cache=tmp_path / "cache").evaluation.accuracy == 1.0


def test_a_moved_run_predicts_and_reports_though_its_pictures_are_gone(tmp_path, finished):
    root = write_folder(tmp_path / "p", seed=31)
    run = retrain(root, tmp_path / "run", cache=finished[1], **TINY)
    picture = encode_png(colour_pictures(seed=32)[0][0])
    before = load_predictor(run.folder)([picture])
    shutil.rmtree(root)
    (tmp_path / "run").rename(tmp_path / "moved")
    np.testing.assert_array_equal(load_predictor(tmp_path / "moved")([picture]), before)
    run.folder = tmp_path / "moved"
    assert "data:," in write_report(run).read_text()


def test_a_threshold_that_joins_everything_still_splits(go, tmp_path):
    run = go(write_folder(tmp_path / "p"), near=-1.0)
    assert all(min(counts.values()) >= 1 for counts in run.split.labels.values())


def test_wholly_transparent_pictures_show_the_background(go, tmp_path):
    root = write_folder(tmp_path / "p")
    Image.new("RGBA", (9, 9), (250, 0, 0, 0)).save(root / "green" / "ghost.png")
    run = go(root)
    key = next(p.sha256 for p in run.scan.pictures if p.name == "green/ghost.png")
    white = run.reader.read(encode_png(np.full((9, 9, 3), 255, np.uint8)))
    np.testing.assert_array_equal(run.reader.read((root / "green" / "ghost.png").read_bytes()), white)
    assert np.isfinite(run.probabilities[key]).all()


def test_a_class_of_one_picture_and_one_of_many(go, tmp_path):
    root = write_folder(tmp_path / "p")
    write_folder(root, names=("lonely", "lonely", "lonely"), per_class=1, seed=5)
    for path in sorted((root / "lonely").iterdir())[1:]:
        path.unlink()
    run = go(root)
    assert run.split.train_only == ["lonely"]
    found = next(c for c in run.evaluation.classes if c.name == "lonely")
    assert found.count == 0 and "lonely" in (run.folder / "report.html").read_text()


def test_the_seed_decides_the_split_and_nothing_else_does(go, tmp_path, pictures):
    runs = [go(pictures, tmp_path / str(i), seed=seed) for i, seed in enumerate((1, 1, 2))]
    assert runs[0].split.sets == runs[1].split.sets != runs[2].split.sets
    np.testing.assert_array_equal(runs[0].head.weights, runs[1].head.weights)


def test_damaged_facts_of_an_older_run_say_what_to_do(go, pictures, tmp_path):
    run = go(pictures)
    (run.folder / "run.json").write_text('{"format": 1')
    with pytest.raises(ValueError, match=r"run\.json cannot be read"):
        go(pictures)
