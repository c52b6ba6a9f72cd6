import json
import os
import shutil

import numpy as np
import pytest
import tensorflow as tf
from data.pictures import encode, exif, odd_kinds, pixels
from PIL import Image

from zoo.data import images, tfrecord
from zoo.data.scan import scan_images
from zoo.data.tfrecord import DamagedRecordError, Manifest, count_records, verify_file, verify_shard
from zoo.data.tfrecord.files import RecordFile
from zoo.data.tfrecord.pictures import label_range


def noise(seed, **options):
    """A JPEG of about 20 KB."""
    return encode(np.random.default_rng(seed).integers(0, 256, (120, 128, 3), np.uint8), "JPEG", quality=95, **options)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("set")
    for number in range(20):
        path = root / f"{('cat', 'dog')[number >= 12]}/{number:02}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(noise(number))
    return root


@pytest.fixture
def built(folder, tmp_path):
    out = tmp_path / "records"
    tfrecord.build(scan_images(folder), out, shards=4, seed=3)
    return out


def stored(out, name="train"):
    keys = {
        "image/encoded": tf.io.FixedLenFeature((), tf.string),
        "image/class/label": tf.io.FixedLenFeature((), tf.int64),
    }
    files = sorted(map(str, out.glob(f"{name}-*")))
    return [tf.io.parse_single_example(record, keys) for record in tf.data.TFRecordDataset(files)]


def test_row_59_the_bytes_are_the_original_ones_and_little_comes_on_top(folder, built):
    originals = {path.read_bytes(): path.parent.name for path in folder.rglob("*.jpg")}
    found = {e["image/encoded"].numpy(): int(e["image/class/label"]) for e in stored(built)}
    assert {data: ("cat", "dog")[label] for data, label in found.items()} == originals
    assert sum(file.stat().st_size for file in built.iterdir()) <= 1.02 * sum(map(len, originals))
    names = [f"train-{n:05d}-of-00004.tfrecord" for n in range(4)]
    assert sorted(os.listdir(built)) == ["manifest.json", *names]


def test_row_59_the_manifest_says_what_must_be_there(built):
    manifest = Manifest.load(built)
    assert manifest.count("train") == 20 and manifest.class_names == ["cat", "dog"]
    assert manifest.labels == {"train": (0, 1)} and manifest.label_offset == 0
    for shard in manifest.shards("train"):
        assert count_records(built / shard.file).records == shard.count == 5
        assert verify_shard(built, shard).damage is None


def test_row_60_classes_are_mixed_over_all_files_though_the_folder_is_sorted(tmp_path):
    for number in range(400):
        path = tmp_path / f"set/{'ab'[number >= 200]}/{number:03}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(encode(pixels(number, 6, 6)))
    tfrecord.build(scan_images(tmp_path / "set"), tmp_path / "out", shards=4)
    labels = [int(e["image/class/label"]) for e in stored(tmp_path / "out")]
    assert all(8 < sum(labels[start : start + 32]) < 24 for start in range(0, 369, 32))
    _, batch = next(iter(tfrecord.image_stream(tmp_path / "out", batch_size=32)(0)))
    assert 8 < int(tf.reduce_sum(batch)) < 24


def test_building_twice_gives_the_same_files(folder, built, tmp_path):
    again = tfrecord.build(scan_images(folder), tmp_path / "again", shards=4, seed=3)
    assert again == Manifest.load(built)
    assert tfrecord.build(scan_images(folder), tmp_path / "other", shards=4, seed=4).sets != again.sets


def test_an_earlier_build_is_not_overwritten_unasked(folder, built):
    (built / "mine.txt").write_text("keep")
    with pytest.raises(FileExistsError, match="has records already"):
        tfrecord.build(scan_images(folder), built)
    tfrecord.build(scan_images(folder), built, shards=1, overwrite=True)
    assert sorted(os.listdir(built)) == ["manifest.json", "mine.txt", "train-00000-of-00001.tfrecord"]


def test_sets_by_share_and_by_folder(folder, tmp_path):
    scan = scan_images(folder)
    manifest = tfrecord.build(scan, tmp_path / "a", validation=0.2, test=0.2, shards=2)
    counts = {name: manifest.count(name) for name in manifest.sets}
    assert list(counts) == ["train", "validation", "test"] and sum(counts.values()) == 20 and min(counts.values()) >= 2
    assert all(shard.count for shards in manifest.sets.values() for shard in shards)


