"""Safetensors as zoo writes them: weights with their card, and the Trainer's checkpoints, read whole and checked.

Weights have full variable names, any type, and the card as metadata. A checkpoint, which `zoo.training.checkpoints`
writes, is one file whose metadata holds texts: ``zoo`` (format and version), ``state`` (JSON: step, epoch, position in
the data, the card of the weights, ...) and ``crc`` (JSON: CRC-32 of every tensor and of the state).
"""

from __future__ import annotations

import dataclasses
import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from zoo.files import parse_json, reading, validated, write_whole
from zoo.weights.cards import Card
from zoo.weights.tf1 import AVERAGE_SUFFIX

FORMAT_VERSION = "1"
FORMAT = "training-checkpoint/1"
_HEADER_LIMIT = 100_000_000  # bytes; what safetensors itself accepts


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


class DamagedCheckpointError(ValueError):
    """A checkpoint is cut, altered or not a checkpoint of zoo's; the message names the file."""


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """What one file holds.

    Args:
        path: the file.
        arrays: name to array (``model/...``, ``optimizer/...``, ``averages/...``, ``metrics/...``, ``random/...``).
        state: everything else: JSON values.
    """

    path: Path
    arrays: dict[str, np.ndarray]
    state: dict[str, Any]


def read_checkpoint(path: str | os.PathLike[str]) -> Checkpoint:
    """Reads a checkpoint and checks every byte of it.

    Args:
        path: a file that `write_checkpoint` wrote.

    Returns:
        Its arrays and state.

    Raises:
        FileNotFoundError: no such file.
        DamagedCheckpointError: the file is cut, altered, or something else.
    """
    path = Path(path)
    header = read_header(path)
    try:
        with reading(path, also=(SafetensorError,)):
            checks = validated(dict[str, int], parse_json(header["crc"], path), path)
            types = validated(dict[str, str], parse_json(header["types"], path), path)
            if zlib.crc32(header["state"].encode()) != checks.pop("state"):
                raise ValueError("its state does not fit its checksum")
            arrays: dict[str, np.ndarray] = {}
            with safe_open(path, framework="numpy") as file:
                if set(file.keys()) != set(checks):
                    raise ValueError("its list of tensors is not the one written")
                for name, check in checks.items():
                    array = file.get_tensor(name)
                    if zlib.crc32(array.reshape(-1).view(np.uint8).data) != check:
                        raise ValueError(f"tensor {name} does not fit its checksum")
                    arrays[name] = array.view(_dtype(types[name])) if name in types else array
            return Checkpoint(path, arrays, validated(dict[str, Any], parse_json(header["state"], path), path))
    except (ValueError, OSError) as error:
        raise DamagedCheckpointError(f"checkpoint {path} is damaged: {error}") from error


@dataclasses.dataclass(frozen=True)
class _Head:
    """The texts of a checkpoint's metadata."""

    zoo: str
    state: str
    crc: str
    types: str


def read_header(path: str | os.PathLike[str]) -> dict[str, str]:
    """Reads a checkpoint's metadata without its tensors.

    Args:
        path: a file.

    Returns:
        The texts `zoo`, `state`, `crc` and `types`.

    Raises:
        FileNotFoundError: no such file.
        DamagedCheckpointError: the file is no checkpoint of zoo's, or its head is damaged.
    """
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        text = file.read(length) if length <= _HEADER_LIMIT else b""
    try:
        with reading(path):
            head = validated(_Head, parse_json(text, path)["__metadata__"], path)
        if not head.zoo.startswith("training-checkpoint/"):
            raise ValueError(f"its format is {head.zoo!r:.80}")
    except ValueError as error:
        raise DamagedCheckpointError(f"{path} is not a training checkpoint of zoo, or its head is damaged") from error
    if head.zoo != FORMAT:
        raise DamagedCheckpointError(f"{path} has format {head.zoo:.80}; this version of zoo reads {FORMAT}")
    return dict(vars(head))


def weights_of(checkpoint: Checkpoint) -> tuple[dict[str, np.ndarray], Card]:
    """Returns a checkpoint's weights by name, averages under TF1's names of them, and their card.

    Raises:
        ValueError: It is of a plain Keras model, whose variables have no names of their own.
    """
    names = {name.partition("/")[2]: array for name, array in checkpoint.arrays.items() if name.startswith("model/")}
    model = checkpoint.state["config"]["model"]
    if all(name[:4].isdigit() for name in names):
        raise ValueError(
            f"{checkpoint.path} is a checkpoint of a plain Keras model ({model['network']}), whose variables go by "
            f"their order: make that model again, and Trainer.fit(folder={str(checkpoint.path.parent)!r}) restores it"
        )
    averages = {
        name.partition("/")[2] + AVERAGE_SUFFIX: array
        for name, array in checkpoint.arrays.items()
        if name.startswith("averages/")
    }
    old: Mapping[str, Any] = {"net": model["network"].rpartition(".")[2], "options": model["options"]}
    return {**names, **averages}, Card.from_dict(checkpoint.state.get("card") or old)


def _dtype(name: str) -> np.dtype:
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name))
