"""One training checkpoint as one safetensors file: whole or not there, and checked when it is read.

The file's metadata holds texts: ``zoo`` (format and version), ``state`` (JSON: step, epoch, position in the data, ...)
and ``crc`` (JSON: CRC-32 of every tensor and of the state). It is written to a temporary name, fsynced and renamed.
"""

from __future__ import annotations

import contextlib
import json
import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

FORMAT = "training-checkpoint/1"
_HEADER_LIMIT = 100_000_000  # bytes; what safetensors itself accepts


class DamagedCheckpointError(ValueError):
    """A checkpoint is cut, altered or not a checkpoint of zoo's; the message names the file."""


class CheckpointWriteError(OSError):
    """A checkpoint could not be written; the ones before it are untouched."""


@dataclass(frozen=True)
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


def write_checkpoint(path: str | os.PathLike[str], arrays: Mapping[str, np.ndarray], state: Mapping[str, Any]) -> Path:
    """Writes a checkpoint so that at every moment `path` is absent, the old file, or the new file whole.

    Args:
        path: the file to write.
        arrays: name to array.
        state: JSON values.

    Returns:
        The path.

    Raises:
        CheckpointWriteError: the disk is full, or the folder cannot be written; no partial file is left.
    """
    path = Path(path)
    stored = {name: _storable(array) for name, array in arrays.items()}
    text = json.dumps(state, sort_keys=True)
    checks = {name: zlib.crc32(array.reshape(-1).view(np.uint8).data) for name, array in stored.items()}
    checks["state"] = zlib.crc32(text.encode())
    types = {name: str(array.dtype) for name, array in arrays.items() if array.dtype != stored[name].dtype}
    metadata = {"zoo": FORMAT, "state": text, "crc": json.dumps(checks), "types": json.dumps(types)}
    temporary = temporary_name(path)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        save_file(stored, temporary, metadata)
        temporary.chmod(0o644)  # as other files; the library makes it private
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except (OSError, SafetensorError) as error:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise CheckpointWriteError(
            f"checkpoint {path} could not be written ({error}); earlier checkpoints are untouched. "
            "Free some space or choose another folder, and start the same command again"
        ) from error
    return path


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
        checks, types = json.loads(header["crc"]), json.loads(header["types"])
        if zlib.crc32(header["state"].encode()) != checks.pop("state"):
            raise DamagedCheckpointError(f"checkpoint {path} is damaged: its state does not fit its checksum")
        arrays: dict[str, np.ndarray] = {}
        with safe_open(path, framework="numpy") as file:
            if set(file.keys()) != set(checks):
                raise DamagedCheckpointError(
                    f"checkpoint {path} is damaged: its list of tensors is not the one written"
                )
            for name, check in checks.items():
                array = file.get_tensor(name)
                if zlib.crc32(array.reshape(-1).view(np.uint8).data) != check:
                    raise DamagedCheckpointError(
                        f"checkpoint {path} is damaged: tensor {name} does not fit its checksum"
                    )
                arrays[name] = array.view(_dtype(types[name])) if name in types else array
        return Checkpoint(path, arrays, json.loads(header["state"]))
    except (KeyError, TypeError, json.JSONDecodeError, SafetensorError, OSError) as error:
        raise DamagedCheckpointError(f"checkpoint {path} is damaged: {error}") from error


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
        metadata = json.loads(text)["__metadata__"]
        if not metadata["zoo"].startswith("training-checkpoint/"):
            raise KeyError("zoo")
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedCheckpointError(f"{path} is not a training checkpoint of zoo, or its head is damaged") from error
    if metadata["zoo"] != FORMAT:
        raise DamagedCheckpointError(f"{path} has format {metadata['zoo']}; this version of zoo reads {FORMAT}")
    return metadata


def temporary_name(path: Path) -> Path:
    """Returns the name under which a checkpoint is written before it is renamed."""
    return path.with_name(f".{path.name}.unfinished")


def sync_folder(folder: Path) -> None:
    """Makes renames in a folder survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def replace_text(path: Path, text: str) -> None:
    """Writes a small text file by way of a temporary name, fsync and rename."""
    temporary = temporary_name(path)
    with open(temporary, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_folder(path.parent)


def to_numpy(variable: Any) -> np.ndarray:
    """Returns the value of a Keras, TensorFlow or mirrored variable, or of an array."""
    return np.asarray(variable.numpy() if hasattr(variable, "numpy") else variable)


def view(variable: Any) -> np.ndarray:
    """Returns a variable's value without copying it where TensorFlow allows; read it before the variable changes."""
    raw = variable.value if hasattr(variable, "path") else variable
    if isinstance(raw, tf.Variable) and tf.executing_eagerly():
        try:
            return np.asarray(memoryview(tf.convert_to_tensor(raw)))
        except (TypeError, ValueError, BufferError):  # types without a buffer format, such as bfloat16
            pass
    return to_numpy(variable)


def _storable(array: np.ndarray) -> np.ndarray:
    """Views types that safetensors does not write from numpy (bfloat16) as unsigned integers of their size."""
    array = np.ascontiguousarray(array).reshape(array.shape)
    return array.view(f"u{array.dtype.itemsize}") if array.dtype.kind == "V" else array


def _dtype(name: str) -> np.dtype:
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, name))