@pytest.mark.parametrize(("options", "message"), [({"shards": 21}, "take 1 to 20"), ({"layout": "coco"}, "got 'coco'")])
def test_builds_that_make_no_sense(folder, tmp_path, options, message):
    with pytest.raises(ValueError, match=message):
        tfrecord.build(scan_images(folder), tmp_path / "x", **options)


def test_a_picture_that_changed_since_the_scan_stops_the_build(folder, tmp_path):
    root = tmp_path / "set"
    shutil.copytree(folder, root)
    scan = scan_images(root)
    (root / "cat/03.jpg").write_bytes(noise(99))
    with pytest.raises(ValueError, match=r"cat/03.jpg changed since the scan"):
        tfrecord.build(scan, tmp_path / "x")
    assert not (tmp_path / "x/manifest.json").exists()


def test_odd_pictures_are_stored_as_png_and_orientation_is_kept_for_the_reader(tmp_path):
    for name, data in {**odd_kinds(), "turned": encode(pixels(9), "JPEG", exif=exif(6))}.items():
        for label in "ab":
            path = tmp_path / f"set/{label}/{name}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
    scan = scan_images(tmp_path / "set", background=(9, 8, 7))
    manifest = tfrecord.build(scan, tmp_path / "out")
    assert manifest.converted == 2 * len(odd_kinds())
    stream = tfrecord.image_stream(tmp_path / "out", batch_size=None)
    read = sorted(image.tobytes() for image, _ in stream(0).as_numpy_iterator())
    wanted = [
        images.decode(path.read_bytes(), background=(9, 8, 7)).tobytes()
        for path in (tmp_path / "set").rglob("*")
        if path.is_file()
    ]
    assert read == sorted(wanted)


def test_the_stream_gives_every_picture_once_an_epoch_and_can_go_on_anywhere(built):
    stream = tfrecord.image_stream(built, batch_size=3, seed=2, prepare=lambda image: tf.image.resize(image, [8, 8]))
    assert stream.class_names == ["cat", "dog"] and (stream.batches, stream.examples) == (7, 20)
    first, again, other = (list(stream(epoch).as_numpy_iterator()) for epoch in (0, 0, 1))
    assert all(np.array_equal(a, b) for x, y in zip(first, again, strict=True) for a, b in zip(x, y, strict=True))
    assert sum(int((labels == 1).sum()) for _, labels in first) == 8
    assert not np.array_equal(first[0][0], other[0][0])
    rest = list(stream(0, skip=5).as_numpy_iterator())
    assert len(rest) == 2 and all(np.array_equal(a[0], b[0]) for a, b in zip(rest, first[5:], strict=True))
    total = np.sort(np.concatenate([images.sum((1, 2, 3)) for images, _ in first]))
    np.testing.assert_allclose(
        np.sort(np.concatenate([images.sum((1, 2, 3)) for images, _ in other])), total, rtol=1e-6
    )


def test_random_changes_are_the_same_after_a_restart(built):
    def prepare(image, seed):
        return tf.image.stateless_random_crop(image, [20, 20, 3], seed)

    stream = tfrecord.image_stream(built, batch_size=4, prepare=prepare)
    whole = [batch[0] for batch in stream(1).as_numpy_iterator()]
    rest = [batch[0] for batch in stream(1, skip=3).as_numpy_iterator()]
    assert all(np.array_equal(a, b) for a, b in zip(rest, whole[3:], strict=True))
    assert not np.array_equal(whole[0], next(stream(2).as_numpy_iterator())[0])


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


def test_row_58_damage_stops_the_reader_with_the_place(built):
    bad = built / "train-00002-of-00004.tfrecord"
    second = verify_first(bad)
    flip(bad, second + 500)
    stream = tfrecord.image_stream(built, batch_size=2)
    with pytest.raises(tf.errors.InvalidArgumentError) as error:
        list(stream(0))
    message = str(error.value)
    assert bad.name in message and f"[{second}]" in message and "damaged or cut TFRecord file" in message
    assert "[record] [1] [of] [5]" in message


def verify_first(path):
    """The offset of the second record."""
    return 16 + int.from_bytes(path.read_bytes()[:8], "little")


