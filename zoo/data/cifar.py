"""CIFAR-10 and CIFAR-100 from their binary versions.

A record is one label byte (CIFAR-100: a coarse one, then a fine one) and 3 x 32 x 32 bytes: all red, green, then blue.
The "python version" is refused: its files are pickles, and reading a pickle runs whatever code its maker put there.
"""

import gzip
import os
import tarfile
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from zoo.files import BoundedStream, current_limits, reading

PIXELS = 3 * 32 * 32
_FILES = {
    ("cifar10", "train"): [f"data_batch_{number}.bin" for number in range(1, 6)],
    ("cifar10", "test"): ["test_batch.bin"],
    ("cifar100", "train"): ["train.bin"],
    ("cifar100", "test"): ["test.bin"],
}
_PICKLED = {f"data_batch_{number}" for number in range(1, 6)} | {"test_batch", "batches.meta", "train", "test", "meta"}
_NAMES = {
    ("cifar10", "fine"): ("batches.meta.txt", 10),
    ("cifar100", "fine"): ("fine_label_names.txt", 100),
    ("cifar100", "coarse"): ("coarse_label_names.txt", 20),
}


class Cifar(NamedTuple):
    """Images uint8 [N, 32, 32, 3], labels int64 [N], and the classes' names (empty when their file is not there)."""

    images: NDArray[np.uint8]
    labels: NDArray[np.int64]
    class_names: list[str]


def load_cifar10(source: str | os.PathLike[str], part: str = "train") -> Cifar:
    """Loads CIFAR-10.

    Args:
        source: ``cifar-10-binary.tar.gz``, or a folder with its ``.bin`` files.
        part: "train" (50,000) or "test" (10,000).

    Returns:
        Images, labels 0..9 and names.

    Raises:
        FileNotFoundError: the files are not there.
        ValueError: it is the pickled version, a file is cut, or a label is out of range.

    Source: https://www.cs.toronto.edu/~kriz/cifar.html
    """
    return _load(source, part, "cifar10", "fine")


def load_cifar100(source: str | os.PathLike[str], part: str = "train", labels: str = "fine") -> Cifar:
    """Loads CIFAR-100.

    Args:
        source: ``cifar-100-binary.tar.gz``, or a folder with its ``.bin`` files.
        part: "train" (50,000) or "test" (10,000).
        labels: "fine" (100 classes) or "coarse" (20).

    Returns:
        Images, labels and names.

    Raises:
        FileNotFoundError: the files are not there.
        ValueError: it is the pickled version, a file is cut, or a label is out of range.

    Source: https://www.cs.toronto.edu/~kriz/cifar.html
    """
    if labels not in ("fine", "coarse"):
        raise ValueError(f"labels must be 'fine' or 'coarse', got {labels!r}")
    return _load(source, part, "cifar100", labels)


def _load(source: str | os.PathLike[str], part: str, which: str, kind: str) -> Cifar:
    if part not in ("train", "test"):
        raise ValueError(f"part must be 'train' or 'test', got {part!r}")
    names_file, classes = _NAMES[which, kind]
    wanted = _FILES[which, part]
    files = _read(Path(source), {*wanted, names_file}, which)
    missing = [name for name in wanted if name not in files]
    if missing:
        raise FileNotFoundError(f"{os.fspath(source)!r} has no {missing[0]} of the binary version of {which}")
    head = 2 if which == "cifar100" else 1
    parts = []
    for name in wanted:
        data = np.frombuffer(files[name], np.uint8)
        if not len(data) or len(data) % (head + PIXELS):
            raise ValueError(
                f"{os.fspath(source)}: {name} has {len(data)} bytes, which is no whole number of records of "
                f"{head + PIXELS}: it is cut, or not {which}; fetch it again"
            )
        parts.append(data.reshape(-1, head + PIXELS))
    records = np.concatenate(parts)
    labels = records[:, 1 if which == "cifar100" and kind == "fine" else 0].astype(np.int64)
    if labels.max() >= classes:
        raise ValueError(
            f"{os.fspath(source)}: {which} has labels 0..{classes - 1}, found {labels.max()}: are these files of "
            "another set?"
        )
    images = records[:, head:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    lines = files.get(names_file, b"").decode(errors="replace").split("\n")
    names = [line.strip() for line in lines if line.strip()]
    return Cifar(np.ascontiguousarray(images), labels, names if len(names) == classes else [])


def _read(source: Path, wanted: set[str], which: str) -> dict[str, bytes]:
    """Returns name -> bytes of those files that are there; nothing is unpacked to disk."""
    if source.is_dir():
        paths = {path.name: path for path in sorted(source.rglob("*")) if path.is_file()}
        _refuse_pickles(set(paths), wanted, source, which)
        return {name: paths[name].read_bytes() for name in wanted & set(paths)}
    if not source.is_file():
        raise FileNotFoundError(f"{os.fspath(source)!r}: no such folder or archive of the binary version of {which}")
    names: set[str] = set()
    files: dict[str, bytes] = {}
    with (
        reading(source, "a whole tar archive"),
        gzip.open(source) if _is_gzip(source) else source.open("rb") as packed,
        tarfile.open(fileobj=BoundedStream(packed, source), mode="r|") as archive,  # type: ignore[call-overload]
    ):
        for count, member in enumerate(archive):
            if count >= current_limits().max_members:
                raise ValueError(f"{source} is refused: more than {count:,} files")
            name = Path(member.name).name
            if member.isfile():
                names.add(name)
            if member.isfile() and name in wanted and (stream := archive.extractfile(member)):
                files[name] = stream.read()
    _refuse_pickles(names, wanted, source, which)
    return files


def _is_gzip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


def _refuse_pickles(names: set[str], wanted: set[str], source: Path, which: str) -> None:
    binary = {name for name in wanted if name.endswith(".bin")}
    if not binary & names and _PICKLED & names:
        raise ValueError(
            f"{os.fspath(source)!r} is the python version of {which}, made of pickles: reading a pickle can run any "
            f"code. Take the binary version, {which.replace('cifar', 'cifar-')}-binary.tar.gz, of the same page"
        )
