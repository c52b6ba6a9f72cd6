from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from data.pictures import odd_kinds, pixels, png

from zoo.data import images
from zoo.data.picture_stream import picture_stream
from zoo.data.scan import scan_images
from zoo.data.split import split_scan


@pytest.fixture
def scan(tmp_path):
    for number in range(13):
        path = tmp_path / f"{'ab'[number % 2]}/{number}.png"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(png(number))
    return scan_images(tmp_path)


def test_pictures_and_labels_belong_together_and_a_restart_is_exact(scan):
    stream = picture_stream(scan, batch_size=4, seed=5)
    known = {images.decode(png(number)).tobytes(): number % 2 for number in range(13)}
    batches = list(stream(1).as_numpy_iterator())
    assert [len(labels) for _, labels in batches] == [4, 4, 4, 1] and stream.examples == 13
    assert {
        image.tobytes(): label for some, labels in batches for image, label in zip(some, labels, strict=True)
    } == known
    rest = list(stream(1, skip=2).as_numpy_iterator())
    assert all(np.array_equal(a[0], b[0]) for a, b in zip(rest, batches[2:], strict=True))
    assert batches[0][1].tolist() + batches[1][1].tolist() != [0] * 4 + [1] * 4


def test_row_60_a_sorted_folder_is_mixed_from_the_first_batch(tmp_path):
    for number in range(100):
        path = tmp_path / f"{'ab'[number >= 50]}/{number:03}.png"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(png(number))
    _, labels = next(iter(picture_stream(scan_images(tmp_path), batch_size=20)(0)))
    assert 0 < int(tf.reduce_sum(labels)) < 20


def test_sets_of_a_split(scan):
    split = split_scan(scan, validation=0.2, test=0.2)
    counts = [picture_stream(scan, batch_size=2, split=split, name=n).examples for n in ("train", "validation", "test")]
    assert sum(counts) == 13 and min(counts) >= 2
    with pytest.raises(ValueError, match="has no pictures"):
        picture_stream(scan, batch_size=2, split=split_scan(scan, test=0), name="test")


def test_files_that_tensorflow_cannot_decode_exactly_come_through_pillow(tmp_path):
    for name, data in {**odd_kinds(), "plain": png(1)}.items():
        for label in "ab":
            (tmp_path / label).mkdir(exist_ok=True)
            (tmp_path / label / name).write_bytes(data)
    scan = scan_images(tmp_path, background=(3, 2, 1))
    read = [image.tobytes() for image, _ in picture_stream(scan, batch_size=None, shuffle=False)(0).as_numpy_iterator()]
    assert read == [
        images.decode((tmp_path / p.name).read_bytes(), background=(3, 2, 1)).tobytes() for p in scan.pictures
    ]


def test_prepare_may_take_a_seed_or_not(scan):
    def plain(image):
        return tf.image.resize(image, [4, 4])

    def random(image, seed):
        return tf.image.stateless_random_crop(image, [5, 5, 3], seed)

    assert next(iter(picture_stream(scan, batch_size=4, prepare=plain)(0)))[0].shape == (4, 4, 4, 3)
    first, again = (next(iter(picture_stream(scan, batch_size=4, prepare=random)(0)))[0] for _ in range(2))
    assert first.shape == (4, 5, 5, 3) and np.array_equal(first, again)
    assert pixels(0).shape == (14, 20, 3)


def test_rows_3_17_a_file_that_changed_after_the_scan_stops_the_run_by_name_and_is_not_left_out(scan):
    path = Path(scan.pictures[3].path)
    for change in (lambda: path.write_bytes(path.read_bytes()[:200]), path.unlink):
        change()
        with pytest.raises(tf.errors.OpError, match=path.name):
            list(picture_stream(scan, batch_size=4)(0))
