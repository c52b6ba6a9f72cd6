"""Safetensors, zoo's own format: full variable names, any type, and the weights' card as metadata."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from zoo.files import reading, write_whole

FORMAT_VERSION = "1"


def read_safetensors(path: str | os.PathLike[str]) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Reads a safetensors file.

    Args:
        path: The file.

    Returns:
        Name to array (bfloat16 as float32), and the file's metadata.

    Raises:
        ValueError: The file is damaged, or written by a newer version of zoo.
    """
    with (
        reading(path, "a safetensors file", also=(SafetensorError,)),
        safe_open(os.fspath(path), framework="np") as file,
    ):
        metadata = dict(file.metadata() or {})
        tensors = {name: _array(file, name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
    if metadata.get("zoo_format", FORMAT_VERSION) != FORMAT_VERSION:
        raise ValueError(
            f"{path} has zoo's format {metadata['zoo_format']}; this version reads {FORMAT_VERSION}. Update zoo."
        )
    return tensors, metadata


def write_safetensors(
    tensors: Mapping[str, np.ndarray], path: str | os.PathLike[str], metadata: Mapping[str, object] | None = None
) -> None:
    """Writes a safetensors file, to a temporary name first.

    Args:
        tensors: Name to array.
        path: The file; replaced when it is there.
        metadata: Card to store under ``zoo``; None writes none, as for other people's layouts.
    """
    words = None
    if metadata is not None:
        words = {"zoo": json.dumps(metadata, sort_keys=True), "zoo_format": FORMAT_VERSION}
    # safetensors' own writer leaves files that nobody else may read
    write_whole(path, save({name: np.ascontiguousarray(array) for name, array in tensors.items()}, words))


def _array(file: object, name: str) -> np.ndarray:
    array = np.asarray(file.get_tensor(name))  # type: ignore[attr-defined]
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array
