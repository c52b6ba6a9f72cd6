"""A run's checkpoints: one safetensors file each, whole or not there; which stay; saving beside training; falling back.

A file is written to a temporary name, fsynced and renamed. What is in it, and how it is read:
`zoo.weights.safetensors_files`.
"""

from __future__ import annotations

import copy
import json
import logging
import os
import re
import time
import zlib
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf
from safetensors import SafetensorError
from safetensors.numpy import save_file

from zoo import files
from zoo.files import parse_json, validated
from zoo.parallel.places import raw
from zoo.weights.safetensors_files import FORMAT, Checkpoint, DamagedCheckpointError, read_checkpoint, read_header

_log = logging.getLogger("zoo")
_NAME = re.compile(r"model\.ckpt-(\d+)")


class CheckpointWriteError(OSError):
    """A checkpoint could not be written; the ones before it are untouched."""


class NonFiniteCheckpointError(ArithmeticError):
    """A variable holds NaN or Inf, so the checkpoint is not written."""


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
    inside = raw(variable)
    if isinstance(inside, tf.Variable) and tf.executing_eagerly():
        try:
            return np.asarray(memoryview(tf.convert_to_tensor(inside)))
        except (TypeError, ValueError, BufferError):  # types without a buffer format, such as bfloat16
            pass
    return to_numpy(variable)


def _storable(array: np.ndarray) -> np.ndarray:
    """Views types that safetensors does not write from numpy (bfloat16) as unsigned integers of their size."""
    array = np.ascontiguousarray(array).reshape(array.shape)
    return array.view(f"u{array.dtype.itemsize}") if array.dtype.kind == "V" else array


@dataclass(frozen=True)
class Entry:
    """A checkpoint in the folder, from its metadata alone."""

    path: Path
    step: int
    time: float  # when it was saved, in seconds since 1970
    metric: float | None  # the monitored value at its step; None when it was not validated there


@dataclass(frozen=True)
class _Saved:
    """What the list of checkpoints needs of their states."""

    time: float
    metric: float | None = None


