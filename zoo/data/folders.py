"""Finds the picture files of a data set and their labels: class folders, train/validation/test folders, or a CSV.

Nothing is opened but a CSV, and nothing is ever changed.
"""

import csv
import os
import stat
import unicodedata
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from zoo.data.images import SUFFIXES, SUFFIXES_UNSUPPORTED
from zoo.files import reading

SUBSETS = {
    "train": "train",
    "training": "train",
    "val": "validation",
    "valid": "validation",
    "validation": "validation",
    "dev": "validation",
    "test": "test",
    "testing": "test",
}
LAYOUTS = ("auto", "classes", "subsets")
_SHOWN = 10  # names in a note
_SYSTEM = {
    "thumbs.db",
    "ehthumbs.db",
    "desktop.ini",
    "icon\r",
    "__macosx",
    "@eadir",
    "$recycle.bin",
    "system volume information",
    "lost+found",
}


@dataclass(frozen=True)
class Found:
    """One file to look at.

    Args:
        path: Where it is.
        name: Its name in the data set: relative to the root, with "/", in NFC; never what the user typed as root.
        label: Its class.
        subset: "train", "validation" or "test" when the layout says so.
        problem: Why it cannot be read, as (reason, detail); None for files worth opening.
    """

    path: Path
    name: str
    label: str
    subset: str | None = None
    problem: tuple[str, str] | None = None


@dataclass
class Listing:
    """What is in a data set.

    Args:
        root: The folder, or the folder of the CSV.
        files: The files with a label, in the order of their names.
        ignored: Reason -> how many files and folders were passed over.
        notes: What a person should know, in sentences.
        empty: Class folders without any file that could be a picture.
    """

    root: Path
    files: list[Found]
    ignored: Counter[str] = field(default_factory=Counter)
    notes: list[str] = field(default_factory=list)
    empty: list[str] = field(default_factory=list)


def list_images(source: str | os.PathLike[str], *, layout: str = "auto") -> Listing:
    """Lists the files of a data set with their labels.

    Args:
        source: A folder with one folder a class, nested as deep as you like; a folder of such folders called train,
            val and test; or a CSV file with the columns path and label (and subset, if you like), whose paths are
            relative to it.
        layout: "classes" or "subsets" for what the first level of folders is; "auto" takes them for subsets when all
            of them have such names, train and one more are there, and they hold folders.

    Returns:
        The files. Labels are the folders' names, byte for byte but for Unicode's NFC.

    Raises:
        FileNotFoundError: nothing is there.
        ValueError: it is neither a folder nor a CSV; two class names are one name in NFC; a label is empty, has
            control characters or is not Unicode; a class is only in the validation or test folder.
    """
    if layout not in LAYOUTS:
        raise ValueError(f"layout must be one of {', '.join(LAYOUTS)}. Received: {layout!r}")
    root = Path(source)
    if not root.exists():
        raise FileNotFoundError(f"{os.fspath(source)!r}: there is no such folder or CSV file")
    if root.is_dir():
        return _list_folder(root, layout)
    if root.suffix.lower() in (".csv", ".tsv"):
        return _list_csv(root)
    raise ValueError(f"{os.fspath(source)!r} is neither a folder of class folders nor a .csv of path,label")


def list_files(folder: str | os.PathLike[str]) -> Listing:
    """Lists every file below a folder, whatever it is; those that are no files to read have a ``problem``.

    Args:
        folder: The folder; links to other folders are followed, each once.

    Returns:
        The files, without labels; hidden ones are counted in ``ignored``.
    """
    listing = Listing(Path(folder), [])
    listing.files.extend(_walk(Path(folder), listing, "", None, set()))
    return listing


def what_it_is(mode: int) -> str:
    """Names what a path is by its ``st_mode``, where it is no regular file."""
    kinds = ((stat.S_ISDIR, "a folder"), (stat.S_ISFIFO, "a named pipe"), (stat.S_ISSOCK, "a socket"))
    return next((name for test, name in kinds if test(mode)), "a device")


def _hidden(name: str) -> bool:
    return name.startswith(".") or name.lower() in _SYSTEM


def _visible(folder: Path) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as entries:
        return sorted(
            (entry for entry in entries if not _hidden(entry.name)), key=lambda entry: os.fsencode(entry.name)
        )


