"""``zoo scan`` and ``zoo tfrecord``, as a person at a terminal uses them."""

import csv
import json

import pytest
from data.pictures import jpeg, png

from zoo.cli.scan import parse_colour


@pytest.fixture
def folder(tmp_path):
    for number in range(12):
        path = tmp_path / f"set/{'猫犬'[number % 2]}/{number:02}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg(number))
    return tmp_path / "set"


def test_scan_prints_what_is_there(zoo_command, folder, tmp_path):
    (folder / "猫/[red]same.png").write_bytes(png(50))
    (folder / "犬/same.png").write_bytes(png(50))
    said = zoo_command("scan", folder, "--out", tmp_path / "scan.json")
    assert said.code == 0, said.err
    words = said.out.split()
    assert words[words.index("猫") + 1 :][:3] == ["7", "7", "0"] and words[words.index("all") + 1 :][:3] == [
        "14",
        "14",
        "0",
    ]
    assert "Conflicts: one picture in two classes: 1" in said.out and "犬/same.png = 猫/[red]same.png" in said.out
    assert json.loads((tmp_path / "scan.json").read_text())["fingerprint"] in said.out


def test_scan_names_bad_files_and_ends_with_2(zoo_command, folder, tmp_path):
    (folder / "猫/half.jpg").write_bytes(jpeg()[:300])
    said = zoo_command("scan", folder, "--bad", tmp_path / "bad.csv")
    assert said.code == 2 and "猫/half.jpg: cut: JPEG of 300 bytes" in said.err and "Traceback" not in said.err
    assert "half.jpg" in said.out and "cut" in said.out
    with (tmp_path / "bad.csv").open(encoding="utf-8") as stream:
        assert [row["reason"] for row in csv.DictReader(stream)] == ["cut"]
    assert zoo_command("scan", folder, "--max-bad", "10%").code == 0


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["/nowhere"], "no such folder"),
        (["{folder}", "--max-bad", "some"], "max_bad takes"),
        (["{folder}", "--background", "plaid"], "a colour is"),
        (["{folder}/猫"], "holds no pictures in class folders"),
        (["{folder}", "--layout", "flat"], "'flat' is none of auto, classes, subsets"),
    ],
)
def test_mistakes_are_explained_in_a_line(zoo_command, folder, words, message):
    said = zoo_command("scan", *(word.replace("{folder}", str(folder)) for word in words))
    assert said.code == 2 and message in said.err and "Traceback" not in said.err


@pytest.mark.parametrize(
    ("text", "levels"),
    [("white", (255, 255, 255)), ("#ffcc00", (255, 204, 0)), ("1, 2,3", (1, 2, 3)), ("Black", (0, 0, 0))],
)
def test_colours(text, levels):
    assert parse_colour(text) == levels


@pytest.mark.parametrize("text", ["#ff", "1,2", "256,0,0", "-1,0,0", "", "#gggggg"])
def test_colours_that_are_none(text):
    with pytest.raises(ValueError, match="a colour is"):
        parse_colour(text)


def test_build_count_and_verify(zoo_command, folder, tmp_path):
    out = tmp_path / "records"
    said = zoo_command("tfrecord", "build", folder, out, "--shards", "3", "--test", "0.2")
    assert said.code == 0, said.err
    assert "labels 0 to 1" in said.out and "test: " in said.out and "bytes of records" in said.out
    said = zoo_command("tfrecord", "count", out)
    assert said.code == 0 and said.out.split()[-2:] == ["all", "12"]
    said = zoo_command("tfrecord", "verify", out)
    assert said.code == 0 and "12 records, no damage" in said.out
    assert zoo_command("tfrecord", "build", folder, out).code == 2
    shard = sorted(out.glob("train-*"))[1]
    data = bytearray(shard.read_bytes())
    data[40] ^= 1
    shard.write_bytes(data)
    said = zoo_command("tfrecord", "verify", out)
    assert said.code == 1 and f"{shard}: a record's contents are damaged (CRC) at byte 0, record 0" in said.err
    shard.write_bytes(b"")
    assert "the file ends too early" in zoo_command("tfrecord", "verify", out).err
    shard.write_bytes(bytes(20))
    said = zoo_command("tfrecord", "count", out)
    assert said.code == 1 and "length is damaged" in said.err


def test_build_stops_on_bad_files_and_on_nonsense(zoo_command, folder, tmp_path):
    said = zoo_command("tfrecord", "build", folder, tmp_path / "x", "--shards", "99")
    assert said.code == 2 and "each file needs a picture" in said.err
    (folder / "猫/half.jpg").write_bytes(jpeg()[:300])
    said = zoo_command("tfrecord", "build", folder, tmp_path / "x")
    assert said.code == 2 and "猫/half.jpg" in said.err and not (tmp_path / "x/manifest.json").exists()
    said = zoo_command("tfrecord", "build", folder, tmp_path / "x", "--max-bad", "1", "--layout", "inception")
    assert said.code == 0 and "skipped: 猫/half.jpg: cut" in said.out and "labels 1 to 2" in said.out
    assert zoo_command("tfrecord", "count", tmp_path / "nothing").code == 2


def test_a_picture_beside_the_class_folders_is_named(zoo_command, folder, tmp_path):
    (folder / "loose.png").write_bytes(png(60))
    (folder / "readme.txt").write_text("no picture")
    for words in (["scan", folder], ["tfrecord", "build", folder, tmp_path / "records"]):
        said = zoo_command(*words)
        assert said.code == 0, said.err
        line = next(line for line in said.out.splitlines() if "loose.png" in line)
        assert line.startswith("Note: skipped") and "no class" in line and "readme" not in line


def test_missing_and_unlisted_files_are_named(zoo_command, folder, tmp_path):
    out = tmp_path / "records"
    assert zoo_command("tfrecord", "build", folder, out, "--shards", "3").code == 0
    first, second, _ = sorted(out.glob("train-*"))
    (out / "extra.tfrecord").write_bytes(first.read_bytes())
    said = zoo_command("tfrecord", "verify", out)
    assert said.code == 0 and "12 records, no damage; 1 file beside them that the manifest does not list" in said.out
    assert "extra.tfrecord: 4 whole records, not listed in the manifest" in said.out
    (out / "extra.tfrecord").write_bytes(first.read_bytes()[:-1])
    assert zoo_command("tfrecord", "verify", out).code == 1
    (out / "extra.tfrecord").unlink()
    second.unlink()
    for command in ("count", "verify"):
        said = zoo_command("tfrecord", command, out)
        assert said.code == 1
        assert f"{second}: the file is missing; the manifest lists it with 4 records\n" in said.err
    second.write_bytes(b"")
    said = zoo_command("tfrecord", "count", out)
    assert said.code == 1 and f"{second}: 0 records; the manifest lists it with 4" in said.err