def test_row_58_skipping_says_how_many_are_lost(built):
    flip(built / "train-00002-of-00004.tfrecord", 700)
    with pytest.warns(UserWarning, match=r"1 of 4 record files .* 5 of 20 records are lost: .*train-00002.*record 0"):
        stream = tfrecord.image_stream(built, batch_size=5, on_damage="skip")
    assert stream.examples == 15 and sum(len(labels) for _, labels in stream(0)) == 15


def test_row_58_a_file_cut_between_two_records_is_noticed_before_the_first_step(built):
    bad = built / "train-00001-of-00004.tfrecord"
    bad.write_bytes(bad.read_bytes()[: verify_first(bad)])
    with pytest.raises(DamagedRecordError, match=r"train-00001.* lists 5 records in \d+ bytes, .* 1 whole record"):
        tfrecord.image_stream(built, batch_size=2)
    with pytest.raises(DamagedRecordError, match=r"record 1; the manifest lists 5 records"):
        tfrecord.read(built, {"image/class/label": tfrecord.integers()})
    bad.unlink()
    with pytest.raises(DamagedRecordError, match="is missing"):
        tfrecord.image_stream(built, batch_size=2)
    assert "missing" in str(verify_shard(built, Manifest.load(built).shards("train")[1]).damage)


def test_row_58_skipping_leaves_out_files_that_are_cut_or_gone(built):
    cut, gone = (built / f"train-0000{number}-of-00004.tfrecord" for number in (1, 3))
    cut.write_bytes(cut.read_bytes()[:-7])
    gone.unlink()
    with pytest.warns(UserWarning, match=r"2 of 4 record files .* 10 of 20 records are lost: .*train-00001.*missing"):
        stream = tfrecord.image_stream(built, batch_size=5, on_damage="skip")
    assert stream.examples == 10 and sum(len(labels) for _, labels in stream(0)) == 10


def test_pictures_written_with_a_schema_are_read_like_foreign_ones(tmp_path):
    """``write`` lists them in a manifest that knows no labels."""
    schema = {"image/encoded": tfrecord.byte_strings(), "image/class/label": tfrecord.integers()}
    rows = [{"image/encoded": encode(pixels(n, 8, 8)), "image/class/label": n % 3} for n in range(6)]
    tfrecord.write(rows, tmp_path / "train.tfrecord", schema)
    with pytest.raises(ValueError, match="need label_offset="):
        tfrecord.image_stream(tmp_path, batch_size=2)
    stream = tfrecord.image_stream(tmp_path, batch_size=6, label_offset=0, num_classes=3)
    assert sorted(next(iter(stream(0)))[1].numpy().tolist()) == [0, 0, 1, 1, 2, 2]


def test_a_file_swapped_for_another_whole_one_is_noticed_by_verify(built):
    a, b = (built / f"train-0000{n}-of-00004.tfrecord" for n in (0, 1))
    a.write_bytes(b.read_bytes())
    assert "SHA-256" in verify_shard(built, Manifest.load(built).shards("train")[0]).damage.reason
    assert verify_file(a).damage is None


def old_records(path, labels, encoded="PNG"):
    """Records as slim's and the old Inception's tools wrote them."""
    with tf.io.TFRecordWriter(str(path)) as writer:
        for number, label in enumerate(labels):
            example = tf.train.Example()
            feature = example.features.feature
            feature["image/encoded"].bytes_list.value.append(encode(pixels(number, 8, 8), encoded))
            feature["image/format"].bytes_list.value.append(b"JPEG")  # the old tools' mistake for .PNG files
            feature["image/class/label"].int64_list.value.append(label)
            feature["image/class/text"].bytes_list.value.append(b"x")
            feature["image/object/bbox/xmin"].float_list.value.extend([])
            writer.write(example.SerializeToString())