def _list_folder(root: Path, layout: str) -> Listing:
    listing = Listing(root, [])
    with os.scandir(root) as entries:
        listing.ignored["hidden or system"] += sum(_hidden(entry.name) for entry in entries)
    first = _visible(root)
    loose = [entry.name for entry in first if entry.is_file()]
    if loose:
        listing.ignored["not in a class folder"] += len(loose)
    pictures = [os.fsencode(name).decode(errors="backslashreplace") for name in loose if looks_like_image(name)]
    if pictures:
        more = f" and {len(pictures) - _SHOWN} more" if len(pictures) > _SHOWN else ""
        shown = ", ".join(pictures[:_SHOWN])
        listing.notes.append(f"skipped, as they lie beside the class folders and so have no class: {shown}{more}")
    folders = [entry for entry in first if entry.is_dir()]
    names = {entry.name.lower() for entry in folders}
    split = bool(names) and names <= set(SUBSETS) and "train" in {SUBSETS[n] for n in names} and len(names) > 1
    split = split and all(any(inner.is_dir() for inner in _visible(Path(entry.path))) for entry in folders)
    if layout == "classes" or (layout == "auto" and not split):
        _list_classes(listing, folders, None)
        return listing
    unknown = sorted(names - set(SUBSETS))
    if unknown:
        raise ValueError(f"folders {unknown} are no subsets; layout='subsets' takes train, val and test")
    for entry in folders:
        inner = [child for child in _visible(Path(entry.path)) if child.is_dir()]
        _list_classes(listing, inner, SUBSETS[entry.name.lower()])
    _check_subsets(listing, root)
    return listing


def _list_classes(listing: Listing, folders: list[os.DirEntry[str]], subset: str | None) -> None:
    seen: dict[str, str] = {}
    for entry in folders:
        label = check_label(entry.name, entry.path)
        if label in seen:
            raise ValueError(
                f"class folders {seen[label]!a} and {entry.name!a} are the same name in Unicode's NFC; rename one"
            )
        seen[label] = entry.name
        before = len(listing.files)
        visited: set[tuple[int, int]] = set()
        listing.files.extend(_walk(Path(entry.path), listing, label, subset, visited))
        if len(listing.files) == before:
            listing.empty.append(label)
            listing.notes.append(f"folder {label!r} holds no picture and is not taken for a class")
    by_case: dict[str, list[str]] = {}
    for label in seen:
        by_case.setdefault(label.casefold().strip(), []).append(label)
    listing.notes += [
        f"classes {' and '.join(map(repr, labels))} differ only in case or spaces and stay two classes"
        for labels in by_case.values()
        if len(labels) > 1
    ]


def check_label(label: str, where: str) -> str:
    """Returns a label in NFC.

    Raises:
        ValueError: it is empty, not Unicode, or has control characters.
    """
    try:
        label.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{where!a}: the class name is not valid UTF-8; rename it") from None
    label = unicodedata.normalize("NFC", label)
    if not label.strip():
        raise ValueError(f"{where!r}: a class name must not be empty")
    if any(unicodedata.category(letter) == "Cc" for letter in label):
        raise ValueError(f"{where!r}: class name {label!r} has control characters, which would break lists; rename it")
    return label


def _walk(
    folder: Path, listing: Listing, label: str, subset: str | None, visited: set[tuple[int, int]]
) -> Iterator[Found]:
    """Yields a class's files. A folder that links lead to twice is walked once; one above the root never."""
    try:
        status = folder.stat()
        entries = _visible(folder)
        with os.scandir(folder) as every:
            listing.ignored["hidden or system"] += sum(_hidden(entry.name) for entry in every)
    except OSError as error:
        yield _found(listing, folder, label, subset, ("unreadable", f"folder: {error.strerror}"))
        return
    identity = (status.st_dev, status.st_ino)
    above = listing.root.resolve()
    if identity in visited or (folder.is_symlink() and folder.resolve() in (above, *above.parents)):
        listing.ignored["folder reached again by a link"] += 1
        return
    visited.add(identity)
    for entry in entries:
        path = Path(entry.path)
        try:
            mode = entry.stat().st_mode
        except OSError as error:
            yield _found(listing, path, label, subset, ("unreadable", f"broken link or no access: {error.strerror}"))
            continue
        if stat.S_ISDIR(mode):
            yield from _walk(path, listing, label, subset, visited)
        elif stat.S_ISREG(mode):
            yield _found(listing, path, label, subset, None)
        else:
            listing.ignored["not a regular file"] += 1
            listing.notes.append(f"{path.relative_to(listing.root)} is {what_it_is(mode)} and is left alone")


