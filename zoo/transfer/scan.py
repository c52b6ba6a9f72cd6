"""The first stage: the pictures are read once, and what a person decided about them is applied.

A folder or CSV is taken as it is; arrays and ``tf.data`` sets become PNG files in the run folder.
"""

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zoo.data import pluralize
from zoo.data.images import encode_png
from zoo.data.scan import Scan, scan_images
from zoo.data.split import key_of
from zoo.files import write_whole
from zoo.transfer.settings import Job
from zoo.transfer.suspicious import Decision, apply_decisions, read_decisions, settle_conflicts

if TYPE_CHECKING:
    import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class Scanned:
    """The pictures of a run, corrected as a person decided.

    Args:
        scan: The pictures that are used, and the bad files.
        decisions: What ``suspicious.csv`` said.
        found: The same with the pictures that are left out because they lie in two classes.
    """

    scan: Scan
    decisions: list[Decision]
    found: Scan

    @property
    def classes(self) -> list[str]:
        """The labels, in the order of the model's outputs."""
        return self.scan.labels

    @cached_property
    def files(self) -> dict[str, str]:
        """Content hash -> file, every content once."""
        return {picture.sha256: picture.path for picture in self.scan.pictures}

    @cached_property
    def label_of(self) -> dict[str, int]:
        """Content hash -> class index."""
        classes = self.classes
        return {picture.sha256: classes.index(picture.label) for picture in self.scan.pictures}

    def labels_of(self, keys: Iterable[str]) -> np.ndarray:
        """Returns the class indices of content hashes: int64 [N]."""
        return np.array([self.label_of[key] for key in keys], np.int64)

    @property
    def in_words(self) -> str:
        """What was found, in a line."""
        scan = self.scan
        parts = [f"scan: {pluralize(len(scan.pictures), 'picture')} in {pluralize(len(scan.labels), 'class')}"]
        for number, *words in (
            (len(scan.bad), "bad file (bad_files.csv)", "bad files (bad_files.csv)"),
            (len(scan.duplicates), "group of equal pictures"),
            (
                len(self.found.conflicts),
                "picture in two classes (suspicious.csv)",
                "pictures in two classes (suspicious.csv)",
            ),
            (len(self.decisions), "decision read from suspicious.csv"),
        ):
            parts += [pluralize(number, *words)] if number else []
        return ", ".join(parts) + f"; fingerprint {scan.fingerprint[:12]}"


def scan_pictures(job: Job, images: Any, labels: Any, on_scan: Callable[[Scan], None] | None = None) -> Scanned:
    """Scans what ``retrain`` was given, and refuses what cannot be trained on; ``on_scan`` is called before that."""
    settings = job.settings
    scan = scan_images(
        as_files(images, labels, job.folder),
        layout=settings.layout,
        background=settings.background,
        orient=settings.orient,
        workers=job.workers,
        progress=lambda done, total: job.progress("scan", done, total),
    )
    if on_scan:
        on_scan(scan)
    decisions = read_decisions(job.folder / "suspicious.csv", scan.labels)
    found = apply_decisions(scan, decisions)
    found.check(settings.max_bad)
    return Scanned(settle_conflicts(found, decisions, settings.conflicts), decisions, found)


def write_scan(job: Job, scanned: Scanned) -> None:
    """Writes ``scan.json`` and ``bad_files.csv``."""
    scanned.scan.save(job.place / "scan.json")
    scanned.scan.write_bad(job.place / "bad_files.csv")
    job.tell(scanned.in_words)


def as_files(images: Any, labels: Any, folder: Path) -> str | os.PathLike[str]:
    """Returns a folder or CSV that ``scan_images`` reads; writes others to ``pictures/LABEL/HASH.png`` in the folder.

    Args:
        images: A folder or CSV, which is returned as it is; uint8 [N, H, W, 3] or [N, H, W]; or a ``tf.data`` set of
            (picture, label), batched or not.
        labels: Labels of an array: [N] names or numbers.
        folder: Run folder.
    """
    if isinstance(images, str | os.PathLike):
        return images
    import tensorflow as tf

    if isinstance(images, tf.data.Dataset):
        pairs = _of_dataset(images)
    else:
        if labels is None:
            raise TypeError(
                "retrain takes a folder, a CSV, an array with labels=, or a tf.data set of (picture, label)."
            )
        array, names = np.asarray(images), list(labels)
        if len(array) != len(names):
            raise ValueError(f"There must be a label for each of the {len(array)} pictures. Received: {len(names)}")
        pairs = zip(array, names, strict=True)
    root = folder / "pictures"
    for picture, label in pairs:
        pixels = np.asarray(picture)
        if (
            pixels.dtype != np.uint8
            or pixels.ndim not in (2, 3)
            or (pixels.ndim == 3 and pixels.shape[2] not in (1, 3))
        ):
            raise ValueError(f"Pictures are uint8 [H, W, 3] or [H, W]. Received: {pixels.dtype} {list(pixels.shape)}")
        pixels = np.broadcast_to(pixels.reshape(*pixels.shape[:2], -1), (*pixels.shape[:2], 3))
        place = root / _folder_name(label)
        place.mkdir(parents=True, exist_ok=True)
        path = place / f"{key_of(pixels)[:32]}.png"
        if not path.exists():
            write_whole(path, encode_png(np.ascontiguousarray(pixels)))
    return root


def _of_dataset(dataset: "tf.data.Dataset") -> Iterator[tuple[np.ndarray, Any]]:
    for element in dataset:
        if not isinstance(element, tuple | list) or len(element) != 2:
            raise TypeError("A tf.data set must give pairs (picture, label).")
        picture, label = (np.asarray(part) for part in element)
        if picture.ndim == 4:
            yield from zip(picture, label, strict=True)
        else:
            yield picture, label[()]


def _folder_name(label: object) -> str:
    name = label.decode() if isinstance(label, bytes) else str(label)
    if not name or name.startswith(".") or "/" in name or "\0" in name:
        raise ValueError(f"The label {name!r} cannot be a folder's name; give a CSV of path,label instead.")
    return name
