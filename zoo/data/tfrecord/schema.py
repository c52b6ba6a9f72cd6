"""Records of any kind: integers, floats, bytes and raw arrays, of fixed or variable length."""

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import DTypeLike

from zoo.data.stream import Stream
from zoo.data.tfrecord.files import find_files, record_stream
from zoo.data.tfrecord.manifest import Shard, note_files
from zoo.files import hash_of, replacing_all

Shape = tuple[int | None, ...]
_STORED = {"int": tf.int64, "float": tf.float32, "bytes": tf.string, "array": tf.string}


@dataclass(frozen=True)
class Feature:
    """One feature of a record; made by ``integers``, ``floats``, ``byte_strings`` and ``array``.

    Args:
        kind: "int", "float", "bytes" or "array".
        shape: Its dimensions; None for one that varies from record to record.
        dtype: Of a raw array's elements.
    """

    kind: str
    shape: Shape = ()
    dtype: tf.DType = tf.int64

    def __post_init__(self) -> None:
        if any(size is not None and size < 1 for size in self.shape):
            raise ValueError(f"dimensions are above 0, or None when they vary; got {self.shape}")

    @property
    def fixed(self) -> bool:
        """Whether every record has the same shape."""
        return None not in self.shape

    @property
    def stores_shape(self) -> bool:
        """Whether the shape is stored too, under ``<key>/shape``: with two unknown sizes it cannot be inferred."""
        return self.shape.count(None) > 1


def integers(*shape: int | None) -> Feature:
    """64-bit integers: ``integers()`` is one number, ``integers(None)`` a list of any length."""
    return Feature("int", shape, tf.int64)


def floats(*shape: int | None) -> Feature:
    """32-bit floats; for other precisions use ``array``."""
    return Feature("float", shape, tf.float32)


def byte_strings(*shape: int | None) -> Feature:
    """Byte strings; text is stored as UTF-8."""
    return Feature("bytes", shape, tf.string)


def array(dtype: DTypeLike | tf.DType, *shape: int | None) -> Feature:
    """A numeric array, stored as its bytes (little-endian, row by row).

    Raises:
        TypeError: TensorFlow cannot read this type from bytes.
    """
    kind = tf.as_dtype(dtype)
    if not (kind.is_floating or kind.is_integer or kind.is_bool or kind.is_complex):
        raise TypeError(f"raw arrays hold numbers, got {kind.name}")
    return Feature("array", shape, kind)


Schema = Mapping[str, Feature]


def _check_schema(schema: Schema) -> None:
    if not schema or not all(isinstance(feature, Feature) for feature in schema.values()):
        raise ValueError("a schema is a non-empty dict of name -> integers(), floats(), byte_strings() or array(...)")
    for key, feature in schema.items():
        if feature.stores_shape and f"{key}/shape" in schema:
            raise ValueError(f"{key!r} stores its shape under '{key}/shape', which the schema has too")


def make_example(values: Mapping[str, Any], schema: Schema, where: str = "example") -> bytes:
    """Packs values as a ``tf.train.Example``.

    Returns:
        The record; the same bytes for the same values.

    Raises:
        ValueError: keys are missing or unknown, or a value has another shape, kind or range.
    """
    if set(values) != set(schema):
        missing, extra = sorted(set(schema) - set(values)), sorted(set(values) - set(schema))
        raise ValueError(f"{where}: missing keys {missing}, unknown keys {extra}")
    features = {}
    for key, feature in schema.items():
        value = _as_array(values[key], feature, f"{where}, {key!r}")
        features[key] = _pack(value, feature)
        if feature.stores_shape:
            features[f"{key}/shape"] = tf.train.Feature(int64_list=tf.train.Int64List(value=value.shape))
    example = tf.train.Example(features=tf.train.Features(feature=features))
    return example.SerializeToString(deterministic=True)


