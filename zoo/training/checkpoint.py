"""One training checkpoint as one safetensors file: whole or not there, and checked when it is read.

It is written to a temporary name, fsynced and renamed. What is in it, and how it is read: `zoo.weights.training_files`.
"""

from __future__ import annotations

import json
import os
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from safetensors import SafetensorError
from safetensors.numpy import save_file

from zoo import files
from zoo.weights.training_files import FORMAT, Checkpoint, DamagedCheckpointError, read_checkpoint, read_header

__all__ = [
    "FORMAT",
    "Checkpoint",
    "CheckpointWriteError",
    "DamagedCheckpointError",
    "read_checkpoint",
    "read_header",
    "to_numpy",
    "view",
    "write_checkpoint",
]


class CheckpointWriteError(OSError):
    """A checkpoint could not be written; the ones before it are untouched."""


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
    try:
        with files.replacing(path) as temporary:
            save_file(stored, temporary, metadata)
            temporary.chmod(0o644)  # as other files; the library makes it private
    except (OSError, SafetensorError) as error:
        raise CheckpointWriteError(
            f"checkpoint {path} could not be written ({error}); earlier checkpoints are untouched. "
            "Free some space or choose another folder, and start the same command again"
        ) from error
    return path


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
