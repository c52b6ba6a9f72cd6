"""Record files as a stream of batches: shuffled, interleaved, the same again under a seed, and loud about damage."""

import os
import re
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from zoo.data import pluralize
from zoo.data.stream import Stream, count_batches, permutation
from zoo.data.tfrecord.framing import (
    ADVICE,
    Damage,
    DamagedRecordError,
    WholeFileDamage,
    compression,
    count_records,
    expand,
    verify_file,
)
from zoo.data.tfrecord.manifest import Shard, listing, missing

SHUFFLE_BYTES = 64 << 20  # encoded bytes, not pixels, so that memory does not grow with the data
CYCLE = 8  # files read at the same time
BLOCK = 16  # records checked at a time
_NUMBERED = re.compile(r"(?P<stem>.+)-(?P<index>\d+)(?P<rest>-of-\d+(?:\.\w+)*)")  # data-00000-of-00004.tfrecord
_MET = re.compile(
    r"\[damaged or cut TFRecord file\] \[(.*?)\] \[at byte\] \[(\d+)\] \[record\] \[(\d+)\] \[of\] \[(\d+)\]", re.DOTALL
)

Parse = Callable[[tf.Tensor, tf.Tensor, int], Any]


@dataclass(frozen=True)
class RecordFile:
    """A file, the number of records that it must have, and what is known to be wrong with it.

    Args:
        path: The file.
        count: Its records: as listed in the manifest, else those found.
        bytes: Its size.
        listed: Whether a manifest lists it. Without one nothing tells where the file should end.
        damage: What its size, presence and headers show; contents are not looked at.
    """

    path: str
    count: int
    bytes: int
    listed: bool = False
    damage: Damage | None = None

    @classmethod
    def at(cls, path: str | os.PathLike[str], shard: Shard | None = None) -> "RecordFile":
        """Counts the records of a file by their headers and compares with what a manifest lists, if one does.

        Headers are always read: TensorFlow believes what they declare, and a length of 64 GB ends the process.
        """
        name, path = os.fspath(path), Path(path)
        if shard is not None and not path.is_file():
            return cls(name, shard.count, shard.bytes, True, missing(path.parent, shard))
        report, size = count_records(path), path.stat().st_size
        damage, count = report.damage, report.records
        if not damage and not count:
            damage = WholeFileDamage(name, 0, 0, "the file has no records")
        if shard is None:
            return cls(name, count, size, False, damage)
        if (count, size) != (shard.count, shard.bytes):
            place = damage or Damage(name, size, count, "the file ends")
            damage = WholeFileDamage(
                name,
                place.offset,
                place.index,
                f"{str(place).removeprefix(f'{name}: ')}; the manifest lists {shard.count} records in {shard.bytes} "
                f"bytes, the file has {count} whole records in {size} bytes",
            )
        return cls(name, shard.count, size, True, damage)


def find_files(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    on_damage: str = "stop",
    expected: int | None = None,
) -> list[RecordFile]:
    """Finds record files and counts their records, against the manifests beside them.

    Of a folder, the files that its manifest lists and those that a name such as ``data-00000-of-00004`` speaks of must
    be there.

    Args:
        paths: See ``zoo.data.tfrecord.framing.expand``.
        on_damage: See ``usable``.
        expected: How many records the files must have together. Without it a warning names the files that no manifest
            lists, for those may have been cut between two records.

    Returns:
        The usable files.

    Raises:
        FileNotFoundError: there are none.
        DamagedRecordError: as ``usable``, or the files have another number of records than expected.
    """
    found = expand(paths)
    shards = {folder: listing(folder) for folder in {path.parent for path in found}}
    with ThreadPoolExecutor() as pool:
        files = list(pool.map(lambda path: RecordFile.at(path, shards[path.parent].get(path.name)), found))
    for folder in map(Path, [paths] if isinstance(paths, str | os.PathLike) else paths):
        if folder.is_dir():
            files += _absent(folder, {path.name for path in found}, listing(folder))
    good = usable(files, on_damage)
    total, unlisted = sum(file.count for file in good), [file for file in good if not file.listed]
    if expected is not None and len(good) == len(files) and total != expected:
        raise DamagedRecordError(
            f"{pluralize(len(good), 'record file', 'record files')}, the first is {good[0].path}, have {total} "
            f"records, and {expected} were expected: files are cut between two records, or are missing or too many"
        )
    if expected is None and unlisted:
        warnings.warn(
            f"no manifest lists {pluralize(len(unlisted), 'record file', 'record files')} with "
            f"{pluralize(sum(file.count for file in unlisted), 'record')} ({unlisted[0].path}"
            f"{', ...' if len(unlisted) > 1 else ''}), so a file that was cut between two records could not be "
            "noticed: say expected=N if you know the number of records",
            stacklevel=3,
        )
    return good


