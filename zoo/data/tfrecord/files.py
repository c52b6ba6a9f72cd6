"""Record files as a stream of batches: shuffled, interleaved, the same again under a seed, and loud about damage."""

import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.data.stream import Stream, count_batches, permutation
from zoo.data.tfrecord.framing import Damage, DamagedRecordError, compression, count_records, verify_file
from zoo.data.tfrecord.manifest import listed

SHUFFLE_BYTES = 64 << 20  # encoded bytes, not pixels, so that memory does not grow with the data
CYCLE = 8  # files read at the same time
BLOCK = 16  # records checked at a time

Parse = Callable[[tf.Tensor, tf.Tensor, int], Any]


@dataclass(frozen=True)
class RecordFile:
    """A file and the number of records that it must have."""

    path: str
    count: int
    bytes: int

    @classmethod
    def at(cls, path: str | os.PathLike[str]) -> "RecordFile":
        """Counts the records of a file by their headers.

        Raises:
            DamagedRecordError: a header is damaged, there is no record, or the manifest beside it lists others.
        """
        report = count_records(path)
        if report.damage:
            raise DamagedRecordError(str(report.damage))
        if not report.records:
            raise DamagedRecordError(f"{os.fspath(path)} has no records")
        size, expected = Path(path).stat().st_size, listed(path)
        if expected is not None and (expected.count, expected.bytes) != (report.records, size):
            place = Damage(os.fspath(path), size, report.records, "the file ends")
            raise DamagedRecordError(f"{place}; the manifest lists {expected.count} records in {expected.bytes} bytes")
        return cls(os.fspath(path), report.records, size)


def _checked(path: tf.Tensor, count: tf.Tensor, form: str) -> tf.data.Dataset:
    """Reads one file; raises at the first record that is damaged or missing, and names the place."""
    records = tf.data.TFRecordDataset(path, form, buffer_size=1 << 20).ignore_errors(log_warning=False)
    end = tf.data.Dataset.from_tensors(tf.zeros([0], tf.string))
    blocks = records.batch(BLOCK).concatenate(end)

    def check(state: tuple[tf.Tensor, tf.Tensor], block: tf.Tensor) -> tuple[tuple[tf.Tensor, tf.Tensor], tf.Tensor]:
        index, offset = state
        whole = (tf.size(block) > 0) | (index == count)
        place = ["damaged or cut TFRecord file", path, "at byte", offset, "record", index, "of", count]
        with tf.control_dependencies([tf.debugging.Assert(whole, place)]):
            size = tf.size(block, tf.int64)
            length = tf.reduce_sum(tf.cast(tf.strings.length(block), tf.int64)) + 16 * size
            return (index + size, offset + length), block

    zero = tf.constant(0, tf.int64)
    return blocks.scan((zero, zero), check).unbatch()


def _shuffled(records: tf.data.Dataset, buffer: int, seed: int, epoch: int) -> tf.data.Dataset:
    """Shuffles by (seed, epoch) alone; ``Dataset.shuffle`` would mix in the seed of ``tf.random.set_seed``."""
    first = int(np.random.default_rng([seed, epoch]).integers(1, 2**62))
    variant = tf.raw_ops.ShuffleDataset(
        input_dataset=tf.data.experimental.to_variant(records),
        buffer_size=buffer,
        seed=first,
        seed2=epoch + 1,
        output_types=[tf.string],
        output_shapes=[tf.TensorShape([])],
        reshuffle_each_iteration=False,
    )
    return tf.data.experimental.from_variant(variant, records.element_spec)


def records(files: Sequence[RecordFile], epoch: int, *, shuffle: bool, seed: int) -> tf.data.Dataset:
    """Returns an epoch's records as byte strings: every one of them once.

    Args:
        files: The files.
        epoch: The epoch; with ``seed`` it decides the order.
        shuffle: False reads file by file.
        seed: Of the order.

    Returns:
        A data set of string scalars.
    """
    order = permutation(len(files), seed, epoch) if shuffle else range(len(files))
    chosen = [files[index] for index in order]
    forms = {compression(file.path) for file in files}
    if len(forms) > 1:
        raise ValueError("gzip and plain files cannot be read together")
    form = forms.pop()
    names = tf.data.Dataset.from_tensor_slices(
        ([file.path for file in chosen], np.array([file.count for file in chosen], np.int64))
    )
    if not shuffle:
        return names.flat_map(lambda path, count: _checked(path, count, form))
    # Not parallel: decoding, which is parallel, takes the time.
    result = names.interleave(lambda path, count: _checked(path, count, form), cycle_length=min(CYCLE, len(files)))
    count = sum(file.count for file in files)
    mean = max(1, sum(file.bytes for file in files) // count)
    return _shuffled(result, min(count, max(1, SHUFFLE_BYTES // mean)), seed, epoch)


def record_stream(
    files: Sequence[RecordFile],
    parse: Parse,
    *,
    batch_size: int | None,
    shuffle: bool,
    seed: int,
    drop_remainder: bool = False,
    on_damage: str = "stop",
    ragged: bool = False,
) -> Stream:
    """Makes a stream of record files.

    Args:
        files: The files.
        parse: ``parse(record, index, epoch)``: unpacks a record; ``index`` is its place in the epoch, for seeds.
        batch_size: Records a batch; None for single ones.
        shuffle: Another order each epoch.
        seed: Of the orders.
        drop_remainder: Leave out an unfilled last batch.
        on_damage: "stop" at the damage with its place, or "skip" the damaged files: all files are then checked now.
        ragged: Batch features whose shapes vary as ragged tensors.

    Returns:
        The stream; skipped batches are read but not parsed.

    Raises:
        DamagedRecordError: with "skip", when no file is whole.
        ValueError: another ``on_damage``, or no full batch.
    """
    if on_damage not in ("stop", "skip"):
        raise ValueError(f"on_damage must be 'stop' or 'skip', got {on_damage!r}")
    good = whole_files(files) if on_damage == "skip" else list(files)
    examples = sum(file.count for file in good)
    size = batch_size or 1
    batches = count_batches(examples, size, drop_remainder) if batch_size is not None else examples

    def make_dataset(epoch: int, skip: int) -> tf.data.Dataset:
        raw = records(good, epoch, shuffle=shuffle, seed=seed).skip(skip * size).enumerate(skip * size)
        parsed = raw.map(lambda index, record: parse(record, index, epoch), tf.data.AUTOTUNE, deterministic=True)
        if batch_size is not None:
            batch = parsed.ragged_batch if ragged else parsed.batch
            parsed = batch(batch_size, drop_remainder=drop_remainder)
        return parsed.apply(tf.data.experimental.assert_cardinality(batches - skip)).prefetch(2)

    return Stream(make_dataset, batches=batches, batch_size=batch_size, examples=examples)


def whole_files(files: Sequence[RecordFile]) -> list[RecordFile]:
    """Returns the files without damage, and warns how many records are lost with the others.

    Raises:
        DamagedRecordError: none is whole.
    """
    good, lost, places = [], 0, []
    for file in files:
        damage = verify_file(file.path, file.count).damage
        if damage is None:
            good.append(file)
        else:
            lost += file.count
            places.append(str(damage))
    if not good:
        raise DamagedRecordError("every file is damaged:\n" + "\n".join(places))
    if places:
        total = sum(file.count for file in files)
        warnings.warn(
            f"{len(places)} of {len(files)} record files are damaged and skipped, {lost} of {total} records are lost: "
            + "; ".join(places),
            stacklevel=2,
        )
    return good
