import gzip
import shutil
import struct

import pytest
import tensorflow as tf

from zoo.data.tfrecord.framing import count_records, expand, masked_crc, verify_file

# Five records of 100 bytes: each takes 116 bytes of the file.
RECORDS = [bytes([value]) * 100 for value in b"abcde"]


@pytest.fixture
def five(tmp_path):
    path = tmp_path / "five.tfrecord"
    with tf.io.TFRecordWriter(str(path)) as writer:
        for record in RECORDS:
            writer.write(record)
    assert path.stat().st_size == 5 * 116
    return path


def test_the_crc_is_the_one_in_the_files(five):
    data = five.read_bytes()
    assert masked_crc(data[:8]) == struct.unpack_from("<I", data, 8)[0]
    assert masked_crc(RECORDS[0]) == struct.unpack_from("<I", data, 112)[0]


def test_whole_files(five, tmp_path):
    packed = tmp_path / "five.tfrecord.gz"
    packed.write_bytes(gzip.compress(five.read_bytes()))
    empty = tmp_path / "empty.tfrecord"
    empty.touch()
    for path, count in ((five, 5), (packed, 5), (empty, 0)):
        assert count_records(path).records == count and count_records(path).damage is None
        assert verify_file(path, count).records == count and verify_file(path, count).damage is None


def flip(path, at):
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("at", "reason"),
    [
        (150, "contents are damaged"),
        (116, "length is damaged"),
        (126, "length is damaged"),
        (230, "contents are damaged"),
    ],
)
def test_row_58_a_flipped_byte_is_placed(five, at, reason):
    flip(five, at)
    report = verify_file(five, 5)
    assert report.records == 1 and (report.damage.index, report.damage.offset) == (1, 116)
    assert reason in report.damage.reason and str(five) in str(report.damage)
    assert str(report.damage).endswith("at byte 116, record 1")
    counted = count_records(five)
    assert counted.damage is None if "contents" in reason else counted.damage.offset == 116


@pytest.mark.parametrize(
    ("cut", "reason"), [(30, "inside a record"), (110, "inside a record's header"), (1, "inside a record")]
)
def test_row_58_a_cut_file_is_placed(five, cut, reason):
    five.write_bytes(five.read_bytes()[:-cut])
    for report in (verify_file(five, 5), count_records(five)):
        assert report.records == 4 and (report.damage.index, report.damage.offset) == (4, 4 * 116)
        assert reason in report.damage.reason


def test_row_58_a_cut_between_two_records_is_noticed_by_the_number_of_records(five):
    five.write_bytes(five.read_bytes()[: 3 * 116])
    assert verify_file(five).damage is None
    damage = verify_file(five, 5).damage
    assert (damage.index, damage.offset) == (3, 3 * 116) and "5 records were written, 3 are here" in damage.reason
    assert "4 records were written, 3" not in str(verify_file(five, 3).damage)


def test_more_records_than_written(five):
    assert "3 records were written, 5 are here" in verify_file(five, 3).damage.reason


def test_files_of_other_kinds(tmp_path):
    path = tmp_path / "x.tfrecord"
    path.write_bytes(b"<html>not found</html>")
    for report in (count_records(path), verify_file(path)):
        assert report.records == 0 and "no TFRecord file" in report.damage.reason
    packed = tmp_path / "cut.gz"
    packed.write_bytes(gzip.compress(RECORDS[0])[:-10])
    assert count_records(packed).damage is not None
    with pytest.raises(OSError, match="missing"):
        verify_file(tmp_path / "missing")


def test_expand_takes_files_patterns_folders_and_lists(tmp_path, five):
    old = tmp_path / "train-00000-of-00002"
    shutil.copy(five, old)
    (tmp_path / "notes.txt").touch()
    assert expand(tmp_path) == [five, old]
    assert expand(str(tmp_path / "*-of-*")) == [old]
    assert expand([old, five]) == [old, five]
    with pytest.raises(FileNotFoundError, match="names no TFRecord"):
        expand(tmp_path / "nothing-*")
