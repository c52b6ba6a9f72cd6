"""Opens a file of weights by its content: slim, Keras, PyTorch, TensorFlow.js or zoo's own safetensors."""

from __future__ import annotations

import dataclasses
import os
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from zoo.files import ZipReader, hash_of, parse_json, read_json, reading
from zoo.hdf5 import MEMBER, SIGNATURE, read_h5
from zoo.scoping import USUAL_PARTS, Parts
from zoo.weights.cards import Card, convention
from zoo.weights.layer_order import Unit
from zoo.weights.safetensors_files import read_checkpoint, read_safetensors, weights_of
from zoo.weights.tf1 import AVERAGE_SUFFIX, read_tf1, tf1_format
from zoo.weights.tfjs import read_tfjs
from zoo.weights.torch_files import is_torch_state, read_pth, units_from_torch

FORMATS = ("tf1", "keras", "pth", "safetensors", "tfjs")


@dataclasses.dataclass(frozen=True)
class WeightFile:
    """Weights as a file gives them, with the conventions they were trained under.

    Args:
        path: Where they come from.
        format: One of ``FORMATS``.
        family: Whose conventions: "slim", "keras", "torchvision", "tfjs" or "zoo".
        names: Full variable name to array, for files that carry TF1's names.
        units: Layers in the order of creation, for files that do not.
        own_card: The card that the file itself carries; None for other people's.
        batch_norm_epsilon: As the file itself says; None when it does not.
        parts: Which scopes of ``names`` are heads, where the network is known.
    """

    path: str
    format: str
    family: str
    names: Mapping[str, np.ndarray] = dataclasses.field(default_factory=dict)
    units: Sequence[Unit] = ()
    own_card: Card | None = None
    batch_norm_epsilon: float | None = None
    parts: Parts = USUAL_PARTS

    def card(self, net: str) -> Card:
        """Returns the conventions of these weights for a network by its name, as ``"inception_v3"``."""
        if self.own_card is not None:
            return self.own_card
        card = convention(self.family, net)
        epsilon = self.batch_norm_epsilon or card.batch_norm_epsilon
        return dataclasses.replace(card, batch_norm_epsilon=epsilon, source=Path(self.path).name)

    @property
    def has_aux(self) -> bool:
        """Whether there are weights of an auxiliary head."""
        named = any(self.parts.part_of(name) == "aux" for name in self.names)
        return named or any(unit.part == "aux" for unit in self.units)

    @property
    def num_classes(self) -> int | None:
        """Width of the classifier; None without one, or with one of several layers."""
        widths = [unit.arrays["bias"].shape[-1] for unit in self.units if unit.part == "head"]
        for name in self.names:
            if self.parts.part_of(name) == "head" and name.endswith("/biases"):
                widths.append(self.names[name].shape[-1])
        return int(widths[0]) if len(widths) == 1 else None

    @property
    def has_gamma(self) -> bool:
        """Whether the batch norms have a scale."""
        return any(name.endswith("/gamma") for name in self.names) or any("gamma" in u.arrays for u in self.units)

    @property
    def has_averages(self) -> bool:
        """Whether there are moving averages of the weights, as TF1 stores them."""
        return any(name.endswith(AVERAGE_SUFFIX) for name in self.names)


def sniff(path: str | os.PathLike[str]) -> str:
    """Says which format a file or folder is, from its first or last bytes and never from its name.

    Args:
        path: A file, the prefix of a TF1 checkpoint, or a folder with ``model.json`` or a ``checkpoint`` file.

    Returns:
        One of ``FORMATS``.

    Raises:
        FileNotFoundError: Nothing is there.
        ValueError: It is none of them; the message says what it looks like.
    """
    place = Path(path)
    if place.is_dir():
        if (place / "model.json").is_file():
            return "tfjs"
        if tf1_format(place):
            return "tf1"
        steps = [path.name.removeprefix("model.ckpt-") for path in place.glob("model.ckpt-*")]
        if any(step.isdecimal() for step in steps):
            newest = place / f"model.ckpt-{max(int(step) for step in steps if step.isdecimal())}"
            raise ValueError(f"Folder {place} is a training run: name a checkpoint of it, such as {newest}")
        raise ValueError(f"Folder {place} has neither a model.json nor a `checkpoint` file that names a checkpoint")
    if tf1_format(place):
        return "tf1"
    if not place.is_file():
        raise FileNotFoundError(f"No weights at {place}: no such file, folder or checkpoint prefix")
    with place.open("rb") as file:
        head = file.read(16)
    size = place.stat().st_size
    if head.startswith(SIGNATURE):
        return "keras"
    if head.startswith(b"PK\x03\x04"):
        return _sniff_zip(place)
    if len(head) > 8 and head[8:9] == b"{" and 2 <= struct.unpack("<Q", head[:8])[0] <= size - 8:
        return "safetensors"
    if head.startswith(b"\x80\x02"):
        return "pth"
    if head.lstrip()[:1] == b"{" and _is_tfjs(place):
        return "tfjs"
    guess = "a gzip archive: unpack it first" if head.startswith(b"\x1f\x8b") else f"its first bytes are {head[:8]!r}"
    raise ValueError(
        f"{place} ({size:,} bytes) is none of the weight formats zoo reads (TF1 checkpoint, Keras, PyTorch, "
        f"safetensors, TensorFlow.js), or it is cut short: {guess}"
    )


