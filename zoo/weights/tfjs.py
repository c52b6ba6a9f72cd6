"""TensorFlow.js layers models: ``model.json`` and its weight shards, whole or quantised to 8 or 16 bits."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

_TYPES = {"float32": "<f4", "float16": "<f2", "int32": "<i4", "uint8": "u1", "uint16": "<u2", "bool": "u1"}


def read_tfjs(path: str | os.PathLike[str]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Reads a TensorFlow.js layers model.

    Quantised tensors are ``q * scale + min``, rounded once, to float32.

    Args:
        path: ``model.json``, or the folder that holds it.

    Returns:
        Weight name (``conv2d_1/kernel``) to array, and the layers' configurations by name.

    Raises:
        FileNotFoundError: ``model.json`` or a shard is missing.
        ValueError: it is no layers model, a shard's path leaves the folder, or shards are too short.
    """
    model_json = Path(path)
    if model_json.is_dir():
        model_json = model_json / "model.json"
    try:
        model = json.loads(model_json.read_text(encoding="utf-8"))
        groups = model["weightsManifest"]
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise ValueError(f"{model_json} is no TensorFlow.js model: {type(error).__name__}: {error}") from error
    tensors: dict[str, np.ndarray] = {}
    for group in groups:
        data = b"".join(_shard(model_json.parent, name).read_bytes() for name in group["paths"])
        offset = 0
        for name, array, size in _tensors(data, group["weights"]):
            tensors[name] = array
            offset += size
        if offset != len(data):
            raise ValueError(f"{model_json}: its shards hold {len(data)} bytes, its manifest describes {offset}")
    return tensors, _layer_configs(model)


def _shard(folder: Path, name: str) -> Path:
    """Returns a shard's path; one that leaves the folder is refused."""
    shard = (folder / name).resolve()
    if not shard.is_relative_to(folder.resolve()):
        raise ValueError(f"{folder / 'model.json'} names a shard outside its folder: {name!r}")
    if not shard.is_file():
        raise FileNotFoundError(f"{folder / 'model.json'} names the shard {name!r}, which is not there")
    return shard


def _tensors(data: bytes, specs: list[dict[str, Any]]) -> Iterator[tuple[str, np.ndarray, int]]:
    offset = 0
    for spec in specs:
        quantised = spec.get("quantization")
        stored = quantised["dtype"] if quantised else spec["dtype"]
        if stored not in _TYPES:
            raise ValueError(f"Tensor {spec['name']!r} is stored as {stored!r}; zoo reads {', '.join(_TYPES)}")
        count, dtype = math.prod(spec["shape"]), np.dtype(_TYPES[stored])
        if offset + count * dtype.itemsize > len(data):
            raise ValueError(f"Tensor {spec['name']!r} ends after its shards do: a shard is cut short")
        array = np.frombuffer(data, dtype, count, offset).reshape(spec["shape"])
        if quantised and "scale" in quantised:
            array = (array.astype(np.float64) * quantised["scale"] + quantised["min"]).astype(np.float32)
        elif quantised:
            array = array.astype(np.float32)
        offset += count * dtype.itemsize
        yield spec["name"], array, count * dtype.itemsize


def _layer_configs(model: dict[str, Any]) -> dict[str, Any]:
    topology = model.get("modelTopology") or {}
    config = topology.get("model_config", topology).get("config", {})
    layers = config.get("layers", []) if isinstance(config, dict) else config
    return {layer["config"].get("name", layer.get("name")): layer["config"] for layer in layers}
