"""What can be retrained on: a folder or CSV as it is, arrays and tf.data sets as PNG files in the run folder."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from zoo.data.images import encode_png
from zoo.data.split import key_of
from zoo.files import write_whole


def as_files(images: Any, labels: Any, folder: Path) -> str | os.PathLike[str]:
    """Returns a folder or CSV that ``scan_images`` reads.

    Args:
        images: A folder or CSV, which is returned as it is; uint8 [N, H, W, 3] or [N, H, W]; or a ``tf.data`` set of
            (picture, label), batched or not.
        labels: Labels of an array: [N] names or numbers.
        folder: Run folder: pictures are written to ``pictures/LABEL/HASH.png`` in it.

    Raises:
        TypeError: It is none of these, or an array comes without labels.
        ValueError: The pictures are not uint8, or there are not as many labels.
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


def _of_dataset(dataset: Any) -> Iterator[tuple[np.ndarray, Any]]:
    for element in dataset:
        if not isinstance(element, tuple | list) or len(element) != 2:
            raise TypeError("A tf.data set must give pairs (picture, label).")
        picture, label = (np.asarray(part) for part in element)
        if picture.ndim == 4:
            yield from zip(picture, label, strict=True)
        else:
            yield picture, label[()]


def _folder_name(label: Any) -> str:
    name = label.decode() if isinstance(label, bytes) else str(label)
    if not name or name.startswith(".") or "/" in name or "\0" in name:
        raise ValueError(f"The label {name!r} cannot be a folder's name; give a CSV of path,label instead.")
    return name