def test_row_31_foreign_records_need_an_explicit_label_offset(tmp_path):
    for number in range(2):
        old_records(tmp_path / f"train-0000{number}-of-00002", [1, 2, 3])
    with pytest.raises(ValueError, match="need label_offset="):
        tfrecord.image_stream(tmp_path, batch_size=2)
    with pytest.raises(
        ValueError, match=r"stored labels 1\.\.3 less label_offset 0 are 1\.\.3, but 3 classes take 0\.\.2"
    ):
        tfrecord.image_stream(tmp_path, batch_size=2, label_offset=0, num_classes=3)
    with pytest.raises(ValueError, match=r"are -1\.\.1"):
        tfrecord.image_stream(tmp_path, batch_size=2, label_offset=2, num_classes=3)
    stream = tfrecord.image_stream(tmp_path, batch_size=6, label_offset=1, num_classes=3)
    images_, labels = next(iter(stream(0)))
    assert images_.shape == (6, 8, 8, 3) and sorted(labels.numpy()) == [0, 0, 1, 1, 2, 2]


def test_the_inception_layout_has_its_keys_and_labels_from_one(folder, tmp_path):
    manifest = tfrecord.build(scan_images(folder), tmp_path, layout="inception")
    record = next(iter(tf.data.TFRecordDataset(str(tmp_path / manifest.shards("train")[0].file)))).numpy()
    feature = tf.train.Example.FromString(record).features.feature
    assert sorted(feature) == sorted(
        f"image/{key}"
        for key in (
            "encoded",
            "height",
            "width",
            "colorspace",
            "channels",
            "format",
            "filename",
            "class/label",
            "class/text",
        )
    )
    assert feature["image/format"].bytes_list.value[0] == b"JPEG" and manifest.labels == {"train": (1, 2)}
    _, labels = next(iter(tfrecord.image_stream(tmp_path, batch_size=20)(0)))
    assert sorted(set(labels.numpy())) == [0, 1]


def test_manifests_are_checked_when_read(built):
    path = built / "manifest.json"
    data = json.loads(path.read_text())
    outside = json.loads(json.dumps(data))
    outside["sets"]["train"][0]["file"] = "../../etc/passwd"
    for broken, message in (
        (outside, "outside its folder"),
        ({**data, "format": 9}, "format 9"),
        ({}, "not a manifest"),
    ):
        path.write_text(json.dumps(broken))
        with pytest.raises(ValueError, match=message):
            tfrecord.image_stream(built, batch_size=1)
    path.write_text(json.dumps(data))
    with pytest.raises(ValueError, match="sets here are 'train', got 'val'"):
        tfrecord.image_stream(built, batch_size=1, name="val")
    with pytest.raises(ValueError, match="'stop' or 'skip'"):
        tfrecord.image_stream(built, batch_size=1, on_damage="ignore")


def test_grey_and_transparent_pictures_have_three_channels(tmp_path):
    old_records(tmp_path / "x.tfrecord", [0, 1])
    with tf.io.TFRecordWriter(str(tmp_path / "y.tfrecord")) as writer:
        example = tf.train.Example()
        rgba = encode(Image.fromarray(np.zeros((8, 8, 4), np.uint8), "RGBA"))
        example.features.feature["image/encoded"].bytes_list.value.append(rgba)
        example.features.feature["image/class/label"].int64_list.value.append(1)
        writer.write(example.SerializeToString())
    stream = tfrecord.image_stream(
        tmp_path / "y.tfrecord", batch_size=1, label_offset=0, num_classes=2, background=(1, 2, 3)
    )
    assert (next(iter(stream(0)))[0].numpy() == [1, 2, 3]).all()


def test_reading_the_labels_keeps_no_records(tmp_path):
    """A batch of a thousand pictures, and the next one while it is made, once took two times 200 MB."""
    with tf.io.TFRecordWriter(str(tmp_path / "x.tfrecord")) as writer:
        for number in range(600):
            features = {
                "image/encoded": tf.train.Feature(bytes_list=tf.train.BytesList(value=[bytes(200_000)])),
                "image/class/label": tf.train.Feature(int64_list=tf.train.Int64List(value=[3 + number % 7])),
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())
    files = [RecordFile.at(tmp_path / "x.tfrecord")]
    label_range(files)  # what TensorFlow loads at the first use is not counted

    def resident(field):
        with open("/proc/self/status") as status:
            return next(int(line.split()[1]) / 1024 for line in status if line.startswith(field))

    try:
        with open("/proc/self/clear_refs", "w") as peak:
            peak.write("5")  # the peak starts anew
    except OSError as error:
        pytest.skip(f"the peak of resident memory cannot be reset here: {error}")
    before = resident("VmRSS")
    assert label_range(files) == (3, 9)
    assert resident("VmHWM") - before < 60