def _as_array(value: Any, feature: Feature, where: str) -> np.ndarray:
    if feature.kind == "bytes":
        result = np.array(value, object)
        flat = [text.encode() if isinstance(text, str) else text for text in result.ravel().tolist()]
        if not all(isinstance(text, bytes) for text in flat):
            raise ValueError(f"{where}: expected bytes or text, got {value!r:.80}")
        result = np.array([*flat, None], object)[:-1].reshape(result.shape)
    else:
        raw = np.asarray(value)
        wanted = np.dtype(feature.dtype.as_numpy_dtype)
        if raw.dtype == object or raw.dtype.kind in "USmM":
            raise ValueError(f"{where}: expected {feature.dtype.name}, got {value!r:.80}")
        with np.errstate(over="ignore", invalid="ignore"):  # looked for below
            result = raw.astype(wanted)
        if feature.dtype.is_integer or feature.dtype.is_bool:
            if raw.size and not np.array_equal(result, raw):
                raise ValueError(f"{where}: {value!r:.80} does not fit {feature.dtype.name}")
        elif raw.size and np.any(np.isinf(result) & ~np.isinf(raw)):
            raise ValueError(f"{where}: {value!r:.80} is too large for {feature.dtype.name}")
    fits = len(result.shape) == len(feature.shape) and all(
        want in (None, have) for want, have in zip(feature.shape, result.shape, strict=True)
    )
    if not fits:
        raise ValueError(f"{where}: expected shape {feature.shape}, got {result.shape}")
    return result


def _pack(value: np.ndarray, feature: Feature) -> tf.train.Feature:
    flat = value.ravel().tolist() if feature.kind != "array" else []
    if feature.kind == "int":
        return tf.train.Feature(int64_list=tf.train.Int64List(value=flat))
    if feature.kind == "float":
        return tf.train.Feature(float_list=tf.train.FloatList(value=flat))
    if feature.kind == "bytes":
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=flat))
    little = value.astype(value.dtype.newbyteorder("<")) if value.dtype.byteorder == ">" else value
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=[little.tobytes()]))


def write(
    examples: Iterable[Mapping[str, Any]],
    path: str | os.PathLike[str],
    schema: Schema,
    *,
    shards: int = 1,
    overwrite: bool = False,
) -> list[Path]:
    """Writes examples to TFRecord files, whole or not at all, and lists them in the folder's ``manifest.json``.

    With that, ``read`` and ``zoo tfrecord verify`` notice a file that was cut between two records.

    Args:
        examples: Mappings with one value for each key of the schema.
        path: The file, as ``data.tfrecord``; with shards, ``data-00000-of-00004.tfrecord`` and so on.
        schema: Name -> ``integers()``, ``floats()``, ``byte_strings()`` or ``array(dtype, ...)``.
        shards: Number of files; examples are dealt to them in turn.
        overwrite: Replace files that are there.

    Returns:
        The files.

    Raises:
        FileExistsError: a file is there already.
        ValueError: an example does not fit the schema (the message has its number), or there are fewer examples than
            files.
    """
    _check_schema(schema)
    target = Path(path)
    if shards < 1:
        raise ValueError(f"shards counts from 1, got {shards}")
    names = [f"{target.stem}-{n:05d}-of-{shards:05d}{target.suffix}" for n in range(shards)]
    files = [target.with_name(name) for name in names] if shards > 1 else [target]
    there = [file for file in files if file.exists()]
    if there and not overwrite:
        raise FileExistsError(f"{there[0]} is there already; give another name or overwrite=True")
    count = 0
    names = [file.name for file in files]
    with replacing_all(files) as unfinished:
        with ExitStack() as stack:
            writers = [stack.enter_context(tf.io.TFRecordWriter(str(file))) for file in unfinished]
            for count, example in enumerate(examples, 1):
                writers[(count - 1) % shards].write(make_example(example, schema, f"example {count - 1}"))
        if count < shards:
            raise ValueError(f"{count} examples for {shards} files: each file needs one")
        counts = [len(range(number, count, shards)) for number in range(shards)]
        wrote = [
            Shard(file.name, held, source.stat().st_size, hash_of(source))
            for source, file, held in zip(unfinished, files, counts, strict=True)
        ]
        if there:
            note_files(target.parent, target.stem, names, [])  # if this process ends here, nothing wrong is listed
    note_files(target.parent, target.stem, names, wrote)
    return files