def open_weights(path: str | os.PathLike[str]) -> WeightFile:
    """Opens weights in any format that ``sniff`` knows; nothing in the file is run.

    Args:
        path: A file, the prefix of a TF1 checkpoint, or a folder with ``model.json`` or a ``checkpoint`` file.

    Returns:
        The weights, with names or as layers in the order of creation.

    Raises:
        FileNotFoundError: Nothing is there.
        ValueError: The format is unknown, or the file is damaged.
        ModuleNotFoundError: A PyTorch file without PyTorch.
    """
    kind, where = sniff(path), os.fspath(path)
    with reading(where, "weights"):
        return _OPENERS[kind](where)


def _open_tf1(path: str) -> WeightFile:
    return WeightFile(path, "tf1", "slim", names=read_tf1(path))


def _open_keras(path: str) -> WeightFile:
    from zoo.weights.keras_files import units_of_keras, zoo_variables

    content = read_h5(path)
    names = zoo_variables(content)
    if names:
        return WeightFile(path, "keras", "zoo", names=names)
    units, configs = units_of_keras(content)
    return WeightFile(path, "keras", "keras", units=units, batch_norm_epsilon=_epsilon(configs))


def _open_pth(path: str) -> WeightFile:
    return WeightFile(path, "pth", "torchvision", units=units_from_torch(read_pth(path)))


def _open_safetensors(path: str) -> WeightFile:
    tensors, metadata = read_safetensors(path)
    if metadata.get("zoo", "").startswith("training-checkpoint/"):
        names, own = weights_of(read_checkpoint(path))
        return WeightFile(path, "safetensors", "zoo", names=names, own_card=own)
    if is_torch_state(list(tensors)):
        return WeightFile(path, "safetensors", "torchvision", units=units_from_torch(tensors))
    card = Card.from_dict(parse_json(metadata["zoo"], path), path) if "zoo" in metadata else _card_beside(path)
    return WeightFile(path, "safetensors", card.format if card else "zoo", names=tensors, own_card=card)


def _card_beside(path: str) -> Card | None:
    """The card in a JSON file of the same name, None without; weights that are not the card's are refused."""
    beside = Path(path).with_suffix(".json")
    if not beside.is_file():
        return None
    try:
        card = Card.from_dict(read_json(beside), beside)
    except ValueError as error:
        raise ValueError(f"{beside} beside the weights is no card: {error}. Repair it, or move it away.") from error
    found = hash_of(path) if card.sha256 else ""
    if found != card.sha256:
        raise ValueError(
            f"{path}: its SHA-256 is {found}, but its card {beside} says {card.sha256}: the weights were changed or "
            "damaged, or the card belongs to others. Get both again, or move the card away."
        )
    return card


def _open_tfjs(path: str) -> WeightFile:
    from zoo.weights.keras_files import units_from_weights

    tensors, configs = read_tfjs(path)
    return WeightFile(path, "tfjs", "tfjs", units=units_from_weights(tensors), batch_norm_epsilon=_epsilon(configs))


_OPENERS = {
    "tf1": _open_tf1,
    "keras": _open_keras,
    "pth": _open_pth,
    "safetensors": _open_safetensors,
    "tfjs": _open_tfjs,
}


def _epsilon(configs: Mapping[str, Any]) -> float | None:
    """The epsilon that all batch norms of a Keras configuration share; None when there is none."""
    found = {float(config["epsilon"]) for config in configs.values() if {"epsilon", "momentum"} <= config.keys()}
    return found.pop() if len(found) == 1 else None


def _sniff_zip(path: Path) -> str:
    with ZipReader(path) as archive:
        names = list(archive.sizes)
    if {"config.json", MEMBER} <= set(names):
        return "keras"
    if any(name.endswith("data.pkl") for name in names):
        return "pth"
    raise ValueError(f"{path} is a zip archive of neither Keras nor PyTorch; it holds {', '.join(names[:5])}")


def _is_tfjs(path: Path) -> bool:
    try:
        return "weightsManifest" in read_json(path)
    except (ValueError, TypeError):
        return False
