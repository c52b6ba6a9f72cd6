"""``manifest.json``: what a folder of TFRecord files must hold, so that a lost record is noticed."""

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from zoo import files
from zoo.data.tfrecord.framing import (
    Damage,
    FileReport,
    WholeFileDamage,
    verify_file,
)
from zoo.files import read_versioned, validated

FORMAT = 1
NAME = "manifest.json"


@dataclass(frozen=True)
class Shard:
    """One file: its name in the folder, number of records, bytes and SHA-256."""

    file: str
    count: int
    bytes: int
    sha256: str


@dataclass
class Manifest:
    """What a folder of TFRecord files holds.

    Args:
        sets: Name of a set ("train", ...) -> its files, in order.
        layout: "slim" or "inception": which feature keys the records have.
        class_names: In the order of the classes.
        label_offset: Stored label minus the index of the class.
        labels: Name of a set -> (smallest, largest) stored label.
        background: What transparent pictures are to be composited on when they are decoded.
        orient: Whether the Exif orientation is to be applied.
        input_bytes: Bytes of the picture files.
        converted: Pictures stored as PNG because TensorFlow cannot decode their own bytes exactly.
        fingerprint: Of the scan that the records were made from.
        seed: Of the order in which they were written.
    """

    sets: dict[str, list[Shard]]
    layout: str = "slim"
    class_names: list[str] = field(default_factory=list)
    label_offset: int = 0
    labels: dict[str, tuple[int, int]] = field(default_factory=dict)
    background: tuple[int, int, int] = (255, 255, 255)
    orient: bool = True
    input_bytes: int = 0
    converted: int = 0
    fingerprint: str = ""
    seed: int = 0

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes it into the folder, whole or not at all."""
        whole = {"format": FORMAT, **asdict(self)}
        files.write_whole(Path(folder) / NAME, json.dumps(whole, indent=1, ensure_ascii=False))

    @classmethod
    def load(cls, folder: str | os.PathLike[str]) -> "Manifest":
        """Reads it from the folder.

        Raises:
            FileNotFoundError: there is none.
            ValueError: it cannot be read, is newer than this version, or names files outside the folder.
        """
        path = Path(folder) / NAME
        if not path.exists():
            raise FileNotFoundError(f"{os.fspath(folder)!r} has no {NAME}; name the record files themselves")
        manifest = validated(cls, read_versioned(path, FORMAT, "a manifest of TFRecord files"), path)
        for shard in (shard for shards in manifest.sets.values() for shard in shards):
            if Path(shard.file).name != shard.file or shard.file in ("", ".", ".."):
                raise ValueError(f"{path} names a file outside its folder: {shard.file!r}")
            if shard.count < 1 or shard.bytes < 1:
                raise ValueError(f"{path}: {shard.file!r} has {shard.count} records in {shard.bytes} bytes")
        if manifest.layout and (unknown := manifest.sets.keys() - manifest.labels.keys()):
            raise ValueError(f"{path} does not say which labels the sets {', '.join(sorted(unknown))} have")
        return manifest

    def shards(self, name: str) -> list[Shard]:
        """Returns the files of a set.

        Raises:
            ValueError: there is no such set.
        """
        if name not in self.sets:
            raise ValueError(f"sets here are {', '.join(map(repr, self.sets))}, got {name!r}")
        return self.sets[name]

    def count(self, name: str) -> int:
        """Returns the number of records of a set."""
        return sum(shard.count for shard in self.shards(name))


def note_files(folder: str | os.PathLike[str], name: str, files: Sequence[str], shards: Sequence[Shard]) -> None:
    """Lists files in the folder's manifest under a set's name, in place of what was listed for files of these names.

    A ``manifest.json`` that is not one of TFRecord files is somebody else's and stays as it is.
    """
    path = Path(folder) / NAME
    try:
        manifest = Manifest.load(folder) if path.exists() else Manifest({}, layout="")
    except ValueError:
        return
    left = {key: [shard for shard in old if shard.file not in files] for key, old in manifest.sets.items()}
    manifest.sets = {key: kept for key, kept in left.items() if kept}
    if shards:
        manifest.sets[name] = [*manifest.sets.get(name, []), *shards]
    if manifest.sets:
        manifest.save(folder)
    else:
        path.unlink(missing_ok=True)


def listing(folder: str | os.PathLike[str]) -> dict[str, Shard]:
    """Returns what the manifest of a folder lists, by the files' names; nothing without a manifest of ours."""
    try:
        manifest = Manifest.load(folder)
    except (FileNotFoundError, ValueError):  # no manifest, or a file of that name which is not ours
        return {}
    return {shard.file: shard for shards in manifest.sets.values() for shard in shards}


def listed(path: str | os.PathLike[str]) -> Shard | None:
    """Returns what the manifest beside a file lists for it; None when it lists nothing."""
    return listing(Path(path).parent).get(Path(path).name)


def missing(folder: str | os.PathLike[str], shard: Shard) -> Damage:
    """Returns the damage of a listed file that is not there."""
    path = os.fspath(Path(folder) / shard.file)
    return WholeFileDamage(path, 0, 0, f"the file is missing; the manifest lists it with {shard.count} records")


def verify_shard(folder: str | os.PathLike[str], shard: Shard) -> FileReport:
    """Checks all CRCs, the number of records and the SHA-256 of a file that a manifest lists.

    Returns:
        The report; a file that is missing, or another one, has a ``WholeFileDamage``.
    """
    path = Path(folder) / shard.file
    if not path.is_file():
        return FileReport(str(path), 0, missing(folder, shard))
    report = verify_file(path, shard.count)
    if report.damage is None and files.hash_of(path) != shard.sha256:
        wrong = WholeFileDamage(str(path), 0, 0, "every record is whole, but the file is another one (SHA-256)")
        return FileReport(str(path), report.records, wrong)
    return report
