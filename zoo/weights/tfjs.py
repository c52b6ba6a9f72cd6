"""TensorFlow.js layers models: ``model.json`` and its weight shards, whole or quantised to 8 or 16 bits."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from zoo.files import current_limits, read_json, reading, validated

_TYPES = {"float32": "<f4", "float16": "<f2", "int32": "<i4", "uint8": "u1", "uint16": "<u2", "bool": "u1"}


@dataclasses.dataclass(frozen=True)
class _Quantised:
    """How numbers were made whole: the number is ``stored * scale + min``."""

    dtype: str
    scale: float | None = None
    min: float = 0.0


@dataclasses.dataclass(frozen=True)
class _Tensor:
    """One tensor of the manifest."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    quantization: _Quantised | None = None

    @property
    def stored(self) -> np.dtype[Any]:
        """The type of the numbers in the shards."""
        name = self.quantization.dtype if self.quantization else self.dtype
        if name not in _TYPES:
            raise ValueError(f"tensor {self.name!r} is stored as {name!r}; zoo reads {', '.join(_TYPES)}")
        return np.dtype(_TYPES[name])

    @property
    def nbytes(self) -> int:
        """Bytes in the shards."""
        if min(self.shape, default=0) < 0:
            raise ValueError(f"tensor {self.name!r} has the shape {list(self.shape)}")
        return math.prod(self.shape) * self.stored.itemsize


@dataclasses.dataclass(frozen=True)
class _Group:
    """Shards, and the tensors that lie in them one after another."""

    paths: tuple[str, ...]
    weights: tuple[_Tensor, ...]


@dataclasses.dataclass(frozen=True)
class _Model:
    """What of ``model.json`` is read."""

    weightsManifest: tuple[_Group, ...]  # noqa: N815 - the format's name


def read_tfjs(path: str | os.PathLike[str]) -> tuple[dict[str, np.ndarray], dict[str, Any]]:
    """Reads a TensorFlow.js layers model: ``model.json``, or the folder that holds it.

    Quantised tensors are ``q * scale + min``, rounded once, to float32. Returns weight name (``conv2d_1/kernel``) to
    array, and the layers' configurations by name. FileNotFoundError for a missing shard; ValueError when it is no
    layers model, a shard's path leaves the folder or is named twice, shards are of another length than the manifest
    says, or it asks for more than ``zoo.files.Limits`` allow.
    """
    model_json = Path(path)
    if model_json.is_dir():
        model_json = model_json / "model.json"
    model = read_json(model_json)
    groups = validated(_Model, model, model_json).weightsManifest
    with reading(model_json, "a TensorFlow.js model"):
        shards = _checked_shards(model_json, groups)
        tensors: dict[str, np.ndarray] = {}
        for group in groups:
            data = b"".join(shards[name].read_bytes() for name in group.paths)
            for name, array in _tensors(data, group.weights):
                if name in tensors:
                    raise ValueError(f"two tensors are called {name!r}")
                tensors[name] = array
        return tensors, _layer_configs(model)


def _checked_shards(model_json: Path, groups: Sequence[_Group]) -> dict[str, Path]:
    """Name to path of each shard, when they are as long as the manifest says; nothing is read yet."""
    shards: dict[str, Path] = {}
    held = memory = 0
    for group in groups:
        for name in group.paths:
            if name in shards:
                raise ValueError(f"{model_json} names the shard {name!r} twice")
            shards[name] = _shard(model_json, name)
        size = sum(shards[name].stat().st_size for name in group.paths)
        described = sum(tensor.nbytes for tensor in group.weights)
        if described > size:
            raise ValueError(
                f"{model_json}: its shards hold {size:,} bytes, its manifest describes {described:,}: one is cut short"
            )
        if described < size:
            raise ValueError(f"{model_json}: its shards hold {size:,} bytes, its manifest describes {described:,}")
        held += size
        memory += sum(math.prod(tensor.shape) * 4 for tensor in group.weights)
    current_limits().check(memory, held, model_json, "its manifest")
    return shards


def _shard(model_json: Path, name: str) -> Path:
    """Returns a shard's path; one that leaves the folder is refused."""
    folder = model_json.parent
    shard = (folder / name).resolve()
    if not shard.is_relative_to(folder.resolve()):
        raise ValueError(f"{model_json} names a shard outside its folder: {name!r}")
    if not shard.is_file():
        raise FileNotFoundError(f"{model_json} names the shard {name!r}, which is not there")
    return shard


def _tensors(data: bytes, specs: Sequence[_Tensor]) -> Iterator[tuple[str, np.ndarray]]:
    offset = 0
    for spec in specs:
        array = np.frombuffer(data, spec.stored, math.prod(spec.shape), offset).reshape(spec.shape)
        quantised = spec.quantization
        if quantised and quantised.scale is not None:
            array = (array.astype(np.float64) * quantised.scale + quantised.min).astype(np.float32)
        elif quantised:
            array = array.astype(np.float32)
        offset += spec.nbytes
        yield spec.name, array


def _layer_configs(model: dict[str, Any]) -> dict[str, Any]:
    topology = model.get("modelTopology") or {}
    config = topology.get("model_config", topology).get("config", {})
    layers = config.get("layers", []) if isinstance(config, dict) else config
    return {layer["config"].get("name", layer.get("name")): layer["config"] for layer in layers}
