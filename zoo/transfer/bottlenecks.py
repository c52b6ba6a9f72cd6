"""The bottleneck cache: pooled features of pictures on disk, so that no picture goes through a trunk twice.

A cache folder belongs to one trunk (hash of its weights), one preprocessing and one view; inside, features are found
by the picture's content hash, so that renamed pictures are found again and changed ones are not. Rows lie in shards::

    magic | length of the header | header (JSON: format, rows, end points) | keys | checksums | features, row by row

Shards are written to a temporary name and renamed. A shard cut short or damaged loses only the rows concerned.
"""

import hashlib
import json
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from zoo.files import parse_json, validated, write_whole

FORMAT = 1
_MAGIC = b"ZOOBOTTL"
_KEY_BYTES = 32


@dataclass
class _Shard:
    """Where the parts of a shard lie; ``good`` is None until its rows have been checked."""

    path: Path
    names: dict[str, tuple[int, int]]  # end point -> first column and width
    keys: list[bytes]
    width: int
    start: int  # offset of the first row's features
    checksums: np.ndarray
    good: np.ndarray | None = None

    def check(self) -> np.ndarray:
        """Compares every row that is there with its checksum, once."""
        if self.good is None:
            self.good = np.zeros(len(self.keys), bool)
            row_bytes = 4 * self.width
            with self.path.open("rb") as file:
                file.seek(self.start)
                for i, key in enumerate(self.keys):
                    row = file.read(row_bytes)
                    self.good[i] = len(row) == row_bytes and zlib.crc32(row, zlib.crc32(key)) == self.checksums[i]
        return self.good

    def rows(self, indices: Sequence[int], name: str) -> np.ndarray:
        """Reads the columns of an end point for some rows, float32 [len(indices), width of the end point]."""
        first, width = self.names[name]
        held = np.memmap(self.path, "<f4", "r", self.start, (len(self.keys), self.width))
        return np.array(held[np.asarray(indices), first : first + width])


@dataclass(frozen=True)
class _Header:
    """What a shard says of itself."""

    format: int
    rows: int
    end_points: dict[str, int]


