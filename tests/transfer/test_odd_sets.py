"""Whole runs on sets that break other tools; the numbers are the rows of the project's list of bug reports."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
from PIL import Image
from transfer.retrain_support import TINY, colour_pictures, write_folder

from zoo.data.images import encode_png
from zoo.transfer import retrain


@pytest.fixture
def go(finished, tmp_path):
    """Retrains without export, with the cache of all tests."""

    def run(images, **settings):
        return retrain(images, tmp_path / "run", cache=finished[1], export=False, **{**TINY, **settings})

    return run


def test_row_34_two_classes_of_five_pictures(go, tmp_path):
    run = go(write_folder(tmp_path / "p", names=("a", "b", "b"), per_class=5))
    assert all(min(counts.values()) >= 1 for counts in run.split.labels.values())
    assert run.evaluation.count >= 2


def test_two_pictures_a_class_train_only_and_say_so(go, tmp_path):
    run = go(write_folder(tmp_path / "p", per_class=2))
    assert run.facts["judged"] == "train" and set(run.split.train_only) == set(run.classes)
    assert "says nothing about new pictures" in (run.folder / "report.html").read_text()


def test_row_30_one_class_is_an_error(go, tmp_path):
    with pytest.raises(ValueError, match="two classes or more"):
        go(write_folder(tmp_path / "p", names=("a", "a", "a")))


def test_rows_53_55_57_a_clean_process_gives_the_same_probabilities(finished):
    run = finished[0]
    picture = run.scan.pictures[0]
    start = [sys.executable, "-c", "from zoo.cli import main; main()"]
    words = [*start, "predict", str(run.folder), picture.path, "--json", "--top", "3"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd="/")
    [found] = json.loads(done.stdout)
    expected = dict(zip(run.classes, run.probabilities[picture.sha256], strict=True))
    for guess in found["predictions"]:
        assert guess["probability"] == pytest.approx(expected[guess["class"]], abs=1e-5)


def test_row_40_the_folder_as_it_is_typed_does_not_matter(go, tmp_path, monkeypatch):
    write_folder(tmp_path / "flowers")
    monkeypatch.chdir(tmp_path)
    first = go("flowers")
    (tmp_path / "link").symlink_to(tmp_path / "flowers")
    for typed in ("./flowers", "flowers/", "link"):
        assert go(typed).split.sets == first.split.sets


def test_row_27_the_order_of_classes_is_stored(finished):
    run = finished[0]
    assert list(run.classes) == sorted(run.classes)
    assert run.model.options["classes"] == list(run.classes)


def test_row_39_the_same_bytes_in_two_classes_are_a_conflict_in_one_part(go, tmp_path):
    root = write_folder(tmp_path / "p")
    picture = next((root / "red").iterdir())
    (root / "green" / "copy.png").write_bytes(picture.read_bytes())
    run = go(root)
    assert {s["path"] for s in run.facts["suspicious"]} >= {f"red/{picture.name}", "green/copy.png"}
    assert "the same picture is also in" in (run.folder / "suspicious.csv").read_text()


def test_pictures_of_one_pixel_and_of_two_thousand_by_one(go, tmp_path):
    root = write_folder(tmp_path / "p")
    (root / "red" / "dot.png").write_bytes(encode_png(np.full((1, 1, 3), (200, 0, 0), np.uint8)))
    (root / "red" / "line.png").write_bytes(encode_png(np.full((1, 2000, 3), (200, 0, 0), np.uint8)))
    assert len(go(root).scan.pictures) == 38


def test_grey_sixteen_bit_transparent_and_palette_pictures_together(go, tmp_path):
    root = write_folder(tmp_path / "p")
    ramp = np.arange(64, dtype=np.uint8).reshape(8, 8)
    Image.fromarray(ramp, "L").save(root / "red" / "grey.png")
    Image.fromarray(ramp.astype(np.uint16) * 1000).save(root / "red" / "deep.png")
    Image.new("RGBA", (8, 8), (200, 0, 0, 100)).save(root / "red" / "alpha.png")
    Image.new("P", (8, 8), 3).save(root / "red" / "palette.gif")
    assert len(go(root).scan.pictures) == 40


def test_all_pictures_alike_end_without_a_nan(go, tmp_path):
    for label in ("a", "b"):
        (tmp_path / "p" / label).mkdir(parents=True)
        for i in range(6):
            pixels = np.full((8, 8, 3), 100, np.uint8)
            pixels[0, 0] = (i, len(label), ord(label))
            (tmp_path / "p" / label / f"{i}.png").write_bytes(encode_png(pixels))
    run = go(tmp_path / "p")
    assert np.isfinite(list(run.probabilities.values())).all()


def test_names_that_break_shells_pages_and_tables(go, tmp_path):
    names = ('it\'s "q" & <b>', "日本 語", "C++ = #1, \\n")
    root = write_folder(tmp_path / "naïve folder", names=names)
    (root / names[1] / "a\nb,;'\".png").write_bytes(encode_png(colour_pictures(seed=7)[0][0]))
    run = go(root)
    assert set(run.classes) == set(names)
    text = (run.folder / "report.html").read_text()
    assert "it&#39;s &#34;q&#34; &amp; &lt;b&gt;" in text


def test_without_a_validation_part_the_temperature_comes_from_answers_held_out(go, tmp_path):
    run = go(write_folder(tmp_path / "p"), validation=0.0)
    assert run.head.temperature != 1.0 and run.facts["validation_accuracy"] is None


def test_no_test_part_judges_the_training_part_and_says_so(go, tmp_path):
    run = go(write_folder(tmp_path / "p"), test=0.0)
    assert run.facts["judged"] == "train"


def test_rows_1_2_14_bad_files_are_listed_and_never_touched(go, tmp_path):
    root = write_folder(tmp_path / "p")
    whole = encode_png(colour_pictures(seed=3)[0][0])
    bad = {"half.png": whole[: len(whole) // 2], "empty.jpg": b"", "._a.jpg": b"\0\5\x16\7", ".DS_Store": b"x"}
    for name, data in bad.items():
        (root / "red" / name).write_bytes(data)
    with pytest.raises(ValueError, match="2 bad files of 38"):
        go(root)
    run = go(root, max_bad="10%")
    assert {b.name for b in run.scan.bad} == {"red/half.png", "red/empty.jpg"}
    assert all((root / "red" / name).read_bytes() == data for name, data in bad.items())


def test_a_picture_that_vanishes_meanwhile_is_named(finished, tmp_path):
    root = write_folder(tmp_path / "p", seed=11)
    gone = next((root / "red").iterdir())
    with pytest.raises(FileNotFoundError, match=gone.name):
        retrain(
            root,
            tmp_path / "run",
            cache=finished[1],
            say=lambda line: gone.unlink() if line.startswith("scan") else None,
            **TINY,
        )


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_cache_that_cannot_be_written_says_where(pictures, tmp_path):
    (tmp_path / "cache").mkdir(mode=0o500)
    with pytest.raises(PermissionError, match="cache"):
        retrain(pictures, tmp_path / "run", cache=tmp_path / "cache", **TINY)


def test_a_cache_folder_that_is_a_file(pictures, tmp_path):
    (tmp_path / "cache").write_text("")
    with pytest.raises(OSError, match="cache"):
        retrain(pictures, tmp_path / "run", cache=tmp_path / "cache", **TINY)


def test_row_29_a_class_missing_from_the_test_folder_shifts_no_label(go, tmp_path):
    root = tmp_path / "p"
    write_folder(root / "train", names=("a", "b", "c"), per_class=6)
    write_folder(root / "test", names=("a", "c", "c"), per_class=4, seed=2)
    run = go(root)
    assert run.classes == ("a", "b", "c")
    assert any("n=0" in note and note.endswith("b") for note in run.scan.notes)
    assert [c.name for c in run.evaluation.classes] == ["a", "b", "c"]


def test_labels_that_cannot_be_folders_need_a_csv(tmp_path):
    pixels, _ = colour_pictures(per_class=4)
    with pytest.raises(ValueError, match="give a CSV"):
        retrain(pixels, tmp_path / "run", labels=["HI/fr", "b", "c"] * 4, **TINY)


def test_row_24_a_csv_may_have_them(go, tmp_path):
    root = write_folder(tmp_path / "p", names=("a", "b", "c"))
    lines = ["path,label"] + [f"{p.relative_to(tmp_path)},HI/{p.parent.name}" for p in sorted(root.rglob("*.png"))]
    (tmp_path / "list.csv").write_text("\n".join(lines))
    assert go(tmp_path / "list.csv").classes == ("HI/a", "HI/b", "HI/c")