def _absent(folder: Path, there: set[str], shards: Mapping[str, Shard]) -> list[RecordFile]:
    """Returns the files that a folder's manifest or its files' names speak of and that are not there."""
    gone = [
        RecordFile.at(folder / name, shard)
        for name, shard in shards.items()
        if name not in there and not (folder / name).is_file()
    ]
    series: dict[tuple[str, str], set[int]] = {}
    for match in filter(None, map(_NUMBERED.fullmatch, there - shards.keys())):
        series.setdefault((match["stem"], match["rest"]), set()).add(int(match["index"]))
    for (stem, rest), numbers in series.items():
        total = int(rest.removeprefix("-of-").partition(".")[0])
        first = next(number for number in range(len(numbers) + 1) if number not in numbers)
        name = str(folder / f"{stem}-{first:05d}{rest}")
        if first < total and Path(name).name not in shards:
            reason = f"the file is missing; the names say that there are {total}, and {len(numbers)} are here"
            gone.append(RecordFile(name, 0, 0, False, WholeFileDamage(name, 0, 0, reason)))
    return gone


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
    ragged: bool = False,
) -> Stream:
    """Makes a stream of record files.

    Returns:
        The stream; skipped batches are read but not parsed.

    Raises:
        ValueError: no full batch.
    """
    examples = sum(file.count for file in files)
    size = batch_size or 1
    batches = count_batches(examples, size, drop_remainder) if batch_size is not None else examples

    def make_dataset(epoch: int, skip: int) -> tf.data.Dataset:
        raw = records(files, epoch, shuffle=shuffle, seed=seed).skip(skip * size).enumerate(skip * size)
        parsed = raw.map(lambda index, record: parse(record, index, epoch), tf.data.AUTOTUNE, deterministic=True)
        if batch_size is not None:
            batch = parsed.ragged_batch if ragged else parsed.batch
            parsed = batch(batch_size, drop_remainder=drop_remainder)
        return parsed.apply(tf.data.experimental.assert_cardinality(batches - skip)).prefetch(2)

    return Stream(make_dataset, batches=batches, batch_size=batch_size, examples=examples)


def usable(files: Sequence[RecordFile], on_damage: str) -> list[RecordFile]:
    """Returns the files that can be read.

    Args:
        files: The files.
        on_damage: "stop" at what is known to be damaged, or "skip" it: all contents are then checked now, and a warning
            says how many records are lost.

    Raises:
        DamagedRecordError: with "stop", at the first damage; with "skip", when no file is whole.
        ValueError: another ``on_damage``.
    """
    if on_damage not in ("stop", "skip"):
        raise ValueError(f"on_damage must be 'stop' or 'skip', got {on_damage!r}")
    if on_damage == "stop":
        for file in files:
            if file.damage:
                raise DamagedRecordError(f"{file.damage}. {ADVICE}")
        return list(files)
    good, lost, places = [], [], []
    for file in files:
        damage = file.damage or verify_file(file.path, file.count).damage
        if damage is None:
            good.append(file)
        else:
            lost.append(file)
            places.append(str(damage))
    if not good:
        raise DamagedRecordError("every file is damaged:\n" + "\n".join(places))
    if places:
        known = all(file.listed or not file.damage for file in lost)  # else only those before the damage
        warnings.warn(
            f"{len(places)} of {len(files)} record files are damaged and skipped, {'' if known else 'at least '}"
            f"{sum(file.count for file in lost)} of {sum(file.count for file in files)} records are lost: "
            + "; ".join(places),
            stacklevel=4,
        )
    return good


@contextmanager
def damage_named() -> Iterator[None]:
    """Turns TensorFlow's error about a damaged record into the library's own; other errors pass.

    Raises:
        DamagedRecordError: file, byte and record, and what to do.
    """
    try:
        yield
    except tf.errors.InvalidArgumentError as error:
        met = _MET.search(error.message)
        if met is None:
            raise
        raise DamagedRecordError(
            f"{_place(*met.groups())}. 'zoo tfrecord verify {Path(met[1]).parent}' looks for more. {ADVICE}"
        ) from error


def _place(file: str, offset: str, index: str, count: str) -> Damage:
    """The first damage of the file; what the reader knew, records in blocks, when it is not there any more."""
    try:
        found = verify_file(file, int(count)).damage
    except OSError:
        found = None
    return found or Damage(file, int(offset), int(index), f"damaged or cut, {count} records were expected,")
