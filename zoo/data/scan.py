"""Looks at every picture of a data set once, before anything is trained on it.

Each file is read, decoded and hashed; what cannot be used is listed with its class and reason. Nothing is written,
moved or repaired.
"""

import csv
import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import TypeAlias

from zoo import files
from zoo.data import folders, images, pluralize
from zoo.data.folders import Found
from zoo.files import read_versioned, validated

FORMAT = 1  # of the saved file


@dataclass(frozen=True)
class Picture:
    """A picture that can be used.

    Args:
        name: Its name in the data set, see ``zoo.data.folders.Found``.
        path: Where it is.
        label: Its class.
        subset: "train", "validation" or "test" when the layout says so, else None.
        sha256: Hash of the file's bytes: what splits and caches go by.
        pixels: Hash of the decoded pixels: equal for the same picture in another file.
        format: One of ``zoo.data.images.FORMATS``, by its bytes.
        height: Rows, after orientation.
        width: Columns, after orientation.
        bytes: Size of the file.
        same_in_graph: See ``zoo.data.images.same_in_graph``.
        remark: See ``zoo.data.images.remark``.
    """

    name: str
    path: str
    label: str
    subset: str | None
    sha256: str
    pixels: str
    format: str
    height: int
    width: int
    bytes: int
    same_in_graph: bool
    remark: str = ""


@dataclass(frozen=True)
class BadFile:
    """A file that cannot be used: its name, class, the kind of trouble and what exactly."""

    name: str
    label: str
    reason: str
    detail: str


