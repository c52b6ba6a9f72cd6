import dataclasses
import os
import shutil

import numpy as np
import pytest
from data.pictures import encode, exif, jpeg, pixels, png, raw_png
from PIL import Image

from zoo.data import folders
from zoo.data.scan import Scan, parse_limit, scan_images


def fill(root, files):
    """Writes a tree: {"a/1.jpg": bytes}; None makes a folder."""
    for number, (name, data) in enumerate(files.items()):
        path = root / name
        (path if data is None else path.parent).mkdir(parents=True, exist_ok=True)
        if data is not None:
            path.write_bytes(png(number) if data is Ellipsis else data)
    return root


def snapshot(root):
    return {
        os.fsencode(os.path.join(at, name)): (
            os.lstat(os.path.join(at, name)).st_mtime_ns,
            os.lstat(os.path.join(at, name)).st_size,
        )
        for at, _, names in os.walk(root)
        for name in names
    }


@pytest.fixture
def two(tmp_path):
    """Two classes of three pictures each."""
    return fill(tmp_path / "set", {f"{label}/{number}.png": ... for label in "ab" for number in range(3)})


def reasons(scan):
    return {bad.name: bad.reason for bad in scan.bad}


def test_a_clean_folder(two):
    scan = scan_images(two)
    assert scan.labels == ["a", "b"] and not scan.bad and not scan.notes and not scan.duplicates
    assert scan.counts == {label: {"found": 3, "used": 3, "skipped": 0} for label in "ab"}
    assert [p.name for p in scan.pictures] == ["a/0.png", "a/1.png", "a/2.png", "b/0.png", "b/1.png", "b/2.png"]
    first = scan.pictures[0]
    assert (first.format, first.height, first.width, first.bytes) == ("PNG", 14, 20, len(png(0)))
    scan.check()


def test_row_1_apple_double_files_are_hidden_files(two):
    fill(two, {"a/._0.png": bytes.fromhex("00051607"), "b/plain.jpg": bytes.fromhex("00051607") + bytes(50)})
    scan = scan_images(two)
    assert len(scan.pictures) == 6 and scan.ignored["hidden or system"] == 1
    assert reasons(scan) == {"b/plain.jpg": "unsupported"}