def _found(listing: Listing, path: Path, label: str, subset: str | None, problem: tuple[str, str] | None) -> Found:
    name = path.relative_to(listing.root).as_posix()
    try:
        name.encode()
    except UnicodeEncodeError:
        name = os.fsencode(name).decode(errors="backslashreplace")
        problem = ("bad name", "the file's name is not valid UTF-8; rename it")
    return Found(path, unicodedata.normalize("NFC", name), label, subset, problem)


def looks_like_image(name: str) -> bool:
    """Says whether a name ends as pictures' names do, those of formats that zoo does not read included."""
    return name.lower().endswith((*SUFFIXES, *SUFFIXES_UNSUPPORTED))


def _check_subsets(listing: Listing, where: Path) -> None:
    labels = {subset: {f.label for f in listing.files if f.subset == subset} for subset in set(SUBSETS.values())}
    labels["train"] |= {found.label for found in listing.files if found.subset is None}
    for subset in ("validation", "test"):
        extra = sorted(labels[subset] - labels["train"])
        if extra:
            raise ValueError(f"{where}: classes {extra} are in the {subset} folder but not in the training folder")
        missing = sorted(labels["train"] - labels[subset])
        if labels[subset] and missing:
            listing.notes.append(f"the {subset} folder has no pictures (n=0) of: {', '.join(missing)}")


def _list_csv(path: Path) -> Listing:
    listing = Listing(path.parent, [])
    with path.open(newline="", encoding="utf-8-sig") as stream, reading(path, "a CSV in UTF-8", also=(csv.Error,)):
        rows = list(csv.reader(stream, delimiter="\t" if path.suffix.lower() == ".tsv" else ","))
    lines = [(number, row) for number, row in enumerate(rows, 1) if any(cell.strip() for cell in row)]
    header = [cell.strip().lower() for cell in lines[0][1]] if lines else []
    if "path" in header and "label" in header:
        columns = {name: header.index(name) for name in ("path", "label", "subset") if name in header}
        lines = lines[1:]
    elif len(header) == 2 and _is_file(path.parent / lines[0][1][0]):
        columns = {"path": 0, "label": 1}
    else:
        raise ValueError(f"{path}: the first line must name the columns path and label, got {header}")
    seen: set[tuple[str, str]] = set()
    for number, row in lines:
        if len(row) <= max(columns.values()):
            raise ValueError(f"{path}, line {number}: expected {len(header)} cells, got {len(row)}")
        name, label = row[columns["path"]], check_label(row[columns["label"]], f"{path}, line {number}")
        subset = _subset(row[columns["subset"]], f"{path}, line {number}") if "subset" in columns else None
        file = path.parent / name
        shown = unicodedata.normalize("NFC", Path(os.path.normpath(name)).as_posix())
        if (shown, label) in seen:
            listing.ignored["line given twice"] += 1
            continue
        seen.add((shown, label))
        problem = _problem(file, f"line {number} of the CSV names")
        listing.files.append(Found(file, shown, label, subset, problem))
    _check_subsets(listing, path)
    listing.files.sort(key=lambda found: (found.name, found.label))
    return listing


def _problem(path: Path, words: str) -> tuple[str, str] | None:
    """Says why a path that somebody named cannot be read, without opening it; None for a regular file."""
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):  # also a link to itself, and a name that no file can have
        return "missing", f"{words} a file that is not there"
    return None if stat.S_ISREG(mode) else ("unreadable", f"{words} {what_it_is(mode)}, which is left alone")


def _is_file(path: Path) -> bool:
    """Says whether a file is there; a name that no file can have is none."""
    try:
        return path.is_file()
    except OSError:  # too long
        return False


def _subset(cell: str, where: str) -> str | None:
    if not cell.strip():
        return None
    if cell.strip().lower() not in SUBSETS:
        raise ValueError(f"{where}: subset must be train, validation or test, got {cell!r}")
    return SUBSETS[cell.strip().lower()]