def _open_shard(path: Path) -> _Shard | None:
    """Reads a shard's header, keys and checksums; None for a file whose head is cut or is not ours."""
    with path.open("rb") as file:
        head = file.read(len(_MAGIC) + 4)
        if len(head) < len(_MAGIC) + 4 or not head.startswith(_MAGIC):
            return None
        (length,) = struct.unpack("<I", head[len(_MAGIC) :])
        size = path.stat().st_size
        try:
            header = validated(_Header, parse_json(file.read(length), path), path)
        except ValueError:
            return None
        rows, widths = header.rows, header.end_points
        if header.format != FORMAT or rows < 0 or min(widths.values(), default=0) < 0:
            return None
        if rows * (_KEY_BYTES + 4) > size or 4 * sum(widths.values()) > size:  # more than the file could hold
            return None
        keys, checksums = file.read(rows * _KEY_BYTES), file.read(rows * 4)
        if len(checksums) < rows * 4:
            return None
        start = file.tell()
    firsts = np.cumsum([0, *widths.values()])
    names = {name: (int(first), width) for (name, width), first in zip(widths.items(), firsts[:-1], strict=True)}
    total = int(firsts[-1])
    whole = min(rows, (size - start) // (4 * total)) if total else 0  # a cut file keeps the rows that are whole
    held = [keys[i * _KEY_BYTES : (i + 1) * _KEY_BYTES] for i in range(whole)]
    return _Shard(path, names, held, total, start, np.frombuffer(checksums, "<u4", whole))


class BottleneckCache:
    """Features by content hash, for one trunk, preprocessing and view.

    Args:
        root: Folder of all caches; made when missing.
        settings: What the features depend on besides the picture: hash of the weights, preprocessing, size, view.
            Plain JSON values. Every other setting has its own folder under ``root``.
        shard_rows: Rows that are collected before a shard is written; an interruption loses at most so many.

    Raises:
        ValueError: The settings are not plain JSON values.
    """

    def __init__(self, root: str | Path, settings: Mapping[str, Any], *, shard_rows: int = 256) -> None:
        try:
            text = json.dumps({"format": FORMAT, **settings}, sort_keys=True, ensure_ascii=False)
        except TypeError as error:
            raise ValueError(f"Cache settings must be plain JSON values ({error}). Received: {settings!r}") from error
        self.folder = Path(root) / hashlib.sha256(text.encode()).hexdigest()[:32]
        self.shard_rows = shard_rows
        self.folder.mkdir(parents=True, exist_ok=True)
        if not (self.folder / "settings.json").exists():
            write_whole(self.folder / "settings.json", text.encode())
        self._shards: list[_Shard] = []
        self._where: dict[str, dict[bytes, list[tuple[int, int]]]] = {}  # end point -> key -> shards and rows
        self._pending: dict[bytes, dict[str, np.ndarray]] = {}
        self.unreadable: list[Path] = []
        for path in sorted(self.folder.glob("*.zbn")):
            self._register(path)

    def _register(self, path: Path) -> None:
        shard = _open_shard(path)
        if shard is None:
            self.unreadable.append(path)
            return
        self._shards.append(shard)
        for name in shard.names:
            where = self._where.setdefault(name, {})
            for row, key in enumerate(shard.keys):
                where.setdefault(key, []).append((len(self._shards) - 1, row))

    def missing(self, keys: Iterable[str], names: Sequence[str]) -> list[str]:
        """Returns the keys for which some end point is not there or is damaged, in order and once each."""
        return [key for key in dict.fromkeys(keys) if not all(self._has(bytes.fromhex(key), name) for name in names)]

    def _has(self, key: bytes, name: str) -> bool:
        if name in self._pending.get(key, {}):
            return True
        return self._place(key, name) is not None

    def _place(self, key: bytes, name: str) -> tuple[int, int] | None:
        """Returns shard and row of the newest undamaged copy."""
        places = self._where.get(name, {}).get(key, [])
        return next(((shard, row) for shard, row in reversed(places) if self._shards[shard].check()[row]), None)

    def add(self, keys: Sequence[str], features: Mapping[str, np.ndarray]) -> None:
        """Adds rows; whole shards go to the disk at once, the rest with ``flush``.

        Raises:
            ValueError: The number of rows differs from the number of keys.
        """
        for name, rows in features.items():
            if len(rows) != len(keys):
                raise ValueError(f"{name} must have a row for each of the {len(keys)} keys. Received: {len(rows)} rows")
        for i, key in enumerate(keys):
            self._pending[bytes.fromhex(key)] = {name: np.asarray(rows[i], "<f4") for name, rows in features.items()}
        if len(self._pending) >= self.shard_rows:
            self.flush()

    def flush(self) -> None:
        """Writes the rows added since the last shard."""
        if not self._pending:
            return
        first = next(iter(self._pending.values()))
        widths = {name: len(row) for name, row in first.items()}
        header = json.dumps({"format": FORMAT, "rows": len(self._pending), "end_points": widths}).encode()
        rows = [np.concatenate([row[name] for name in widths]).tobytes() for row in self._pending.values()]
        checksums = [zlib.crc32(row, zlib.crc32(key)) for key, row in zip(self._pending, rows, strict=True)]
        header += b" " * (-len(header) % 4)  # so that the features are aligned
        parts = [_MAGIC, struct.pack("<I", len(header)), header, *self._pending, np.array(checksums, "<u4").tobytes()]
        name = hashlib.sha256(header + b"".join(self._pending)).hexdigest()[:24]
        path = self.folder / f"{name}.zbn"
        write_whole(path, b"".join([*parts, *rows]))
        self._pending.clear()
        self._register(path)

    def read(self, keys: Sequence[str], name: str) -> np.ndarray:
        """Returns the features of an end point in the order of the keys.

        Args:
            keys: SHA-256 content hashes, in hexadecimal; one may occur several times.
            name: The end point.

        Returns:
            float32 [len(keys), width].

        Raises:
            ValueError: A key is missing; extract it first.
        """
        self.flush()
        places = [place for key in keys if (place := self._place(bytes.fromhex(key), name)) is not None]
        if len(places) < len(keys):
            lack = len(keys) - len(places)
            raise ValueError(f"{lack} pictures have no '{name}' in the cache {self.folder}; extract them first.")
        width = self._shards[places[0][0]].names[name][1] if places else 0
        result = np.empty((len(keys), width), np.float32)
        by_shard: dict[int, list[int]] = {}
        for i, (shard, _) in enumerate(places):
            by_shard.setdefault(shard, []).append(i)
        for shard, wanted in by_shard.items():
            result[wanted] = self._shards[shard].rows([places[i][1] for i in wanted], name)
        return result