def test_rows_2_3_16_a_cut_jpeg_among_forty_is_listed_with_class_and_reason_and_left_alone(tmp_path):
    files = {f"{label}/{n}.jpg": jpeg(n + 40 * (label == "dog")) for label in ("cat", "dog") for n in range(20)}
    root = fill(tmp_path / "set", {**files, "dog/bad.jpg": jpeg()[: len(jpeg()) // 2]})
    before = snapshot(root)
    scan = scan_images(root)
    bad = scan.bad[0]
    assert (bad.name, bad.label, bad.reason) == ("dog/bad.jpg", "dog", "cut") and "JPEG of" in bad.detail
    assert scan.counts["dog"] == {"found": 21, "used": 20, "skipped": 1}
    with pytest.raises(ValueError, match=r"1 bad file of 41, more than --max-bad 1%.*\n  dog/bad.jpg: cut"):
        scan.check("1%")
    scan.check("5%")
    scan.check(1)
    assert snapshot(root) == before
    scan.write_bad(tmp_path / "bad.csv")
    assert (tmp_path / "bad.csv").read_text().splitlines()[1].startswith("dog/bad.jpg,dog,cut,")


def test_rows_5_6_7_names_lie_and_webp_is_read(tmp_path):
    image = pixels(9)
    root = fill(
        tmp_path,
        {
            "a/bmp.jpg": encode(image, "BMP"),
            "a/webp.jpeg": encode(pixels(8), "WEBP"),
            "a/3.webp": encode(pixels(7), "WEBP"),
            "a/no_suffix": png(6),
            "b/png.JPG": png(5),
            "b/gif.png": encode(Image.fromarray(pixels(4)).quantize(8), "GIF"),
            "b/1.tif": encode(pixels(11), "TIFF"),
            "b/2.jpg": encode(pixels(3), "TIFF"),
            "b/3.jp2": encode(pixels(2), "JPEG2000"),
            "b/4.jpg": jpeg(1)[:-2],
            "b/5.jpg": b"<?xml version='1.0'?><svg/>",
            "b/6.svg": b"<svg/>",
        },
    )
    scan = scan_images(root)
    assert {p.name: p.format for p in scan.pictures} == {
        "a/bmp.jpg": "BMP",
        "a/webp.jpeg": "WEBP",
        "a/3.webp": "WEBP",
        "a/no_suffix": "PNG",
        "b/png.JPG": "PNG",
        "b/gif.png": "GIF",
        "b/1.tif": "TIFF",
        "b/2.jpg": "TIFF",
        "b/3.jp2": "JPEG 2000",
        "b/4.jpg": "JPEG",
    }
    assert reasons(scan) == {"b/5.jpg": "unsupported", "b/6.svg": "unsupported"}
    assert "unsupported: SVG, 1 file; convert them" in scan.notes
    assert "b/4.jpg: has no end marker, but all of its pixels" in scan.notes


def test_a_csv_that_names_pipes_devices_and_rings_waits_for_none(tmp_path):
    fill(tmp_path, {"1.png": png(1)})
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "ring.png").symlink_to("ring.png")
    names = ("1.png", "pipe.png", "/dev/zero", "ring.png", ".")
    (tmp_path / "set.csv").write_text("path,label\n" + "".join(f"{name},a\n" for name in names))
    details = {bad.name: bad.detail for bad in scan_images(tmp_path / "set.csv").bad}
    words = {"pipe.png": "a named pipe", "/dev/zero": "a device", "ring.png": "not there", ".": "a folder"}
    assert details.keys() == words.keys() and all(word in details[name] for name, word in words.items())


def test_row_13_orientation_counts_in_size_and_can_be_left(two):
    fill(two, {"a/turned.jpg": encode(np.zeros((8, 4, 3), np.uint8), "JPEG", exif=exif(6))})
    turned = {p.name: (p.height, p.width) for p in scan_images(two).pictures}
    assert turned["a/turned.jpg"] == (4, 8)
    scan = scan_images(two, orient=False)
    assert {p.name: (p.height, p.width) for p in scan.pictures}["a/turned.jpg"] == (8, 4) and not scan.orient


def test_row_14_empty_files_are_bad_when_they_claim_to_be_pictures(two):
    fill(two, {"a/x.jpg": b"", "a/notes": b"", "b/readme.txt": b"about these pictures", "b/labels.csv": b"x"})
    scan = scan_images(two)
    assert reasons(scan) == {"a/x.jpg": "empty"} and scan.ignored == {"not a picture": 3}


def test_row_18_hidden_folders_are_no_classes_and_are_not_walked(two):
    fill(two, {".ipynb_checkpoints/1.png": ..., "a/.ipynb_checkpoints/0-checkpoint.png": ..., "__MACOSX/a/1.png": ...})
    scan = scan_images(two)
    assert scan.labels == ["a", "b"] and len(scan.pictures) == 6 and scan.ignored["hidden or system"] == 3


def test_row_19_system_files_are_ignored(two):
    fill(two, {".DS_Store": b"x", "Thumbs.db": b"x", "a/Thumbs.db": b"x", "b/desktop.ini": b"x"})
    scan = scan_images(two)
    assert not scan.bad and scan.ignored == {"hidden or system": 4}


@pytest.mark.parametrize("others", [{}, {"bottlenecks/a/1.txt": b"0.1,0.2", "inception/graph.pb": b"\x0a\x0b"}])
def test_row_20_a_folder_too_high_is_noticed(tmp_path, others):
    files = {f"images/{label}/{n}.png": ... for label in ("roses", "tulips") for n in range(2)}
    scan = scan_images(fill(tmp_path, {**files, **others}))
    assert scan.labels == ["images"]
    with pytest.raises(ValueError, match=r"did you mean '.*/images'\?\n  images/roses/  2 pictures\n  images/tulips/"):
        scan.check()
    for name in ("bottlenecks", "inception")[: len(others)]:
        assert f"folder '{name}' holds no picture and is not taken for a class" in scan.notes


def test_row_20_pictures_without_class_folders(tmp_path):
    with pytest.raises(ValueError, match="each class needs a folder"):
        scan_images(fill(tmp_path, {"1.png": ..., "2.png": ...}))
    with pytest.raises(ValueError, match="holds no pictures"):
        scan_images(fill(tmp_path / "empty", {"a": None}))


def test_row_20_nested_folders_belong_to_the_class_above_and_count_once(tmp_path):
    scan = scan_images(fill(tmp_path, {"a/a/1.png": ..., "a/x/y/2.png": ..., "a/3.png": ..., "b/b.png": ...}))
    assert {label: count["used"] for label, count in scan.counts.items()} == {"a": 3, "b": 1}


def test_row_22_upper_case_suffixes_count_once(two):
    fill(two, {"a/A.JPG": jpeg(7), "a/B.JPEG": jpeg(8), "a/C.Png": png(9)})
    assert scan_images(two).counts["a"]["used"] == 6


def test_row_23_labels_are_kept_byte_for_byte(tmp_path):
    names = ["猫", "犬", "кот", "C++", "C#", "dog_1", "dog 1", "Genév ève", "'quoted' \"x\"", "[bold]", "<script>"]
    scan = scan_images(fill(tmp_path, {f"{name}/1.png": ... for name in names}))
    assert scan.labels == sorted(names)


def test_row_23_labels_that_are_one_in_nfc_are_an_error(tmp_path):
    fill(tmp_path, {"caf\u00e9/1.png": ..., "cafe\u0301/1.png": ..., "tea/1.png": ...})
    with pytest.raises(ValueError, match=r"NFC; rename one"):
        scan_images(tmp_path)


def test_a_decomposed_label_is_written_in_nfc(tmp_path):
    scan = scan_images(fill(tmp_path, {"cafe\u0301/e\u0301.png": ..., "tea/1.png": ...}))
    assert scan.labels == ["caf\u00e9", "tea"] and scan.pictures[0].name == "caf\u00e9/\u00e9.png"


def test_row_24_a_csv_takes_any_label_slashes_included(tmp_path):
    fill(tmp_path, {"one.png": ..., "sub/two.png": ..., "three.png": ...})
    (tmp_path / "list.csv").write_text('\ufeffpath,label\none.png,HI/fr\n"sub/two.png","a,b"\n\nthree.png,HI/fr\n')
    scan = scan_images(tmp_path / "list.csv")
    assert scan.labels == ["HI/fr", "a,b"]
    assert [(p.name, p.label) for p in scan.pictures] == [
        ("one.png", "HI/fr"),
        ("sub/two.png", "a,b"),
        ("three.png", "HI/fr"),
    ]


def test_a_csv_without_header_with_subsets_and_with_missing_files(tmp_path):
    fill(tmp_path, {"1.png": ..., "2.png": ..., "3.png": ...})
    (tmp_path / "bare.csv").write_text("1.png,x\n2.png,y\nlost.png,y\n")
    scan = scan_images(tmp_path / "bare.csv")
    assert scan.labels == ["x", "y"] and reasons(scan) == {"lost.png": "missing"} and "line 3" in scan.bad[0].detail
    (tmp_path / "sets.tsv").write_text("label\tsubset\tpath\nx\ttrain\t1.png\ny\tVal\t2.png\ny\t\t3.png\n")
    assert [p.subset for p in scan_images(tmp_path / "sets.tsv").pictures] == ["train", "validation", None]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("file,class\n1.png,x\n", "must name the columns path and label"),
        ("", "must name the columns"),
        ("path,label\n1.png\n", "line 2: expected 2 cells, got 1"),
        ("path,label\n1.png,  \n", "line 2'?: a class name must not be empty"),
        ('path,label\n1.png,"a\nb"\n', "control characters"),
        ("path,label,subset\n1.png,a,holdout\n", "subset must be train"),
    ],
)
def test_csvs_that_make_no_sense(tmp_path, text, message):
    fill(tmp_path, {"1.png": ...})
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        scan_images(tmp_path / "x.csv")