class Checkpoints:
    """The checkpoints of one run folder: ``model.ckpt-<step>``.

    Kept are the newest `keep`, the best by the monitored value, and one every `keep_every_hours` (counted over
    restarts, from the times in the files themselves). Only files with zoo's own head are ever deleted.

    Args:
        folder: the run folder.
        keep: how many of the newest stay; at least 1.
        keep_every_hours: also keep one every so many hours for ever; None does not.
        smaller_is_better: how the monitored value is compared.
        background: write in a thread; `save` then returns when the values are copied.

    Raises:
        ValueError: `keep` below 1, or hours that are not positive.
    """

    def __init__(
        self,
        folder: Path,
        *,
        keep: int = 5,
        keep_every_hours: float | None = None,
        smaller_is_better: bool = True,
        background: bool = True,
    ) -> None:
        if keep < 1:
            raise ValueError(f"keep must be at least 1, received {keep}; the newest checkpoint always stays")
        if keep_every_hours is not None and keep_every_hours <= 0:
            raise ValueError(f"keep_every_hours must be positive, received {keep_every_hours}")
        self.folder = Path(folder)
        self.keep, self.keep_every_hours, self.smaller_is_better = keep, keep_every_hours, smaller_is_better
        self.stall_seconds = 0.0  # of the last save: how long training stood still
        self._buffers: dict[str, np.ndarray] = {}
        self._pending: Future[Path] | None = None
        self._pool = ThreadPoolExecutor(1, "zoo-checkpoint") if background else None
        self._complained: set[Path] = set()

    def entries(self) -> list[Entry]:
        """Lists the folder's checkpoints by step; files that zoo did not write are left out."""
        found = []
        for path in self.folder.glob("model.ckpt-*") if self.folder.is_dir() else ():
            if not (match := _NAME.fullmatch(path.name)) or not path.is_file():
                continue
            try:
                state = validated(_Saved, parse_json(read_header(path)["state"], path), path)
                found.append(Entry(path, int(match[1]), state.time, state.metric))
            except (ValueError, OSError) as error:
                if path not in self._complained:
                    self._complained.add(path)
                    _log.warning("%s is left alone: %s", path.name, error)
        return sorted(found, key=lambda entry: entry.step)

    def prepare(self, variables: Mapping[str, Any]) -> None:
        """Makes the host buffers for these variables and touches them, so that the first save does not stall longer."""
        for name, variable in variables.items():
            value = view(variable)
            buffer = self._buffers.get(name)
            if buffer is None or buffer.shape != value.shape or buffer.dtype != value.dtype:
                self._buffers[name] = np.zeros_like(value)
        for name in self._buffers.keys() - variables.keys():
            del self._buffers[name]

    def save(self, variables: Mapping[str, Any], state: Mapping[str, Any], *, wait: bool = False) -> Path:
        """Saves a checkpoint and deletes those that are no longer kept.

        Args:
            variables: name to variable or array; copied before this returns.
            state: JSON values with `step`, copied too; `time` is added.
            wait: return only when the file is safe on the disk.

        Returns:
            The file's path; with `background` it may still be on its way.

        Raises:
            NonFiniteCheckpointError: a value is NaN or Inf; found in the writing thread, so raised by a later call.
            CheckpointWriteError: the disk is full; also possibly raised by a later call.
        """
        started = time.perf_counter()
        self.wait()  # the buffers belong to the write before
        for name, variable in variables.items():
            value = view(variable)
            buffer = self._buffers.get(name)
            if buffer is None or buffer.shape != value.shape or buffer.dtype != value.dtype:
                buffer = self._buffers[name] = np.empty_like(value)
            np.copyto(buffer, value)
        arrays = {name: self._buffers[name] for name in variables}
        path = self.folder / f"model.ckpt-{state['step']}"
        state = {**copy.deepcopy(dict(state)), "time": time.time()}  # training goes on changing its own
        if self._pool is None:
            self._write(path, arrays, state)
        else:
            self._pending = self._pool.submit(self._write, path, arrays, state)
        if wait:
            self.wait()
        self.stall_seconds = time.perf_counter() - started
        return path

    def check(self) -> None:
        """Raises the error of a background write that has failed; does not wait."""
        if self._pending is not None and self._pending.done():
            self.wait()

    def wait(self) -> None:
        """Waits for the background write and raises its error."""
        if self._pending is not None:
            pending, self._pending = self._pending, None
            pending.result()

    def close(self) -> None:
        """Waits for the last write and ends the thread."""
        try:
            self.wait()
        finally:
            if self._pool is not None:
                self._pool.shutdown()
                self._pool = None

    def newest(self) -> Checkpoint | None:
        """Reads the newest whole checkpoint; a damaged one is skipped with a warning that names it.

        Returns:
            The checkpoint, or None when the folder has none.

        Raises:
            DamagedCheckpointError: there are checkpoints, but every one is damaged.
        """
        candidates = [
            path for path in self.folder.glob("model.ckpt-*") if _NAME.fullmatch(path.name) and path.is_file()
        ]
        candidates.sort(key=lambda path: int(path.name.rpartition("-")[2]), reverse=True)
        damaged: list[str] = []
        for path in candidates:
            try:
                checkpoint = read_checkpoint(path)
            except DamagedCheckpointError as error:
                damaged.append(str(error))
                continue
            for text in damaged:
                _log.warning("%s. Falling back to %s", text, path.name)
            return checkpoint
        if damaged:
            raise DamagedCheckpointError("no checkpoint can be read: " + "; ".join(damaged))
        return None

    def best(self) -> Entry | None:
        """Finds the checkpoint with the best monitored value, the earliest of equals; None when none was validated."""
        validated = [entry for entry in self.entries() if entry.metric is not None]
        sign = 1 if self.smaller_is_better else -1
        return min(validated, key=lambda entry: (sign * (entry.metric or 0.0), entry.step), default=None)

    def remove_unfinished(self) -> None:
        """Deletes what a killed process left half-written under zoo's temporary names, older versions' too."""
        files.remove_unfinished(self.folder)
        for path in self.folder.glob(".model.ckpt-*.unfinished"):
            if _NAME.fullmatch(path.name.removeprefix(".").removesuffix(".unfinished")):
                path.unlink(missing_ok=True)

    def _write(self, path: Path, arrays: Mapping[str, np.ndarray], state: Mapping[str, Any]) -> Path:
        bad = [name for name, array in arrays.items() if array.dtype.kind == "f" and not np.isfinite(array).all()]
        if bad:
            raise NonFiniteCheckpointError(
                f"step {state['step']}: NaN or Inf in {len(bad)} variables ({', '.join(bad[:3])}); the checkpoint was "
                "not written and earlier ones are untouched. Lower the learning rate or clip the gradients"
            )
        write_checkpoint(path, arrays, state)
        self._prune()
        return path

    def _prune(self) -> None:
        entries = self.entries()
        kept = {entry.path for entry in entries[-self.keep :]}
        if (best := self.best()) is not None:
            kept.add(best.path)
        if self.keep_every_hours is not None and entries:
            due = entries[0].time
            for entry in sorted(entries, key=lambda entry: entry.time):
                if entry.time >= due:
                    kept.add(entry.path)
                    due = entry.time + self.keep_every_hours * 3600
        for entry in entries:
            if entry.path not in kept:
                entry.path.unlink(missing_ok=True)
