"""Writes a model's weights for others: slim, Keras, torchvision; and as zoo's own safetensors with their card."""

from __future__ import annotations

import dataclasses
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from zoo.files import replacing
from zoo.scoping import Model, parts_of
from zoo.weights.cards import Card
from zoo.weights.conventions import fit_gamma
from zoo.weights.layer_order import units_of
from zoo.weights.loading import network_name, network_option
from zoo.weights.names import HasVariables, named_variables
from zoo.weights.safetensors_files import write_safetensors
from zoo.weights.tf1 import save_tf1
from zoo.weights.torch_files import torch_state

# Format -> endings of file names that mean it; torchvision shares its ending with zoo's own and is asked for by name.
FORMATS = {
    "zoo": (".safetensors",),
    "slim": (".ckpt",),
    "keras": (".weights.h5", ".h5", ".keras"),
    "torchvision": (),
}


def save(model: HasVariables, path: str | os.PathLike[str], *, format: str | None = None) -> list[str]:
    """Writes a model's weights to a temporary name, and renames it.

    Args:
        model: A built model.
        path: Where to. ``.safetensors`` is zoo's own format, ``.ckpt`` the prefix of a slim checkpoint (V2),
            ``.weights.h5``, ``.h5`` (legacy) and ``.keras`` are files of Keras' own network of the same name.
        format: One of ``FORMATS``; None follows the ending. "torchvision" writes safetensors in torchvision's layout.

    Returns:
        Notes on what the format has no place for.

    Raises:
        ValueError: The ending tells no format, or the format has no such network.
    """
    name = os.fspath(path)
    if format is None:
        format = next((key for key, endings in FORMATS.items() if name.endswith(endings or "\0")), "")
    if format not in FORMATS:
        endings = ", ".join(ending for found in FORMATS.values() for ending in found)
        raise ValueError(
            f"format is one of {', '.join(FORMATS)}, or follows from the ending ({endings}). "
            f"Received: {format or name!r}"
        )
    variables = named_variables(model)
    tensors = {key: np.asarray(variable) for key, variable in variables.items()}
    if format == "slim":
        save_tf1(tensors, name)
        return []
    if format == "zoo":
        write_safetensors(tensors, name, card_of(model).to_dict())
        return []
    if format == "torchvision":
        if _elsewhere(model, "torchvision") != "inception_v3":
            raise ValueError(
                f"torchvision's layout is written for inception_v3 only. Received: {network_name(model)!r}"
            )
        state = torch_state(tensors, units_of({key: array.shape for key, array in tensors.items()}, parts_of(model)))
        write_safetensors(state, name, dataclasses.replace(card_of(model), format="torchvision").to_dict())
        notes = ["load it into torchvision.models.inception_v3(transform_input=True) for ImageNet-normalised inputs"]
        if network_option(model, "count_include_pad") is False:
            notes.append(
                "torchvision's average pooling counts the padding and this model's does not, so outputs differ there; "
                "zoo reads the file back as it was with count_include_pad=False"
            )
        return notes
    return _save_keras(model, tensors, Path(name))


def card_of(model: HasVariables) -> Card:
    """Returns the card of the weights in a model: what was loaded with them, the conventions the model runs by, and
    the options it was built with (those that are plain values), for a builder given the file.
    """
    built_with = {"options": {key: value for key, value in getattr(model, "options", {}).items() if _is_plain(value)}}
    options = {key: network_option(model, key) for key in ("batch_norm_epsilon", "count_include_pad")}
    runs_by = {key: value for key, value in options.items() if value is not None}
    return Card.from_dict({"net": network_name(model), **dict(getattr(model, "card", {})), **built_with, **runs_by})


def _elsewhere(model: HasVariables, family: str) -> str:
    """What a family calls the model's network; "" when it has none like it."""
    spec = model.spec if isinstance(model, Model) else None
    return spec.elsewhere.get(family, "") if spec else ""


def _is_plain(value: Any) -> bool:
    """Whether JSON gives the value back as it is, but for tuples, which become lists."""
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str)


def _save_keras(model: HasVariables, tensors: Mapping[str, np.ndarray], path: Path) -> list[str]:
    from zoo.weights.keras_files import fill_twin, make_twin

    theirs = _elsewhere(model, "keras")
    if not theirs:
        raise ValueError(
            f"keras.applications has no network like {network_name(model)!r}; write safetensors or a slim checkpoint"
        )
    values = dict(tensors)
    notes = []
    shapes = {key: array.shape for key, array in values.items()}
    if "densenet" not in network_name(model):
        folded, _ = fit_gamma(values, {key: shape for key, shape in shapes.items() if not key.endswith("/gamma")})
        if folded:
            notes.append(f"{len(folded)} gammas were folded into the convolutions, as Keras' network has none")
    units = units_of({key: array.shape for key, array in values.items()}, parts_of(model))
    left_out = [unit.name for unit in units if unit.part == "aux"]
    if left_out:
        notes.append(f"Keras' network has no auxiliary head: {len(left_out)} layers were left out")
    head = [unit for unit in units if unit.part == "head"]
    twin = make_twin(theirs, int(head[0].arrays["bias"][-1]) if head else None)
    for unit in units:
        unit.arrays = {role: values[f"{unit.name}/{leaf}"] for role, leaf in unit.leaves.items()}
    fill_twin(twin, [unit for unit in units if unit.part != "aux"])
    ending = next(ending for ending in FORMATS["keras"] if path.name.endswith(ending))
    absl = logging.getLogger("absl")  # Keras warns there of its legacy format, which is what was asked for
    level = absl.level
    try:
        if ending == ".h5":
            absl.setLevel(logging.ERROR)
        with replacing(path, ending) as temporary:
            twin.save(temporary) if ending != ".weights.h5" else twin.save_weights(temporary)
    finally:
        absl.setLevel(level)
    return notes