def test_a_csv_that_is_not_text_and_one_that_names_a_file_twice(tmp_path):
    fill(tmp_path, {"1.png": ..., "2.png": ...})
    (tmp_path / "x.csv").write_bytes(b"path,label\n\xff\xfe,x\n")
    with pytest.raises(ValueError, match="UTF-8"):
        scan_images(tmp_path / "x.csv")
    (tmp_path / "y.csv").write_text("path,label\n1.png,a\n./1.png,a\n1.png,b\n2.png,b\n")
    scan = scan_images(tmp_path / "y.csv")
    assert scan.ignored == {"line given twice": 1}
    assert [[p.label for p in group] for group in scan.conflicts] == [["a", "b"]]


def test_rows_25_26_any_name_works(tmp_path):
    names = ["Genév/1 2.png", "a b/" + "x" * 150 + ".png", "кот/№ 1.png", "C#/%41.png", "-dash/--help.png"]
    scan = scan_images(fill(tmp_path, dict.fromkeys(names, ...)))
    assert sorted(p.name for p in scan.pictures) == sorted(names)
    scan.save(tmp_path / "scan.json")
    assert Scan.load(tmp_path / "scan.json") == scan


def test_names_that_are_not_unicode(two):
    os.mkdir(os.fsencode(two) + b"/c")
    (two / "c/1.png").write_bytes(png(1))
    with open(os.fsencode(two) + b"/c/\xff.png", "wb") as stream:
        stream.write(png(2))
    assert reasons(scan_images(two)) == {"c/\\xff.png": "bad name"}
    os.mkdir(os.fsencode(two) + b"/\xfe")
    with pytest.raises(ValueError, match="not valid UTF-8"):
        scan_images(two)


