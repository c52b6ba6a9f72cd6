"""TFRecord files as bytes on disk: counting and checking records without decoding what is in them.

A record is: length (8 bytes), CRC of the length (4), the contents, CRC of the contents (4); little-endian, CRC-32C
rotated and offset so that a CRC of CRCs works. Nothing marks the end of a file.
"""

import glob
import gzip
import io
import os
import struct
import sys
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from zoo.files import BoundedStream, limits

HEADER, FOOTER = 12, 4
ADVICE = "Build or copy the file again, or leave damaged files out (on_damage='skip', zoo train --on-damage skip)"
_POLYNOMIAL = 0x82F63B78  # of CRC-32C, bits reversed
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Damage:
    """The first place where a file is not what it should be.

    Args:
        file: The file.
        offset: Byte at which the first bad record begins (of the unpacked stream for a gzip file).
        index: Its number in the file, from 0.
        reason: What is wrong.
    """

    file: str
    offset: int
    index: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}: {self.reason} at byte {self.offset}, record {self.index}"


@dataclass(frozen=True)
class WholeFileDamage(Damage):
    """A damage of a file as a whole, which no byte or record of it can be blamed for: it is missing, or another."""

    def __str__(self) -> str:
        return f"{self.file}: {self.reason}"


@dataclass(frozen=True)
class FileReport:
    """What a file holds: whole records before the first damage, and the damage."""

    file: str
    records: int
    damage: Damage | None = None


class DamagedRecordError(ValueError):
    """A TFRecord file is damaged or cut; the message names the place."""


def _table() -> list[int]:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)  # noqa: PLW2901
        table.append(value)
    return table


_TABLE = _table()


def masked_crc(data: bytes) -> int:
    """Returns the CRC that TFRecord files carry, for a few bytes: it is plain Python."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def compression(path: str | os.PathLike[str]) -> str:
    """Returns "GZIP" for a gzip file, else ""."""
    with open(path, "rb") as stream:
        head = stream.read(HEADER)
    return "GZIP" if head.startswith(b"\x1f\x8b") and _length(head)[1] else ""  # 35,615 bytes long is a record, too


def _open(path: str | os.PathLike[str]) -> gzip.GzipFile | io.FileIO:
    return gzip.open(path) if compression(path) else open(path, "rb", buffering=0)


def _length(header: bytes) -> tuple[int, str]:
    """Returns the length of a record's contents, and why the header is none, or ""."""
    if len(header) < HEADER:
        return 0, "the file is cut inside a record's header"
    length, crc = struct.unpack("<QI", header)
    if crc != masked_crc(header[:8]):
        return 0, "a record's length is damaged, or this is no TFRecord file"
    return length, ""


def count_records(path: str | os.PathLike[str]) -> FileReport:
    """Counts records by their headers alone: contents are neither read nor checked.

    Args:
        path: A TFRecord file, plain or gzip.

    Returns:
        The number of records before the end or the first broken header.

    Raises:
        OSError: the file cannot be read.
        ValueError: a gzip file unpacks to more than is believed of one of its size, see ``zoo.files.Limits``.
    """
    name = os.fspath(path)
    offset = index = 0
    with _open(path) as stream, limits(max_bytes=sys.maxsize):  # nothing is kept, so any size is right
        size = os.path.getsize(path)
        packed = BoundedStream(stream, path) if isinstance(stream, gzip.GzipFile) else None
        while True:
            try:
                header = (packed or stream).read(HEADER)
                if not header:
                    return FileReport(name, index)
                length, reason = _length(header)
                end = offset + HEADER + length + FOOTER
                if packed:
                    cut = not reason and not _passes(packed, length + FOOTER)
                else:
                    cut = end > size
                    stream.seek(min(end, size))
                if cut and not reason:
                    reason = "the file is cut inside a record"
            except (EOFError, gzip.BadGzipFile, zlib.error) as error:
                reason, end = f"the gzip stream is damaged ({error})", offset
            if reason:
                return FileReport(name, index, Damage(name, offset, index, reason))
            offset = end
            index += 1


def _passes(stream: BoundedStream, count: int) -> bool:
    """Reads so many bytes, never more than a block of them at a time; False when there are fewer."""
    while count and (block := stream.read(min(count, _BLOCK))):
        count -= len(block)
    return not count


def verify_file(path: str | os.PathLike[str], expected: int | None = None) -> FileReport:
    """Reads a whole file and checks every CRC; nothing is decoded.

    Args:
        path: A TFRecord file, plain or gzip.
        expected: How many records it should have. Only with this is a file noticed that was cut between two records.

    Returns:
        The whole records, and the first damage.

    Raises:
        OSError: the file cannot be read.
    """
    import tensorflow as tf

    name = os.fspath(path)
    headers = count_records(path)  # first, for TensorFlow believes every length: one of 64 GB ends the process
    offset = index = 0
    lengths = tf.data.TFRecordDataset(name, compression(path), buffer_size=1 << 20).map(tf.strings.length)
    try:
        for length in lengths.take(headers.records).as_numpy_iterator():
            offset += HEADER + int(length) + FOOTER
            index += 1
    except tf.errors.OpError as error:
        if isinstance(error, tf.errors.NotFoundError | tf.errors.PermissionDeniedError):
            raise OSError(f"{name}: {error.message}") from None
        return FileReport(name, index, Damage(name, offset, index, "a record's contents are damaged (CRC)"))
    if headers.damage:
        return FileReport(name, index, headers.damage)
    if expected is not None and index != expected:
        reason_text = f"{expected} records were written, {index} are here"
        if index < expected:
            reason_text = f"the file ends too early: {reason_text}"
        return FileReport(name, index, Damage(name, offset, min(index, expected), reason_text))
    return FileReport(name, index)


def expand(paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> list[Path]:
    """Returns the files that a path, a pattern, a folder or a list of these names, sorted within each.

    Raises:
        FileNotFoundError: a path or pattern names nothing.
    """
    if isinstance(paths, str | os.PathLike):
        paths = [paths]
    files: list[Path] = []
    for path in map(Path, paths):
        if path.is_dir():
            found = sorted(p for p in path.iterdir() if p.is_file() and _is_record_name(p.name))
        elif path.exists():
            found = [path]
        else:
            found = sorted(Path(name) for name in glob.glob(os.fspath(path)))
        if not found:
            raise FileNotFoundError(f"{os.fspath(path)!r} names no TFRecord file")
        files += found
    return files


def _is_record_name(name: str) -> bool:
    """True for x.tfrecord, x.tfrecords, and the x-00000-of-00004 of the old tools."""
    stem, _, last = name.rpartition("-of-")
    return name.endswith((".tfrecord", ".tfrecords", ".tfrecord.gz")) or (bool(stem) and last.isdigit())
