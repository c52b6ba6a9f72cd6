"""A damaged record met while data is read inside TensorFlow, as the error that names the place."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import tensorflow as tf

from zoo.data.tfrecord.framing import ADVICE, Damage, DamagedRecordError, verify_file

_MET = re.compile(
    r"\[damaged or cut TFRecord file\] \[(.*?)\] \[at byte\] \[(\d+)\] \[record\] \[(\d+)\] \[of\] \[(\d+)\]", re.DOTALL
)


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
