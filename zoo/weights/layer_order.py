"""Layers as every format knows them: convolutions, dense layers and batch norms, put into the order of creation.

Files of Keras and PyTorch do not carry zoo's names. Their layers are brought into the order in which the networks make
them, and paired with the model's layers one by one; every pair's shapes must agree.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from zoo.scoping import USUAL_PARTS, Parts

# Role of an array in a layer -> the last part of its variable's name in zoo.
LEAVES = {
    "kernel": "weights",
    "bias": "biases",
    "gamma": "gamma",
    "beta": "beta",
    "mean": "moving_mean",
    "variance": "moving_variance",
}
_ROLES = {leaf: role for role, leaf in LEAVES.items()}
_NORM_ROLES = {"gamma", "beta", "mean", "variance"}
PART_NAMES = ("trunk", "aux", "head")


@dataclass
class Unit:
    """One layer that has weights.

    Args:
        name: The layer's name where it comes from: a Keras layer, a PyTorch module, a variable scope.
        arrays: Role ("kernel", "bias", "gamma", "beta", "mean", "variance") to array in TensorFlow's layout; for a
            model's own layer, to the array's shape.
        part: "trunk", "aux" (the auxiliary head) or "head" (the classifier).
    """

    name: str
    arrays: dict[str, Any] = field(default_factory=dict)
    part: str = "trunk"

    @property
    def kind(self) -> str:
        """Either "norm", a batch norm, or "kernel", a convolution or dense layer."""
        return "norm" if _NORM_ROLES & self.arrays.keys() else "kernel"

    @property
    def leaves(self) -> dict[str, str]:
        """Role to the last part of its variable's name in zoo, for the arrays that the layer has."""
        return {role: LEAVES[role] for role in self.arrays}


def units_of(variables: Mapping[str, Sequence[int]], parts: Parts = USUAL_PARTS) -> list[Unit]:
    """Groups a model's variables (full name to shape, in the order of creation) into layers, one a scope.

    Variables that are none of ``LEAVES`` are left out; ``parts`` says which scopes are heads.
    """
    units: dict[str, Unit] = {}
    for name, shape in variables.items():
        scope, _, leaf = name.rpartition("/")
        if leaf in _ROLES:
            unit = units.setdefault(scope, Unit(scope, part=parts.part_of(name)))
            unit.arrays[_ROLES[leaf]] = shape
    return list(units.values())


def natural_key(name: str) -> list[int | str]:
    """Sort key by which ``conv2d_9`` comes before ``conv2d_10``, and ``conv2d`` before both."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def pair_units(
    units: Sequence[Unit], variables: Mapping[str, Sequence[int]], parts: Parts = USUAL_PARTS
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Gives a file's layers the names of a model's variables (full name to shape), both in the order of creation.

    Returns full name to array (kernels reshaped where only axes of size 1 differ; a classifier keeps its number of
    classes), and for layers of the file that the model has no place for, their name to the reason. ValueError when a
    layer of the trunk has another shape than the model's at its place.
    """
    found: dict[str, np.ndarray] = {}
    left: dict[str, str] = {}
    mine = units_of(variables, parts)
    for part in PART_NAMES:
        for kind in ("kernel", "norm"):
            theirs = [unit for unit in units if unit.part == part and unit.kind == kind]
            ours = [unit for unit in mine if unit.part == part and unit.kind == kind]
            if part == "head" and len(theirs) > 1:  # somebody's own classifier of several layers
                left |= dict.fromkeys(
                    (unit.name for unit in theirs), f"one of {len(theirs)} layers of a head of its own"
                )
                continue
            # either may have more: what the file lacks is reported by the loader, what the model lacks below
            for i, (unit, own) in enumerate(zip(theirs, ours, strict=False)):
                what = f"{'batch norm' if kind == 'norm' else 'layer'} {i + 1} of {len(ours)} in the {part}"
                for role, array in unit.arrays.items():
                    found[f"{own.name}/{LEAVES[role]}"] = _fit(array, own, role, f"{what}, {unit.name!r}")
            for unit in theirs[len(ours) :]:
                left[unit.name] = f"the model has only {len(ours)} such layers in its {part}"
    return found, left


def _fit(array: np.ndarray, own: Unit, role: str, what: str) -> np.ndarray:
    """Returns the array in the rank of the model's variable; the last axis of a classifier may differ."""
    if role not in own.arrays:
        return array
    shape = tuple(own.arrays[role])
    if array.ndim < len(shape) and role == "kernel":
        array = array.reshape((1,) * (len(shape) - array.ndim) + array.shape)
    same = array.shape == shape if own.part == "trunk" else array.ndim == len(shape)
    if not same:
        raise ValueError(
            f"Weights of another network: {what}, has a {role} of shape {list(array.shape)}, where the model's "
            f"{own.name} has {list(shape)}."
        )
    return array
