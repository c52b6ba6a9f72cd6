"""Pictures from TFRecord files: zoo's own with a manifest, and those of slim's and the old Inception tools."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import tensorflow as tf

from zoo.data.decode import decode_image
from zoo.data.stream import Stream, prepare_picture
from zoo.data.tfrecord.files import BLOCK, RecordFile, find_files, record_stream, records, usable
from zoo.data.tfrecord.manifest import NAME, Manifest

_LABEL = {"image/class/label": tf.io.FixedLenFeature((), tf.int64)}
_PICTURE = {**_LABEL, "image/encoded": tf.io.FixedLenFeature((), tf.string)}


class PictureStream(Stream):
    """A stream of (images, labels) that knows its classes.

    Args:
        stream: The stream.
        class_names: In the order of the labels; empty for foreign records.
    """

    def __init__(self, stream: Stream, class_names: Sequence[str]) -> None:
        super().__init__(
            stream._make_dataset, batches=stream.batches, batch_size=stream.batch_size, examples=stream.examples
        )
        self.class_names = list(class_names)


def image_stream(  # noqa: PLR0913 - a user's options
    source: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    *,
    batch_size: int | None,
    name: str = "train",
    prepare: Callable[..., tf.Tensor] | None = None,
    shuffle: bool = True,
    seed: int = 0,
    label_offset: int | None = None,
    num_classes: int | None = None,
    background: tuple[int, int, int] | None = None,
    orient: bool | None = None,
    drop_remainder: bool = False,
    on_damage: str = "stop",
    expected: int | None = None,
) -> PictureStream:
    """Streams pictures and labels from TFRecord files.

    Files and labels are checked now, before the first step: against the manifest where there is one, else by counting
    records and reading all labels once.

    Args:
        source: A folder that ``zoo tfrecord build`` wrote; or files, patterns or folders of other tools' records with
            the keys image/encoded and image/class/label.
        batch_size: Pictures a batch; None for single ones.
        name: Set of the manifest: "train", "validation" or "test".
        prepare: ``prepare(image)`` or ``prepare(image, seed)``, see ``zoo.data.stream.prepare_picture``. Without it
            pictures stay uint8 and must be of one size to be batched.
        shuffle: Another order each epoch.
        seed: Of orders and random changes.
        label_offset: Stored label minus index of the class. From the manifest; must be given for other records: 0 for
            slim's, 1 for the old Inception's, whose 0 is a background class.
        num_classes: Number of classes. From the manifest; must be given for other records.
        background: What shows through transparent pixels; the manifest's, or white.
        orient: Apply the Exif orientation; the manifest's, or True.
        drop_remainder: Leave out an unfilled last batch.
        on_damage: "stop" at damage with its place, or "skip" damaged files and warn how many records are lost.
        expected: How many records files that no manifest lists have together, see ``zoo.data.tfrecord.read``.

    Returns:
        A stream of (images [batch, ...], labels int64 [batch]).

    Raises:
        FileNotFoundError: there are no such files.
        DamagedRecordError: files are missing, cut or damaged.
        ValueError: labels outside 0..num_classes - 1 after the offset, or options that are missing.
    """
    folder = Path(source) if isinstance(source, str | os.PathLike) and (Path(source) / NAME).is_file() else None
    manifest = Manifest.load(folder) if folder else Manifest({})
    if folder and manifest.layout:  # one of pictures; ``zoo.data.tfrecord.write`` lists records of any kind
        shards = manifest.shards(name)
        with ThreadPoolExecutor() as pool:
            paths = [folder / shard.file for shard in shards]
            files = usable(list(pool.map(RecordFile.at, paths, shards)), on_damage)
        offset = manifest.label_offset if label_offset is None else label_offset
        classes = len(manifest.class_names) if num_classes is None else num_classes
        stored = manifest.labels[name]
    else:
        if label_offset is None or num_classes is None:
            raise ValueError(
                "records without a manifest need label_offset= (0 for slim's, 1 for the old Inception's, whose class 0 "
                "is background) and num_classes="
            )
        files = find_files(source, on_damage=on_damage, expected=expected)
        offset, classes, stored = label_offset, num_classes, label_range(files)
    low, high = stored[0] - offset, stored[1] - offset
    if low < 0 or high >= classes:
        raise ValueError(
            f"stored labels {stored[0]}..{stored[1]} less label_offset {offset} are {low}..{high}, but {classes} "
            f"classes take 0..{classes - 1}; set label_offset or num_classes"
        )
    ground = manifest.background if background is None else background
    turn = manifest.orient if orient is None else orient

    def parse(record: tf.Tensor, index: tf.Tensor, epoch: int) -> tuple[tf.Tensor, tf.Tensor]:
        values = tf.io.parse_single_example(record, _PICTURE)
        image = decode_image(values["image/encoded"], background=ground, orient=turn)
        image = prepare_picture(prepare, image, seed, epoch, index)
        return image, values["image/class/label"] - offset

    stream = record_stream(
        files,
        parse,
        batch_size=batch_size,
        shuffle=shuffle,
        seed=seed,
        drop_remainder=drop_remainder,
    )
    return PictureStream(stream, manifest.class_names)


def label_range(files: Sequence[RecordFile]) -> tuple[int, int]:
    """Returns the smallest and largest label in the files; reads all records, decodes none and keeps none."""

    def parse(batch: tf.Tensor) -> tf.Tensor:
        return tf.io.parse_example(batch, _LABEL)["image/class/label"]

    low, high = 2**62, -(2**62)
    # Few records at a time, for they are as large as pictures are; their labels in large batches.
    for labels in records(files, 0, shuffle=False, seed=0).batch(BLOCK).map(parse).unbatch().batch(4096):
        low, high = min(low, int(tf.reduce_min(labels))), max(high, int(tf.reduce_max(labels)))
    return low, high