@dataclass
class Scan:
    """What a data set holds.

    Args:
        root: The folder.
        pictures: The usable pictures, sorted by name.
        bad: The unusable ones, sorted by name.
        ignored: Reason -> number of files passed over.
        notes: What a person should know, in sentences.
        background: What transparent pixels were composited on.
        orient: Whether the Exif orientation was applied.
    """

    root: str
    pictures: list[Picture]
    bad: list[BadFile]
    ignored: dict[str, int] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    background: tuple[int, int, int] = images.WHITE
    orient: bool = True

    @property
    def labels(self) -> list[str]:
        """The classes that have usable pictures, in the order of their indices: sorted by Unicode code point."""
        return sorted({picture.label for picture in self.pictures})

    @property
    def counts(self) -> dict[str, dict[str, int]]:
        """Class -> {"found", "used", "skipped"}, in the order of the labels; unusable classes are included."""
        used = Counter(picture.label for picture in self.pictures)
        skipped = Counter(bad.label for bad in self.bad)
        return {
            label: {"found": used[label] + skipped[label], "used": used[label], "skipped": skipped[label]}
            for label in sorted({*used, *skipped})
        }

    def _groups(self, differs: Callable[[Picture], object] | None = None) -> list[list[Picture]]:
        groups: dict[str, list[Picture]] = {}
        for picture in self.pictures:
            groups.setdefault(picture.pixels, []).append(picture)
        several = [group for group in groups.values() if len(group) > 1]
        return [group for group in several if differs is None or len({differs(picture) for picture in group}) > 1]

    @property
    def duplicates(self) -> list[list[Picture]]:
        """Groups of files that show the same pixels."""
        return self._groups()

    @property
    def conflicts(self) -> list[list[Picture]]:
        """Groups of files that show the same pixels under different labels."""
        return self._groups(lambda picture: picture.label)

    @property
    def leaks(self) -> list[list[Picture]]:
        """Groups of files that show the same pixels in different subsets, where the layout gives subsets."""
        return self._groups(lambda picture: picture.subset)

    @property
    def fingerprint(self) -> str:
        """SHA-256 of all names, labels, subsets and contents: the same wherever the folder lies."""
        digest = hashlib.sha256(b"zoo images 1\n")
        for p in self.pictures:
            digest.update("\0".join((p.name, p.label, p.subset or "", p.sha256)).encode() + b"\n")
        return digest.hexdigest()

    def check(self, max_bad: float | str = "1%") -> None:
        """Refuses a data set with too many bad files or too few classes to train on.

        Args:
            max_bad: How many bad files are acceptable: "1%" or 0.01 of those found, or a number of files such as 5.

        Raises:
            ValueError: there are more, a class has only bad files, or there are fewer than two classes.
        """
        found = len(self.pictures) + len(self.bad)
        limit = parse_limit(max_bad, found)
        if len(self.bad) > limit:
            some = "".join(f"\n  {bad.name}: {bad.reason}: {bad.detail}" for bad in self.bad[:5])
            more = f"\n  and {len(self.bad) - 5} more" if len(self.bad) > 5 else ""
            raise ValueError(
                f"{pluralize(len(self.bad), 'bad file', 'bad files')} of {found}, more than --max-bad {max_bad} "
                f"allows; remove or replace them, or raise --max-bad:{some}{more}"
            )
        lost = [label for label, count in self.counts.items() if not count["used"]]
        if lost:
            raise ValueError(f"every file is bad in: {', '.join(lost)}; repair them or remove the class")
        if len(self.labels) < 2:
            hint = "".join(f"; {note}" for note in self.notes)
            raise ValueError(f"training needs two classes or more, found {self.labels}{hint}")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the scan as JSON, whole or not at all."""
        whole = {"format": FORMAT, "fingerprint": self.fingerprint, **asdict(self)}
        files.write_whole(path, json.dumps(whole, indent=1))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Scan":
        """Reads what ``save`` wrote.

        Raises:
            ValueError: the file is of another kind, of a newer version, or was changed by hand.
        """
        data = read_versioned(path, FORMAT, "a saved scan")
        fingerprint, scan = data.pop("fingerprint", None), validated(cls, data, path)
        if scan.fingerprint != fingerprint:
            raise ValueError(f"{path}: the list of pictures does not match its fingerprint; scan again")
        return scan

    def write_bad(self, path: str | os.PathLike[str]) -> None:
        """Writes the bad files as a CSV of path, label, reason, detail."""
        with files.replacing(path) as temporary, temporary.open("w", newline="", encoding="utf-8") as stream:
            writer = csv.writer(stream)
            writer.writerow(["path", "label", "reason", "detail"])
            writer.writerows([bad.name, bad.label, bad.reason, bad.detail] for bad in self.bad)


def parse_limit(max_bad: float | str, found: int) -> float:
    """Returns how many of ``found`` files "1%", "5", 0.01 or 5 allow to be bad.

    Raises:
        ValueError: it is neither a share nor a number of files.
    """
    text = str(max_bad).strip()
    try:
        value = float(text.removesuffix("%"))
    except ValueError:
        value = -1.0
    if not 0 <= value < float("inf") or (text.endswith("%") and value > 100):
        raise ValueError(f"max_bad takes a share such as '1%' or 0.01, or a number of files, got {max_bad!r}")
    if text.endswith("%"):
        return value / 100 * found
    return value * found if value < 1 else value


def scan_images(
    source: str | os.PathLike[str],
    *,
    layout: str = "auto",
    background: tuple[int, int, int] = images.WHITE,
    orient: bool = True,
    max_pixels: int = images.MAX_PIXELS,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Scan:
    """Reads and decodes every picture of a data set once.

    Args:
        source: A folder or a CSV, see ``zoo.data.folders.list_images``.
        layout: See there.
        background: RGB in 0..255 that transparent pixels are composited on.
        orient: Apply the Exif orientation.
        max_pixels: Larger pictures are bad.
        workers: Threads; one a CPU by default.
        progress: Called with (files done, files in all) now and then.

    Returns:
        The scan. It is not refused here, however bad: see ``Scan.check``.

    Raises:
        FileNotFoundError: nothing is there.
        ValueError: the folder or CSV makes no sense, or no file in it is a picture.
    """
    if len(background) != 3 or not all(0 <= level <= 255 for level in background):
        raise ValueError(f"background takes three levels in 0..255, got {background!r}")
    listing = folders.list_images(source, layout=layout)
    scan = Scan(str(source), [], [], {}, list(listing.notes), background, orient)
    ignored = Counter(listing.ignored)

    def look(found: Found) -> Picture | BadFile | None:
        return _look(found, background, orient, max_pixels)

    total = len(listing.files)
    with ThreadPoolExecutor(workers or os.cpu_count()) as pool:
        for done, result in enumerate(_map_in_order(pool, look, listing.files), 1):
            if result is None:
                ignored["not a picture"] += 1
            elif isinstance(result, Picture):
                scan.pictures.append(result)
            else:
                scan.bad.append(result)
            if progress and (done % 64 == 0 or done == total):
                progress(done, total)
    scan.ignored = {reason: count for reason, count in sorted(ignored.items()) if count}
    scan.pictures.sort(key=lambda picture: (picture.name, picture.label))
    scan.bad.sort(key=lambda bad: (bad.name, bad.label))
    unsupported = Counter(bad.detail.partition(" is ")[0] for bad in scan.bad if bad.reason == "unsupported")
    scan.notes += [
        f"unsupported: {kind}, {pluralize(count, 'file')}; convert them" for kind, count in sorted(unsupported.items())
    ]
    remarks: dict[str, list[str]] = {}
    for picture in scan.pictures:
        if picture.remark:
            remarks.setdefault(picture.remark, []).append(picture.name)
    scan.notes += [
        f"{names[0]}{f' and {len(names) - 1} more' * (len(names) > 1)}: {words}" for words, names in remarks.items()
    ]
    _note_classes_without_pictures(scan, listing)
    _look_one_level_down(scan)
    if not scan.pictures and not scan.bad:
        tree = ", ".join(listing.empty[:10]) or "no folders"
        loose = (
            ""
            if not (loose_files := ignored["not in a class folder"])
            else (f"; {pluralize(loose_files, 'file')} in the folder itself, but each class needs a folder")
        )
        raise ValueError(f"{os.fspath(source)!r} holds no pictures in class folders (it has: {tree}){loose}")
    return scan


_Seen: TypeAlias = Picture | BadFile | None


def _note_classes_without_pictures(scan: Scan, listing: folders.Listing) -> None:
    known = {*scan.counts, *listing.empty}
    scan.notes += [
        f"folder {label!r} holds no picture and is not taken for a class"
        for label in sorted({found.label for found in listing.files} - known)
    ]


def _look_one_level_down(scan: Scan) -> None:
    """Notes that the only class is a folder of folders: most likely the data set starts one level deeper."""
    inner = Counter(parts[1] for picture in scan.pictures if len(parts := picture.name.split("/")) > 2)
    if len(scan.labels) == 1 and inner:
        label = scan.labels[0]
        tree = "".join(
            f"\n  {label}/{name}/  {pluralize(count, 'picture')}" for name, count in sorted(inner.items())[:10]
        )
        more = f"\n  and {len(inner) - 10} more" if len(inner) > 10 else ""
        where = (Path(scan.root) / label).as_posix()
        scan.notes.append(f"the only class, {label!r}, holds folders; did you mean {where!r}?{tree}{more}")


def _map_in_order(pool: ThreadPoolExecutor, work: Callable[[Found], _Seen], items: Iterable[Found]) -> Iterator[_Seen]:
    """Yields the results in order, with few results in flight however many items there are."""
    iterator = iter(items)
    while block := list(islice(iterator, 512)):
        yield from pool.map(work, block)


def _look(found: Found, background: tuple[int, int, int], orient: bool, max_pixels: int) -> Picture | BadFile | None:
    """Reads one file: a Picture, a BadFile, or None for a file that does not even claim to be a picture."""
    if found.problem:
        return BadFile(found.name, found.label, *found.problem)
    try:
        data = found.path.read_bytes()
        pixels = images.decode(data, background=background, orient=orient, max_pixels=max_pixels)
    except images.ImageError as error:
        if error.reason in ("not an image", "empty") and not folders.looks_like_image(found.name):
            return None
        return BadFile(found.name, found.label, error.reason, error.detail)
    except OSError as error:
        return BadFile(found.name, found.label, "unreadable", error.strerror or str(error))
    height, width = pixels.shape[:2]
    return Picture(
        name=found.name,
        path=str(found.path),
        label=found.label,
        subset=found.subset,
        sha256=hashlib.sha256(data).hexdigest(),
        pixels=hashlib.sha256(f"{height} {width} ".encode() + pixels.tobytes()).hexdigest(),
        format=images.sniff(data[:32]) or "",
        height=height,
        width=width,
        bytes=len(data),
        same_in_graph=images.same_in_graph(data),
        remark=images.remark(data),
    )