def read(  # noqa: PLR0913 - a user's options
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    schema: Schema,
    *,
    batch_size: int | None = None,
    epochs: int = 1,
    shuffle: bool = False,
    seed: int = 0,
    drop_remainder: bool = False,
    on_damage: str = "stop",
    expected: int | None = None,
) -> tf.data.Dataset:
    """Reads records written with a schema, by zoo or anyone.

    Args:
        paths: A file, a pattern such as ``data-*.tfrecord``, a folder, or a list of these.
        schema: As for ``write``; keys that are not in it are left unread.
        batch_size: None for one record at a time.
        epochs: How often to read all.
        shuffle: Another order each epoch, by (seed, epoch).
        seed: Of the orders.
        drop_remainder: Leave out an unfilled last batch.
        on_damage: "stop" with the place, or "skip" damaged files and say how many records were lost.
        expected: How many records the files have together. Nothing marks the end of a record file: where no manifest
            lists a file, as ``write`` does, one that was cut between two records is noticed by this number only, and
            without it a warning says so.

    Returns:
        A data set of dicts, name -> tensor [*shape] or [batch, *shape]; features of variable length are
        ``tf.RaggedTensor`` in batches. See ``stream`` for one that can be restarted.

    Raises:
        FileNotFoundError: there is no such file.
        DamagedRecordError: with "stop", a file is cut, its headers are damaged, it has no records or not those that the
            manifest lists, or a file is missing that the manifest or the names of the others speak of; with "skip", no
            file is whole; or there are not as many records as expected. Damaged contents are met while reading, as
            TensorFlow's ``InvalidArgumentError`` with file, byte and record.
        ValueError: the schema or an option makes no sense.
    """
    return stream(
        paths,
        schema,
        batch_size=batch_size,
        shuffle=shuffle,
        seed=seed,
        drop_remainder=drop_remainder,
        on_damage=on_damage,
        expected=expected,
    ).repeat(epochs)


def stream(
    paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    schema: Schema,
    *,
    batch_size: int | None = None,
    shuffle: bool = True,
    seed: int = 0,
    drop_remainder: bool = False,
    on_damage: str = "stop",
    expected: int | None = None,
) -> Stream:
    """Makes a ``zoo.data.stream.Stream`` of records: like ``read``, restartable at any batch.

    Args:
        paths: As for ``read``.
        schema: As for ``read``.
        batch_size: As for ``read``.
        shuffle: As for ``read``.
        seed: As for ``read``.
        drop_remainder: As for ``read``.
        on_damage: As for ``read``.
        expected: As for ``read``.

    Returns:
        The stream.
    """
    _check_schema(schema)
    files = find_files(paths, on_damage=on_damage, expected=expected)
    ragged = not all(feature.fixed for feature in schema.values())

    def parse(record: tf.Tensor, index: tf.Tensor, epoch: int) -> dict[str, tf.Tensor]:
        return parse_example(record, schema)

    return record_stream(
        files,
        parse,
        batch_size=batch_size,
        shuffle=shuffle,
        seed=seed,
        drop_remainder=drop_remainder,
        ragged=ragged,
    )


def parse_example(record: tf.Tensor, schema: Schema) -> dict[str, tf.Tensor]:
    """Unpacks one record: name -> tensor [*shape]."""
    wanted: dict[str, Any] = {}
    for key, feature in schema.items():
        stored = _STORED[feature.kind]
        one = feature.kind == "array" or (feature.fixed and not feature.shape)
        if one or feature.fixed:
            wanted[key] = tf.io.FixedLenFeature(() if one else feature.shape, stored)
        else:
            wanted[key] = tf.io.FixedLenSequenceFeature((), stored, allow_missing=True)
        if feature.stores_shape:
            wanted[f"{key}/shape"] = tf.io.FixedLenFeature((len(feature.shape),), tf.int64)
    parsed = tf.io.parse_single_example(record, wanted)
    result = {}
    for key, feature in schema.items():
        value = parsed[key]
        if feature.kind == "array":
            value = tf.io.decode_raw(value, feature.dtype)
        if feature.kind == "array" or not feature.fixed:
            shape = parsed[f"{key}/shape"] if feature.stores_shape else [-1 if s is None else s for s in feature.shape]
            value = tf.ensure_shape(tf.reshape(value, shape), feature.shape)
        result[key] = value
    return result