def test_row_27_order_and_fingerprint_do_not_depend_on_the_disk_or_the_path(two, tmp_path, monkeypatch):
    first = scan_images(two)
    other = tmp_path / "elsewhere"
    for name in reversed([p.name for p in first.pictures]):
        (other / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(two / name, other / name)
    monkeypatch.chdir(tmp_path)
    again = scan_images("./elsewhere/", workers=1)
    assert again.fingerprint == first.fingerprint and again.labels == first.labels
    (other / "a/0.png").write_bytes(png(77))
    assert scan_images(other).fingerprint != first.fingerprint


@pytest.mark.parametrize("change", [{"name": "b/0.png"}, {"label": "b"}, {"subset": "test"}, {"sha256": "0" * 64}])
def test_the_fingerprint_covers_name_label_subset_and_content(two, change):
    scan = scan_images(two)
    first, *rest = scan.pictures
    changed = dataclasses.replace(scan, pictures=[dataclasses.replace(first, **change), *rest])
    assert changed.fingerprint != scan.fingerprint
    moved = dataclasses.replace(scan, root="/b", pictures=[dataclasses.replace(first, path="/b/0.png"), *rest])
    assert moved.fingerprint == scan.fingerprint


def test_row_29_labels_come_from_training(tmp_path):
    files = {f"train/{label}/1.png": ... for label in "abc"} | {f"val/{label}/2.png": ... for label in "ac"}
    scan = scan_images(fill(tmp_path / "one", files))
    assert scan.labels == ["a", "b", "c"]
    assert {p.name: p.subset for p in scan.pictures}["val/c/2.png"] == "validation"
    assert "the validation folder has no pictures (n=0) of: b" in scan.notes
    fill(tmp_path / "one", {"test/d/1.png": ...})
    with pytest.raises(ValueError, match=r"classes \['d'\] are in the test folder but not in the training folder"):
        scan_images(tmp_path / "one")


def test_subsets_are_told_from_classes(tmp_path):
    trains = fill(tmp_path / "vehicles", {"train/1.png": ..., "test/2.png": ..., "bus/3.png": ...})
    assert scan_images(trains).labels == ["bus", "test", "train"]
    flat = fill(tmp_path / "flat", {"train/1.png": ..., "test/2.png": ...})
    assert scan_images(flat).labels == ["test", "train"]
    nested = fill(tmp_path / "nested", {f"{s}/{label}/{s}.png": ... for s in ("Train", "TEST") for label in "ab"})
    assert scan_images(nested).labels == ["a", "b"]
    assert scan_images(nested, layout="classes").labels == ["TEST", "Train"]
    with pytest.raises(ValueError, match="no subsets"):
        scan_images(trains, layout="subsets")


def test_row_39_duplicates_conflicts_and_leaks(tmp_path):
    root = fill(
        tmp_path / "set",
        {
            "a/1.png": png(1),
            "a/2.png": png(1),
            "b/1.png": png(1),
            "b/2.png": png(2, compress_level=0),
            "b/3.png": png(2),
        },
    )
    scan = scan_images(root)
    assert [[p.name for p in group] for group in scan.duplicates] == [
        ["a/1.png", "a/2.png", "b/1.png"],
        ["b/2.png", "b/3.png"],
    ]
    assert [[p.name for p in group] for group in scan.conflicts] == [["a/1.png", "a/2.png", "b/1.png"]]
    leak = fill(
        tmp_path / "sets", {"train/a/1.png": png(1), "test/a/9.png": png(1), "train/b/2.png": ..., "test/b/3.png": ...}
    )
    assert len(scan_images(leak).leaks) == 1


def test_links_are_followed_but_never_round_in_circles(two, tmp_path):
    outside = fill(tmp_path / "outside", {"5.png": png(50)})
    (two / "a/link.png").symlink_to(outside / "5.png")
    (two / "b/folder").symlink_to(outside)
    (two / "a/self").symlink_to(two / "a")
    (two / "a/up").symlink_to(two)
    (two / "b/root").symlink_to("/")
    (two / "a/broken.png").symlink_to(two / "nowhere.png")
    (two / "a/ring.png").symlink_to(two / "a/ring.png")
    (two / "b/one").symlink_to(two / "b/deep")
    (two / "b/deep").mkdir()
    (two / "b/deep/back").symlink_to(two / "b")
    os.mkfifo(two / "a/pipe.png")
    scan = scan_images(two)
    assert {label: count["used"] for label, count in scan.counts.items()} == {"a": 4, "b": 4}
    assert reasons(scan) == {"a/broken.png": "unreadable", "a/ring.png": "unreadable"}
    assert scan.ignored["not a regular file"] == 1 and scan.ignored["folder reached again by a link"] >= 4


def test_a_bomb_is_a_bad_file_and_the_rest_goes_on(two):
    fill(two, {"a/bomb.png": raw_png(60000, 60000, 8, 2, [b""])})
    scan = scan_images(two, max_pixels=1000)
    assert scan.bad[0].reason == "too large" and len(scan.pictures) == 6


def test_a_class_with_only_bad_files_is_an_error_and_not_a_lost_class(two):
    fill(two, {"c/1.jpg": jpeg()[:100], "c/2.jpg": b""})
    scan = scan_images(two)
    assert scan.labels == ["a", "b"] and scan.counts["c"] == {"found": 2, "used": 0, "skipped": 2}
    with pytest.raises(ValueError, match="every file is bad in: c"):
        scan.check("100%")


def test_classes_that_differ_only_in_case_are_pointed_out(tmp_path):
    scan = scan_images(fill(tmp_path, {"Cat/1.png": ..., "cat/2.png": ..., "dog/3.png": ...}))
    assert scan.labels == ["Cat", "cat", "dog"] and "differ only in case" in scan.notes[0]


def test_transparent_pictures_are_hashed_on_the_background(two):
    fill(two, {"a/t.png": encode(np.zeros((4, 4, 4), np.uint8))})
    white, black = scan_images(two), scan_images(two, background=(0, 0, 0))
    key = {p.name: p.pixels for p in white.pictures}
    assert key["a/t.png"] != {p.name: p.pixels for p in black.pictures}["a/t.png"]
    with pytest.raises(ValueError, match="three levels"):
        scan_images(two, background=(0, 0, 256))


@pytest.mark.parametrize(("text", "limit"), [("1%", 2), ("0", 0), (0.01, 2), ("5", 5), (5, 5), ("100%", 200), (0, 0)])
def test_max_bad_is_a_share_or_a_number(text, limit):
    assert parse_limit(text, 200) == limit


@pytest.mark.parametrize("text", ["", "lots", "-1", "101%", "nan", "inf"])
def test_max_bad_refuses_other_things(text):
    with pytest.raises(ValueError, match="max_bad takes"):
        parse_limit(text, 200)


def test_sources_that_are_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match="no such folder"):
        scan_images(tmp_path / "missing")
    (tmp_path / "x.jpg").write_bytes(jpeg())
    with pytest.raises(ValueError, match="neither a folder"):
        scan_images(tmp_path / "x.jpg")
    with pytest.raises(ValueError, match="layout must be"):
        scan_images(tmp_path, layout="flat")


def test_saved_scans_are_checked(two, tmp_path):
    path = tmp_path / "scan.json"
    scan = scan_images(two)
    scan.save(path)
    text = path.read_text()
    for broken in (text.replace("a/0.png", "a/9.png"), text[:-50], "[]", text.replace('"format": 1', '"format": 9')):
        path.write_text(broken)
        with pytest.raises(ValueError, match="scan"):
            Scan.load(path)


def test_progress_reaches_the_end(two):
    seen = []
    scan_images(two, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (6, 6)


def test_two_thousand_classes_are_listed_quickly(tmp_path):
    for number in range(2000):
        (tmp_path / f"{number:04}").mkdir()
        (tmp_path / f"{number:04}/1.png").touch()
    assert len(folders.list_images(tmp_path).files) == 2000


@pytest.mark.parametrize("name", ["stamps", "emoji_twitter"])
def test_real_folders_are_clean(test_data, name):
    scan = scan_images(test_data / name)
    scan.check("1%")
    assert (len(scan.labels), len(scan.pictures)) == {"stamps": (10, 457), "emoji_twitter": (9, 1906)}[name]
