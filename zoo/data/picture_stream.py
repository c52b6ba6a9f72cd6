"""Pictures from their files as a stream: a new order of all of them each epoch, decoded in parallel."""

from collections.abc import Callable

import numpy as np
import tensorflow as tf

from zoo.data.decode import decode_image
from zoo.data.images import ImageError, graph_bytes
from zoo.data.scan import Scan
from zoo.data.split import Split
from zoo.data.stream import Stream, count_batches, permutation, prepare_picture


def picture_stream(
    scan: Scan,
    *,
    batch_size: int | None,
    split: Split | None = None,
    name: str = "train",
    prepare: Callable[..., tf.Tensor] | None = None,
    shuffle: bool = True,
    seed: int = 0,
    drop_remainder: bool = False,
) -> Stream:
    """Streams a scan's pictures with their labels; restarting anywhere costs nothing.

    Args:
        scan: The pictures; background and orientation are as in the scan.
        batch_size: Pictures a batch; None for single ones.
        split: Which picture is in which set; None takes all of them.
        name: The set.
        prepare: ``prepare(image)`` or ``prepare(image, seed)``, see ``zoo.data.stream.prepare_picture``. Without it
            pictures stay uint8 and must be of one size to be batched.
        shuffle: Another order each epoch, of all pictures.
        seed: Of orders and random changes.
        drop_remainder: Leave out an unfilled last batch.

    Returns:
        A stream of (images [batch, ...], labels int64 [batch]); labels are indices into ``scan.labels``.

    Raises:
        ValueError: the set is empty.
    """
    pictures = scan.pictures
    if split is not None:
        pictures = [pictures[i] for i in split.indices([p.sha256 for p in pictures], name)]
    if not pictures:
        raise ValueError(f"the set {name!r} has no pictures")
    index = {label: number for number, label in enumerate(scan.labels)}
    paths = np.array([picture.path for picture in pictures], object)
    labels = np.array([index[picture.label] for picture in pictures], np.int64)
    sizes = np.array([picture.bytes for picture in pictures], np.int64)
    odd = np.array([not picture.same_in_graph for picture in pictures])
    size = batch_size or 1
    batches = count_batches(len(pictures), size, drop_remainder) if batch_size is not None else len(pictures)

    def convert(path: bytes, data: bytes) -> bytes:
        try:
            return graph_bytes(data, background=scan.background, orient=scan.orient)
        except ImageError as error:
            raise ImageError(error.reason, f"{path.decode()} changed since the scan: {error.detail}") from None

    def load(number: tf.Tensor, item: tuple[tf.Tensor, ...], epoch: int) -> tuple[tf.Tensor, tf.Tensor]:
        path, label, size, special = item
        data = tf.io.read_file(path)
        length = tf.cast(tf.strings.length(data), tf.int64)
        changed = [path, "changed since the scan; scan again. Bytes now and then:", length, size]
        with tf.control_dependencies([tf.debugging.Assert(length == size, changed)]):
            data = tf.identity(data)
        if odd.any():
            data = tf.cond(special, lambda: tf.numpy_function(convert, [path, data], tf.string), lambda: data)
            data = tf.ensure_shape(data, [])
        image = decode_image(data, background=scan.background, orient=scan.orient)
        return prepare_picture(prepare, image, seed, epoch, number), label

    def make_dataset(epoch: int, skip: int) -> tf.data.Dataset:
        order = permutation(len(pictures), seed, epoch) if shuffle else np.arange(len(pictures))
        rest = order[skip * size :]
        columns = (paths[rest], labels[rest], sizes[rest], odd[rest])
        files = tf.data.Dataset.from_tensor_slices(columns).enumerate(skip * size)
        result = files.map(lambda number, item: load(number, item, epoch), tf.data.AUTOTUNE, deterministic=True)
        if batch_size is not None:
            result = result.batch(batch_size, drop_remainder=drop_remainder)
        return result.prefetch(2)

    return Stream(make_dataset, batches=batches, batch_size=batch_size, examples=len(pictures))
